"""What is valid in a site file, and probably a mistake: found by reading it, without any cluster."""
