"""Gradient averaging over the ranks."""
