"""From what a user gives `fit` to each rank's part of every batch."""
