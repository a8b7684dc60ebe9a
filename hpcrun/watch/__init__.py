"""Seeing one job live: what is known of it, and how that is drawn."""
