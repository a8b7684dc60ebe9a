"""Live display of one job."""
