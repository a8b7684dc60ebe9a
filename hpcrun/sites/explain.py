"""Turning pydantic's findings about a site file into one error for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from hpcrun.errors import nearest
from hpcrun.sites.lines import line_of
from hpcrun.sites.model import Site

if TYPE_CHECKING:
    from pathlib import Path


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part))), None)


def valid_keys(table: tuple[str, ...]) -> list[str]:
    """Return the keys that a table of a site file may have, such as ``("partitions", "gpu")``."""
    model: type[BaseModel] | None = Site
    steps = list(table)
    while steps and model:
        annotation = model.model_fields[steps.pop(0)].annotation
        if get_args(annotation) and _model_in(annotation) and steps:
            steps.pop(0)  # the name of a partition
        model = _model_in(annotation)
    keys = list(model.model_fields) if model else []
    return [key for key in keys if (model, key) != (Site, "name")] + (["extends"] if not table else [])


def explain(error: ValidationError, origins: dict[tuple[str, ...], Path]) -> tuple[str]:
    """Return the message: for each fault the file, line, key, value, what is allowed and the nearest valid name."""
    lines = []
    for fault in error.errors():
        path = tuple(str(part) for part in fault["loc"] if not str(part).startswith("["))
        key = next((path[:length] for length in range(len(path), 0, -1) if path[:length] in origins), path)
        file = origins.get(key)
        where = f"{file}:{line_of(file.read_text(), key)}" if file else "site file"
        if fault["type"] == "extra_forbidden":
            known = valid_keys(path[:-1])
            like = nearest(path[-1], known)
            meant = f"did you mean {like}? " if like else ""
            lines.append(f"{where}: unknown key {'.'.join(path)}; {meant}Known here: {', '.join(known)}")
        else:
            reason = fault["msg"].removeprefix("Value error, ")
            lines.append(f"{where}: {'.'.join(path)} = {fault['input']!r}: {reason}")
    return ("\n".join(lines),)
