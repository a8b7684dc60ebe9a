"""CUDA's files as XLA and TensorFlow want them: where they are in a job, and what to export so that they are found."""
