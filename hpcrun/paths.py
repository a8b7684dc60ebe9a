"""Where things are: shipped data, configuration layers, the index of runs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import modes
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence


PROJECT = ".hpcrun"
"""The name of a project layer's folder."""


def data(kind: str) -> Path:
    """Return the folder of shipped ``templates``, ``workloads`` or ``site-configs``.

    A wheel carries them in ``hpcrun/_data``; a checkout (and an editable install) has them beside the package.
    """
    package = Path(__file__).parent
    installed = package / "_data" / kind
    return installed if installed.is_dir() else package.parent / kind


def library() -> Path:
    """Return the folder of the bash files that job scripts load."""
    return Path(__file__).parent / "shell"


def layers() -> list[tuple[str, Path]]:
    """Return the configuration folders as (layer, folder), lowest first; a higher one wins.

    Site files ``NAME.toml`` lie in the folders themselves, templates in their ``templates/``.

    Raises:
        HpcrunError: The list of added layers cannot be read.
    """
    labs = [Path(part).absolute() for part in reversed(os.environ.get("HPCRUN_SITE_PATH", "").split(":")) if part]
    project = next((d / PROJECT for d in [Path.cwd(), *Path.cwd().parents] if is_folder(d / PROJECT)), None)
    found = [("shipped", data("site-configs")), ("system", Path("/etc/hpcrun"))]
    found += [(f"added {one['name']}", folder) for one in reversed(added()) if (folder := content(one))]
    found += [("lab", lab) for lab in labs] + [("user", config())]
    return found + ([("project", project)] if project else [])


def home() -> Path:
    """Return this user's home directory.

    Raises:
        HpcrunError: Nobody knows it.
    """
    try:
        return Path.home()
    except RuntimeError:
        what = f"nobody knows the home directory of user {os.getuid()}: HOME is not set, and there is no passwd entry"
        raise HpcrunError(what, hint="export HOME=FOLDER, one of your own") from None


def expanded_user(text: str) -> str:
    """Return a path with ``~`` filled in.

    Raises:
        HpcrunError: Nobody knows this user's home directory.
    """
    if text == "~" or text.startswith("~/"):
        return f"{home()}{text[1:]}"
    return os.path.expanduser(text)  # noqa: PTH111 - ~bob may be no user, and then it stays as it is


def user_name() -> str:
    """Return this user's name, or the number of one who has none."""
    from getpass import getuser

    try:
        return getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def config() -> Path:
    """Return the user's own layer."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or home() / ".config") / "hpcrun"


def own(kind: str) -> Path:
    """Return a folder of this user's for what no command makes anew by itself."""
    return Path(os.environ.get("XDG_DATA_HOME") or home() / ".local" / "share") / "hpcrun" / kind


def added() -> list[dict[str, Any]]:
    """Return the layers that ``hpcrun site add`` added, the first winning.

    Each has a ``name``, and a ``folder``, or the ``url`` and ``ref`` of a git repository.

    Raises:
        HpcrunError: Somebody has changed the list, and it cannot be read.
    """
    file = config() / "layers.json"
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise HpcrunError(f"{file}: {error.strerror}", hint="it lists the layers of hpcrun site add") from None
    import json

    try:
        layers = json.loads(text)["layers"]
        if all(isinstance(one["name"], str) and isinstance(one.get("folder") or one["url"], str) for one in layers):
            return list(layers)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise HpcrunError(f"{file} is not as hpcrun site add writes it", hint="remove it, and add the layers again")


def content(layer: dict[str, Any]) -> Path | None:
    """Return the folder with an added layer's files: of a git repository, the copy that is in use, if there is one."""
    if layer.get("folder"):
        return Path(layer["folder"])
    home = own("sites") / str(layer["name"])
    try:
        return home / (home / "current").readlink()  # not through the link: it moves when the layer is updated
    except OSError:
        return None


def missing_layers() -> list[str]:
    """Return what is to be told of added layers whose files are not there."""
    told = []
    for one in added():
        folder, name = content(one), one["name"]
        if folder is None or not folder.is_dir():
            gone = f"its folder {folder} is not there" if one.get("folder") else "its copy is gone"
            fix = "remove" if one.get("folder") else "update"
            does = "leaves it out for good" if one.get("folder") else "fetches it again"
            told.append(f"layer {name} is not used: {gone}; hpcrun site {fix} {name} {does}")
    return told


def template_folders(used: Sequence[tuple[str, Path]]) -> list[Path]:
    """Return the folders with job script templates, highest layer first.

    Args:
        used: The layers that are used, as `layers` tells them.
    """
    folders = [folder / "templates" for _, folder in reversed(used[1:])]
    return [folder for folder in folders if is_folder(folder)] + [data("templates")]


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder, False also where one above it is closed to this user."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises then


def cache(kind: str) -> Path:
    """Return a folder of this user's for what may be lost at any time; made where that is possible.

    Its files may hold code, so where somebody else can write the folder, or put another in its place, one that is not
    there is returned.
    """
    from hpcrun import owners

    folder = Path(os.environ.get("XDG_CACHE_HOME") or home() / ".cache") / "hpcrun" / kind
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o022 or owners.writer(folder):
            return folder / "not used"
    return folder


def write(file: Path, content: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing, whoever else writes it on whatever host.

    Nobody else can write it, and only those read it who may read the folder.
    """
    part = file.with_name(f".{file.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        with open(part, "wb", opener=modes.opener) as opened:
            opened.write(content)
        part.replace(file)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def index() -> Path:
    """Return the folder of links to this user's run directories, newest name last."""
    return _state() / "runs"


def make_state(folder: Path) -> None:
    """Make a folder of this user's state; one that others can write, as with umask 002, is closed to them."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for one in (folder, folder.parent):
        status = one.stat()
        if status.st_uid == os.geteuid() and status.st_mode & modes.WRITE:
            one.chmod(status.st_mode & ~modes.WRITE)


def tested() -> Path:
    """Return the folder of this user's records of tests of sites whose own folders are not theirs to write."""
    return _state() / "tested"


def _state() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or home() / ".local" / "state") / "hpcrun"
