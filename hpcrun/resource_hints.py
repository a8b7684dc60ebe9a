"""Suggestions for invalid values of resources, such as ``--time=2:00:00`` for ``--time=2h``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_EXAMPLES = {
    "nodes": "2", "ntasks": "4", "ntasks_per_node": "4", "cpus_per_task": "8",
    "time": "1:30:00", "mem": "16G", "mem_per_gpu": "16G", "mem_per_cpu": "4G", "gpus_per_node": "4",
    "sbatch": "--reservation=maint", "mail_type": "END,FAIL",
}  # fmt: skip
"""Examples of valid values, by field; the values of other fields are numbers or names."""

NAMES_BY_SYNONYM = {
    "walltime": "time", "time_limit": "time", "timeout": "time", "n_nodes": "nodes", "num_nodes": "nodes",
    "nnodes": "nodes", "n_tasks": "ntasks", "tasks": "ntasks", "ranks": "ntasks", "num_gpus": "gpus_per_node",
    "gpus": "gpus_per_node", "gpu": "gpus_per_node", "n_gpus": "gpus_per_node", "cpus": "cpus_per_task",
    "cores": "cpus_per_task", "queue": "partition", "memory": "mem", "name": "job_name",
}  # fmt: skip
"""Resources in other programs and libraries, and their names in hpcrun."""

_UNITS = re.compile(
    r"(?:(?P<days>\d+)\s*d[a-z]*)?\s*(?:(?P<hours>\d+)\s*h[a-z]*)?\s*(?:(?P<minutes>\d+)\s*m[a-z]*)?\s*(?:(?P<seconds>\d+)\s*s[a-z]*)?",
    re.IGNORECASE,
)
_SIZE = re.compile(r"(\d+)\s*([KMGT])i?(?:B|bytes?)?", re.IGNORECASE)
_DECIMAL_SIZE = re.compile(r"(\d+\.\d+)\s*([GT])i?(?:B|bytes?)?", re.IGNORECASE)

_MAIL_TYPES = {
    "ALL": "always every yes true any everything", "FAIL": "failed failure fails error errors abort aborted",
    "END": "ended ends finish finished done complete completed exit", "BEGIN": "begins start started starts running",
    "NONE": "never no false off", "REQUEUE": "requeued", "TIME_LIMIT": "timeout",
}  # fmt: skip
"""Words that users type for the events of ``--mail-type``."""


def hint(field: str, value: object, is_valid: Callable[[str, str], bool]) -> str:
    """Return a hint with a valid value of a resource.

    Args:
        field: The field of `hpcrun.resources.Resources`.
        value: The invalid value of the field.
        is_valid: Function that returns whether a value of a field is valid.
    """
    option = f"--{field.replace('_', '-')}"
    if field == "sbatch" and (advice := _advise_on_sbatch(str(value))):
        return advice
    if (proposed_value := propose_value(field, value)) and is_valid(field, proposed_value):
        return f"did you mean {option}={proposed_value}?"
    example = _EXAMPLES.get(field) or ("2" if isinstance(value, int) else "NAME")
    return f"for example {option}={example}; see hpcrun submit --help"


def propose_value(field: str, value: object) -> str:
    """Return the valid value that is most similar to an invalid value; empty if there is none.

    Args:
        field: A field of `hpcrun.resources.Resources`, or a limit of a site file such as ``max_time``.
        value: The invalid value of the field.
    """
    text = str(value).strip()
    if "time" in field:
        return _propose_time(text)
    if field.startswith("mem"):
        return _propose_memory(text)
    return {"gpus_per_node": _propose_gpus, "sbatch": _propose_option, "mail_type": _propose_mail_types}.get(
        field, lambda _: ""
    )(text)


def explain_short_time(time: object) -> str:
    """Return a warning about a time limit of a few minutes that the user may mean as hours; else empty."""
    short_time = re.fullmatch(r"0?([1-4]):([0-5]\d)|(?:(12|24|36|48|72|96):(00))", str(time))
    if not short_time:
        return ""
    minutes, seconds = (int(number) for number in short_time.groups() if number)
    return f"--time={time} is {minutes} min {seconds} s; --time={time}:00 is {minutes} h {seconds} min"


def explain_small_memory(option: str, size: object) -> str:
    """Return a warning about a memory size below 1000 without a unit, which Slurm reads in MiB; else empty."""
    if not re.fullmatch(r"[1-9]\d{0,2}", str(size)):
        return ""
    return f"{option}={size} is {size} MiB, as in sbatch; {option}={size}G is {size} GiB"


def _propose_time(text: str) -> str:
    if colons := re.fullmatch(r"(\d+)(:\d\d:\d\d:\d\d)", text):  # D:HH:MM:SS, as in PBS
        return f"{colons[1]}-{colons[2][1:]}"
    unit_match = _UNITS.fullmatch(text)
    if not unit_match or not any(unit_match.groups()):
        return ""
    return _format_time({name: int(number or 0) for name, number in unit_match.groupdict().items()})


def _propose_memory(text: str) -> str:
    if size := _SIZE.fullmatch(text):
        return f"{size[1]}{size[2].upper()}"
    if size := _DECIMAL_SIZE.fullmatch(text):  # 4.5G -> 4608M
        return f"{round(float(size[1]) * 1024)}{'M' if size[2].upper() == 'G' else 'G'}"
    return ""


_NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight")


def _propose_gpus(text: str) -> str:
    if text.lower() in _NUMBER_WORDS:
        return str(_NUMBER_WORDS.index(text.lower()))
    if swapped := re.fullmatch(r"(\d+):([A-Za-z]\w*)", text):
        return f"{swapped[2]}:{swapped[1]}"
    return f"{text}:1" if re.fullmatch(r"(?!all$|max$|auto$|none$|no$)[A-Za-z]\w*", text, re.IGNORECASE) else ""


def _advise_on_sbatch(text: str) -> str:
    """Return advice on a value of ``--sbatch`` that is several options, or an option of hpcrun; else an empty text."""
    options = re.split(r"\s+(?=--[a-z])", text)
    name, _, value = text.removeprefix("--").partition("=")
    if len(options) > 1:
        return " ".join(f"--sbatch={option}" for option in options)
    if name == "array":
        return "--sweep NAME=1..4 runs a task for each value of an option of the program"
    if name.replace("-", "_") in _EXAMPLES and value:
        return f"--{name}={value}"
    return ""


def _propose_option(text: str) -> str:
    option_match = re.fullmatch(r"(?:--)?([a-z][a-z-]*)(?:(?:=| +)(.*))?", text)  # such as "--account lab" or "hold"
    option = f"--{option_match[1]}" + (f"={option_match[2]}" if option_match[2] else "") if option_match else ""
    return option if option != text else ""


def _propose_mail_types(text: str) -> str:
    """Return the --mail-type events for a list of words; empty if a word does not name an event."""
    events_by_word = {word: event for event, names in _MAIL_TYPES.items() for word in (event.lower(), *names.split())}
    events = [events_by_word.get(word.lower(), "") for word in re.split(r"[,;|\s]+", text)]
    return ",".join(events) if all(events) else ""


def _format_time(values_by_unit: dict[str, int]) -> str:
    """Format a time as Slurm does: ``1:30:00`` or ``2-00:00:00``."""
    minutes, seconds = divmod(values_by_unit["minutes"] * 60 + values_by_unit["seconds"], 60)
    hours, minutes = divmod(values_by_unit["hours"] * 60 + minutes, 60)
    days, hours = divmod(values_by_unit["days"] * 24 + hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{seconds:02}" if days else f"{hours}:{minutes:02}:{seconds:02}"
