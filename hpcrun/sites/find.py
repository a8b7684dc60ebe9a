"""Finding a site: search path, layers, ``extends``, and the file and line that each value came from."""

from __future__ import annotations

import hashlib
import os
import shutil
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import paths
from hpcrun.errors import HpcrunError, nearest
from hpcrun.sites.lines import line_of
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.sites.model import Site

Key = tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """A site, and how it was found.

    Attributes:
        site: The validated site.
        chosen_by: What named it, such as ``--site``.
        origins: The file each value came from, by its key path.
    """

    site: Site
    chosen_by: str
    origins: dict[Key, Path]

    def origin(self, key: Key) -> str | None:
        """Return ``file:line`` of a value, None where it is the model's default."""
        file = self.origins.get(key)
        return f"{file}:{line_of(file.read_text(), key)}" if file else None


def _read(file: Path) -> dict[str, Any]:
    try:
        return _parsed(file, file.stat().st_mtime_ns)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HpcrunError(f"{file}: not a TOML file: {error}", hint="see https://toml.io") from None
    except OSError as error:
        raise HpcrunError(f"{file}: {error.strerror}", hint="the file must be readable by you") from None


@cache
def _parsed(file: Path, _changed: int) -> dict[str, Any]:
    return tomllib.loads(file.read_text())


def files() -> dict[str, list[Path]]:
    """Return every site's files, lowest layer first, by the site's name."""
    found: dict[str, list[Path]] = {}
    for _, folder in paths.layers():
        if folder.is_dir():
            for file in sorted(folder.glob("*.toml")):
                found.setdefault(file.stem, []).append(file)
    return found


def _merge(lower: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    merged = dict(lower)
    for key, value in upper.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _leaves(table: dict[str, Any], prefix: Key = ()) -> list[Key]:
    keys: list[Key] = []
    for name, value in table.items():
        keys.append((*prefix, name))
        if isinstance(value, dict):
            keys += _leaves(value, (*prefix, name))
    return keys


def _layered(
    name: str, known: dict[str, list[Path]], chain: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[Key, Path]]:
    if name not in known:
        like = nearest(name, list(known))
        raise HpcrunError(
            f"there is no site {name!r}" + (f" (extended by {chain[-1]})" if chain else ""),
            hint=(f"did you mean {like}? " if like else "") + f"known sites: {', '.join(sorted(known))}",
        )
    if name in chain:
        raise HpcrunError(f"sites extend each other in a circle: {' > '.join([*chain, name])}", hint="break the circle")
    values: dict[str, Any] = {}
    origins: dict[Key, Path] = {}
    for file in known[name]:
        own = dict(_read(file))
        base = own.pop("extends", None)
        if base is not None and not isinstance(base, str):
            raise HpcrunError(f"{file}:{line_of(file.read_text(), ('extends',))}: extends = {base!r}: name one site")
        if "name" in own:
            raise HpcrunError(
                f"{file}:{line_of(file.read_text(), ('name',))}: a site's name is its file's", hint="remove it"
            )
        if base:
            below, below_origins = _layered(base, known, [*chain, name])
            values, origins = _merge(values, below), {**origins, **below_origins}
        values = _merge(values, own)
        origins.update(dict.fromkeys(_leaves(own), file))
    return values, origins


def load(name: str, chosen_by: str = "by name") -> Found:
    """Load, merge and validate one site.

    Args:
        name: A site's name, or the path of a site file (then it stands above all layers of its name).
        chosen_by: What named it, for people.

    Raises:
        HpcrunError: Unknown site, or a file that does not fit the model; names file, line and value.
    """
    known = files()
    if name.endswith(".toml") or "/" in name:
        file = Path(name).expanduser().absolute()
        if not file.is_file():
            raise HpcrunError(f"there is no site file {name}", hint="--site takes a name or a path; hpcrun site list")
        name = file.stem
        known[name] = [*(one for one in known.get(name, []) if one != file), file]
    values, origins = _layered(name, known)
    return Found(_validated({**values, "name": name}, origins), chosen_by, origins)


def _validated(values: dict[str, Any], origins: dict[Key, Path]) -> Site:
    """Validate a site's merged values, or take what came of the same values before: importing pydantic takes 80 ms."""
    import pickle

    from hpcrun import resources
    from hpcrun.sites import model

    changed = [Path(str(module.__file__)).stat().st_mtime_ns for module in (model, resources)]
    version = f"{__version__} {changed}"
    name = hashlib.sha256(repr((version, values)).encode()).hexdigest()
    kept = paths.cache("sites") / name
    try:
        site: Site = pickle.loads(kept.read_bytes())  # noqa: S301 - this user's own, in a folder of mode 0700
    except (OSError, ValueError, EOFError, AttributeError, ImportError, pickle.UnpicklingError):
        from hpcrun.sites.validate import validate

        site = validate(values, origins)
        with suppress(OSError):
            paths.write(kept, pickle.dumps(site))
    return site


def detect(explicit: str | None = None) -> Found:
    """Choose the site: ``--site``, ``$HPCRUN_SITE``, a host pattern, ``slurm`` where sbatch is, else ``local``."""
    if explicit:
        return load(explicit, "--site")
    if name := os.environ.get("HPCRUN_SITE"):
        return load(name, "$HPCRUN_SITE")
    host = os.uname().nodename
    for name, layered in files().items():
        for file in reversed(layered):
            patterns = _read(file).get("hosts", ())
            for pattern in patterns if isinstance(patterns, list) else ():
                if fnmatchcase(host, str(pattern)) or fnmatchcase(host.split(".")[0], str(pattern)):
                    return load(name, f"host {host} matches {pattern}")
    if shutil.which("sbatch"):
        return load("slurm", "sbatch is here, and no site's host pattern matches")
    return load("local", "there is no sbatch here")
