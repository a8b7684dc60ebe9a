"""Names for what Keras, TensorFlow and mpi4py leave untyped."""

from __future__ import annotations

from typing import Any, TypeAlias

Comm: TypeAlias = Any
"""An mpi4py communicator, or None without mpi4py."""

Data: TypeAlias = Any
"""Arrays or tensors of (samples, ...), or a list, tuple or dict of them; None where there are none."""

Logs: TypeAlias = dict[str, Any] | None
"""Keras's logs: a name and a number each."""

Keras: TypeAlias = Any
"""An argument or a result that passes to or from Keras as it is."""

Json: TypeAlias = Any
"""Anything that JSON can hold."""
