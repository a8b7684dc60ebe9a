"""Where things are: shipped data, configuration layers, the index of runs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def data(kind: str) -> Path:
    """Return the folder of shipped ``templates``, ``workloads`` or ``site-configs``.

    A wheel carries them in ``hpcrun/_data``; a checkout (and an editable install) has them beside the package.
    """
    package = Path(__file__).parent
    installed = package / "_data" / kind
    return installed if installed.is_dir() else package.parent / kind


def layers() -> list[tuple[str, Path]]:
    """Return the configuration folders as (layer, folder), lowest first; a higher one wins.

    Site files ``NAME.toml`` lie in the folders themselves, templates in their ``templates/``.
    """
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "hpcrun"
    labs = [Path(part) for part in reversed(os.environ.get("HPCRUN_SITE_PATH", "").split(":")) if part]
    project = next((d / ".hpcrun" for d in [Path.cwd(), *Path.cwd().parents] if (d / ".hpcrun").is_dir()), None)
    found = [("shipped", data("site-configs")), ("system", Path("/etc/hpcrun"))]
    found += [("lab", lab) for lab in labs] + [("user", config)]
    return found + ([("project", project)] if project else [])


def template_folders() -> list[Path]:
    """Return the folders with job script templates, highest layer first."""
    folders = [folder / "templates" for _, folder in reversed(layers()[1:])]
    return [folder for folder in folders if folder.is_dir()] + [data("templates")]


def cache(kind: str) -> Path:
    """Return a folder of this user's for what may be lost at any time; made where that is possible."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpcrun" / kind
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def write(file: Path, content: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(file)


def index() -> Path:
    """Return the folder of links to this user's run directories, newest name last."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "hpcrun" / "runs"
