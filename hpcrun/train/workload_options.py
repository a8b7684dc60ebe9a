"""The command-line options of a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.run.workload_options import parse_options
from hpcrun.train.ranks import failure

if TYPE_CHECKING:
    import argparse


def options(script: str) -> argparse.Namespace:
    """Parse `sys.argv` with the ``[options]`` of the ``workload.toml`` in the folder of a script.

    Args:
        script: `__file__` of the script.

    Returns:
        A namespace with one attribute per option, with underscores instead of dashes.

    Raises:
        HpcrunError: An option is unknown or has an invalid value. If uncaught, this error prints its message and exits
            with code 2.
    """
    failure.install_hooks()
    return parse_options(script)
