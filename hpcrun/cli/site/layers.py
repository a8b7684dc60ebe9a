"""``hpcrun site list --layers``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcrun.cli import output
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from hpcrun.sites.layers import Layer


def show_layers(*, as_json: bool) -> None:
    """List all layers, the highest first, without asking any repository: what is told is as of the last fetch."""
    from hpcrun import paths
    from hpcrun.sites import loader, project
    from hpcrun.sites.layers import list_layers

    added = {f"added {layer.name}": layer for layer in list_layers()}
    told = dict(reversed(paths.config_layers()))
    unused = project.find_unused_project()
    rows: list[dict[str, Any]] = []
    for label, folder in reversed(paths.config_layers()):
        layer = added.get(label)
        rows.append({
            "layer": label, "folder": folder, "sites": sorted(loader.list_site_files([(label, folder)])),
            **({"allowed": not unused} if label == "project" else {}),
            **(_version(layer) if layer else {}),
        })  # fmt: skip
    rows += [
        {"layer": label, "folder": None, "sites": [], **_version(layer)}
        for label, layer in added.items()
        if label not in told
    ]
    if as_json:
        output.value(rows)
        return
    output.table(
        ("layer", "sites", "version", "from"),
        [(row["layer"], ", ".join(row["sites"]), _told(row), row.get("url") or row["folder"]) for row in rows],
    )
    for line in (*paths.missing_layers(), *project.project_warnings()):
        output.message(line)


def _version(layer: Layer) -> dict[str, Any]:
    """Return what is known of a git layer's version."""
    from hpcrun.git import GitError
    from hpcrun.sites import repositories

    if not layer.url:
        return {}
    folder = layer.content_folder
    version = repositories.read_version(folder) if folder else None
    repository = repositories.layer_home(layer.name) / "repository"
    facts: dict[str, Any] = {"url": layer.url, "ref": layer.ref, "commit": None, "tag": None, "date": None}
    facts["follows"] = repositories.describe_ref(repository, layer.ref)
    if not version:
        return facts
    facts |= {"commit": version.commit, "tag": version.tag, "date": version.date}
    try:
        lacks, has = repositories.count_commits_apart(
            repository, version, repositories.resolve_version(repository, layer.ref)
        )
    except (HpcrunError, GitError):  # git, or what was fetched, is not there
        return {**facts, "behind": None, "ahead": None}
    return {**facts, "behind": lacks, "ahead": has, "fetched": repositories.fetch_date(repository)}


def _told(row: dict[str, Any]) -> str:
    if "url" not in row:
        if not row.get("allowed", True):
            return "NOT ALLOWED"
        return "used in place" if row["layer"].startswith("added ") else ""
    if not row["commit"]:
        return f"no copy: hpcrun site update {row['layer'].removeprefix('added ')}"
    by_tag = row["follows"].startswith("tag ")
    also = f" ({row['tag']})" if row["tag"] and not by_tag else ""
    words = [f"{row['follows']} at {row['commit'][:8]}{also} of {row['date']}"]
    if by_tag and (row.get("behind") or row.get("ahead")):
        words.append(f"has moved: hpcrun site update {row['layer'].removeprefix('added ')}")
    elif row["behind"] is None:
        words.append("unknown how far behind")
    else:
        words += [f"{row[side]} {side}" for side in ("behind", "ahead") if row.get(side)]
    words += [f"fetched {row['fetched']}"] if row.get("fetched") else []
    return ", ".join(words)
