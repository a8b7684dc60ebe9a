"""The tables of a site file that apply to a job: for its partition, QoS, constraint and account."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError, closest_match, closest_unambiguous_match
from hpcrun.field_checks import FieldError
from hpcrun.job_options import OPTION_NAMES
from hpcrun.resources import FEATURE_PATTERN, Resources, is_valid
from hpcrun.sites.partition import LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.sites.site_model import Site


def resolve_site(options: dict[str, Any], site: Site) -> Site:
    """Return the site resolved for the partition, QoS, constraint and account among a job's options.

    Raises:
        HpcrunError: The site does not have the requested partition.
    """
    requested_resources = parse_resources({name: options[name] for name in _LEVEL_OPTIONS if options.get(name)})
    return site.resolve(select_levels(requested_resources, site, Resources()))


_LEVEL_OPTIONS = "partition", "qos", "constraint", "account"
"""The options that select tables of a site file, in order.

A table may set defaults of the later options, and for a job that requests it by name, of the earlier ones, too.
"""


def select_levels(requested_resources: Resources, site: Site, program_defaults: Resources) -> Resources:
    """Return a job's partition (default: the only partition of the site), QoS, constraint and account."""
    selected_levels = Resources(**{option: getattr(requested_resources, option) for option in _LEVEL_OPTIONS})
    for option in _LEVEL_OPTIONS:
        defaults = site.resolve(selected_levels).defaults
        value = getattr(requested_resources.with_defaults(defaults).with_defaults(program_defaults), option)
        if option == "partition" and len(site.partitions) == 1:
            value = value or next(iter(site.partitions))
        selected_levels = replace(selected_levels, **{option: value})
    return selected_levels


def warn_of_misspelled_names(requested_resources: Resources, site: Site) -> list[str]:
    """Return warnings about a QoS, constraint or account that is probably a misspelled name from the site file.

    Args:
        requested_resources: The resources on the command line.
        site: The site as its files declare it.
    """
    levels = [level for table in LEVELS for level in getattr(site, table).values()]
    warnings = []
    for table, option in (("qos", "qos"), ("constraints", "constraint"), ("accounts", "account")):
        values = [getattr(one, option) or "" for one in (site.defaults, *(level.defaults for level in levels))]
        known_names = [name for text in (*getattr(site, table), *values) for name in FEATURE_PATTERN.findall(text)]
        requested_text = getattr(requested_resources, option) or ""
        corrections = {
            name: "" if name in known_names else closest_unambiguous_match(name, known_names)
            for name in FEATURE_PATTERN.findall(requested_text)
        }
        if any(corrections.values()):
            suggestion = FEATURE_PATTERN.sub(lambda word, names=corrections: names[word[0]] or word[0], requested_text)
            unknown_names = ", ".join(name for name, correction in corrections.items() if correction)
            problem = f"site {site.name} lists no {LEVELS[table]} {unknown_names}"
            warnings.append(f"{problem}; did you mean --{option}={suggestion}?")
    return warnings


def warn_of_missing_units(requested_resources: Resources) -> Iterator[str]:
    """Warn of a time limit or a memory size that Slurm probably reads in a smaller unit than the user expects.

    Raises:
        HpcrunError: No program starts with so little memory.
    """
    sizes = {"--mem": requested_resources.mem, "--mem-per-gpu": requested_resources.mem_per_gpu}
    if not (requested_resources.time or any(sizes.values())):
        return
    from hpcrun import resource_hints

    for option, size in sizes.items():
        if re.fullmatch(r"[1-9]\d?", str(size)):
            hint = f"{option}={size}G for {size} GiB, {option}={size}M for {size} MiB"
            raise HpcrunError(f"{option}={size} is {size} MiB, as in sbatch", hint=hint)
    warnings = [resource_hints.explain_small_memory(option, size) for option, size in sizes.items()]
    yield from filter(None, [resource_hints.explain_short_time(requested_resources.time), *warnings])


def warn_of_unsent_mail(resources: Resources) -> Iterator[str]:
    """Warn of a mail address without events: Slurm would send no mail."""
    if resources.mail_user and not resources.mail_type:
        yield f"--mail-user={resources.mail_user} gets no mail without --mail-type, such as END,FAIL"


def parse_resources(options: dict[str, Any]) -> Resources:
    """Return the resources that a job's options request.

    Raises:
        HpcrunError: An option is unknown, or its value is invalid.
    """
    option_names = [field.name for field in fields(Resources)]
    for name in options:
        if name not in option_names:
            closest_name = closest_match(name, [*option_names, *OPTION_NAMES]) or next(
                (one for one in option_names if one.startswith(name)), ""
            )
            hint = f"did you mean {closest_name}?" if closest_name else f"one of {', '.join(option_names)}"
            raise HpcrunError(f"unknown option {name!r}", hint=hint)
    if isinstance(options.get("sbatch"), str):
        raise HpcrunError(f"sbatch={options['sbatch']!r} is not a list", hint=f"sbatch={[options['sbatch']]}")
    try:
        return Resources(**options)
    except FieldError as error:
        from hpcrun import resource_hints

        option = f"--{error.field.replace('_', '-')}={error.value}"
        hint = resource_hints.hint(error.field, error.value, is_valid)
        raise HpcrunError(f"{option}: {error.reason}", hint=hint) from None
