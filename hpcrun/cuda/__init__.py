"""CUDA for XLA and TensorFlow: the locations of CUDA's files on a node, and the variables with which jobs find them."""
