"""The values in which two sites differ, regardless of the files that set them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hpcrun.sites.partition import LEVELS

if TYPE_CHECKING:
    from collections.abc import Collection

    from hpcrun.sites.line_numbers import Key
    from hpcrun.sites.loader import LoadedSite


@dataclass(frozen=True)
class Difference:
    """A key with different values on two sites.

    Attributes:
        key: The key path.
        values: The values of both sites; None where a site has none.
        origins: The ``file:line`` of both values; None for a default.
    """

    key: Key
    values: tuple[Any, Any]
    origins: tuple[str | None, str | None]


def find_differences(one: LoadedSite, other: LoadedSite) -> list[Difference]:
    """Return the keys with different values on two sites, defaults included."""
    sides = (one, other)
    values = [_flatten(asdict(loaded_site.site), loaded_site.origins) for loaded_site in sides]
    for flat in values:
        flat.pop(("name",))
    return [
        Difference(
            key,
            (values[0].get(key), values[1].get(key)),
            (_origin(one, key) if key in values[0] else None, _origin(other, key) if key in values[1] else None),
        )
        for key in sorted({*values[0], *values[1]})
        if values[0].get(key) != values[1].get(key)
    ]


def _origin(loaded_site: LoadedSite, key: Key) -> str | None:
    return loaded_site.find_origin(key) if key in loaded_site.origins else None


def _flatten(table: dict[str, Any], said: Collection[Key], above: Key = ()) -> dict[Key, Any]:
    """Return a site's values by key path; each table for some jobs is empty."""
    flat: dict[Key, Any] = {}
    listed = bool(above) and above[0] in LEVELS  # jobs get values that it does not set from the site
    for name, value in table.items():
        key = (*above, name)
        if isinstance(value, dict):
            if listed and len(key) == 2:
                flat[key] = {}
            flat |= _flatten(value, said, key)
        elif value not in (None, (), "") and (key in said or not listed):
            flat[key] = value
    return flat
