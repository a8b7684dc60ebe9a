"""The command-line options of a workload."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.options import parse
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
    folder = Path(script).resolve().parent
    try:
        table = tomllib.loads((folder / "workload.toml").read_text(encoding="utf-8"))
    except OSError as error:
        raise HpcrunError(
            f"{folder / 'workload.toml'} cannot be read: {error.strerror}",
            hint="hpcrun.train.options(__file__) reads the options of the workload.toml beside the script",
        ) from error
    return parse(folder.name, table.get("options", {}), sys.argv[1:])
