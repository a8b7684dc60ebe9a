"""Comparisons and HTML reports of runs."""
