"""``hpcrun data split``: distribute the shards of a data set to workers."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

from pathlib import Path
from typing import Annotated

import typer

from hpcrun.cli import output
from hpcrun.cli.data import require_libraries
from hpcrun.cli.parameters import Json


def split(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with shards.")],
    workers: Annotated[int, typer.Argument(metavar="N", min=1, help="Number of workers.")],
    as_json: Json = False,
) -> None:
    """Give each worker contiguous training shards, as links in DIR/worker_K_of_N.

    \b
    Examples:
      hpcrun data split records 4
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    require_libraries()
    from hpcrun.data import split as splitting

    folders = splitting.split(folder, workers)
    if as_json:
        output.value([str(worker_folder) for worker_folder in folders])
    else:
        for worker_folder in folders:
            output.show(f"{worker_folder}: {sum(1 for _ in worker_folder.iterdir())} shards")
