"""Parsing and formatting of Slurm's hostlist expressions (``n[01-03,7]``) and counts per node (``2(x3),1``)."""

from __future__ import annotations

import re
from itertools import chain, product
from math import prod
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_HOSTS = 1_000_000
"""Maximum number of hosts in a nodelist; a larger number is probably a typing error, and would exhaust the memory."""

_ITEM_OR_SEPARATOR = re.compile(r"((?:[^, \t\r\n\[\]]+|\[[^\[\]]*\])+)|[, \t\r\n]+")
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_.-]+")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NUMBERED_NAME = re.compile(r"(?P<before>.*?)(?P<number>[0-9]{1,18})(?P<after>[^0-9]*)")
_COUNT = re.compile(r"([1-9][0-9]{0,8})(?:\(x([1-9][0-9]{0,8})\))?")


def expand_nodelist(nodelist: str) -> list[str]:
    """Expand a hostlist expression, in the order of ``scontrol show hostnames``.

    Commas or blanks separate items. Brackets contain numbers and ranges; all numbers of a range have the width of the
    first number (``n[08-10]`` is n08, n09, n10). With several brackets, the number in the last brackets varies fastest,
    then the numbers in the first, the second and so on, as in Slurm. Duplicates are kept.

    Args:
        nodelist: For example ``rack[1-2]n[01-03]``, ``n[1-3,5]-ib,login1`` or ``$SLURM_JOB_NODELIST``.

    Returns:
        The host names.

    Raises:
        HpcrunError: The text is empty, its brackets are unbalanced, a range is empty or descends, a character is
            invalid in host names, or there are more than ``MAX_HOSTS`` names.

    Source:
        ``_push_range_list`` in Slurm's src/common/hostlist.c (Slurm 22.05 does not support suffixes after brackets).
    """
    if _ITEM_OR_SEPARATOR.sub("", nodelist):
        raise _invalid_nodelist(nodelist, "its brackets are unbalanced")
    hosts: list[str] = []
    for item in filter(None, _ITEM_OR_SEPARATOR.findall(nodelist)):
        literals, ranges = _split_brackets(item)
        if not _HOST_NAME.fullmatch("0".join(literals)):
            raise _invalid_nodelist(nodelist, f"{item!r} is not a host name")
        if not ranges:
            hosts.append(item)
            continue
        brackets = [[_parse_range(part, nodelist) for part in text.split(",")] for text in ranges]
        count = prod(sum(last - first + 1 for first, last, _ in spans) for spans in brackets)
        if len(hosts) + count > MAX_HOSTS:
            raise _invalid_nodelist(nodelist, f"it names more than {MAX_HOSTS:,} hosts")
        *slow_numbers, fast_numbers = [
            [number for span in spans for number in _format_numbers(*span)] for spans in brackets
        ]
        *prefixes, last_prefix, suffix = literals
        name_ends = [last_prefix + number + suffix for number in fast_numbers]
        for numbers in product(*slow_numbers[::-1]):
            name_start = "".join(chain(*zip(prefixes, numbers[::-1], strict=True)))
            hosts += [name_start + name for name in name_ends] if slow_numbers else name_ends
    if not hosts:
        raise _invalid_nodelist(nodelist, "it names no host")
    return hosts


def is_host_name(name: object) -> bool:
    """Return whether a value can be a host name: it has only valid characters, and does not begin with a dash."""
    return isinstance(name, str) and bool(_HOST_NAME.fullmatch(name))


def expand_counts(text: str) -> list[int]:
    """Expand counts in the format of ``SLURM_TASKS_PER_NODE`` to one count per host.

    Args:
        text: For example ``2(x3),1``.

    Returns:
        The counts in the order of the job's nodelist: ``[2, 2, 2, 1]`` in the example.

    Raises:
        HpcrunError: The text is not in this format, or has more than ``MAX_HOSTS`` counts.

    Source:
        ``SLURM_TASKS_PER_NODE`` in sbatch(1).
    """
    counts: list[int] = []
    for part in text.strip().split(","):
        match = _COUNT.fullmatch(part)
        repetitions = int(match[2] or 1) if match else 0
        if not match or len(counts) + repetitions > MAX_HOSTS:
            raise HpcrunError(f"{_shorten(text)} is not a list of counts per node", hint="write it as in 2(x3),1")
        counts += [int(match[1])] * repetitions
    return counts


def fold_hosts(hosts: Iterable[str]) -> str:
    """Format hosts as a nodelist, with brackets for names that differ only in their last number, as Slurm does.

    Args:
        hosts: Host names, such as ``n1``, ``n2``, ``n4`` and ``login``; duplicates are dropped.

    Returns:
        A nodelist, ``n[1-2,4],login`` in the example, which `expand_nodelist` expands.
    """
    names = {host: _NUMBERED_NAME.fullmatch(host) for host in hosts}
    padded_patterns = {_name_pattern(name) for name in names.values() if name and name["number"].startswith("0")}
    groups: dict[tuple[str, str, int], list[int]] = {}
    for host, name in names.items():
        if name:
            before, after, width = _name_pattern(name)
            group = (before, after, width if (before, after, width) in padded_patterns else 0)
            groups.setdefault(group, []).append(int(name["number"]))
        else:
            groups[host, "", -1] = []  # -1: separate a host without a number from hosts such as ``n1``
    return ",".join(_format_group(*group, sorted(numbers)) for group, numbers in groups.items())


def host_sort_key(host: str) -> list[tuple[str, int]]:
    """Return a sort key of host names that sorts n10 after n9."""
    return [(letters, int(digits or 0)) for letters, digits in re.findall(r"([^0-9]*)([0-9]{0,18})", host)]


def _name_pattern(match: re.Match[str]) -> tuple[str, str, int]:
    return match["before"], match["after"], len(match["number"])


def _format_group(prefix: str, suffix: str, width: int, numbers: list[int]) -> str:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    range_texts = [f"{first:0{width}d}" + (f"-{last:0{width}d}" if last > first else "") for first, last in ranges]
    return prefix + (f"[{','.join(range_texts)}]" if len(numbers) > 1 else "".join(range_texts)) + suffix


def _split_brackets(item: str) -> tuple[list[str], list[str]]:
    pieces = re.split(r"\[([^\[\]]*)\]", item)
    return pieces[::2], pieces[1::2]


def _parse_range(range_text: str, nodelist: str) -> tuple[int, int, int]:
    match = _RANGE.fullmatch(range_text)
    if not match:
        raise _invalid_nodelist(nodelist, f"{range_text!r} in brackets is neither a number nor a range")
    first_number, last_number = int(match[1]), int(match[2] or match[1])
    if last_number < first_number:
        raise _invalid_nodelist(nodelist, f"the range {range_text} descends")
    return first_number, last_number, len(match[1])


def _format_numbers(first_number: int, last_number: int, width: int) -> list[str]:
    """Format the numbers of a range with leading zeros; numbers of the same length are formatted together for speed."""
    texts: list[str] = []
    while first_number <= last_number:
        length = len(str(first_number))
        last_number_of_length = min(last_number, 10**length - 1)
        zeros, numbers = "0" * (width - length), map(str, range(first_number, last_number_of_length + 1))
        texts += [zeros + number for number in numbers] if zeros else numbers
        first_number = last_number_of_length + 1
    return texts


def _invalid_nodelist(nodelist: str, reason: str) -> HpcrunError:
    return HpcrunError(
        f"{_shorten(nodelist)} is not a nodelist: {reason}", hint="write hosts as in n1,n2 or rack[1-2]n[01-16]"
    )


def _shorten(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:197]!r}..."
