"""The project layer: a folder ``.hpcrun/`` in the current directory or above it.

Files from a cloned repository belong to the user, although somebody else wrote them.
hpcrun uses the layer only after the user has allowed all of its files with their current text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.sites import layer_files, trust

if TYPE_CHECKING:
    from pathlib import Path


@frozen
class UnusedProject:
    """A project layer that the user has not allowed.

    Attributes:
        folder: The layer's folder.
        refused_files: The reason why each refused file is not used, by its path in the folder.
        has_allowed_files: Whether the user has allowed some of the files before.
    """

    folder: Path
    refused_files: dict[str, str]
    has_allowed_files: bool

    def __str__(self) -> str:
        """Return the message that the layer is not used, with the reasons."""
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self.refused_files.items())
        return layer_files.escape_invisible(f"the project's files in {self.folder} are not used: {reasons}")

    @property
    def hint(self) -> str:
        """The command with which the user allows the files."""
        from shlex import quote

        return layer_files.escape_invisible(f"read them, then hpcrun site allow {quote(str(self.folder))}")


def find_unused_project() -> UnusedProject | None:
    """Return the project layer if it exists and has a file that the user has not allowed, else None."""
    label, folder = paths.config_layers()[-1]
    if label != "project":
        return None
    refused_files, has_allowed_files = dict[str, str](), False
    for file in layer_files.list_files(folder):
        name = str(file.relative_to(folder))
        try:
            reason = trust.refusal_reason(layer_files.read_source(file))
        except HpcrunError as error:
            reason = error.message
        has_allowed_files = has_allowed_files or reason is None or trust.read_allowed_text(file) is not None
        if reason:
            refused_files[name] = reason
    return UnusedProject(folder, refused_files, has_allowed_files) if refused_files else None


def used_layers() -> list[tuple[str, Path]]:
    """Return the layers in use: `paths.config_layers` without a project layer that the user has not allowed."""
    return paths.config_layers()[:-1] if find_unused_project() else paths.config_layers()


def not_allowed_error(project: UnusedProject) -> trust.NotAllowedError:
    """Return the error for a command that needs project files that the user has not allowed."""
    return trust.NotAllowedError(str(project), hint=project.hint)


def require_unchanged() -> None:
    """Refuse a job if a file of this project has changed since the user allowed it.

    Raises:
        NotAllowedError: A file has changed; the message contains the files, and the command that allows them.
    """
    if (project := find_unused_project()) and project.has_allowed_files:
        raise not_allowed_error(project)


def project_warnings() -> list[str]:
    """Return a warning about a project layer that is not used."""
    project = find_unused_project()
    return [f"{project}\nHINT: {project.hint}"] if project else []
