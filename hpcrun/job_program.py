"""The program of a job: whether its nodes can find and start it, as far as this host can tell."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.job_options import STAGED
from hpcrun.workload_data import is_certainly_missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.spec import JobSpec

_INTERPRETERS = {".R": "Rscript", ".r": "Rscript", ".jl": "julia", ".pl": "perl"}
"""Programs of scripts that bash would read as its own if their first line names no other."""

_BINARY = b"\x7fELF"


def require_program(argv: Sequence[str], spec: JobSpec) -> None:
    """Refuse a program that certainly no host can start.

    Args:
        argv: The program and its arguments.
        spec: The job, without a container.

    Raises:
        HpcrunError: It does not exist, is not executable, or its interpreter would not be found.
    """
    name = argv[0]
    file, shown = spec.directory / paths.expand_user(name), shlex.quote(name)
    file = file.resolve() if ".." in file.parts else file
    if "/" in name and (missing := _find_missing(file, spec)):
        like = _find_similar(file, missing)
        what = f"no such program in {file.parent}" if missing == file else f"no folder {missing}"
        hint = f"did you mean {_format_like(like, name, spec.directory)}?" if like else "make it first, or name another"
        raise HpcrunError(f"{name}: there is {what}", hint=hint)
    try:
        is_folder, is_file = file.is_dir(), file.is_file()
    except OSError:  # only the nodes may have access
        return
    if "/" in name and is_folder:
        raise HpcrunError(f"{name} is a folder", hint=f"name the program in it: {shown.rstrip('/')}/PROGRAM")
    _require_script(argv, spec)
    if not is_file or ("/" not in name and (shutil.which(name) or _has_own_path(spec))):
        return
    try:
        first = _read_first_line(file)
    except OSError:
        first = _BINARY  # which runs without permission to read it
    if "/" not in name:
        line = shlex.join(["hpcrun", "submit", name, *(["--", *argv[1:]] if argv[1:] else [])])
        hint = f"without --, hpcrun starts it with Python: {line}" if file.suffix == ".py" else ""
        raise HpcrunError(f"{name} is not on PATH", hint=hint or f"for the file in this folder: ./{shown}")
    _require_interpreter(argv, file, first)
    if first.startswith(b"#!") and first.endswith(b"\r\n") and _ends_with_program(first[2:].split()):
        what = f"{name} has Windows line ends, so its interpreter is not found"
        raise HpcrunError(what, hint=f"sed -i 's/\\r$//' {shown}")


def _require_script(argv: Sequence[str], spec: JobSpec) -> None:
    """Refuse a script that an interpreter would not find: ``python trian.py``."""
    name = Path(argv[0]).name
    script = argv[1] if len(argv) > 1 else ""
    is_script = name.startswith("python") and script.endswith(".py")
    is_script |= name in {"bash", "sh", *_INTERPRETERS.values()} and Path(script).suffix in {".sh", *_INTERPRETERS}
    if not is_script or script.startswith("-"):
        return
    file = spec.directory / paths.expand_user(script)
    if missing := _find_missing(file, spec):
        like = _find_similar(file, missing, is_program=False)
        meant = os.path.relpath(like, spec.directory) if like else ""
        hint = f"did you mean {shlex.quote(meant)}?" if like else "make it first, or name another"
        raise HpcrunError(f"{script}: there is no such script in {file.parent}", hint=hint)


def find_warnings(argv: Sequence[str], spec: JobSpec) -> tuple[str, ...]:
    """Return a warning about a program that is not on PATH here, unless the job has another PATH.

    Args:
        argv: The program and its arguments.
        spec: The job.
    """
    if spec.container or not argv or "/" in argv[0] or "$" in argv[0] or shutil.which(argv[0]) or _has_own_path(spec):
        return ()
    where = "" if spec.transport == "host" else ", and may be missing on the nodes, too"
    return (f"{argv[0]} is not on PATH here{where}",)


def _has_own_path(spec: JobSpec) -> bool:
    """Return whether the site, a template or ``-x`` may set the PATH of the job."""
    site = spec.site
    variables = {*site.environment, *site.mpi.environment, *site.prepend_path, *dict(spec.environment)}
    is_set = site.modules.load or site.activation_keys or site.setup or len(spec.template_folders) > 1
    return bool(is_set) or "PATH" in variables


def _require_interpreter(argv: Sequence[str], file: Path, first: bytes) -> None:
    """Refuse a file that is not executable, and a script in another language than bash's that names no interpreter."""
    name, is_executable = argv[0], os.access(file, os.X_OK)
    is_program = first.startswith((b"#!", _BINARY)) or b"\0" in first
    fault = "is not executable" if not is_executable else "" if is_program else "names no interpreter (#!)"
    if fault and file.suffix == ".py":
        line = shlex.join(["hpcrun", "submit", name, *(["--", *argv[1:]] if argv[1:] else [])])
        raise HpcrunError(f"{name} {fault}", hint=f"without --, hpcrun starts it with Python: {line}")
    if fault and (program := _INTERPRETERS.get(file.suffix)):
        raise HpcrunError(f"{name} {fault}", hint=f"start it with its interpreter: -- {program} {shlex.join(argv)}")
    if not is_executable:
        with_shell = f", or start it with bash: -- bash {shlex.join(argv)}" if first.startswith(b"#!") else ""
        raise HpcrunError(f"{name} {fault}", hint=f"chmod +x {shlex.quote(name)}{with_shell}")


def _read_first_line(file: Path) -> bytes:
    with file.open("rb") as program:
        return program.readline(256)


def _ends_with_program(words: list[bytes]) -> bool:
    """Return whether an interpreter's line ends with its name, and not with its options."""
    return len(words) == 1 or (len(words) == 2 and words[0].endswith(b"/env"))


def _find_missing(file: Path, spec: JobSpec) -> Path | None:
    """Return the first part of a program's path that does not exist on any node; None if that is not certain.

    In a queue, only paths below the folder where the job starts, the user's home and the run root are checked. None is
    certain if the site's setup, a snapshot, a dependency or a template may make the program or change the folder first.
    """
    may_change = spec.site.setup or spec.snapshot or spec.resources.dependency or len(spec.template_folders) > 1
    if may_change or "$" in str(file) or STAGED in str(file):
        return None
    is_here = spec.transport == "host"
    for root in [Path("/")] if is_here else [spec.directory, paths.home_folder(), spec.run_dir.parent]:
        below = [part for part in (*reversed(file.parents), file) if root in part.parents]
        shared = None if is_here else root / "-"
        if missing := next((part for part in below if is_certainly_missing(part, shared)), None):
            return missing
    return None


def _find_similar(file: Path, missing: Path, *, is_program: bool = True) -> Path | None:
    """Return the program, or script, with a similar name, or of that name in a folder with a similar one."""
    rest = file.relative_to(missing)
    try:
        entries = {entry.name: entry / rest for entry in missing.parent.iterdir()}
    except OSError:
        return None
    mode = os.X_OK if is_program else os.R_OK
    programs = [name for name, entry in entries.items() if entry.is_file() and os.access(entry, mode)]
    like = closest_match(missing.name, programs)
    return entries[like] if like else None


def _format_like(file: Path, typed: str, directory: Path) -> str:
    """Return a path in the form that the user typed: ``./a.out`` in the folder of the job, absolute, or below ``~``."""
    if typed.startswith("~/"):
        return f"~/{shlex.quote(str(file.relative_to(paths.home_folder())))}"
    if typed.startswith("/"):
        return shlex.quote(str(file))
    below = os.path.relpath(file, directory)
    return shlex.quote(below if below.startswith("../") else f"./{below}")
