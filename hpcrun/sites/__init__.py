"""Sites: the settings of each cluster, and the layers of configuration from which sites are loaded."""
