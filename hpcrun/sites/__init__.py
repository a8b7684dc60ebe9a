"""Sites: what is known about each cluster, and finding it in the layers of configuration."""
