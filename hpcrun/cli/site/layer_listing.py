"""``hpcrun site list --layers``: list the layers of site files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcrun.cli import output
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from hpcrun.sites.layers import Layer


def show_layers(*, as_json: bool) -> None:
    """Print all layers, the highest first, with their git versions at the time of the last fetch."""
    from hpcrun import paths
    from hpcrun.sites import loader, project
    from hpcrun.sites.layers import list_layers

    added_layers = {f"added {layer.name}": layer for layer in list_layers()}
    used_layers = dict(paths.config_layers())
    unallowed_project = project.find_unused_project()
    rows: list[dict[str, Any]] = []
    for label, folder in reversed(paths.config_layers()):
        layer = added_layers.get(label)
        rows.append({
            "layer": label, "folder": folder, "sites": sorted(loader.list_site_files([(label, folder)])),
            **({"allowed": not unallowed_project} if label == "project" else {}),
            **(_version_facts(layer) if layer else {}),
        })  # fmt: skip
    rows += [
        {"layer": label, "folder": None, "sites": [], **_version_facts(layer)}
        for label, layer in added_layers.items()
        if label not in used_layers
    ]
    if as_json:
        output.value(rows)
        return
    output.table(
        ("layer", "sites", "version", "from"),
        [
            (row["layer"], output.sites(row["sites"]), _format_version(row), row.get("url") or row["folder"])
            for row in rows
        ],
    )
    for line in (*paths.missing_layers(), *project.project_warnings()):
        output.message(line)


def _version_facts(layer: Layer) -> dict[str, Any]:
    """Return the version of a layer's git repository; empty for a layer without a repository."""
    from hpcrun.git import GitError
    from hpcrun.sites import repositories

    if not layer.url:
        return {}
    folder = layer.content_folder
    version = repositories.read_version(folder) if folder else None
    repository = repositories.added_layer_folder(layer.name) / "repository"
    facts: dict[str, Any] = {"url": layer.url, "ref": layer.ref, "commit": None, "tag": None, "date": None}
    facts["follows"] = repositories.describe_ref(repository, layer.ref)
    if not version:
        return facts
    facts |= {"commit": version.commit, "tag": version.tag, "date": version.date}
    try:
        commits_behind, commits_ahead = repositories.count_commits_apart(
            repository, version, repositories.resolve_version(repository, layer.ref)
        )
    except (HpcrunError, GitError):  # git or the fetched repository is missing
        return {**facts, "behind": None, "ahead": None}
    return {**facts, "behind": commits_behind, "ahead": commits_ahead, "fetched": repositories.fetch_date(repository)}


def _format_version(row: dict[str, Any]) -> str:
    if "url" not in row:
        if not row.get("allowed", True):
            return "NOT ALLOWED"
        return "used in place" if row["layer"].startswith("added ") else ""
    if not row["commit"]:
        return f"no copy: hpcrun site update {row['layer'].removeprefix('added ')}"
    follows_tag = row["follows"].startswith("tag ")
    tag_text = f" ({row['tag']})" if row["tag"] and not follows_tag else ""
    parts = [f"{row['follows']} at {row['commit'][:8]}{tag_text} of {row['date']}"]
    if follows_tag and (row.get("behind") or row.get("ahead")):
        parts.append(f"has moved: hpcrun site update {row['layer'].removeprefix('added ')}")
    elif row["behind"] is None:
        parts.append("distance unknown")
    else:
        parts += [f"{row[side]} {side}" for side in ("behind", "ahead") if row.get(side)]
    parts += [f"fetched {row['fetched']}"] if row.get("fetched") else []
    return ", ".join(parts)
