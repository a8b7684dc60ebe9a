"""The version, also of the wheel."""

__version__ = "0.1.0"
