"""What a run was made of, kept in its run directory: the site's values, the user's code, packages."""
