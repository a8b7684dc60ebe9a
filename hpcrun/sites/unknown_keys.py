"""What an unknown key of a site file probably meant: a misspelled key, or one of another table with the same words."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_origin, get_type_hints

from hpcrun.errors import closest_match
from hpcrun.sites.model import Site

HINT = "hpcrun site schema --markdown lists all keys, as docs/site-keys.md does"
"""The hint for keys that a message does not list."""

_FEW = 10
"""The number of keys up to which a table's keys are all listed."""

_SHOWN = 4
"""The number of similar keys in a message."""

_SYNONYMS = {
    "walltime": "time", "wall": "time", "duration": "time", "memory": "mem", "ram": "mem", "core": "cpu", "gre": "gpu",
    "queue": "partition", "project": "account", "feature": "constraint", "scratch": "run_root", "workdir": "run_root",
    "env": "environment",
}  # fmt: skip
"""Words of other programs and users for the words of keys, in the singular."""

_WHOLE = {"site", "cluster", "general", "global", "main"}
"""Tables that people expect around all keys."""

_WEAK = {"max", "min", "per", "default", "required", "allowed", "limit"}
"""Common words: two keys that share only these are not similar."""


def valid_keys(table: tuple[str, ...]) -> list[str]:
    """Return the keys that a table of a site file may have, such as ``("partitions", "gpu")``."""
    return [*_types_of_keys(table), *([] if table else ["extends", "unset"])]


def describe(path: tuple[str, ...], value: Any) -> str:
    """Return the message about an unknown key: similar keys, else all of a small table.

    Args:
        path: The unknown key, after the tables that contain it.
        value: Its value.
    """
    table, typed = path[:-1], path[-1]
    known, top_level = valid_keys(table), _types_of_keys(())
    message = f"unknown key {'.'.join(path)}"
    if table and typed in top_level and isinstance(value, dict) == _is_table(top_level[typed]):
        own = f"table: [{typed}]" if isinstance(value, dict) else "key: put it above the first [table]"
        return f"{message}; {typed} is a top-level {own}"
    if not table and isinstance(value, dict) and _has_keys_of_defaults(typed, value):
        return f"{message}; its keys belong to [defaults]"
    if not table and isinstance(value, dict) and (typed in _WHOLE or _has_top_level_keys(typed, value)):
        return f"{message}; its keys are top-level ones: leave out [{typed}]"
    if similar := _similar_keys(table, typed, value):
        return f"{message}; did you mean {_either(similar)}?"
    return message if len(known) > _FEW else f"{message}; valid keys: {', '.join(known)}"


def _has_keys_of_defaults(typed: str, value: dict[str, Any]) -> bool:
    """Return whether an unknown table has only keys of ``[defaults]``: ``[slurm]``, ``[sbatch]``, ``[resources]``."""
    tables = [name for name, kind in _types_of_keys(()).items() if _is_table(kind)]
    return not closest_match(typed, tables) and are_keys_of_defaults(value)


def _has_top_level_keys(typed: str, value: dict[str, Any]) -> bool:
    """Return whether an unknown table has only top-level keys, and is no misspelled one."""
    known = _types_of_keys(())
    return bool(value) and all(key in known for key in value) and not closest_match(typed, [*known])


def are_keys_of_defaults(table: dict[str, Any]) -> bool:
    """Return whether all keys of a table, at least one, are keys of ``[defaults]``, also if they are misspelled."""
    known = [*_types_of_keys(("defaults",))]
    return bool(table) and all(key in known or closest_match(key, known) for key in table)


def _similar_keys(table: tuple[str, ...], typed: str, value: Any) -> list[str]:
    """Return the keys that were probably meant, the most similar first; those of tables in this table have dots."""
    types = _types_of_keys(table)
    for name, kind in list(types.items()):
        if dataclasses.is_dataclass(kind):
            types.update({f"{name}.{key}": hint for key, hint in _types_of_fields(kind).items()})
    fitting = [key for key, kind in types.items() if _is_table(kind) == isinstance(value, dict)]
    elsewhere = [key for key in fitting if key.rpartition(".")[2] == typed]
    score = {key: _similarity(typed, key) for key in fitting}
    least = 1 if 1 in score.values() else 1 / 3
    near = sorted((key for key in score if score[key] >= least), key=lambda key: -score[key])
    if not near:  # misspelled, and of a table in this one: partion for defaults.partition
        last_words = [key.rpartition(".")[2] for key in fitting]
        meant = closest_match(typed, last_words)
        near = [key for key, word in zip(fitting, last_words, strict=True) if word == meant]
    misspelled = closest_match(typed, valid_keys(table))
    if misspelled and not elsewhere and (misspelled in fitting or not near):
        return [misspelled]
    return list(dict.fromkeys([*elsewhere, *near]))[:_SHOWN]


def _similarity(typed: str, key: str) -> float:
    """Return the share of words that two keys have in common; 0 without a word of the key itself."""
    meant = _words("_".join(_SYNONYMS.get(word, word) for word in _words(typed)))
    own = _words(key.rpartition(".")[2]) - _WEAK
    return max(
        len(words & _words(key)) / len(words | _words(key)) * bool(words & own) for words in (_words(typed), meant)
    )


def _words(key: str) -> set[str]:
    """Return the words of a key, in the singular."""
    return {word.rstrip("s") for word in key.replace(".", "_").replace("-", "_").lower().split("_")}


def _types_of_keys(table: tuple[str, ...]) -> dict[str, Any]:
    """Return the type of each key of a table of a site file."""
    kind: Any = Site
    steps = list(table)
    while steps and kind:
        hint = get_type_hints(kind)[steps.pop(0)]
        parts = get_args(hint)
        if parts and steps:
            steps.pop(0)  # the name of a partition
        kind = next((part for part in (hint, *parts) if dataclasses.is_dataclass(part)), None)
    return {name: hint for name, hint in _types_of_fields(kind).items() if (kind, name) != (Site, "name")}


def _types_of_fields(kind: Any) -> dict[str, Any]:
    return {field.name: get_type_hints(kind)[field.name] for field in dataclasses.fields(kind)} if kind else {}


def _is_table(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or get_origin(kind) is dict


def _either(keys: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(keys[:-1]), keys[-1]]))
