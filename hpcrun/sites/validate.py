"""Validating a site file's values with pydantic, and one error for people where they do not fit."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from hpcrun.errors import HpcrunError, nearest
from hpcrun.resources import FieldError
from hpcrun.sites.lines import line_of
from hpcrun.sites.model import Site

if TYPE_CHECKING:
    from pathlib import Path


def validate(values: dict[str, Any], origins: dict[tuple[str, ...], Path]) -> Site:
    """Return the site that the merged values of its files describe.

    Args:
        values: The values, and the site's name.
        origins: The file each value came from, by its key path.

    Raises:
        HpcrunError: For each fault the file, line, key, value, what is allowed and the nearest valid name.
    """
    try:
        return TypeAdapter(Site).validate_python(values)
    except ValidationError as error:
        raise HpcrunError("\n".join(_explain(dict(fault), origins) for fault in error.errors())) from None


def valid_keys(table: tuple[str, ...]) -> list[str]:
    """Return the keys that a table of a site file may have, such as ``("partitions", "gpu")``."""
    kind: Any = Site
    steps = list(table)
    while steps and kind:
        hint = get_type_hints(kind)[steps.pop(0)]
        parts = get_args(hint)
        if parts and steps:
            steps.pop(0)  # the name of a partition
        kind = next((part for part in (hint, *parts) if dataclasses.is_dataclass(part)), None)
    keys = [field.name for field in dataclasses.fields(kind)] if kind else []
    return [key for key in keys if (kind, key) != (Site, "name")] + ([] if table else ["extends"])


def _explain(fault: dict[str, Any], origins: dict[tuple[str, ...], Path]) -> str:
    path = tuple(str(part) for part in fault["loc"])
    value, reason = fault["input"], fault["msg"]
    if isinstance(inner := fault.get("ctx", {}).get("error"), FieldError):
        path, value, reason = (*path, inner.field), inner.value, inner.reason
    key = next((path[:length] for length in range(len(path), 0, -1) if path[:length] in origins), path)
    file = origins.get(key)
    where = f"{file}:{line_of(file.read_text(), key)}" if file else "site file"
    if fault["type"] != "unexpected_keyword_argument":
        return f"{where}: {'.'.join(key)} = {value!r}: {reason}"
    known = valid_keys(path[:-1])
    like = nearest(path[-1], known)
    meant = f"did you mean {like}? " if like else ""
    return f"{where}: unknown key {'.'.join(path)}; {meant}Known here: {', '.join(known)}"
