"""The project layer: a folder ``.hpcrun/`` in the current directory or above it.

Its files may have come with a repository that was cloned. They are the user's own then, whoever wrote them, so owners
tell nothing: the layer is used once the user has allowed each of its files as it is, and until then nothing of it is.
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
    """A project layer that is not used.

    Attributes:
        folder: The layer's folder.
        refused: Why each of its files is not used, by the file's name in the folder.
        changed: Whether the user has allowed some of it before, and counts on it.
    """

    folder: Path
    refused: dict[str, str]
    changed: bool

    def __str__(self) -> str:
        """Tell that the layer is not used, and why."""
        reasons = "; ".join(f"{name}: {why}" for name, why in self.refused.items())
        return layer_files.escape_invisible(f"the project's files in {self.folder} are not used: {reasons}")

    @property
    def hint(self) -> str:
        """What to type."""
        from shlex import quote

        return layer_files.escape_invisible(f"read them, then hpcrun site allow {quote(str(self.folder))}")


def find_unused_project() -> UnusedProject | None:
    """Return the project layer where it is there and not used, else None."""
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
    """Return the layers that are used, as `paths.config_layers` tells them: without a project's that is not allowed."""
    return paths.config_layers()[:-1] if find_unused_project() else paths.config_layers()


def not_allowed_error(project: UnusedProject) -> trust.NotAllowedError:
    """Return the error of a command that would use the project's files."""
    return trust.NotAllowedError(str(project), hint=project.hint)


def require_unchanged() -> None:
    """Refuse a job without what the user has allowed in this project, because that has changed since.

    Raises:
        NotAllowedError: Names the files, and what to type.
    """
    if (project := find_unused_project()) and project.changed:
        raise not_allowed_error(project)


def project_warnings() -> list[str]:
    """Return what people should know of a project layer that is not used."""
    project = find_unused_project()
    return [f"{project}\nHINT: {project.hint}"] if project else []
