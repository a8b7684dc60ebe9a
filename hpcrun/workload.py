"""A program that can be submitted: a bundled workload, a folder like one, a Python script, or any command."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcrun import options, paths
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.resources import Resources

_KEYS = ["description", "entry", "packages", "resources", "options"]


@dataclass(frozen=True)
class Workload:
    """A program that can be submitted.

    Attributes:
        name: Short name; the job's, unless somebody gives one.
        program: What the launcher starts, before the arguments; ``None`` stands for the site's Python.
        description: One line, for lists.
        resources: Default resources.
        packages: Python packages that it imports, besides hpcrun's own.
        options: The ``[options]`` of ``workload.toml``; None where the program's arguments are its own business.
        folder: The workload's folder, where it has one.
    """

    name: str
    program: tuple[str | None, ...]
    description: str = ""
    resources: Resources = field(default_factory=Resources)
    packages: tuple[str, ...] = ()
    options: dict[str, dict[str, Any]] | None = None
    folder: Path | None = None

    @property
    def option_names(self) -> dict[str, str]:
        """The option that each name of one means; empty where the arguments are the program's own business."""
        return options.map_option_names(self.name, self.options or {})

    @property
    def trains_model(self) -> bool:
        """Whether it is a Python program that, as far as is known, trains a model."""
        return self.program[:1] == (None,) and (not self.packages or "keras" in self.packages)

    def code_folder(self, start: Path) -> Path:
        """Return the folder of its code: the script's, else the one in which it starts."""
        return Path(self.program[1]).parent if self.program[0] is None and self.program[1] else start

    def argv(self, python: str, args: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command line of one rank.

        Args:
            python: The site's Python interpreter.
            args: What followed ``--`` on the command line.

        Raises:
            HpcrunError: The workload declares its options, and the arguments do not fit.
        """
        if self.options is not None:
            options.parse(self.name, self.options, args)
            args = options.replace_aliases(self.option_names, args)
        return (*(python if part is None else part for part in self.program), *args)


def bundled_names() -> list[str]:
    """Return the names of the workloads that come with hpcrun."""
    return sorted(file.parent.name for file in paths.shipped_folder("workloads").glob("*/workload.toml"))


def read_workload_folder(folder: Path) -> Workload:
    """Read a workload folder: ``workload.toml`` and the script it names.

    Raises:
        HpcrunError: No such file, an unknown key, a wrong value, or a script that is missing.
    """
    file = folder / "workload.toml"
    if not file.is_file():
        raise HpcrunError(f"{folder} has no workload.toml", hint="a workload folder holds workload.toml and its script")
    try:
        facts = tomllib.loads(file.read_text())
        if unknown := sorted(set(facts) - set(_KEYS)):
            like = closest_match(unknown[0], _KEYS)
            hint = f"did you mean {like}?" if like else f"known keys: {', '.join(_KEYS)}"
            raise HpcrunError(f"{file}: unknown key {unknown[0]}", hint=hint)
        resources = Resources(**facts.get("resources", {}))
    except (ValueError, TypeError) as error:  # not TOML, a wrong value; an unknown key
        raise HpcrunError(f"{file}: {error}", hint="hpcrun workload show lenet5 shows a working one") from None
    entry = folder / facts.get("entry", "train.py")
    if not entry.is_file():
        raise HpcrunError(f"{file}: its entry {entry.name} is not there", hint=f"put {entry.name} into {folder}")
    return Workload(
        name=_printable_name(folder.name),
        program=(None, str(entry.resolve())),
        description=facts.get("description", ""),
        resources=resources,
        packages=tuple(facts.get("packages", ())),
        options=facts.get("options"),
        folder=folder,
    )


def _printable_name(name: str) -> str:
    """Return a file's name as a job may have it: on one line."""
    return "".join(one if one.isprintable() else "-" for one in name)


def find_workload(target: str | None, program: tuple[str, ...] = ()) -> tuple[Workload, tuple[str, ...]]:
    """Find what to run.

    Args:
        target: A bundled workload's name, a workload folder, a Python script; or None.
        program: What followed ``--``: the target's arguments, or without a target any command.

    Returns:
        The workload, and its arguments.

    Raises:
        HpcrunError: There is no such thing; names the nearest there is.
    """
    if target is None:
        if not program:
            raise HpcrunError(
                "nothing to run was given",
                hint="name a workload (hpcrun workload list) or a script; any program goes after --",
            )
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(program[0]).name) or "job"
        return Workload(name=name, program=program[:1]), program[1:]
    if target in bundled_names():
        return read_workload_folder(paths.shipped_folder("workloads") / target), program
    path = Path(paths.expand_user(target))
    if path.is_dir():
        return read_workload_folder(path.resolve()), program
    if path.is_file() and path.suffix == ".py":
        return Workload(name=_printable_name(path.stem), program=(None, str(path.resolve()))), program
    if path.is_file():
        raise HpcrunError(f"{target} is no Python script", hint=f"any program goes after --: hpcrun submit -- {target}")
    like = closest_match(target, bundled_names())
    raise HpcrunError(
        f"there is no workload, folder or script {target!r}",
        hint=f"did you mean {like}?" if like else f"looked in {Path.cwd()}; bundled: {', '.join(bundled_names())}",
    )
