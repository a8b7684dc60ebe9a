"""Sweeps: one task for each combination of values, all of them one array of jobs."""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Axis = tuple[str, tuple[str, ...]]
    Values = tuple[tuple[str, str], ...]

MOST_TASKS = 10_000

_HINT = "for example --sweep lr=0.1,0.01 --sweep seed=1..5"
_RANGE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(\d{1,9}))?")


def axis(word: str) -> Axis:
    """Return what is swept, and its values.

    Args:
        word: ``NAME=VALUE,VALUE,...``, or ``NAME=FIRST..LAST`` and ``NAME=FIRST..LAST..STEP`` for whole numbers.

    Raises:
        HpcrunError: The word is not of this form.
    """
    name, equals, text = word.partition("=")
    if not equals:
        raise HpcrunError(f"--sweep {word}: not NAME=VALUES", hint=_HINT)
    if not (match := _RANGE.fullmatch(text)):
        return name, tuple(text.split(","))
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if not step or abs(last - first) // step >= MOST_TASKS:
        what = f"more than {MOST_TASKS} values" if step else "a step of 0"
        raise HpcrunError(f"--sweep {word}: {what}", hint=_HINT)
    way = 1 if first <= last else -1
    return name, tuple(str(number) for number in range(first, last + way, way * step))


def combinations(axes: Sequence[Axis]) -> list[Values]:
    """Return the values of each task: every combination, the last axis's values changing fastest.

    Args:
        axes: What is swept, each with its values.

    Raises:
        HpcrunError: A name or a value cannot be one, or comes twice, or there are too many combinations.
    """
    names = [name for name, _ in axes]
    for name, values in axes:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", name):
            raise HpcrunError(f"--sweep: {name!r} is no option's name", hint=_HINT)
        if names.count(name) > 1:
            raise HpcrunError(f"--sweep {name} is given twice", hint=f"name its values at once: {name}=1,2,3")
        if not values or not all(value and value.isprintable() for value in values):
            raise HpcrunError(f"--sweep {name}: an empty value, or one that cannot be printed", hint=_HINT)
        if len(set(values)) < len(values):
            raise HpcrunError(f"--sweep {name}: a value comes twice: {', '.join(values)}", hint=_HINT)
    if (count := prod(len(values) for _, values in axes)) > MOST_TASKS:
        hint = "Slurm's MaxArraySize (scontrol show config) may allow even fewer"
        raise HpcrunError(f"--sweep: {count} tasks, and {MOST_TASKS} are the most", hint=hint)
    return [tuple(zip(names, values, strict=True)) for values in product(*(values for _, values in axes))]


def tasks(axes: Sequence[Axis], args: Sequence[str]) -> list[tuple[Values, tuple[str, ...]]]:
    """Return each task's values and arguments; none where nothing is swept.

    Args:
        axes: What is swept, each with its values.
        args: What followed ``--``.

    Raises:
        HpcrunError: See `combinations`.
    """
    return [(values, arguments(args, values)) for values in combinations(axes)] if axes else []


def arguments(args: Sequence[str], values: Values) -> tuple[str, ...]:
    """Return a task's arguments: its values stand where ``{NAME}`` does, and else come last, as ``--NAME=VALUE``.

    Args:
        args: What followed ``--``.
        values: The task's values.
    """
    found = list(args)
    for name, value in values:
        place = f"{{{name}}}"
        if any(place in arg for arg in found):
            found = [arg.replace(place, value) for arg in found]
        else:
            found.append(f"--{name}={value}")
    return tuple(found)


def words(values: Iterable[Sequence[str]]) -> str:
    """Return a task's values as people read them: ``lr=0.1 seed=2``."""
    return " ".join(f"{name}={value}" for name, value in values)
