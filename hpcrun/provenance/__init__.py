"""Provenance of a run, kept in its run directory: the site's values, the user's code, packages."""
