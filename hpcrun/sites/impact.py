"""Search for the sites that a change to a layer would break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.sites import loader, project

if TYPE_CHECKING:
    from pathlib import Path


def find_broken_sites(layer: str, new_folder: Path | None) -> list[str]:
    """Return the errors of sites of other layers that a new version of an added layer would break.

    Args:
        layer: The layer's name.
        new_folder: The folder with the layer's new files; None if the layer is removed.

    Returns:
        A message for each broken site, which begins with the site's name.
    """
    current_layers, label = project.used_layers(), f"added {layer}"
    new_layers = [(name, new_folder if name == label else folder) for name, folder in current_layers]
    current_files, new_files = (
        loader.list_site_files(current_layers),
        loader.list_site_files([(name, folder) for name, folder in new_layers if folder]),
    )
    other_sites = [name for name, files in new_files.items() if any(file.parent != new_folder for file in files)]
    faults = {name: _load_error(name, new_files) for name in other_sites}
    return [f"{name}: {fault}" for name, fault in faults.items() if fault and not _load_error(name, current_files)]


def _load_error(name: str, files_by_site: dict[str, list[Path]]) -> str | None:
    try:
        loader.load_site(name, files_by_site=files_by_site)
    except HpcrunError as error:
        return error.message
    return None
