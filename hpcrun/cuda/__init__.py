"""CUDA for XLA and TensorFlow: the locations of its files on a node, and the variables with which a job finds them."""
