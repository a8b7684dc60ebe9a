"""Record of a run's provenance at its submission; the job script adds modules, packages and Slurm's job data."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hpcrun import permissions
from hpcrun.paths import write_atomically
from hpcrun.secrets import mask_code, mask_known

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpcrun.sites.loader import LoadedSite

FOLDER = "provenance"
"""The folder in a run directory that contains the provenance."""


def read_code_state(code_folder: Path) -> tuple[dict[str, Any], bytes] | None:
    """Return the state and the diff of the repository that contains the user's code.

    Errors are ignored, so that they do not prevent the submission.

    Args:
        code_folder: The folder of the user's code.

    Returns:
        The result of `hpcrun.provenance.git_state.read_git_state`; None without a repository.
    """
    from hpcrun.git import find_repository
    from hpcrun.provenance.git_state import read_git_state

    with suppress(Exception):  # such as a damaged repository
        if repository := find_repository(code_folder):
            return read_git_state(repository)
    return None


def write_provenance(
    run_dir: Path,
    loaded_site: LoadedSite,
    code_state: tuple[dict[str, Any], bytes] | None,
    *,
    earlier_run: Path | None = None,
    secrets: Sequence[str] = (),
) -> None:
    """Write ``site.json``, and ``git.json`` and ``code.diff`` if the user's code is in a repository.

    Errors are ignored, so that they do not prevent the submission.

    Args:
        run_dir: The run directory.
        loaded_site: The site.
        code_state: The result of `read_code_state`.
        earlier_run: The run directory whose snapshot this run reuses: its code records are copied.
        secrets: The job's secrets, which its code may contain.
    """
    with suppress(Exception):  # such as a full disk
        folder = run_dir / FOLDER
        permissions.make_folder(folder)
        values = {key: {"value": value, "from": origin} for key, value, origin in loaded_site.list_values()}
        _write_json(
            folder / "site.json", {"name": loaded_site.site.name, "chosen_by": loaded_site.chosen_by, "values": values}
        )
        if earlier_run:
            for name in ("git.json", "code.diff"):
                with suppress(FileNotFoundError):
                    write_atomically(folder / name, (earlier_run / FOLDER / name).read_bytes())
        elif code_state:
            state, diff = code_state
            text = diff.decode(errors="surrogateescape")
            if (masked_text := mask_known(mask_code(text), secrets)) != text:
                state["notes"].append("possible secrets are replaced by *** in code.diff")
            if diff:
                write_atomically(folder / "code.diff", masked_text.encode(errors="surrogateescape"))
            _write_json(folder / "git.json", state)


def _write_json(file: Path, content: dict[str, Any]) -> None:
    write_atomically(file, json.dumps(content, indent=1, default=str).encode())
