"""Paths of shipped data, configuration layers, the user's folders and the index of runs."""

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


def shipped_folder(name: str) -> Path:
    """Return the folder of shipped ``templates``, ``workloads`` or ``site-configs``.

    In a wheel, the folders are in ``hpcrun/_data``; in a checkout or an editable install, they are next to the package.
    """
    package = Path(__file__).parent
    installed_folder = package / "_data" / name
    return installed_folder if installed_folder.is_dir() else package.parent / name


def shell_library() -> Path:
    """Return the folder of the bash files that job scripts load."""
    return Path(__file__).parent / "shell"


def config_layers() -> list[tuple[str, Path]]:
    """Return the configuration layers as (label, folder), lowest first; a higher layer overrides a lower one.

    The folder of a layer contains site files ``NAME.toml``, and templates in ``templates/``.

    Raises:
        HpcrunError: The list of added layers cannot be read.
    """
    project_folders = [folder / PROJECT_FOLDER for folder in (Path.cwd(), *Path.cwd().parents)]
    project = next(filter(is_folder, project_folders), None)
    layers = [("shipped", shipped_folder("site-configs")), ("system", Path("/etc/hpcrun"))]
    added_layer_entries = reversed(added_layers())
    layers += [(f"added {layer['name']}", folder) for layer in added_layer_entries if (folder := layer_folder(layer))]
    layers += [("lab", folder) for folder in reversed(_lab_folders())] + [("user", user_config_folder())]
    return layers + ([("project", project)] if project else [])


def _lab_folders() -> list[Path]:
    return [Path(part).absolute() for part in os.environ.get("HPCRUN_SITE_PATH", "").split(":") if part]


def home_folder() -> Path:
    """Return the user's home directory.

    Raises:
        HpcrunError: The user has no home directory.
    """
    try:
        return Path.home()
    except RuntimeError:
        message = f"user {os.getuid()} has no home directory: HOME is not set, and there is no passwd entry"
        raise HpcrunError(message, hint="export HOME=FOLDER, your own folder") from None


def expand_user(text: str) -> str:
    """Expand ``~`` at the beginning of a path.

    Raises:
        HpcrunError: The user has no home directory.
    """
    if text == "~" or text.startswith("~/"):
        return f"{home_folder()}{text[1:]}"
    return os.path.expanduser(text)  # noqa: PTH111 - does not change ~bob if there is no user bob


def user_name() -> str:
    """Return the user's login name, or the uid if the user has no name."""
    from getpass import getuser

    try:
        return getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def user_config_folder() -> Path:
    """Return the folder of the user layer."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or home_folder() / ".config") / "hpcrun"


def user_data_folder(name: str) -> Path:
    """Return a folder for user data that hpcrun cannot recreate."""
    return Path(os.environ.get("XDG_DATA_HOME") or home_folder() / ".local" / "share") / "hpcrun" / name


def added_layers() -> list[dict[str, Any]]:
    """Return the layers that the user has added by ``hpcrun site add``, highest precedence first.

    Each layer has a ``name``, and a ``folder``, or the ``url`` and ``ref`` of a git repository.

    Raises:
        HpcrunError: The list of layers cannot be read, or is not valid.
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
    """Return the folder with an added layer's files; None if the copy of its git repository is missing."""
    if layer.get("folder"):
        return Path(layer["folder"])
    layer_copies = user_data_folder("sites") / str(layer["name"])
    try:
        return (
            layer_copies / (layer_copies / "current").readlink()
        )  # resolve the link, because an update changes its target
    except OSError:
        return None


def missing_layers() -> list[str]:
    """Return a warning for each added layer, and each folder of ``$HPCRUN_SITE_PATH``, whose files are missing."""
    missing_folders = [folder for folder in _lab_folders() if not is_folder(folder)]
    warnings = [f"HPCRUN_SITE_PATH names {folder}, which does not exist" for folder in missing_folders]
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
        layers: The layers in use, as (label, folder), lowest first.
    """
    folders = [folder / "templates" for _, folder in reversed(layers[1:])]
    return [folder for folder in folders if is_folder(folder)] + [shipped_folder("templates")]


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; False also if the user may not read its parent."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises an error without permission


def user_cache_folder(name: str) -> Path:
    """Create and return a cache folder of the user, whose files may be deleted at any time.

    Cached files may contain code. If another user can write or replace the folder, return a path that does not exist.
    """
    from hpcrun import write_access

    folder = Path(os.environ.get("XDG_CACHE_HOME") or home_folder() / ".cache") / "hpcrun" / name
    with suppress(OSError):
        permissions.make_own_folder(folder, is_private=True)
        folder_stat = folder.lstat()
        if folder_stat.st_uid != os.geteuid() or folder_stat.st_mode & 0o022 or write_access.find_other_writer(folder):
            return folder / "not used"
    return folder


def write_atomically(file: Path, content: bytes) -> None:
    """Write a file atomically: readers see the old or the new content, even with several writers on several hosts.

    Only the owner can write the file, and only users who may read the folder can read the file.
    """
    temporary_file = file.with_name(f".{file.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        with open(temporary_file, "wb", opener=permissions.opener) as opened:
            opened.write(content)
        temporary_file.replace(file)
    except OSError:
        with suppress(OSError):
            temporary_file.unlink()
        raise


def run_index_folder() -> Path:
    """Return the folder of links to the user's run directories; the names of the links sort by time."""
    return _state_folder() / "runs"


def make_state_folder(folder: Path) -> None:
    """Create a folder below the user's state folder that only the user can write."""
    permissions.make_own_folder(folder, is_private=True)
    for one in (folder, folder.parent):
        folder_stat = one.stat()
        if folder_stat.st_uid == os.geteuid() and folder_stat.st_mode & permissions.WRITE:
            one.chmod(folder_stat.st_mode & ~permissions.WRITE)


def site_test_folder() -> Path:
    """Return the folder for results of ``hpcrun site test`` if the user cannot write the folder of the site file."""
    return _state_folder() / "tested"


def _state_folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or home_folder() / ".local" / "state") / "hpcrun"
