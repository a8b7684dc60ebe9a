"""The tables of a site file that apply to a job: those of its partition, QoS, constraint and account."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError, closest_feature
from hpcrun.field_checks import FieldError
from hpcrun.resources import FEATURE, Resources, is_valid
from hpcrun.sites.partition import LEVELS

if TYPE_CHECKING:
    from hpcrun.sites.model import Site


def resolve_site(options: dict[str, Any], site: Site) -> Site:
    """Return the site resolved for the partition, QoS, constraint and account among a job's options.

    Raises:
        HpcrunError: The site has no such partition.
    """
    requested = parse_resources({name: options[name] for name in _SELECTING if options.get(name)})
    return site.resolve(select_levels(requested, site, Resources()))


_SELECTING = "partition", "qos", "constraint", "account"
"""The options that select tables of the site file, in the order in which the default of one may depend on others."""


def select_levels(requested: Resources, site: Site, program: Resources) -> Resources:
    """Return a job's partition (the only one, if the site has only one), QoS, constraint and account."""
    selected = Resources()
    for option in _SELECTING:
        defaults = site.resolve(selected).defaults
        value = getattr(requested.with_defaults(defaults).with_defaults(program), option)
        if option == "partition" and len(site.partitions) == 1:
            value = value or next(iter(site.partitions))
        selected = replace(selected, **{option: value})
    return selected


def warn_of_misspelled(requested: Resources, site: Site) -> list[str]:
    """Return warnings about a QoS, constraint or account that is nearly one of the site's; others are allowed.

    Args:
        requested: What the command line gives.
        site: The site as its files declare it.
    """
    levels = [level for table in LEVELS for level in getattr(site, table).values()]
    warnings = []
    for table, option in (("qos", "qos"), ("constraints", "constraint"), ("accounts", "account")):
        values = [getattr(one, option) or "" for one in (site.defaults, *(level.defaults for level in levels))]
        known = [name for text in (*getattr(site, table), *values) for name in FEATURE.findall(text)]
        given = getattr(requested, option) or ""
        likes = {name: "" if name in known else closest_feature(name, known) for name in FEATURE.findall(given)}
        if any(likes.values()):
            meant = FEATURE.sub(lambda word, likes=likes: likes[word[0]] or word[0], given)
            what = f"site {site.name} lists no {LEVELS[table]} {', '.join(name for name in likes if likes[name])}"
            warnings.append(f"{what}; did you mean --{option}={meant}?")
    return warnings


def parse_resources(options: dict[str, Any]) -> Resources:
    """Return the resources that a job's options request.

    Raises:
        HpcrunError: An option is unknown, or its value invalid.
    """
    known = [field.name for field in fields(Resources)]
    for name in options:
        if name not in known:
            raise HpcrunError(f"unknown option {name!r}", hint=f"one of {', '.join(known)}")
    try:
        return Resources(**options)
    except FieldError as error:
        from hpcrun import resource_hints

        option = f"--{error.field.replace('_', '-')}={error.value}"
        hint = resource_hints.hint(error.field, error.value, is_valid)
        raise HpcrunError(f"{option}: {error.reason}", hint=hint) from None
