"""Check on the submitting host whether the nodes of a job can find and start its program."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import launchers, paths
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.file_hints import INTERPRETERS
from hpcrun.job_options import STAGED_PLACEHOLDER
from hpcrun.node_launch import STARTERS
from hpcrun.workload_data import is_certainly_missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.spec import JobSpec

_ELF_MAGIC = b"\x7fELF"

_FREQUENT_PROGRAMS = {"python", "python3", "bash", "sh", "env", "make", "jupyter", "pytest", "conda", "nvidia-smi"}

_LAUNCHERS_PER_NODE = {"torchrun", "accelerate", "deepspeed"}
"""Launchers that frameworks expect once on each node."""

_OPTIONS_OF_SEVERAL_NODES = (
    *("--nnodes", "--rdzv", "--master", "--num_machines", "--num-machines", "--main_process", "--main-process"),
    *("--config_file", "--config-file", "--hostfile"),
)
"""Prefixes of the options that connect the processes of `_LAUNCHERS_PER_NODE` on several nodes."""

LAUNCHERS = {
    *(name for name in launchers.REGISTRY.built_in if name != "none"),
    *("mpiexec.hydra", "aprun", "jsrun", "flux", "horovodrun", "tarantella"),
    *_LAUNCHERS_PER_NODE,
}
"""Programs that start ranks; hpcrun starts the ranks itself, so a job must not run a second launcher."""


class SecondLauncherError(HpcrunError):
    """Each rank of a job would start a launcher."""


def require_one_launcher(spec: JobSpec) -> None:
    """Refuse sbatch as a program, and a launcher of several ranks unless the launcher starts only its node's ranks.

    Raises:
        HpcrunError: The program submits a job.
        SecondLauncherError: The program is a launcher.
    """
    argv, ranks = _command_line(spec), spec.resources.ranks
    name = Path(argv[0]).name
    if name in {"sbatch", "salloc"}:
        script = next((word for word in argv[1:] if word[:1] != "-" and ("." in word or "/" in word)), "PROGRAM")
        hint = f"hpcrun submits the job: hpcrun submit -- {shlex.quote(script if '/' in script else f'./{script}')}"
        raise HpcrunError(f"each rank would request another job by {name}", hint=hint)
    launcher_names = {*LAUNCHERS, *(Path(word).name for word in launchers.build_launch_command(spec)[:1])}
    if name not in launcher_names or ranks == 1 or (name in _LAUNCHERS_PER_NODE and ranks == spec.resources.nodes):
        return
    message = f"each of the {ranks} ranks would start {name}"
    alternative = (
        f"for one {name} a node: --ntasks-per-node=1" if name in _LAUNCHERS_PER_NODE else f"for one {name}: --ntasks=1"
    )
    raise SecondLauncherError(
        message, hint=f"hpcrun starts the ranks: name the program that {name} starts; {alternative}"
    )


def _command_line(spec: JobSpec) -> tuple[str, ...]:
    """Return the command line of one rank; for a sweep, of a rank of the first task."""
    return spec.argv or spec.tasks[0].argv


def require_program(argv: Sequence[str], spec: JobSpec) -> None:
    """Refuse a program that no host can start.

    Args:
        argv: The program and its arguments.
        spec: The job, without a container.

    Raises:
        HpcrunError: The program does not exist, is not executable, or has an interpreter that does not exist.
    """
    name = argv[0]
    file, quoted_name = spec.directory / paths.expand_user(name), shlex.quote(name)
    file = file.resolve() if ".." in file.parts else file
    if "/" in name and (missing_path := _find_missing_part(file, spec)):
        similar_path = _find_similar_path(file, missing_path)
        problem = f"no such program in {file.parent}" if missing_path == file else f"no folder {missing_path}"
        hint = (
            f"did you mean {_format_like_typed(similar_path, name, spec.directory)}?"
            if similar_path
            else "make it first, or name another"
        )
        raise HpcrunError(f"{name}: there is {problem}", hint=hint)
    try:
        is_folder, is_file = file.is_dir(), file.is_file()
    except OSError:  # perhaps only the nodes have access
        return
    if "/" in name and is_folder:
        raise HpcrunError(f"{name} is a folder", hint=f"name the program in it: {quoted_name.rstrip('/')}/PROGRAM")
    _require_script(argv, spec)
    if not is_file or ("/" not in name and (shutil.which(name) or _may_change_path_variable(spec))):
        return
    try:
        first_line = _read_first_line(file)
    except OSError:
        first_line = _ELF_MAGIC  # a binary can run even if nobody may read it
    if "/" not in name:
        raise HpcrunError(f"{name} is not on PATH", hint=_hint_to_start_file(file, argv))
    _require_interpreter(argv, file, first_line)
    if first_line.startswith(b"#!") and first_line.endswith(b"\r\n") and _ends_with_program(first_line[2:].split()):
        problem = f"{name} has Windows line ends, so its interpreter is not found"
        raise HpcrunError(problem, hint=f"sed -i 's/\\r$//' {quoted_name}")


def require_one_word(spec: JobSpec) -> None:
    """Refuse a command line in quotes, as in ``-- "python train.py"``.

    Raises:
        HpcrunError: The name of the program is a whole command line.
    """
    name = _command_line(spec)[0]
    first_word, *more = name.split() or [""]
    is_program = bool(shutil.which(first_word)) or first_word in {*_FREQUENT_PROGRAMS, *LAUNCHERS, "source", "module"}
    if not more or not is_program or (spec.directory / paths.expand_user(name)).exists():
        return
    needs_shell = bool(re.search(r"&&|[|;<>`$]", name))
    line = f"bash -c {shlex.quote(name)}" if needs_shell else name
    hint = f"for the shell to read it: -- {line}" if needs_shell else f"without the quotes: -- {line}"
    if re.search(r"\b(?:conda|mamba|source)\b.*\bactivate\b", name):
        hint += "; conda.env or venv in the site file activates an environment for each job"
    raise HpcrunError(f"{name!r} is a whole command line in quotes, not the name of a program", hint=hint)


def _require_script(argv: Sequence[str], spec: JobSpec) -> None:
    """Refuse a script that its interpreter would not find, as in ``python trian.py``."""
    name = Path(argv[0]).name
    script = argv[1] if len(argv) > 1 else ""
    is_script = name.startswith("python") and script.endswith(".py")
    is_script |= name in {"bash", "sh", *INTERPRETERS.values()} and Path(script).suffix in {".sh", *INTERPRETERS}
    if not is_script or script.startswith("-"):
        return
    file = spec.directory / paths.expand_user(script)
    if missing_path := _find_missing_part(file, spec):
        similar_path = _find_similar_path(file, missing_path, is_program=False)
        suggestion = os.path.relpath(similar_path, spec.directory) if similar_path else ""
        hint = f"did you mean {shlex.quote(suggestion)}?" if similar_path else "make it first, or name another"
        raise HpcrunError(f"{script}: there is no such script in {file.parent}", hint=hint)


def find_warnings(spec: JobSpec) -> tuple[str, ...]:
    """Return warnings about a launcher that starts ranks on one node only, and about a program that is not on PATH."""
    return (*_warn_of_separate_launchers(spec), *_warn_of_missing_program(spec))


def _warn_of_separate_launchers(spec: JobSpec) -> tuple[str, ...]:
    """Return a warning about a launcher such as torchrun that would start a separate training on each node."""
    argv = _command_line(spec)
    is_module = argv[1:3] in {("-m", "torch.distributed.run"), ("-m", "torch.distributed.launch")}
    name = "torchrun" if is_module else Path(argv[0]).name
    has_own_variables = any(variable.startswith(("PET_", "ACCELERATE_")) for variable, _ in spec.environment)
    connects_nodes = any(word.startswith(_OPTIONS_OF_SEVERAL_NODES) for word in argv)
    if name not in _LAUNCHERS_PER_NODE or spec.resources.ranks == 1 or connects_nodes or has_own_variables:
        return ()
    script = next((word for word in argv[1:] if word.endswith(".py")), "SCRIPT")
    gpus = re.search(r"--nproc[-_]per[-_]node[= ](\d+)", " ".join(argv))
    options = f"-N {spec.resources.nodes} --gpus-per-node={gpus[1] if gpus else 'N'}"
    starter = f" --launch={name}" if name in STARTERS else ""
    line = f"hpcrun submit {script} {options}{starter}"
    problem = f"each of the {spec.resources.ranks} ranks would start a separate {name}, which trains its own model"
    return (f"{problem}\nHINT: hpcrun starts one process per GPU, and connects them: {line}",)


def _warn_of_missing_program(spec: JobSpec) -> tuple[str, ...]:
    """Return a warning about a program that is not on PATH here, unless the job has a different PATH."""
    argv = _command_line(spec)
    if spec.container or "/" in argv[0] or "$" in argv[0] or shutil.which(argv[0]) or _may_change_path_variable(spec):
        return ()
    location_text = "" if spec.transport == "host" else ", and may be missing on the nodes, too"
    if (spec.directory / argv[0]).is_file():  # `require_program` refuses it
        return ()
    closest_name = closest_match(argv[0], [*_FREQUENT_PROGRAMS, *INTERPRETERS.values(), *LAUNCHERS])
    hint = f"did you mean {closest_name}?" if closest_name and closest_name != argv[0] else ""
    return (f"{argv[0]} is not on PATH here{location_text}" + (f"\nHINT: {hint}" if hint else ""),)


def _hint_to_start_file(file: Path, argv: Sequence[str]) -> str:
    """Return a hint on how to start a file in the working directory that was named without ``./``."""
    if file.suffix != ".py":
        return f"for the file in this folder: ./{shlex.quote(argv[0])}"
    command = ["hpcrun", "submit", argv[0], *(["--", *argv[1:]] if argv[1:] else [])]
    return f"without --, hpcrun starts it with Python: {shlex.join(command)}"


def _may_change_path_variable(spec: JobSpec) -> bool:
    """Return whether the site, a template or ``-x`` may change the PATH of the job."""
    site = spec.site
    variables = {*site.environment, *site.mpi.environment, *site.prepend_path, *dict(spec.environment)}
    changes_path = site.modules.load or site.activation_keys or site.setup or len(spec.template_folders) > 1
    return bool(changes_path) or "PATH" in variables


def _require_interpreter(argv: Sequence[str], file: Path, first_line: bytes) -> None:
    """Refuse a file that is not executable, and a script without a #! line unless it is a bash script."""
    name, is_executable = argv[0], os.access(file, os.X_OK)
    is_program = first_line.startswith((b"#!", _ELF_MAGIC)) or b"\0" in first_line
    fault = "is not executable" if not is_executable else "" if is_program else "names no interpreter (#!)"
    if fault and file.suffix == ".py":
        raise HpcrunError(f"{name} {fault}", hint=_hint_to_start_file(file, argv))
    if fault and (program := INTERPRETERS.get(file.suffix)):
        raise HpcrunError(f"{name} {fault}", hint=f"start it with its interpreter: -- {program} {shlex.join(argv)}")
    if not is_executable:
        bash_hint = f", or start it with bash: -- bash {shlex.join(argv)}" if first_line.startswith(b"#!") else ""
        raise HpcrunError(f"{name} {fault}", hint=f"chmod +x {shlex.quote(name)}{bash_hint}")


