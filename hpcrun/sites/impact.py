"""The sites that a change of a layer would break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.sites import loader, project

if TYPE_CHECKING:
    from pathlib import Path


def find_broken_sites(layer: str, new: Path | None) -> list[str]:
    """Return the errors of sites of other layers that a new version of an added layer would break.

    Args:
        layer: The layer's name.
        new: The folder with its new files; None to remove the layer.

    Returns:
        A message for each broken site, which begins with its name.
    """
    before, label = project.used_layers(), f"added {layer}"
    after = [(name, new if name == label else folder) for name, folder in before]
    known, changed = (
        loader.list_site_files(before),
        loader.list_site_files([(name, folder) for name, folder in after if folder]),
    )
    others = [name for name, files in changed.items() if any(file.parent != new for file in files)]
    faults = {name: _load_error(name, changed) for name in others}
    return [f"{name}: {fault}" for name, fault in faults.items() if fault and not _load_error(name, known)]


def _load_error(name: str, known: dict[str, list[Path]]) -> str | None:
    try:
        loader.load_site(name, known=known)
    except HpcrunError as error:
        return error.message
    return None
