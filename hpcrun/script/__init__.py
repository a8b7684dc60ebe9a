"""The job script."""