def _read_first_line(file: Path) -> bytes:
    with file.open("rb") as program:
        return program.readline(256)


def _ends_with_program(line_words: list[bytes]) -> bool:
    """Return whether a #! line consists only of the interpreter, without options."""
    return len(line_words) == 1 or (len(line_words) == 2 and line_words[0].endswith(b"/env"))


def _find_missing_part(file: Path, spec: JobSpec) -> Path | None:
    """Return the first part of a program's path that certainly does not exist on any node; None if there is none.

    For a scheduler with a queue, only paths below the working directory, the user's home and the run root are checked.
    The result is None if the site's setup, a snapshot, a dependency or a template may create the program.
    """
    may_change = spec.site.setup or spec.snapshot or spec.resources.dependency or len(spec.template_folders) > 1
    if may_change or "$" in str(file) or STAGED_PLACEHOLDER in str(file):
        return None
    runs_on_this_host = spec.transport == "host"
    for root in [Path("/")] if runs_on_this_host else [spec.directory, paths.home_folder(), spec.run_dir.parent]:
        path_parts = [part for part in (*reversed(file.parents), file) if root in part.parents]
        shared_path = None if runs_on_this_host else root / "-"
        if missing_part := next((part for part in path_parts if is_certainly_missing(part, shared_path)), None):
            return missing_part
    return None


def _find_similar_path(file: Path, missing_path: Path, *, is_program: bool = True) -> Path | None:
    """Return the most similar existing path: only one part of the path may be misspelled."""
    remaining_path = file.relative_to(missing_path)
    try:
        entries = {entry.name: entry / remaining_path for entry in missing_path.parent.iterdir()}
    except OSError:
        return None
    mode = os.X_OK if is_program else os.R_OK
    names = [name for name, entry in entries.items() if entry.is_file() and os.access(entry, mode)]
    closest_name = closest_match(missing_path.name, names)
    return entries[closest_name] if closest_name else None


def _format_like_typed(file: Path, typed_path: str, directory: Path) -> str:
    """Format a path in the form of the typed path: absolute, below ``~``, or relative to the working directory."""
    if typed_path.startswith("~/"):
        return f"~/{shlex.quote(str(file.relative_to(paths.home_folder())))}"
    if typed_path.startswith("/"):
        return shlex.quote(str(file))
    relative_path = os.path.relpath(file, directory)
    return shlex.quote(relative_path if relative_path.startswith("../") else f"./{relative_path}")
