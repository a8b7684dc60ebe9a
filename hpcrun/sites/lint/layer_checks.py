"""Checks of a layer's sites together with the other layers, before the layer is used."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.errors import HpcrunError
from hpcrun.sites import loader
from hpcrun.sites.lint import rules

if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from pathlib import Path

    from hpcrun.sites.loader import LoadedSite


def load_layer_sites(folder: Path, layer: str) -> list[LoadedSite]:
    """Load the sites of a layer.

    A site that is not valid because of another layer only causes a warning.

    Args:
        folder: The folder with the layer's files.
        layer: The layer's name.

    Returns:
        The valid sites.

    Raises:
        HpcrunError: A file of the layer is not valid; the message lists each fault once.
    """
    below = [
        ("", other) for label, other in paths.config_layers() if label not in {f"added {layer}", "user", "project"}
    ]
    known = loader.list_site_files([*below, ("", folder)])
    sites = []
    faults: list[str] = []
    elsewhere: dict[str, str] = {}
    for site in loader.list_site_files([("", folder)]):
        try:
            sites.append(loader.load_site(site, known=known))
            wrong = [rules.format_finding(one, site) for one in rules.lint_site(sites[-1]) if one.severity == "error"]
            faults += [fault for fault in wrong if fault.startswith(f"{folder}/")]
        except HpcrunError as error:
            if f"{folder}/" in error.message:
                faults.append(str(error))
            else:
                elsewhere[site] = error.message
    if faults:
        lines = "\n".join(faults).replace(f"{folder}/", "").splitlines()
        raise HpcrunError(f"layer {layer} is not valid:\n" + "\n".join(dict.fromkeys(lines)), exit_code=1)
    for site, message in elsewhere.items():
        warnings.warn(f"{site} cannot be used until this is corrected: {message}", FutureWarning, stacklevel=2)
    return sites


def lint_files(sites: Sequence[LoadedSite], folder: Path, names: Container[str]) -> list[str]:
    """Return the lint warnings of some files of a layer, each once.

    Args:
        sites: The layer's sites.
        folder: The folder with the layer's files.
        names: The names of the new files.
    """
    lines: dict[str, None] = {}
    for loaded_site in sites:
        for finding in rules.lint_site(loaded_site):
            file = finding.where or f"{folder}/{loaded_site.site.name}.toml:"
            if file.startswith(f"{folder}/") and file[len(f"{folder}/") :].rpartition(":")[0] in names:
                lines[rules.format_finding(finding, loaded_site.site.name).replace(f"{folder}/", "")] = None
    return list(lines)
