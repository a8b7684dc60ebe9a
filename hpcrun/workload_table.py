"""Checks of the tables of ``workload.toml``: the keys of each option, and the types of all values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError, closest_match

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TYPE_NAMES = ("str", "int", "float", "run", "bool")
_NAMES_OF_TYPES: dict[type, str] = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", dict: "a table",
}  # fmt: skip
_LIMITS: dict[str, type] = {"min": float, "max": float}
_OPTION_KEYS: dict[str, type] = {
    "type": str, "required": bool, "choices": list, "hints": dict, **_LIMITS, "min_per_rank": int, "aliases": list,
    "requires": list, "help": str,
}  # fmt: skip
_RULE_KEYS: dict[str, type] = {
    "when": str, **_LIMITS, "choices": list, "option": str, "job": str, "excludes": str, "multiple_of": str,
    "min_ranks": int, "max_ranks": int, "divides_ranks": bool, "multiple_of_ranks": bool, "other_ranks": int,
}  # fmt: skip
_RULES_OF_WHOLE_NUMBERS = {"multiple_of", "divides_ranks", "multiple_of_ranks", "other_ranks"}
_TEXT_KEYS = ("description", "entry")
_LIST_KEYS = ("packages",)
_LISTS_OF_DATA = ("defaults", "layouts")
_FLAGS_OF_DATA = ("required", "files")


def require_known_keys(
    file: Path, path: str, table: Mapping[str, Any], known_keys: list[str], synonyms: Mapping[str, str]
) -> None:
    """Refuse unknown keys of a table of ``workload.toml``.

    Args:
        file: The file, for messages.
        path: The path of the table in the file, with a dot at its end; empty for the top level.
        table: The table.
        known_keys: The valid keys.
        synonyms: Names that users type for keys, and the keys.

    Raises:
        HpcrunError: The table has an unknown key; the hint contains the closest key.
    """
    for key in sorted(set(table) - set(known_keys)):
        name = key.replace("-", "_").lower()
        closest_key = synonyms.get(name) or closest_match(name, known_keys)
        hint = f"did you mean {closest_key}?" if closest_key else f"known keys: {', '.join(known_keys)}"
        raise HpcrunError(f"{file}: unknown key {path}{key}", hint=hint)


def require_table(table: Mapping[str, Any]) -> None:
    """Refuse values of ``workload.toml`` that have the wrong type, and unknown keys of its options.

    Args:
        table: The content of the file.

    Raises:
        ValueError: A value has the wrong type, or an option has an unknown key.
    """
    for name in _TEXT_KEYS:
        _require_type(name, table.get(name, ""), str)
    for name in _LIST_KEYS:
        _require_texts(name, table.get(name, []))
    for name in ("resources", "data", "options"):
        _require_type(name, table.get(name, {}), dict, f"write [{name}]")
    for name, value in table.get("data", {}).items():
        if name in _LISTS_OF_DATA:
            _require_texts(f"data.{name}", value)
        else:
            _require_type(f"data.{name}", value, bool if name in _FLAGS_OF_DATA else str)
    options = table.get("options", {})
    for option, declaration in options.items():
        _require_declaration(f"options.{option}", declaration)
    for option, declaration in options.items():
        _require_whole_numbers(option, declaration, options)


def _require_declaration(name: str, declaration: Any) -> None:
    """Refuse an invalid declaration of an option, such as ``options.batch-size``."""
    _require_type(name, declaration, dict, f"write [{name}], and below it default = {_format_toml(declaration)}")
    for key, value in declaration.items():
        if key in _OPTION_KEYS:
            _require_type(f"{name}.{key}", value, _OPTION_KEYS[key])
        elif key != "default":
            closest_key = closest_match(key, ["default", *_OPTION_KEYS])
            hint = f"did you mean {closest_key}?" if closest_key else f"known keys: default, {', '.join(_OPTION_KEYS)}"
            raise ValueError(f"{name} has an unknown key {key} ({hint})")
    _require_values(name, declaration, _option_type(name, declaration))
    _require_texts(f"{name}.aliases", declaration.get("aliases", []))
    for rule in declaration.get("requires", []):
        _require_type(f"{name}.requires", rule, dict, 'write [{ when = "OPTION=VALUE", min = 75 }]')
        for key in rule.keys() & _RULE_KEYS.keys():
            _require_type(f"{name}.requires: {key}", rule[key], _RULE_KEYS[key])


def _require_whole_numbers(option: str, declaration: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Refuse rules that are for whole numbers, of options that are not."""
    for rule in declaration.get("requires", []):
        for key in rule.keys() & _RULES_OF_WHOLE_NUMBERS:
            for name in sorted({option, rule[key]} & options.keys()):
                option_type = _option_type(f"options.{name}", options[name])
                if option_type is not int:
                    message = f"options.{option}.requires: {key} is for whole numbers, and"
                    raise ValueError(f"{message} --{name} is {_NAMES_OF_TYPES[option_type]}")


def _option_type(name: str, declaration: Mapping[str, Any]) -> type:
    """Return the type of an option's values: that of ``type``, or of its default."""
    default = declaration.get("default", "")
    if "type" not in declaration:
        if type(default) not in {str, int, float, bool}:
            raise ValueError(f"{name}.default: {default!s} is not text, a number, or true or false")
        return type(default)
    if declaration["type"] not in _TYPE_NAMES:
        raise ValueError(f"{name}.type = {declaration['type']!r} is not one of {', '.join(_TYPE_NAMES[:-1])}")
    option_type = {"int": int, "float": float, "bool": bool}.get(declaration["type"], str)
    if "default" in declaration:
        _require_type(f"{name}.default", default, option_type)
    return option_type


def _require_values(name: str, declaration: Mapping[str, Any], option_type: type) -> None:
    """Refuse limits of an option that is not a number, and choices or hints of another type."""
    limits = [key for key in ("min", "max", "min_per_rank") if key in declaration]
    if limits and option_type not in {int, float}:
        raise ValueError(f"{name}.{limits[0]} limits a number, and the option is {_NAMES_OF_TYPES[option_type]}")
    default = declaration.get("default", 0)
    for key, sign in {"min": 1, "max": -1}.items():
        if "default" in declaration and key in declaration and sign * default < sign * declaration[key]:
            raise ValueError(
                f"{name}.default: {default} is outside the limits of the option ({key} = {declaration[key]})"
            )
    for choice in declaration.get("choices", []):
        _require_type(f"{name}.choices", choice, option_type)
    _require_texts(f"{name}.hints", [*declaration.get("hints", {}).values()])


def _require_texts(name: str, values: Any) -> None:
    _require_type(name, values, list, f"write [{_format_toml(values)}]")
    for value in values:
        _require_type(name, value, str)


def _require_type(name: str, value: Any, expected: type, hint: str = "") -> None:
    """Refuse a value of another type; a whole number is also a number, but true and false are not."""
    if type(value) is expected or (expected is float and type(value) is int):
        return
    raise ValueError(f"{name}: {_format_toml(value)} is not {_NAMES_OF_TYPES[expected]}{f' ({hint})' if hint else ''}")


def _format_toml(value: Any) -> str:
    """Format a value as TOML does."""
    if isinstance(value, list):
        return f"[{', '.join(map(_format_toml, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_format_toml(each)}' for key, each in value.items())} }}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)
