"""Sites of a layer that is not in use yet, as they would stand among the others: what is wrong, what is doubtful."""

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

    A site that another layer keeps from being valid is no fault of this one: a warning tells of it.

    Args:
        folder: The folder with the layer's files.
        layer: The layer's name.

    Returns:
        Those that are valid.

    Raises:
        HpcrunError: A file of the layer is not valid; names all faults, each once.
    """
    below = [
        ("", other) for label, other in paths.config_layers() if label not in {f"added {layer}", "user", "project"}
    ]
    known = loader.list_site_files([*below, ("", folder)])
    found = []
    faults: list[str] = []
    elsewhere: dict[str, str] = {}
    for site in loader.list_site_files([("", folder)]):
        try:
            found.append(loader.load_site(site, known=known))
            wrong = [rules.format_finding(one, site) for one in rules.lint_site(found[-1]) if one.severity == "error"]
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
        warnings.warn(f"{site} cannot be used before this is mended: {message}", FutureWarning, stacklevel=2)
    return found


def lint_files(found: Sequence[LoadedSite], folder: Path, names: Container[str]) -> list[str]:
    """Return what is probably a mistake in some files of a layer, each once.

    Args:
        found: The layer's sites.
        folder: The folder with the layer's files.
        names: The names of the files that are new in it.
    """
    lines: dict[str, None] = {}
    for one in found:
        for finding in rules.lint_site(one):
            file = finding.where or f"{folder}/{one.site.name}.toml:"
            if file.startswith(f"{folder}/") and file[len(f"{folder}/") :].rpartition(":")[0] in names:
                lines[rules.format_finding(finding, one.site.name).replace(f"{folder}/", "")] = None
    return list(lines)
