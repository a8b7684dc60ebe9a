"""Mistakes of the lines that start jobs: launchers, programs and their arguments in the wrong place."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hpcrun.cli.job_lines import JobLine, is_program, is_python
from hpcrun.cli.synonyms import PLACES
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence


def explain_job(error: Any, path: str, argv: Sequence[str]) -> HpcrunError | None:
    """Explain a mistake that only lines of ``hpcrun submit`` and ``hpcrun run`` have; None for others.

    Args:
        error: Click's UsageError, with its context.
        path: The command: ``hpcrun submit``.
        argv: The arguments of hpcrun.
    """
    if path not in {"hpcrun submit", "hpcrun run"} or not error.ctx:
        return None
    line = JobLine(argv, error.ctx.command.params)
    if line.target in PLACES:
        script = next((word for word in argv if word.endswith(".py")), "SCRIPT")
        hint = PLACES[line.target].format(line=f"{path} {shlex.quote(script)}")
        return HpcrunError(f"{path} takes one workload or script, and got {line.target}", hint=hint)
    extra = error.message.replace("(s)", "").partition("(")[2].rpartition(")")[0].split()
    if not extra and not hasattr(error, "possibilities"):
        is_launched = line.launcher and isinstance(error, typer.BadParameter) and "-np" in argv
        return _explain_launcher(line, path, extra) if is_launched else None
    if line.launcher and not _is_value_of_unknown(line.target, error, argv):
        return _explain_launcher(line, path, extra)
    return _explain_pair(line, path) or (_explain_extra(line, path, extra) if extra else None)


def require_workload(ctx: Any, argv: Sequence[str]) -> None:
    """Refuse a launcher or a program as the target: ``tarantella -n 4 -- x.py``, ``./a.out``.

    Raises:
        HpcrunError: The target is a launcher or a program.
    """
    from hpcrun.workload import has_sbatch_lines

    line = JobLine(argv, ctx.command.params)
    file = Path(line.target)
    if line.launcher and not file.exists():
        raise _explain_launcher(line, ctx.command_path, [])
    if file.is_file() and is_program(line.target):
        hint = f"any program goes after --: {line.corrected()}"
        if has_sbatch_lines(file):
            hint += "; hpcrun reads no #SBATCH lines, so give their options before --"
        raise HpcrunError(f"{line.target} is not a Python script", hint=hint)


def _is_value_of_unknown(word: str, error: Any, argv: Sequence[str]) -> bool:
    """Return whether a word is the value of the option that Click does not know: ``--python /usr/bin/python3``."""
    unknown = getattr(error, "option_name", "")
    return unknown.startswith("--") and (unknown, word) in itertools.pairwise(argv)


def _explain_launcher(line: JobLine, path: str, extra: Sequence[str]) -> HpcrunError:
    name = line.launcher
    message = f"{path} takes one workload or script, and got {' and '.join(filter(None, [name, ' '.join(extra)]))}"
    if not is_python(name):
        return HpcrunError(message, hint=f"hpcrun starts the ranks: {line.corrected()}")
    if not line.starts_script:
        return HpcrunError(message, hint=f"any program goes after --: {line.corrected()}")
    return HpcrunError(
        message, hint=f"hpcrun starts scripts with Python: {line.corrected()}; any program goes after --"
    )


def _explain_pair(line: JobLine, path: str) -> HpcrunError | None:
    """Explain an option whose name and values have no equals sign: ``--sweep lr 0.1 0.01``."""
    words = list(line.argv)
    for param in line.params:
        name, _, value = (param.metavar or "").partition("=")
        for flag in param.opts if value else ():
            if flag not in words or "=" in "".join(words[words.index(flag) + 1 :][:1]):
                continue
            start = words.index(flag) + 1
            end = next((n for n in range(start, len(words)) if words[n].startswith("-") or _is_target(words[n])), None)
            key, *values = [word for word in words[start:end] if word != "="]
            if values:
                pair = f"{key}={','.join(values if name == 'NAME' else values[:1])}"
                fixed = [*words[:start], pair, *(words[end:] if end else ())]
                message = f"{path}: {flag} {key} is not {param.metavar}"
                return HpcrunError(message, hint=f"did you mean {shlex.join(['hpcrun', *fixed])}?")
    return None


def _is_target(word: str) -> bool:
    from hpcrun.workload import bundled_names

    return word.endswith(".py") or word in bundled_names() or Path(word).exists()


def _explain_extra(line: JobLine, path: str, extra: Sequence[str]) -> HpcrunError:
    """Explain arguments that follow the target of a job."""
    argv, text = list(line.argv), " ".join(extra)
    first = next((number for number, word in enumerate(argv) if extra[0] == word and number > 1), len(argv))
    before = argv[first - 1] if first else ""
    if "=" in text and "-x" in argv[:first]:
        fixed = shlex.join(["hpcrun", *argv[:first], *(part for word in extra for part in ("-x", word))])
        return HpcrunError(f"{path} takes one workload or script, and got more: {text}", hint=f"repeat -x: {fixed}")
    option, equals, number = before.partition("=")
    if not equals:
        option, number = argv[first - 2] if first > 1 else "", before
    if number.isdigit() and _is_unit(text):
        size = f"{option}{equals or ' '}{number} {text}"
        return HpcrunError(f"{size}: a size has no space", hint=f"{option}={number}{text[0]}")
    if is_program(line.target):
        message = f"{path}: {line.target} is a program with arguments"
        return HpcrunError(message, hint=f"it goes after --: {line.corrected()}")
    return HpcrunError(
        f"{path} takes one workload or script, and got more: {text}",
        hint=f"a program's own arguments go after --: {line.corrected()}",
    )


def _is_unit(word: str) -> bool:
    return word.upper() in {"K", "KB", "KIB", "M", "MB", "MIB", "G", "GB", "GIB", "T", "TB", "TIB"}
