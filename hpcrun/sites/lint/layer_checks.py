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

    A site that is invalid only because of another layer causes a warning.

    Args:
        folder: The folder with the layer's files.
        layer: The layer's name.

    Returns:
        The valid sites.

    Raises:
        HpcrunError: A file of the layer is not valid; the message contains each fault once.
    """
    lower_layers = [
        ("", other) for label, other in paths.config_layers() if label not in {f"added {layer}", "user", "project"}
    ]
    files_by_site = loader.list_site_files([*lower_layers, ("", folder)])
    sites = []
    faults: list[str] = []
    faults_of_other_layers: dict[str, str] = {}
    for site in loader.list_site_files([("", folder)]):
        try:
            sites.append(loader.load_site(site, files_by_site=files_by_site))
            errors = [rules.format_finding(one, site) for one in rules.lint_site(sites[-1]) if one.severity == "error"]
            faults += [fault for fault in errors if fault.startswith(f"{folder}/")]
        except HpcrunError as error:
            if f"{folder}/" in error.message:
                faults.append(str(error))
            else:
                faults_of_other_layers[site] = error.message
    if faults:
        fault_lines = "\n".join(faults).replace(f"{folder}/", "").splitlines()
        raise HpcrunError(f"layer {layer} is not valid:\n" + "\n".join(dict.fromkeys(fault_lines)), exit_code=1)
    for site, message in faults_of_other_layers.items():
        warnings.warn(f"{site} cannot be used until this is corrected: {message}", FutureWarning, stacklevel=2)
    return sites


def lint_files(sites: Sequence[LoadedSite], folder: Path, names: Container[str]) -> list[str]:
    """Return the lint warnings about some files of a layer, without duplicates.

    Args:
        sites: The layer's sites.
        folder: The folder with the layer's files.
        names: The names of the files to check.
    """
    warnings: dict[str, None] = {}
    for loaded_site in sites:
        for finding in rules.lint_site(loaded_site):
            file = finding.where or f"{folder}/{loaded_site.site.name}.toml:"
            if file.startswith(f"{folder}/") and file[len(f"{folder}/") :].rpartition(":")[0] in names:
                warnings[rules.format_finding(finding, loaded_site.site.name).replace(f"{folder}/", "")] = None
    return list(warnings)
