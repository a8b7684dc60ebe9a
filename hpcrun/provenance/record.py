"""Writing down what a run is made of, when it is submitted; what only the job knows, its script writes."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hpcrun import permissions
from hpcrun.paths import write_atomically
from hpcrun.secrets import mask_code

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.sites.loader import LoadedSite

FOLDER = "provenance"
"""The folder in a run directory."""


def record(run_dir: Path, found: LoadedSite, code: Path, *, before: Path | None = None) -> None:
    """Write ``site.json``, and ``git.json`` and ``code.diff`` where the user's code lies in a repository.

    A job is not kept from running because this cannot be written.

    Args:
        run_dir: The run directory.
        found: The site.
        code: The folder of the user's code.
        before: Another run's directory, whose copy of the code is this run's too: so is the record of it.
    """
    from hpcrun.git import top
    from hpcrun.provenance import git

    with suppress(Exception):  # whatever is wrong with the disk, the repository or git
        folder = run_dir / FOLDER
        permissions.make_folder(folder)
        values = {key: {"value": value, "from": origin} for key, value, origin in found.list_values()}
        _write(folder / "site.json", {"name": found.site.name, "chosen_by": found.chosen_by, "values": values})
        if before:
            for name in ("git.json", "code.diff"):
                with suppress(FileNotFoundError):
                    write_atomically(folder / name, (before / FOLDER / name).read_bytes())
        elif repository := top(code):
            facts, diff = git.state(repository)
            text = diff.decode(errors="surrogateescape")
            if (shown := mask_code(text)) != text:
                facts["notes"].append("what looks like a secret is *** in code.diff")
            if diff:
                write_atomically(folder / "code.diff", shown.encode(errors="surrogateescape"))
            _write(folder / "git.json", facts)


def _write(file: Path, content: dict[str, Any]) -> None:
    write_atomically(file, json.dumps(content, indent=1, default=str).encode())
