"""``hpcrun config``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hpcrun.cli import output
from hpcrun.cli.arguments import Json  # noqa: TC001 - Typer reads annotations
from hpcrun.errors import HpcrunError, sanitize

if TYPE_CHECKING:
    from pathlib import Path

VARIABLES = {
    "HPCRUN_SITE": "the site, where --site does not say",
    "HPCRUN_SITE_PATH": "folders of the lab layer, separated by :",
    "HPCRUN_RUN_ROOT": "the folder of run directories, in place of the site's run_root",
    "XDG_CONFIG_HOME": "where the user layer is, in place of ~/.config",
    "XDG_DATA_HOME": "where copies of added layers are, and what you have allowed, in place of ~/.local/share",
    "XDG_STATE_HOME": "where the list of your runs is, in place of ~/.local/state",
    "XDG_CACHE_HOME": "where hpcrun keeps what can be made again, in place of ~/.cache",
}


def config(as_json: Json = False) -> None:
    """Show where sites and templates are, and what chose one.

    Of folders, and of the files of the site, the first that sets a value wins.

    \b
    Examples:
      hpcrun config
      hpcrun config --json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import paths
    from hpcrun.sites import loader

    layers: list[dict[str, Any]] = [_layer(layer, folder) for layer, folder in reversed(paths.config_layers())]
    variables = {name: os.environ.get(name) for name in VARIABLES}
    name, chosen_by = loader.select_site()
    site: dict[str, Any] = {
        "name": name,
        "chosen_by": chosen_by,
        "files": loader.list_site_files().get(name, []),
        "valid": False,
    }
    fault = None
    try:
        found = loader.load_selected_site()
        used = set(found.origins.values())
        files = [
            str(file) for _, folder in reversed(paths.config_layers()) for file in sorted(used) if file.parent == folder
        ]
        files = [*sorted({str(file) for file in used} - set(files)), *files]  # one that --site or HPCRUN_SITE names
        site |= {"name": found.site.name, "files": files, "valid": True}
    except HpcrunError as error:
        fault = error
    if as_json:
        output.value({"layers": layers, "environment": variables, "site": site if site["files"] else None})
    else:
        columns = ("layer", "folder", "sites", "templates")
        output.table(columns, [(one["layer"], _there(one), *_lists(one)) for one in layers])
        print()
        rows = [(name, variables[name] or "not set", means) for name, means in VARIABLES.items()]
        output.table(("variable", "value", "means"), rows)
        valid = "" if site["valid"] else "INVALID: "
        print(sanitize(f"\nsite used here: {valid}{site['name']} ({site['chosen_by']})"))
        for file in site["files"]:
            print(sanitize(f"  {file}"))
    if fault:
        raise fault


def _layer(layer: str, folder: Path) -> dict[str, Any]:
    from hpcrun import paths
    from hpcrun.sites import project

    exists = paths.is_folder(folder)
    templates = paths.shipped_folder("templates") if layer == "shipped" else folder / "templates"
    return {
        "layer": layer,
        "folder": str(folder),
        "exists": exists,
        **({"allowed": not project.find_unused_project()} if layer == "project" else {}),
        "sites": sorted(file.stem for file in folder.glob("*.toml")) if exists else [],
        "templates": sorted(file.name for file in templates.glob("*.j2")) if exists else [],
    }


def _there(layer: dict[str, Any]) -> str:
    doubt = "" if layer.get("allowed", True) else " (NOT ALLOWED)"
    return str(layer["folder"]) + (doubt if layer["exists"] else " (not there)")


def _lists(layer: dict[str, Any]) -> tuple[str, str]:
    return ", ".join(layer["sites"]), ", ".join(layer["templates"])
