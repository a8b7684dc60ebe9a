"""The project layer: a folder ``.hpcrun/`` in the current directory or above it.

Its files may come from a cloned repository and belong to the user, whoever wrote them, so their owner proves nothing.
hpcrun uses the layer only after the user has allowed all of its files with their current text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.errors import HpcrunError
from hpcrun.sites import layer_files, trust

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class UnusedProject:
    """A project layer that the user has not allowed.

    Attributes:
        folder: The layer's folder.
        refused: The reason for each file that is not used, by its name in the folder.
        changed: Whether the user has allowed some of its files before.
    """

    folder: Path
    refused: dict[str, str]
    changed: bool

    def __str__(self) -> str:
        """Return the message that the layer is not used, with the reasons."""
        reasons = "; ".join(f"{name}: {why}" for name, why in self.refused.items())
        return layer_files.escape_invisible(f"the project's files in {self.folder} are not used: {reasons}")

    @property
    def hint(self) -> str:
        """The command to type."""
        from shlex import quote

        return layer_files.escape_invisible(f"read them, then hpcrun site allow {quote(str(self.folder))}")


def find_unused_project() -> UnusedProject | None:
    """Return the project layer if it exists and is not used, else None."""
    label, folder = paths.config_layers()[-1]
    if label != "project":
        return None
    refused, changed = dict[str, str](), False
    for file in layer_files.list_files(folder):
        name = str(file.relative_to(folder))
        try:
            why = trust.refusal_reason(layer_files.read_source(file))
        except HpcrunError as error:
            why = error.message
        changed = changed or why is None or trust.read_allowed_text(file) is not None
        if why:
            refused[name] = why
    return UnusedProject(folder, refused, changed) if refused else None


def used_layers() -> list[tuple[str, Path]]:
    """Return the layers in use, as `paths.config_layers`, without a project that is not allowed."""
    return paths.config_layers()[:-1] if find_unused_project() else paths.config_layers()


def not_allowed_error(project: UnusedProject) -> trust.NotAllowedError:
    """Return the error for a command that needs the project's files."""
    return trust.NotAllowedError(str(project), hint=project.hint)


def require_unchanged() -> None:
    """Refuse a job if a file of this project has changed since the user allowed it.

    Raises:
        NotAllowedError: The message names the files and the command to type.
    """
    if (project := find_unused_project()) and project.changed:
        raise not_allowed_error(project)


def project_warnings() -> list[str]:
    """Return a warning about a project layer that is not used."""
    project = find_unused_project()
    return [f"{project}\nHINT: {project.hint}"] if project else []
