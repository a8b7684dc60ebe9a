"""Where files are: shipped data, configuration layers, the user's folders and the index of runs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import permissions
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence


PROJECT_FOLDER = ".hpcrun"
"""The name of a project layer's folder."""


def shipped_folder(kind: str) -> Path:
    """Return the folder of shipped ``templates``, ``workloads`` or ``site-configs``.

    A wheel carries them in ``hpcrun/_data``; a checkout (and an editable install) has them beside the package.
    """
    package = Path(__file__).parent
    installed = package / "_data" / kind
    return installed if installed.is_dir() else package.parent / kind


def shell_library() -> Path:
    """Return the folder of the bash files that job scripts load."""
    return Path(__file__).parent / "shell"


def config_layers() -> list[tuple[str, Path]]:
    """Return the configuration folders as (layer, folder), lowest first; a higher layer overrides a lower one.

    A folder has site files ``NAME.toml``, and templates in ``templates/``.

    Raises:
        HpcrunError: The list of added layers cannot be read.
    """
    labs = [Path(part).absolute() for part in reversed(os.environ.get("HPCRUN_SITE_PATH", "").split(":")) if part]
    above = [folder / PROJECT_FOLDER for folder in (Path.cwd(), *Path.cwd().parents)]
    project = next(filter(is_folder, above), None)
    layers = [("shipped", shipped_folder("site-configs")), ("system", Path("/etc/hpcrun"))]
    added = reversed(added_layers())
    layers += [(f"added {layer['name']}", folder) for layer in added if (folder := layer_folder(layer))]
    layers += [("lab", lab) for lab in labs] + [("user", user_config_folder())]
    return layers + ([("project", project)] if project else [])


def home_folder() -> Path:
    """Return the user's home directory.

    Raises:
        HpcrunError: The user has none.
    """
    try:
        return Path.home()
    except RuntimeError:
        what = f"user {os.getuid()} has no home directory: HOME is not set, and there is no passwd entry"
        raise HpcrunError(what, hint="export HOME=FOLDER, a folder of your own") from None


def expand_user(text: str) -> str:
    """Expand ``~`` at the beginning of a path.

    Raises:
        HpcrunError: The user has no home directory.
    """
    if text == "~" or text.startswith("~/"):
        return f"{home_folder()}{text[1:]}"
    return os.path.expanduser(text)  # noqa: PTH111 - leaves ~bob as it is where there is no user bob


def user_name() -> str:
    """Return the user's login name, or the uid where there is no name."""
    from getpass import getuser

    try:
        return getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def user_config_folder() -> Path:
    """Return the folder of the user layer."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or home_folder() / ".config") / "hpcrun"


def user_data_folder(kind: str) -> Path:
    """Return a folder for the user's data that hpcrun cannot restore by itself."""
    return Path(os.environ.get("XDG_DATA_HOME") or home_folder() / ".local" / "share") / "hpcrun" / kind


def added_layers() -> list[dict[str, Any]]:
    """Return the layers that ``hpcrun site add`` added, the highest first.

    Each has a ``name``, and a ``folder``, or the ``url`` and ``ref`` of a git repository.

    Raises:
        HpcrunError: The list cannot be read, or is not valid.
    """
    file = user_config_folder() / "layers.json"
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
    raise HpcrunError(f"{file} is not a valid list of layers", hint="remove it, and add the layers again")


def layer_folder(layer: dict[str, Any]) -> Path | None:
    """Return the folder with an added layer's files, or None where the copy of its git repository is missing."""
    if layer.get("folder"):
        return Path(layer["folder"])
    copies = user_data_folder("sites") / str(layer["name"])
    try:
        return copies / (copies / "current").readlink()  # not through the link: an update moves it
    except OSError:
        return None


def missing_layers() -> list[str]:
    """Return a warning for each added layer whose files are missing."""
    warnings = []
    for layer in added_layers():
        folder, name = layer_folder(layer), layer["name"]
        if folder is None or not folder.is_dir():
            if layer.get("folder"):
                fault, fix = f"its folder {folder} does not exist", f"hpcrun site remove {name} removes the layer"
            else:
                fault, fix = "its copy is missing", f"hpcrun site update {name} fetches it again"
            warnings.append(f"layer {name} is not used: {fault}; {fix}")
    return warnings


def template_folders(layers: Sequence[tuple[str, Path]]) -> list[Path]:
    """Return the folders with job script templates, highest layer first.

    Args:
        layers: The layers in use, in the form of `config_layers`.
    """
    folders = [folder / "templates" for _, folder in reversed(layers[1:])]
    return [folder for folder in folders if is_folder(folder)] + [shipped_folder("templates")]


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; False also where the user has no permission to look."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises without permission


def user_cache_folder(kind: str) -> Path:
    """Create and return a cache folder of the user, whose files may be lost at any time.

    Its files may hold code. Where somebody else can write or replace the folder, the returned folder does not exist.
    """
    from hpcrun import write_access

    folder = Path(os.environ.get("XDG_CACHE_HOME") or home_folder() / ".cache") / "hpcrun" / kind
    with suppress(OSError):
        permissions.make_own_folder(folder, private=True)
        status = folder.lstat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o022 or write_access.find_other_writer(folder):
            return folder / "not used"
    return folder


def write_atomically(file: Path, content: bytes) -> None:
    """Write a file so that readers see all of it or nothing, also with several writers on several hosts.

    Only the owner can write it, and only users who may read the folder can read it.
    """
    part = file.with_name(f".{file.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        with open(part, "wb", opener=permissions.opener) as opened:
            opened.write(content)
        part.replace(file)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def run_index_folder() -> Path:
    """Return the folder of links to the user's run directories; names sort by time."""
    return _state_folder() / "runs"


def make_state_folder(folder: Path) -> None:
    """Create a folder below the user's state folder, and remove write permission of others."""
    permissions.make_own_folder(folder, private=True)
    for one in (folder, folder.parent):
        status = one.stat()
        if status.st_uid == os.geteuid() and status.st_mode & permissions.WRITE:
            one.chmod(status.st_mode & ~permissions.WRITE)


def site_test_folder() -> Path:
    """Return the folder for results of ``hpcrun site test`` on sites whose own folder the user cannot write."""
    return _state_folder() / "tested"


def _state_folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or home_folder() / ".local" / "state") / "hpcrun"
