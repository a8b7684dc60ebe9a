"""Parameter sweeps: each combination of values is a task of a job array."""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Axis = tuple[str, tuple[str, ...]]
    Values = tuple[tuple[str, str], ...]

MAX_TASKS = 10_000
_MAX_LISTED_VALUES = 20

_HINT = "for example --sweep lr=0.1,0.01 --sweep seed=1..5"
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_INTEGER = "-?[0-9]{1,99}"
_RANGE = rf"({_INTEGER})\.\.({_INTEGER})(?:\.\.([0-9]{{1,99}}))?"


def parse_axis(word: str) -> Axis:
    """Parse the value of ``--sweep``, an axis of a sweep.

    Args:
        word: ``NAME=VALUE,VALUE,...``. A value may be a range of whole numbers: ``FIRST..LAST`` or
            ``FIRST..LAST..STEP``.

    Returns:
        The name of the swept option, and its values.

    Raises:
        HpcrunError: The argument is not NAME=VALUES.
    """
    name, separator, text = word.partition("=")
    if not separator:
        raise HpcrunError(f"--sweep {word}: not NAME=VALUES", hint=_HINT)
    if text[:1] in _BRACKETS and text.endswith(_BRACKETS[text[0]]) and "," in text:
        raise HpcrunError(
            f"--sweep {word}: brackets around the values", hint=f"--sweep {name}={text[1:-1].replace(' ', '')}"
        )
    if call := re.fullmatch(r"range\((?:(\d+),)?(\d+)\)", text.replace(" ", "")):  # Python's range()
        start, stop = int(call[1] or 0), int(call[2])
        raise HpcrunError(
            f"--sweep {word}: not a range of hpcrun", hint=f"--sweep {name}={start}..{max(stop - 1, start)}"
        )
    if "," not in text and len(words := text.split()) > 1:
        hint = f"commas separate values: --sweep {name}={','.join(words)}; an argument with one value goes after --"
        raise HpcrunError(f"--sweep {word}: blanks separate no values", hint=hint)
    _require_no_other_range(name, text)
    return name, tuple(value for part in text.split(",") for value in _expand_range(name, part.strip(), text))


def _require_no_other_range(name: str, text: str) -> None:
    """Refuse a single value in a notation of other programs for ranges or lists: ``1-5``, ``1:9:2``, ``0.1;0.5``."""
    if re.fullmatch(r"\d+([-:]\d+){1,2}", text):
        hint = f"a range is --sweep {name}={'..'.join(re.split('[-:]', text))}"
    elif re.fullmatch(r"\d*\.\d+([-:]\d*\.\d+){1,2}", text):
        hint = f"list several: --sweep {name}={','.join(re.split('[-:]', text))}"
    elif re.fullmatch(r"[\w.+-]+(;[\w.+-]+)+", text):
        hint = f"commas separate values: --sweep {name}={text.replace(';', ',')}"
    else:
        return
    raise HpcrunError(f"--sweep {name}={text} is one value", hint=f"{hint}; one value goes after --: --{name}={text}")


def _expand_range(name: str, value_text: str, all_values: str) -> list[str]:
    """Return the values for a part between commas: the values of a range, or else the part itself.

    Args:
        name: The name of the swept option.
        value_text: The part.
        all_values: The text with all parts, for hints.
    """
    if not (match := re.fullmatch(_RANGE, value_text)):
        if ".." in value_text and value_text != ".." and "/" not in value_text:  # in a path, .. is the parent folder
            raise HpcrunError(
                f"--sweep {name}={value_text}: not a range of whole numbers",
                hint=_suggest_values(name, value_text, all_values),
            )
        return [value_text]
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if not step or abs(last - first) // step >= MAX_TASKS:
        problem = f"more than {MAX_TASKS} values" if step else "a step of 0"
        raise HpcrunError(f"--sweep {name}={value_text}: {problem}", hint=_HINT)
    bounds = match[1], match[2]
    has_leading_zeros = any(re.match("-?0.", end) for end in bounds)  # 01..10 keeps its leading zeros, as in bash
    width = max(map(len, bounds)) if has_leading_zeros else 0
    direction = 1 if first <= last else -1
    return [f"{number:0{width}d}" for number in range(first, last + direction, direction * step)]


