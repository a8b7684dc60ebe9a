"""What a training leaves in its run directory: saved models, labels, metric files, log lines."""
