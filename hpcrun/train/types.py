"""Type aliases for untyped objects of Keras, TensorFlow and mpi4py."""

from __future__ import annotations

from typing import Any, TypeAlias

Comm: TypeAlias = Any
"""An mpi4py communicator, or None without mpi4py."""

Data: TypeAlias = Any
"""Arrays or tensors of (samples, ...), or lists, tuples or dicts of those; None if absent."""

Logs: TypeAlias = dict[str, Any] | None
"""Keras's logs, metric values by name; None if absent."""

Keras: TypeAlias = Any
"""An object of Keras, or an argument or result that is passed unchanged."""

Json: TypeAlias = Any
"""A JSON value."""
