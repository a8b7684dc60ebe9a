"""Slurm's shorthand for many hosts (``n[01-03,7]``) and many counts (``2(x3),1``), written out."""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_HOSTS = 1_000_000
"""The most hosts that brackets may stand for: more is a slip of the fingers, and would fill the memory."""

_ITEM = re.compile(r"((?:[^, \t\r\n\[\]]+|\[[^\[\]]*\])+)|[, \t\r\n]+")
_NAME = re.compile(r"(?!-)[A-Za-z0-9_.-]+")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NUMBERED = re.compile(r"(?P<before>.*?)(?P<number>[0-9]{1,18})(?P<after>[^0-9]*)")
_COUNT = re.compile(r"([1-9][0-9]{0,8})(?:\(x([1-9][0-9]{0,8})\))?")


def expand_nodelist(nodelist: str) -> list[str]:
    """Write out a hostlist expression, in the order of ``scontrol show hostnames``.

    Items are separated by commas or blanks. Brackets hold numbers and ranges; the width of a range's first
    number is kept (``n[08-10]`` is n08, n09, n10). Of several brackets the last varies fastest, then the
    first, the second and so on, as Slurm does it. Duplicates stay.

    Args:
        nodelist: For example ``rack[1-2]n[01-03]``, ``n[1-3,5]-ib,login1`` or ``$SLURM_JOB_NODELIST``.

    Returns:
        The host names.

    Raises:
        HpcrunError: Nothing given, unbalanced brackets, a range that is empty or descends, a character that
            no host name has, or more than ``MAX_HOSTS`` names.

    Source:
        ``_push_range_list`` in Slurm's src/common/hostlist.c (Slurm 22.05 has no suffix after brackets yet).
    """
    if _ITEM.sub("", nodelist):
        raise _wrong(nodelist, "its brackets do not pair up")
    hosts: list[str] = []
    for item in filter(None, _ITEM.findall(nodelist)):
        literals, ranges = _split(item)
        if not _NAME.fullmatch("0".join(literals)):
            raise _wrong(nodelist, f"{item!r} is no host name")
        if not ranges:
            hosts.append(item)
            continue
        brackets = [[_span(part, nodelist) for part in text.split(",")] for text in ranges]
        count = prod(sum(last - first + 1 for first, last, _ in spans) for spans in brackets)
        if len(hosts) + count > MAX_HOSTS:
            raise _wrong(nodelist, f"it names more than {MAX_HOSTS:,} hosts")
        *slow, fast = [
            [f"{number:0{width}d}" for first, last, width in spans for number in range(first, last + 1)]
            for spans in brackets
        ]
        template = "%s".join(literals)
        hosts += [template % (*others[::-1], digits) for *others, digits in product(*slow[::-1], fast)]
    if not hosts:
        raise _wrong(nodelist, "it names no host")
    return hosts


def is_host_name(name: object) -> bool:
    """Return whether something can be a host's name: no option of a command, and no character that a name has not."""
    return isinstance(name, str) and bool(_NAME.fullmatch(name))


def expand_counts(text: str) -> list[int]:
    """Write out one count per host from the form that ``SLURM_TASKS_PER_NODE`` has.

    Args:
        text: For example ``2(x3),1``.

    Returns:
        The counts in the order of the job's nodelist, here ``[2, 2, 2, 1]``.

    Raises:
        HpcrunError: Anything else, or more than ``MAX_HOSTS`` counts.

    Source:
        ``SLURM_TASKS_PER_NODE`` in sbatch(1).
    """
    counts: list[int] = []
    for part in text.strip().split(","):
        match = _COUNT.fullmatch(part)
        times = int(match[2] or 1) if match else 0
        if not match or len(counts) + times > MAX_HOSTS:
            raise HpcrunError(f"{_short(text)} is no list of counts per node", hint="write it as in 2(x3),1")
        counts += [int(match[1])] * times
    return counts


def fold_hosts(hosts: Iterable[str]) -> str:
    """Write hosts as Slurm does, in brackets where their names differ in their last number only.

    Args:
        hosts: Host names, such as ``n1``, ``n2``, ``n4`` and ``login``; each is told once.

    Returns:
        Here ``n[1-2,4],login``; `expand_nodelist` writes it out again.
    """
    names = {host: _NUMBERED.fullmatch(host) for host in hosts}
    padded = {_shape(name) for name in names.values() if name and name["number"].startswith("0")}
    groups: dict[tuple[str, str, int], list[int]] = {}
    for host, name in names.items():
        if name:
            before, after, width = _shape(name)
            group = (before, after, width if (before, after, width) in padded else 0)
            groups.setdefault(group, []).append(int(name["number"]))
        else:
            groups[host, "", -1] = []  # apart from a host of this name with a number
    return ",".join(_folded(*group, sorted(numbers)) for group, numbers in groups.items())


def host_sort_key(host: str) -> list[tuple[str, int]]:
    """Return what to sort host names by, so that n10 comes after n9."""
    return [(letters, int(digits or 0)) for letters, digits in re.findall(r"([^0-9]*)([0-9]{0,18})", host)]


def _shape(name: re.Match[str]) -> tuple[str, str, int]:
    return name["before"], name["after"], len(name["number"])


def _folded(before: str, after: str, width: int, numbers: list[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    words = [f"{first:0{width}d}" + (f"-{last:0{width}d}" if last > first else "") for first, last in spans]
    return before + (f"[{','.join(words)}]" if len(numbers) > 1 else "".join(words)) + after


def _split(item: str) -> tuple[list[str], list[str]]:
    pieces = re.split(r"\[([^\[\]]*)\]", item)
    return pieces[::2], pieces[1::2]


def _span(part: str, nodelist: str) -> tuple[int, int, int]:
    match = _RANGE.fullmatch(part)
    if not match:
        raise _wrong(nodelist, f"{part!r} in brackets is neither a number nor a range")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise _wrong(nodelist, f"the range {part} descends")
    return first, last, len(match[1])


def _wrong(nodelist: str, why: str) -> HpcrunError:
    return HpcrunError(f"{_short(nodelist)} is no nodelist: {why}", hint="write hosts as in n1,n2 or rack[1-2]n[01-16]")


def _short(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:197]!r}..."
