"""The entry point of the command ``hpcrun`` and of ``python -m hpcrun``."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command, with the packages that are installed for this Python, whatever PYTHONPATH holds."""
    if not sys.flags.safe_path:
        # do not import from the working directory, which may be a cloned repository with modules of any name
        del sys.path[0]
    sys.path[:] = order_import_path(sys.path)
    from hpcrun.cli.main import main as run_command

    run_command()


def order_import_path(folders: list[str]) -> list[str]:
    """Return the folders of an import path with those of PYTHONPATH last, because they are the user's.

    The user's job may need other versions of hpcrun's packages. The folder that holds this hpcrun stays in its place,
    with the packages beside it.
    """
    if not (words := os.environ.get("PYTHONPATH")):
        return folders
    own_folder = Path(__file__).resolve().parents[1]
    users_folders = {Path(word).resolve() for word in words.split(os.pathsep)} - {own_folder}
    return sorted(folders, key=lambda folder: Path(folder).resolve() in users_folders)


if __name__ == "__main__":
    main()
