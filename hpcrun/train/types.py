"""Type aliases for untyped objects of Keras, TensorFlow and mpi4py."""

from __future__ import annotations

from typing import Any, TypeAlias

Comm: TypeAlias = Any
"""An mpi4py communicator, or None without mpi4py."""

Data: TypeAlias = Any
"""Arrays or tensors of (samples, ...), or a list, tuple or dict of them; None if absent."""

Logs: TypeAlias = dict[str, Any] | None
"""Keras's logs: values by name."""

Keras: TypeAlias = Any
"""An argument or result that is passed to or from Keras unchanged."""

Json: TypeAlias = Any
"""A JSON value."""
