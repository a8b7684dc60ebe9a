"""Cleanup of nodes: finds, ends and removes what ended jobs left behind."""