def _suggest_values(name: str, value_text: str, all_values: str) -> str:
    """Return the hint for an invalid range; for a range of decimal numbers, the hint lists the values."""
    from decimal import Decimal

    if re.fullmatch(_RANGE, re.sub(r"\.{2,}", "..", value_text)):
        return f"a range has two dots: --sweep {name}={re.sub(r'[.]{2,}', '..', value_text)}"
    try:
        first, last, *steps = (Decimal(end) for end in value_text.split(".."))
        min_exponent = min(0, *(int(end.as_tuple().exponent) for end in (first, last)))
        step = abs(steps[0]) if steps else Decimal(f"1e{min_exponent}")
        value_count = int(abs(last - first) / step) + 1
    except (ArithmeticError, TypeError, ValueError):
        return f"ranges are FIRST..LAST and FIRST..LAST..STEP: {name}=1..5, {name}=0..100..10; else list the values"
    signed_step = step if first <= last else -step
    values = (
        [first + number * signed_step for number in range(value_count)]
        if value_count <= _MAX_LISTED_VALUES
        else [first, last]
    )
    listed_values = all_values.replace(value_text, ",".join(map(str, values)))
    return f"list the values: --sweep {name}={listed_values}"


def list_combinations(axes: Sequence[Axis]) -> list[Values]:
    """Return the values of each task: all combinations of values; the last axis varies fastest.

    Args:
        axes: The names and values of the swept options.

    Raises:
        HpcrunError: A name or value is invalid or repeated, or there are too many combinations.
    """
    names = [name for name, _ in axes]
    for name, values in axes:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", name):
            raise HpcrunError(f"--sweep: {name!r} is not an option name", hint=_HINT)
        if names.count(name) > 1:
            raise HpcrunError(f"--sweep {name} is given twice", hint=f"list all its values at once: {name}=1,2,3")
        if not values or not all(value and value.isprintable() for value in values):
            raise HpcrunError(f"--sweep {name}: a value is empty or not printable", hint=_HINT)
        if len(set(values)) < len(values):
            raise HpcrunError(f"--sweep {name}: a value is repeated: {', '.join(values)}", hint=_HINT)
    if (count := prod(len(values) for _, values in axes)) > MAX_TASKS:
        hint = "Slurm's MaxArraySize (scontrol show config) may allow even fewer"
        raise HpcrunError(f"--sweep: {count} tasks are more than the maximum of {MAX_TASKS}", hint=hint)
    return [tuple(zip(names, values, strict=True)) for values in product(*(values for _, values in axes))]


def build_tasks(
    axes: Sequence[Axis], args: Sequence[str], option_names: Mapping[str, str]
) -> list[tuple[Values, tuple[str, ...]]]:
    """Return the values and arguments of each task; an empty list without axes.

    Args:
        axes: The names and values of the swept options.
        args: The arguments after ``--``.
        option_names: The option to pass and to record for each name or alias.

    Raises:
        HpcrunError: See `list_combinations` and `build_arguments`.
    """
    if not axes:
        return []
    axis_names = [name for name, _ in axes]
    for name in axis_names:
        if others := [
            other
            for other in axis_names
            if other != name and option_names.get(other, other) == option_names.get(name, name)
        ]:
            hint = f"list all its values at once: {option_names.get(name, name)}=1,2,3"
            raise HpcrunError(f"--sweep {name} and --sweep {others[0]} are the same option", hint=hint)
    named_axes = [(option_names.get(name, name), values) for name, values in axes]
    return [(values, build_arguments(args, values, option_names)) for values in list_combinations(named_axes)]


def build_arguments(args: Sequence[str], values: Values, option_names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the arguments of a task. Values replace ``{NAME}`` in arguments, or are appended as ``--NAME=VALUE``.

    Args:
        args: The arguments after ``--``.
        values: The task's values.
        option_names: The option to pass for each name or alias.

    Raises:
        HpcrunError: A swept option is also given in the arguments.
    """
    arguments = list(args)
    for name, value in values:
        spellings = [name, *(spelling for spelling, option in option_names.items() if option == name != spelling)]
        placeholders = [each for each in (f"{{{one}}}" for one in spellings) if any(each in arg for arg in arguments)]
        for placeholder in placeholders:
            arguments = [arg.replace(placeholder, value) for arg in arguments]
        if placeholders:
            continue
        if given_argument := next(
            (arg for arg in args if arg.partition("=")[0] in {f"--{one}" for one in spellings}), None
        ):
            hint = (
                f"omit {given_argument}, or write {given_argument.partition('=')[0]}={{{name}}} where its values belong"
            )
            raise HpcrunError(f"--sweep {name}, and {given_argument} after --: each task would get both", hint=hint)
        arguments.append(f"--{name}={value}")
    return tuple(arguments)


def format_values(values: Iterable[Sequence[str]]) -> str:
    """Format the values of a task for messages, as in ``lr=0.1 seed=2``."""
    return " ".join(f"{name}={value}" for name, value in values)
