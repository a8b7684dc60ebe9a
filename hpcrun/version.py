"""The version of hpcrun, which its wheel also has."""

__version__ = "0.1.0"
