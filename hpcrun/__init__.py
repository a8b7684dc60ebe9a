"""hpcrun: submit data-parallel Keras training to any Slurm cluster, from one validated site file.

import hpcrun

job = hpcrun.submit("lenet5", nodes=2)
job.result()["test_accuracy"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcrun.version import __version__

if TYPE_CHECKING:
    from hpcrun.api import attach, submit

__all__ = ["__version__", "attach", "submit"]


def __getattr__(name: str) -> Any:
    """Import the Python API on first use, because commands and ranks start faster without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has submit and attach")
    from hpcrun import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return __all__
