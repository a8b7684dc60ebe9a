"""Sites: the settings of each cluster, and the layers of configuration that they are loaded from."""
