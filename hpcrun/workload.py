"""Programs that hpcrun can submit: a bundled workload, a workload folder, a Python script, or any command."""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any

from hpcrun import declared_options, distribution, file_hints, paths, script_names
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.frozen import frozen
from hpcrun.job_options import WORKLOAD_OPTIONS, JobOptions, read_workload_options
from hpcrun.resource_hints import NAMES_BY_SYNONYM
from hpcrun.resources import Resources
from hpcrun.script_syntax import check_syntax
from hpcrun.workload_data import Data
from hpcrun.workload_table import require_known_keys, require_table

_WORKLOAD_KEYS = ["description", "entry", "packages", *WORKLOAD_OPTIONS, "resources", "options", "data"]

_KEYS_BY_SYNONYM = {
    **dict.fromkeys(["script", "program", "main", "file", "command", "executable"], "entry"),
    **dict.fromkeys(["args", "arguments", "parameters", "params", "hyperparameters"], "options"),
    **dict.fromkeys(["requirements", "dependencies", "imports"], "packages"),
    **dict.fromkeys(["slurm", "sbatch"], "resources"),
}
"""Names that users type for keys of ``workload.toml``, by key."""


@frozen
class Workload:
    """A program that hpcrun can submit.

    Attributes:
        name: Short name; the default name of the job.
        program: The command without its arguments; ``None`` stands for the site's Python.
        description: A description in one line, for lists.
        resources: Default resources.
        packages: Python packages that the program imports, without hpcrun.
        options: The ``[options]`` of ``workload.toml``; None if the program parses its arguments itself.
        job_options: Defaults of options of the job: framework, launch, GPUs, strictness.
        folder: The workload's folder; None if there is none.
        data: The table ``[data]`` of ``workload.toml``; None if there is none.
        command_line: The whole command line of a command; empty for a workload.
        target: The argument with which the user named the workload; empty if it is the name.
    """

    name: str
    program: tuple[str | None, ...]
    description: str = ""
    resources: Resources = field(default_factory=Resources)
    packages: tuple[str, ...] = ()
    options: dict[str, dict[str, Any]] | None = None
    job_options: JobOptions = JobOptions()
    folder: Path | None = None
    data: Data | None = None
    command_line: tuple[str, ...] = ()
    target: str = ""

    @property
    def argument(self) -> str:
        """The argument that names the workload on a command line, quoted for a shell."""
        return shlex.quote(self.target or self.name)

    @property
    def option_names(self) -> dict[str, str]:
        """The option for each name or alias; empty if the program parses its arguments itself."""
        return declared_options.map_option_names(self.name, self.options or {})

    @property
    def trains_model(self) -> bool:
        """Whether this is a Python program that probably trains a model."""
        if self.command_line:
            return distribution.trains_model(self.command_line, Path.cwd())
        libraries = script_names.TRAINING_MODULES & {*self.packages}
        return self.program[:1] == (None,) and (not self.packages or bool(libraries))

    def code_folder(self, start: Path) -> Path:
        """Return the folder of the program's code: the folder of a Python script, else the working directory."""
        return Path(self.program[1]).parent if self.program[0] is None and self.program[1] else start

    def argv(self, python: str, args: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command line of one rank.

        Args:
            python: The site's Python interpreter.
            args: The arguments after ``--`` on the command line.

        Raises:
            HpcrunError: The arguments do not match the options that the workload declares.
        """
        if self.options is not None:
            declared_options.parse(self.argument, self.options, args)
            args = declared_options.replace_aliases(self.option_names, args)
        return (*(python if part is None else part for part in self.program), *args)

    def require_ranks(self, args: tuple[str, ...], ranks: int, workers: int = 1) -> None:
        """Refuse a number of ranks that the program does not support with these arguments.

        Args:
            args: The arguments after ``--`` on the command line.
            ranks: The number of ranks of the job.
            workers: The number of virtual workers of each rank.

        Raises:
            HpcrunError: The declaration of an option excludes it.
        """
        if self.options is not None:
            declared_options.require_ranks(self.argument, self.options, args, ranks, workers)


def bundled_names() -> list[str]:
    """Return the names of the bundled workloads."""
    return sorted(file.parent.name for file in paths.shipped_folder("workloads").glob("*/workload.toml"))


def read_workload_folder(folder: Path) -> Workload:
    """Read a workload folder: ``workload.toml``, and the script that it names.

    Raises:
        HpcrunError: The file or its script is missing, or a key or value is invalid.
    """
    file = folder / "workload.toml"
    if not file.is_file():
        hint = "a workload folder holds workload.toml and its script (docs/workloads.md)"
        if scripts := sorted(folder.glob("*.py"), key=lambda script: (script.name != "train.py", script.name)):
            hint = f"for a script in it: hpcrun submit {shlex.quote(_relative_to_cwd(scripts[0]))}; {hint}"
        raise HpcrunError(f"{folder} has no workload.toml", hint=hint)
    try:
        table = tomllib.loads(file.read_text())
        require_known_keys(file, "", table, _WORKLOAD_KEYS, _KEYS_BY_SYNONYM)
        require_table(table)
        job_options = read_workload_options(table)
        for name, kind, synonyms in (("resources", Resources, NAMES_BY_SYNONYM), ("data", Data, {})):
            known_keys = [one.name for one in fields(kind)]
            require_known_keys(file, f"{name}.", table.get(name, {}), known_keys, synonyms)
        resources = Resources(**table.get("resources", {}))
        data = Data(**table["data"]) if "data" in table else None
        if data and "options" in table:
            data.require_options(table["options"])
    except (ValueError, TypeError) as error:  # ValueError: invalid TOML or value; TypeError: a missing key
        raise HpcrunError(f"{file}: {error}", hint="hpcrun workload show lenet5 shows a valid workload") from None
    script = folder / table.get("entry", "train.py")
    if not script.is_file():
        raise HpcrunError(f"{file}: its entry {script.name} does not exist", hint=f"put {script.name} into {folder}")
    return Workload(
        name=_printable_name(folder.name),
        program=(None, str(script.resolve())),
        description=table.get("description", ""),
        resources=resources,
        packages=tuple(table.get("packages", ())),
        options=table.get("options"),
        job_options=job_options,
        folder=folder,
        data=data,
    )


def _relative_to_cwd(file: Path) -> str:
    """Return the path of a file, relative if the file is below the current directory."""
    current_directory = Path.cwd()
    return str(file.relative_to(current_directory)) if file.is_relative_to(current_directory) else str(file)


def _printable_name(name: str) -> str:
    """Replace the unprintable characters in a file name by dashes, for a job name."""
    return "".join(character if character.isprintable() else "-" for character in name)


def find_workload(target: str | None, program: tuple[str, ...] = ()) -> tuple[Workload, tuple[str, ...]]:
    """Find the workload that the user named.

    Args:
        target: A bundled workload, a workload folder or a Python script; None for any command.
        program: The arguments after ``--``: the arguments of the target, or the whole command.

    Returns:
        The workload and its arguments.

    Raises:
        HpcrunError: There is no such workload; the hint contains the closest name.
    """
    if target is None:
        if not program:
            raise HpcrunError(
                "no workload, script or program was given",
                hint="name a workload (hpcrun workload list) or a script; any program goes after --",
            )
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(program[0]).name) or "job"
        return Workload(name=name, program=program[:1], command_line=program), program[1:]
    if target in bundled_names():
        return read_workload_folder(paths.shipped_folder("workloads") / target), program
    path = Path(paths.expand_user(target))
    if path.is_dir():
        return replace(read_workload_folder(path.resolve()), target=target), program
    if path.is_file() and path.suffix == ".py":
        check_syntax(path)
        return Workload(name=_printable_name(path.stem), program=(None, str(path.resolve()))), program
    raise _explain_unknown(target, path)


def copy_folder(name: str, source: str, parent: Path) -> Path:
    """Copy a workload folder, as a starting point for a new workload.

    Args:
        name: The name of the new folder.
        source: A bundled workload or a workload folder.
        parent: The folder in which to create the new folder.

    Returns:
        The path of the new folder.

    Raises:
        HpcrunError: The source has no folder, or the name is not a valid folder name or already exists.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise HpcrunError(f"{name!r} is not a name for a workload", hint="letters, digits, dots, dashes: mynet")
    program, _ = find_workload(source)
    if program.folder is None:
        raise HpcrunError(f"{source} is not a workload folder", hint=f"bundled: {', '.join(bundled_names())}")
    target = parent / name
    try:
        target.mkdir()
    except FileExistsError:
        raise HpcrunError(f"{target} exists", hint="choose another name") from None
    except OSError as error:
        message = f"cannot create {target}: {error.strerror}"
        raise HpcrunError(message, hint="change to a folder with free space in which you may write") from None

    def ignore(folder: str, names: list[str]) -> set[str]:
        return {n for n in names if n == "__pycache__" or n.startswith(".") or Path(folder, n) == target.resolve()}

    try:
        shutil.copytree(program.folder, target, ignore=ignore, dirs_exist_ok=True)
        for copy in (target, *target.rglob("*")):  # hpcrun may be installed read-only
            copy.chmod(copy.stat().st_mode | (0o700 if copy.is_dir() else 0o600))
    except (shutil.Error, OSError) as error:
        shutil.rmtree(target, ignore_errors=True)
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
        message = f"cannot copy {program.folder} to {target}: {reason}"
        hint = "change to a folder with free space, or name a folder that you may read after --from"
        raise HpcrunError(message, hint=hint) from None
    return target


def _suggest_without_quotes(target: str) -> str:
    """Return the corrected command for a target that is a whole command line in quotes; empty for other targets."""
    words = target.split()
    starts_python = len(words) > 1 and Path(words[0]).name.startswith("python")
    program, *args = words[1:] if starts_python and words[1].endswith(".py") else words or [target]
    if program == target:
        return ""
    if program in bundled_names() or program.endswith(".py"):
        return " ".join(["hpcrun submit", program, *(["--", *args] if args else [])])
    is_program = starts_python or Path(program).is_file() or shutil.which(program)
    return " ".join(["hpcrun submit --", program, *args]) if is_program else ""


def _explain_unknown(target: str, path: Path) -> HpcrunError:
    """Return the error about a target that is not a workload, folder or Python script."""
    if path.is_file():
        interpreter = file_hints.find_interpreter(path)
        program = [*interpreter, target if "/" in target or interpreter else f"./{target}"]
        hint = f"any program goes after --: hpcrun submit -- {shlex.join(program)}"
        if file_hints.batch_options(path):
            hint += "; hpcrun reads no #SBATCH lines, so give their options before --"
        return HpcrunError(f"{target} is not a Python script", hint=file_hints.advise(target, path) or hint)
    if command := _suggest_without_quotes(target):
        return HpcrunError(f"there is no workload, folder or script {target!r}", hint=f"without quotes: {command}")
    if target == "help":
        return HpcrunError(
            "there is no workload, folder or script 'help'", hint="hpcrun submit --help explains the command"
        )
    local_scripts = [f"{path.parent / file.name}" for file in path.parent.glob("*.py")] if path.parent.is_dir() else []
    closest_name = closest_match(str(path), [*bundled_names(), *local_scripts])
    absent_text = "" if path.parent.is_dir() else ", which does not exist"
    return HpcrunError(
        f"there is no workload, folder or script {target!r}",
        hint=f"did you mean {closest_name}?"
        if closest_name
        else f"looked in {path.parent.absolute()}{absent_text}; bundled: {', '.join(bundled_names())}",
    )
