"""Checks of a site file for settings that are valid but probably wrong; they need no cluster."""
