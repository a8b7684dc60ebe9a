"""Slurm's hostlist expressions (``n[01-03,7]``) and counts per node (``2(x3),1``): parsed and formatted."""

from __future__ import annotations

import re
from itertools import chain, product
from math import prod
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_HOSTS = 1_000_000
"""Maximum number of hosts in a nodelist; a larger number is probably a typing error, and would fill the memory."""

_ITEM = re.compile(r"((?:[^, \t\r\n\[\]]+|\[[^\[\]]*\])+)|[, \t\r\n]+")
_NAME = re.compile(r"(?!-)[A-Za-z0-9_.-]+")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NUMBERED = re.compile(r"(?P<before>.*?)(?P<number>[0-9]{1,18})(?P<after>[^0-9]*)")
_COUNT = re.compile(r"([1-9][0-9]{0,8})(?:\(x([1-9][0-9]{0,8})\))?")


def expand_nodelist(nodelist: str) -> list[str]:
    """Expand a hostlist expression, in the order of ``scontrol show hostnames``.

    Items are separated by commas or blanks. Brackets hold numbers and ranges; the width of a range's first
    number is kept (``n[08-10]`` is n08, n09, n10). With several brackets, the last varies fastest, then the
    first, the second and so on, as in Slurm. Duplicates are kept.

    Args:
        nodelist: For example ``rack[1-2]n[01-03]``, ``n[1-3,5]-ib,login1`` or ``$SLURM_JOB_NODELIST``.

    Returns:
        The host names.

    Raises:
        HpcrunError: An empty text, unbalanced brackets, an empty or descending range, a character that is
            invalid in host names, or more than ``MAX_HOSTS`` names.

    Source:
        ``_push_range_list`` in Slurm's src/common/hostlist.c (Slurm 22.05 does not support suffixes after brackets).
    """
    if _ITEM.sub("", nodelist):
        raise _invalid_nodelist(nodelist, "its brackets are unbalanced")
    hosts: list[str] = []
    for item in filter(None, _ITEM.findall(nodelist)):
        literals, ranges = _split_brackets(item)
        if not _NAME.fullmatch("0".join(literals)):
            raise _invalid_nodelist(nodelist, f"{item!r} is not a host name")
        if not ranges:
            hosts.append(item)
            continue
        brackets = [[_parse_range(part, nodelist) for part in text.split(",")] for text in ranges]
        count = prod(sum(last - first + 1 for first, last, _ in spans) for spans in brackets)
        if len(hosts) + count > MAX_HOSTS:
            raise _invalid_nodelist(nodelist, f"it names more than {MAX_HOSTS:,} hosts")
        *slow, fast = [[number for span in spans for number in _format_numbers(*span)] for spans in brackets]
        *before_slow, before_fast, end = literals
        names = [before_fast + number + end for number in fast]
        for numbers in product(*slow[::-1]):
            start = "".join(chain(*zip(before_slow, numbers[::-1], strict=True)))
            hosts += [start + name for name in names] if slow else names
    if not hosts:
        raise _invalid_nodelist(nodelist, "it names no host")
    return hosts


def is_host_name(name: object) -> bool:
    """Return whether a value can be a host name: it has only valid characters, and no command reads it as an option."""
    return isinstance(name, str) and bool(_NAME.fullmatch(name))


def expand_counts(text: str) -> list[int]:
    """Expand counts in the format of ``SLURM_TASKS_PER_NODE`` to one count per host.

    Args:
        text: For example ``2(x3),1``.

    Returns:
        The counts in the order of the job's nodelist: ``[2, 2, 2, 1]`` in the example.

    Raises:
        HpcrunError: The text has another format, or more than ``MAX_HOSTS`` counts.

    Source:
        ``SLURM_TASKS_PER_NODE`` in sbatch(1).
    """
    counts: list[int] = []
    for part in text.strip().split(","):
        match = _COUNT.fullmatch(part)
        times = int(match[2] or 1) if match else 0
        if not match or len(counts) + times > MAX_HOSTS:
            raise HpcrunError(f"{_shorten(text)} is not a list of counts per node", hint="write it as in 2(x3),1")
        counts += [int(match[1])] * times
    return counts


def fold_hosts(hosts: Iterable[str]) -> str:
    """Format hosts as Slurm does, with brackets for names that differ in their last number only.

    Args:
        hosts: Host names, such as ``n1``, ``n2``, ``n4`` and ``login``; duplicates are dropped.

    Returns:
        A nodelist, ``n[1-2,4],login`` in the example, which `expand_nodelist` expands.
    """
    names = {host: _NUMBERED.fullmatch(host) for host in hosts}
    padded = {_name_pattern(name) for name in names.values() if name and name["number"].startswith("0")}
    groups: dict[tuple[str, str, int], list[int]] = {}
    for host, name in names.items():
        if name:
            before, after, width = _name_pattern(name)
            group = (before, after, width if (before, after, width) in padded else 0)
            groups.setdefault(group, []).append(int(name["number"]))
        else:
            groups[host, "", -1] = []  # kept apart from hosts of this name with a number
    return ",".join(_format_group(*group, sorted(numbers)) for group, numbers in groups.items())


def host_sort_key(host: str) -> list[tuple[str, int]]:
    """Return the sort key of a host name; n10 comes after n9."""
    return [(letters, int(digits or 0)) for letters, digits in re.findall(r"([^0-9]*)([0-9]{0,18})", host)]


def _name_pattern(name: re.Match[str]) -> tuple[str, str, int]:
    return name["before"], name["after"], len(name["number"])


def _format_group(before: str, after: str, width: int, numbers: list[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    words = [f"{first:0{width}d}" + (f"-{last:0{width}d}" if last > first else "") for first, last in spans]
    return before + (f"[{','.join(words)}]" if len(numbers) > 1 else "".join(words)) + after


def _split_brackets(item: str) -> tuple[list[str], list[str]]:
    pieces = re.split(r"\[([^\[\]]*)\]", item)
    return pieces[::2], pieces[1::2]


def _parse_range(part: str, nodelist: str) -> tuple[int, int, int]:
    match = _RANGE.fullmatch(part)
    if not match:
        raise _invalid_nodelist(nodelist, f"{part!r} in brackets is neither a number nor a range")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise _invalid_nodelist(nodelist, f"the range {part} descends")
    return first, last, len(match[1])


def _format_numbers(first: int, last: int, width: int) -> list[str]:
    """Format the numbers of a range with leading zeros, all numbers of one length at a time, which is fastest."""
    found: list[str] = []
    while first <= last:
        length = len(str(first))
        end = min(last, 10**length - 1)
        zeros, numbers = "0" * (width - length), map(str, range(first, end + 1))
        found += [zeros + number for number in numbers] if zeros else numbers
        first = end + 1
    return found


def _invalid_nodelist(nodelist: str, reason: str) -> HpcrunError:
    return HpcrunError(
        f"{_shorten(nodelist)} is not a nodelist: {reason}", hint="write hosts as in n1,n2 or rack[1-2]n[01-16]"
    )


def _shorten(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:197]!r}..."
