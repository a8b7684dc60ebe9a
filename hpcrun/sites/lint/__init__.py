"""Lint checks of a site file, without a cluster, for settings that are valid but probably wrong."""
