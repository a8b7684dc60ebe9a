"""Pipeline stages: the layers of a model divided among ranks, for models too large for one of them."""
