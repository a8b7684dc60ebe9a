"""What each record of a run must have, as far as commands rely on it: a table for each of its files."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from hpcrun.jobs.records import Kind, Table

if TYPE_CHECKING:
    from collections.abc import Callable

LATEST = 1e11
"""Seconds since 1970, beyond which nobody has a calendar."""

_ID = re.compile(r"\d{1,18}(_\d{1,9})?", re.ASCII)


def _number(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31


def _or_null(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or fits(value)


def _list(value: object, fits: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and all(map(fits, value))


def _pair(value: object) -> bool:
    return _list(value, _text) and isinstance(value, list) and len(value) == 2


def _list_or_null(value: object) -> bool:
    return value is None or isinstance(value, list)


def _task(value: object) -> bool:
    return isinstance(value, dict) and _list(value.get("values"), _pair) and _list(value.get("argv"), _text)


ANY = Kind("anything", lambda _: True)
TEXT = Kind("a text", _text)
TEXT_OR_NULL = Kind("a text or null", _or_null(_text))
TEXTS = Kind("a list of texts", lambda value: _list(value, _text))
PAIRS = Kind("a list of names and values", lambda value: _list(value, _pair))
TASKS = Kind("a list of tasks", lambda value: _list(value, _task))
JOB_ID = Kind("a job id", lambda value: isinstance(value, str) and bool(_ID.fullmatch(value)))
TIME = Kind("a time", lambda value: _number(value, 0, LATEST))
TIME_OR_NULL = Kind("a time or null", _or_null(TIME.fits))
NUMBER = Kind("a number", lambda value: _number(value, -1e300, 1e300))
NUMBER_OR_NULL = Kind("a number or null", _or_null(NUMBER.fits))
SECONDS = Kind("a number of seconds", lambda value: _number(value, 0, LATEST))
WHOLE = Kind("a whole number", _whole)
COUNT_OR_NULL = Kind("a whole number or null", _or_null(lambda value: _whole(value) and value >= 0))  # type: ignore[operator]
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
OBJECT: Table = {}
OBJECT_OR_NULL = Kind("an object or null", lambda value: value is None or isinstance(value, dict))
SCHEDULER = Kind("slurm or local", lambda value: value in ("slurm", "local"))
NULL = Kind("null", lambda value: value is None)
PLAIN = Kind("a number, a text or null", lambda value: not isinstance(value, dict | list))

JOB: Table = {
    "name?": TEXT, "version?": TEXT, "scheduler?": SCHEDULER, "launcher?": TEXT, "argv?": TEXTS, "python?": TEXT,
    "directory?": TEXT, "run_dir?": TEXT, "environment?": PAIRS, "tasks?": TASKS, "values?": PAIRS,
    "container?": OBJECT_OR_NULL, "snapshot?": TEXT_OR_NULL, "max_requeue?": COUNT_OR_NULL,
    "site?": {
        "name?": TEXT, "slurm_conf?": TEXT_OR_NULL, "poll_seconds?": SECONDS, "restart?": {"cancel_seconds?": SECONDS},
        "mpi?": {"library?": TEXT_OR_NULL, "type?": TEXT_OR_NULL}, "container?": OBJECT_OR_NULL,
        "environment?": OBJECT, "partitions?": OBJECT, "qos?": OBJECT,
    },
    "resources?": {
        "nodes?": COUNT_OR_NULL, "ntasks?": COUNT_OR_NULL, "ntasks_per_node?": COUNT_OR_NULL,
        "gpus_per_node?": PLAIN, "time?": PLAIN, "partition?": TEXT_OR_NULL, "qos?": TEXT_OR_NULL, "sbatch?": TEXTS,
        "mem?": PLAIN, "mem_per_cpu?": PLAIN, "mem_per_gpu?": PLAIN,
    },
}  # fmt: skip
SUBMITTED: Table = {
    "job_id": JOB_ID, "submitted": TIME, "host": TEXT, "start_time?": NUMBER_OR_NULL, "allocation?": TEXT_OR_NULL,
    "slurm_conf?": TEXT, "command?": TEXTS,
}  # fmt: skip
REFUSED: Table = {"reason": TEXT, "time": TIME}
EXIT: Table = {
    "exit_code": WHOLE, "reason": TEXT, "started": TIME, "ended": TIME_OR_NULL, "requeued?": FLAG, "host?": TEXT,
    "job_id?": TEXT,
}  # fmt: skip
START: Table = {
    "job_id?": TEXT, "slurm_job?": TEXT, "host?": TEXT, "nodes?": TEXT, "started?": TIME, "requeued?": FLAG,
}  # fmt: skip
EPOCH: Table = {
    "epoch?": NUMBER_OR_NULL, "epochs?": NUMBER_OR_NULL, "fit?": NUMBER_OR_NULL, "seconds?": NUMBER_OR_NULL,
    "images_per_second?": NUMBER_OR_NULL,
}  # fmt: skip
RESULT: Table = {"versions?": OBJECT_OR_NULL}
CLEANED: Table = {"time": TIME, "nodes": TEXTS, "run_dirs?": TEXTS}
PROVENANCE: Table = {"values?": OBJECT, "notes?": TEXTS, "changed?": Kind("a list or null", _list_or_null)}
NOTES: Table = {"format": WHOLE, "runs": OBJECT}

_OF_TYPES: dict[str, Kind | Table] = {
    "str": TEXT, "str | None": TEXT_OR_NULL, "int": WHOLE, "int | None": COUNT_OR_NULL, "float": NUMBER, "bool": FLAG,
    "list[int]": Kind("a list of whole numbers", lambda value: _list(value, _whole)),
    "list[list[float | None]]": Kind(
        "a list of points", lambda value: _list(value, lambda one: _list(one, NUMBER_OR_NULL.fits))
    ),
    "dict[str, Any]": OBJECT, "dict[str, str]": Kind(
        "an object of texts", lambda value: isinstance(value, dict) and all(map(_text, value.values()))
    ),
}  # fmt: skip


def of_class(model: Any) -> Table:
    """Return the table of a dataclass whose instances are written down.

    Args:
        model: The dataclass.
    """
    return {f"{one.name}?": _OF_TYPES[str(one.type)] for one in fields(model)}
