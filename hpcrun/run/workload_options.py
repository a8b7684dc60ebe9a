"""The command-line options of a workload."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    import argparse


def options(script: str) -> argparse.Namespace:
    """Parse `sys.argv` with the ``[options]`` of a script's ``workload.toml``; an invalid option ends the program.

    Args:
        script: The script's `__file__`.

    Returns:
        A namespace with an attribute per option; dashes in names become underscores.
    """
    try:
        return parse_options(script)
    except HpcrunError as error:
        sys.stderr.write(f"ERROR: {error}\n")
        sys.exit(error.exit_code)


def parse_options(script: str) -> argparse.Namespace:
    """Parse `sys.argv` as `options` does, but raise errors.

    Raises:
        HpcrunError: An option is unknown or has an invalid value, or the file cannot be read.
    """
    import tomllib

    from hpcrun.declared_options import parse

    folder = Path(script).resolve().parent
    try:
        table = tomllib.loads((folder / "workload.toml").read_text(encoding="utf-8"))
    except OSError as error:
        raise HpcrunError(
            f"{folder / 'workload.toml'} cannot be read: {error.strerror}",
            hint="options(__file__) reads the options from the workload.toml in the folder of the script",
        ) from error
    return parse(folder.name, table.get("options", {}), sys.argv[1:])
