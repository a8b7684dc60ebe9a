"""Outputs of training in its run directory: saved models, labels, metric files, log lines."""
