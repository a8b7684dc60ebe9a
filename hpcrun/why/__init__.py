"""Explanation of why a job is pending or failed, with evidence and a fix."""
