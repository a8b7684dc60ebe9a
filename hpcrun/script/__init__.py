"""Rendering of job scripts."""
