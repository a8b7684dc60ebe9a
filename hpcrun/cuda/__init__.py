"""CUDA for XLA and TensorFlow: where its files are on a node, and what a job exports so that they are found."""
