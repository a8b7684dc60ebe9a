"""Explains why a job is pending or failed, with the evidence and what to do."""
