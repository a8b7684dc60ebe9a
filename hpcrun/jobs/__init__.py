"""Submitted jobs: run directories, states, logs."""
