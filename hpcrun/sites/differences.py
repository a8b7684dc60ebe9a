"""The values in which two sites differ, regardless of the files that set them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpcrun.frozen import frozen
from hpcrun.sites.partition import LEVELS

if TYPE_CHECKING:
    from collections.abc import Collection

    from hpcrun.sites.line_numbers import Key
    from hpcrun.sites.loader import LoadedSite


@frozen
class Difference:
    """A key with different values on two sites.

    Attributes:
        key: The key path.
        values: The values of both sites; None if a site does not have the key.
        origins: The ``file:line`` of both values; None for a default.
    """

    key: Key
    values: tuple[Any, Any]
    origins: tuple[str | None, str | None]


def find_differences(first_site: LoadedSite, second_site: LoadedSite) -> list[Difference]:
    """Return the differences between the values of two sites, including defaults."""
    loaded_sites = (first_site, second_site)
    flat_values = [_flatten(asdict(loaded_site.site), loaded_site.origins) for loaded_site in loaded_sites]
    for flat in flat_values:
        flat.pop(("name",))
    return [
        Difference(
            key,
            (flat_values[0].get(key), flat_values[1].get(key)),
            (
                _origin(first_site, key) if key in flat_values[0] else None,
                _origin(second_site, key) if key in flat_values[1] else None,
            ),
        )
        for key in sorted({*flat_values[0], *flat_values[1]})
        if flat_values[0].get(key) != flat_values[1].get(key)
    ]


def _origin(loaded_site: LoadedSite, key: Key) -> str | None:
    return loaded_site.find_origin(key) if key in loaded_site.origins else None


def _flatten(table: dict[str, Any], explicit_keys: Collection[Key], parent: Key = ()) -> dict[Key, Any]:
    """Return a site's values by key path; for a partition, QoS, constraint or account, only the keys that it sets."""
    values_by_key: dict[Key, Any] = {}
    # a partition, QoS, constraint or account takes all other values from the site
    is_level = bool(parent) and parent[0] in LEVELS
    for name, value in table.items():
        key = (*parent, name)
        if isinstance(value, dict):
            if is_level and len(key) == 2:
                values_by_key[key] = {}
            values_by_key |= _flatten(value, explicit_keys, key)
        elif value not in (None, (), "") and (key in explicit_keys or not is_level):
            values_by_key[key] = value
    return values_by_key
