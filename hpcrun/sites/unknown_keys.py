"""Suggestions of keys in place of an unknown key of a site file: similar keys of the same table or of another table."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_origin, get_type_hints

from hpcrun.errors import closest_match
from hpcrun.sites.site_model import Site

LIST_KEYS_HINT = "hpcrun site schema --markdown lists all keys, as docs/site-keys.md does"
"""The hint if a message does not list all valid keys."""

_MAX_LISTED_KEYS = 10
"""Maximum number of keys of a table for which the message lists all keys."""

_MAX_SIMILAR_KEYS = 4
"""Maximum number of similar keys in a message."""

_SYNONYMS = {
    "walltime": "time", "wall": "time", "duration": "time", "memory": "mem", "ram": "mem", "core": "cpu", "gre": "gpu",
    "queue": "partition", "project": "account", "feature": "constraint", "scratch": "run_root", "workdir": "run_root",
    "env": "environment",
}  # fmt: skip
"""Words of other programs, and the corresponding words in keys of hpcrun, in the singular."""

_LIMIT_SYNONYMS = {
    "gpus": "gpus_per_node", "gpu": "gpus_per_node", "cores": "cpus_per_node", "cpus": "cpus_per_node",
    "mem": "mem_per_node", "memory": "mem_per_node", "walltime": "max_time", "timelimit": "max_time",
}  # fmt: skip
"""Words of other programs for the limits of a partition."""

_TOP_LEVEL_NAMES = {"site", "cluster", "general", "global", "main"}
"""Names of a table in which users put all top-level keys by mistake."""

_FREQUENT_WORDS = {"max", "min", "per", "default", "required", "allowed", "limit"}
"""Frequent words: two keys that have only these words in common are not similar."""


def valid_keys(table: tuple[str, ...]) -> list[str]:
    """Return the valid keys of the table at a path of a site file, such as ``("partitions", "gpu")``."""
    return [*_types_of_keys(table), *([] if table else ["extends", "unset"])]


def describe_unknown_key(path: tuple[str, ...], value: Any) -> str:
    """Return the message about an unknown key: it lists similar keys, or all keys of a small table.

    Args:
        path: The path of the unknown key.
        value: The value of the unknown key.
    """
    table, unknown_key = path[:-1], path[-1]
    keys, top_level_types = valid_keys(table), _types_of_keys(())
    message = f"unknown key {'.'.join(path)}"
    if table and unknown_key in top_level_types and isinstance(value, dict) == _is_table(top_level_types[unknown_key]):
        advice = f"table: [{unknown_key}]" if isinstance(value, dict) else "key: put it above the first [table]"
        return f"{message}; {unknown_key} is a top-level {advice}"
    if not table and isinstance(value, dict) and (advice := _advise_on_table(unknown_key, value)):
        return f"{message}; {advice}"
    if "max_nodes" in keys and unknown_key in _LIMIT_SYNONYMS and not isinstance(value, dict):
        return f"{message}; did you mean {_LIMIT_SYNONYMS[unknown_key]}?"
    if similar := _similar_keys(table, unknown_key, value):
        return f"{message}; did you mean {_join_with_or(similar)}?"
    return message if len(keys) > _MAX_LISTED_KEYS else f"{message}; valid keys: {', '.join(keys)}"


def _advise_on_table(unknown_key: str, value: dict[str, Any]) -> str:
    """Return advice on where the keys of an unknown top-level table belong; empty if this is unclear."""
    if _has_keys_of_defaults(unknown_key, value):
        return "its keys belong to [defaults]"
    if unknown_key == "gpus":
        return "[gpu] says how GPUs are requested, and limits.gpus_per_node how many a node has"
    if unknown_key in {"queue", "queues"} and value:
        return f"did you mean [partitions.{next(iter(value))}]?"
    if unknown_key in _TOP_LEVEL_NAMES or _has_top_level_keys(unknown_key, value):
        return f"its keys belong to the top level: leave out [{unknown_key}]"
    return ""


def _has_keys_of_defaults(unknown_key: str, value: dict[str, Any]) -> bool:
    """Return whether an unknown table has only keys of ``[defaults]``: ``[slurm]``, ``[sbatch]``, ``[resources]``."""
    tables = [name for name, kind in _types_of_keys(()).items() if _is_table(kind)]
    return not closest_match(unknown_key, tables) and are_keys_of_defaults(value)


def _has_top_level_keys(unknown_key: str, value: dict[str, Any]) -> bool:
    """Return whether an unknown table has only top-level keys, and its name is not a misspelled key."""
    keys = _types_of_keys(())
    return bool(value) and all(key in keys for key in value) and not closest_match(unknown_key, [*keys])


def are_keys_of_defaults(table: dict[str, Any]) -> bool:
    """Return whether a table has only keys of ``[defaults]``, correct or misspelled; False for an empty table."""
    default_keys = [*_types_of_keys(("defaults",))]
    return bool(table) and all(key in default_keys or closest_match(key, default_keys) for key in table)


def _similar_keys(table: tuple[str, ...], unknown_key: str, value: Any) -> list[str]:
    """Return the most similar keys, the best first; keys of tables within this table are dotted."""
    types = _types_of_keys(table)
    for name, kind in list(types.items()):
        if dataclasses.is_dataclass(kind):
            types.update({f"{name}.{key}": hint for key, hint in _types_of_fields(kind).items()})
    keys_of_type = [key for key, kind in types.items() if _is_table(kind) == isinstance(value, dict)]
    same_name_keys = [key for key in keys_of_type if key.rpartition(".")[2] == unknown_key]
    scores = {key: _similarity(unknown_key, key) for key in keys_of_type}
    min_score = 1 if 1 in scores.values() else 1 / 3
    similar_keys = sorted((key for key in scores if scores[key] >= min_score), key=lambda key: -scores[key])
    if not similar_keys:  # a misspelled key of a table within this table: partion for defaults.partition
        last_key_parts = [key.rpartition(".")[2] for key in keys_of_type]
        closest_word = closest_match(unknown_key, last_key_parts)
        similar_keys = [key for key, word in zip(keys_of_type, last_key_parts, strict=True) if word == closest_word]
    correct_key = closest_match(unknown_key, valid_keys(table))
    if correct_key and not same_name_keys and (correct_key in keys_of_type or not similar_keys):
        return [correct_key]
    return list(dict.fromkeys([*same_name_keys, *similar_keys]))[:_MAX_SIMILAR_KEYS]


def _similarity(unknown_key: str, key: str) -> float:
    """Return the fraction of words that two keys have in common; 0 if they share no word of the key's last part."""
    synonyms = _split_words("_".join(_SYNONYMS.get(word, word) for word in _split_words(unknown_key)))
    key_words = _split_words(key.rpartition(".")[2]) - _FREQUENT_WORDS
    return max(
        len(words & _split_words(key)) / len(words | _split_words(key)) * bool(words & key_words)
        for words in (_split_words(unknown_key), synonyms)
    )


def _split_words(key: str) -> set[str]:
    """Split a key into words; plural words are replaced by the singular."""
    return {word.rstrip("s") for word in key.replace(".", "_").replace("-", "_").lower().split("_")}


def _types_of_keys(table: tuple[str, ...]) -> dict[str, Any]:
    """Return the type of each key of a table of a site file."""
    table_class: Any = Site
    path = list(table)
    while path and table_class:
        key_type = get_type_hints(table_class)[path.pop(0)]
        type_arguments = get_args(key_type)
        if type_arguments and path:
            path.pop(0)  # the name of a partition
        table_class = next((part for part in (key_type, *type_arguments) if dataclasses.is_dataclass(part)), None)
    return {
        name: key_type
        for name, key_type in _types_of_fields(table_class).items()
        if (table_class, name) != (Site, "name")
    }


def _types_of_fields(table_class: Any) -> dict[str, Any]:
    return (
        {field.name: get_type_hints(table_class)[field.name] for field in dataclasses.fields(table_class)}
        if table_class
        else {}
    )


def _is_table(key_type: Any) -> bool:
    return dataclasses.is_dataclass(key_type) or get_origin(key_type) is dict


def _join_with_or(keys: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(keys[:-1]), keys[-1]]))
