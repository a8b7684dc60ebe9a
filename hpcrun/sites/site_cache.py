"""A cache of validated sites as JSON: importing pydantic to validate a site again takes 80 ms.

The cache contains plain data: reading a file creates only instances of the classes of a site; a file with other fields
is ignored.
"""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from zlib import crc32

from hpcrun import paths
from hpcrun.resources import Resources
from hpcrun.sites import limits, partition, site_model, software_tables, tables

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.sites.site_model import Site

_CLASS_KEY = ":class"
"""The JSON key for the class name of an object; no field has this name."""

MODULES = (limits, site_model, partition, tables, software_tables)
_CLASSES: dict[str, type[Any]] = {
    name: kind
    for module in MODULES
    for name, kind in vars(module).items()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind)
} | {"Resources": Resources}


def read_site(key: str) -> Site | None:
    """Return the site that is cached under a key; None if the cache has no such key."""
    try:
        content = json.loads(_cache_file(key).read_bytes())
        site = _from_json(content["site"]) if content["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return site if isinstance(site, site_model.Site) else None


def write_site(key: str, site: Site) -> None:
    """Store a site; errors are ignored, because the site can be validated again."""
    with suppress(OSError, TypeError):
        paths.write_atomically(_cache_file(key), json.dumps({"key": key, "site": _to_json(site)}).encode())


def _cache_file(key: str) -> Path:
    """Return the cache file of a key; the file contains the key, because other keys may have the same checksum."""
    return paths.user_cache_folder("sites") / f"{crc32(key.encode(errors='surrogateescape')):08x}.json"


def _to_json(value: Any) -> Any:
    """Convert a value to JSON: tuples to lists, objects to dicts of their fields and class."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {_CLASS_KEY: type(value).__name__, **{name: _to_json(one) for name, one in vars(value).items()}}
    if isinstance(value, dict):
        return {str(name): _to_json(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return [_to_json(one) for one in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{value!r} is not a value of a site")


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(one) for one in value)
    if not isinstance(value, dict):
        return value
    content = {name: _from_json(one) for name, one in value.items() if name != _CLASS_KEY}
    if _CLASS_KEY not in value:
        return content
    site_class = _CLASSES[value[_CLASS_KEY]]
    if content.keys() != {field.name for field in dataclasses.fields(site_class)}:
        raise TypeError(f"{site_class.__name__} has other fields")
    instance = object.__new__(site_class)
    vars(instance).update(content)
    return instance
