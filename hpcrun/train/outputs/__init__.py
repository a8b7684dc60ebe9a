"""Outputs of a training in its run directory: saved models, labels, metric files, log lines."""
