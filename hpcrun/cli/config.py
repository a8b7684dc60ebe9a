"""``hpcrun config``: show the configuration folders, variables and the site used here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hpcrun.cli import output
from hpcrun.cli.parameters import Json  # noqa: TC001 - Typer reads annotations
from hpcrun.errors import HpcrunError, sanitize

if TYPE_CHECKING:
    from pathlib import Path

VARIABLES = {
    "HPCRUN_SITE": "the site, if --site is not given",
    "HPCRUN_SITE_PATH": "folders of the lab layer, separated by :",
    "HPCRUN_RUN_ROOT": "folder of run directories, instead of the site's run_root",
    "XDG_CONFIG_HOME": "base folder of the user layer, instead of ~/.config",
    "XDG_DATA_HOME": "base folder of added layers and of allowed files, instead of ~/.local/share",
    "XDG_STATE_HOME": "base folder of the index of your runs, instead of ~/.local/state",
    "XDG_CACHE_HOME": "base folder of caches, instead of ~/.cache",
}


def config(as_json: Json = False) -> None:
    """Show the folders of sites and templates, and how the site was chosen.

    The first folder or file that sets a value overrides those below it.

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
    site_error = None
    try:
        loaded_site = loader.load_selected_site()
        used_files = set(loaded_site.origins.values())
        files = [
            str(file)
            for _, folder in reversed(paths.config_layers())
            for file in sorted(used_files)
            if file.parent == folder
        ]
        files = [
            *sorted({str(file) for file in used_files} - set(files)),
            *files,
        ]  # a file that HPCRUN_SITE names comes first
        site |= {"name": loaded_site.site.name, "files": files, "valid": True}
    except HpcrunError as error:
        site_error = error
    if as_json:
        output.value({"layers": layers, "environment": variables, "site": site if site["files"] else None})
    else:
        columns = ("layer", "folder", "sites", "templates")
        output.table(
            columns,
            [(layer_row["layer"], _format_folder(layer_row), *_format_lists(layer_row)) for layer_row in layers],
        )
        print()
        rows = [(name, variables[name] or "not set", meaning) for name, meaning in VARIABLES.items()]
        output.table(("variable", "value", "meaning"), rows)
        invalid_mark = "" if site["valid"] else "INVALID: "
        print(sanitize(f"\nsite used here: {invalid_mark}{site['name']} ({site['chosen_by']})"))
        for file in site["files"]:
            print(sanitize(f"  {file}"))
    if site_error:
        raise site_error


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


def _format_folder(layer: dict[str, Any]) -> str:
    allowed_mark = "" if layer.get("allowed", True) else " (NOT ALLOWED)"
    return str(layer["folder"]) + (allowed_mark if layer["exists"] else " (does not exist)")


def _format_lists(layer: dict[str, Any]) -> tuple[str, str]:
    return output.sites(layer["sites"]), ", ".join(layer["templates"])
