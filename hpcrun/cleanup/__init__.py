"""Cleanup of nodes: ends processes and removes files that ended jobs left behind."""
