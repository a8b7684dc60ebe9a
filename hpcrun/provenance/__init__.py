"""Provenance of a run, recorded in its run directory: the site's values, the user's code, packages."""
