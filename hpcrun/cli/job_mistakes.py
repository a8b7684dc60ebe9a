"""Explanations of mistakes in command lines that start jobs: launchers, programs and arguments in the wrong place."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hpcrun import file_hints
from hpcrun.cli.job_lines import OPTION, JobLine, is_program, is_python, translate_options
from hpcrun.cli.synonyms import ARGUMENT_OPTIONS, QUEUE_COMMANDS, WRAPPER_PROGRAMS
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence


def explain_job(error: Any, path: str, argv: Sequence[str]) -> HpcrunError | None:
    """Explain a mistake that is specific to ``hpcrun submit`` and ``hpcrun run``; return None for other mistakes.

    Args:
        error: Click's UsageError, with its context.
        path: The command: ``hpcrun submit``.
        argv: The arguments of hpcrun.
    """
    if path not in {"hpcrun submit", "hpcrun run"} or not error.ctx:
        return None
    line = JobLine(argv, error.ctx.command.params)
    if misplaced := _explain_misplaced(error, path, argv, line):
        return misplaced
    extra_words = error.message.replace("(s)", "").partition("(")[2].rpartition(")")[0].split()
    if not extra_words and not hasattr(error, "possibilities"):
        is_launcher_line = line.launcher and isinstance(error, typer.BadParameter) and "-np" in argv
        return _explain_launcher(line, path, extra_words) if is_launcher_line else None
    if line.launcher and not _is_value_of_unknown_option(line.target, error, argv):
        return _explain_launcher(line, path, extra_words)
    return _explain_pair(line, path) or (_explain_extra(line, path, extra_words) if extra_words else None)


def require_workload(ctx: Any, argv: Sequence[str]) -> None:
    """Refuse a launcher or a program as the target: ``tarantella -n 4 -- x.py``, ``./a.out``.

    Raises:
        HpcrunError: The target is a launcher or a program.
    """
    line = JobLine(argv, ctx.command.params)
    file = Path(line.target)
    if line.launcher and not file.exists():
        raise _explain_launcher(line, ctx.command_path, [])
    if file.is_file() and is_program(line.target):
        raise HpcrunError(f"{line.target} is not a Python script", hint=hint_for_other_file(line, ctx.command.params))


def hint_for_other_file(line: JobLine, params: Sequence[Any]) -> str:
    """Return the hint for a command line whose target is a file, but not a Python script."""
    file = Path(line.target)
    if hint := file_hints.advise(line.target, file):
        return hint
    if options := file_hints.batch_options(file):
        return _translate_batch_script(line, params, options, file_hints.launch_line(file))
    return f"any program goes after --: {line.translated_line()}"


def _explain_misplaced(error: Any, path: str, argv: Sequence[str], line: JobLine) -> HpcrunError | None:
    """Explain an option that names a program which hpcrun starts itself, or that contains all arguments; else None."""
    if line.target in WRAPPER_PROGRAMS:
        script = next((word for word in argv if word.endswith(".py")), "SCRIPT")
        hint = WRAPPER_PROGRAMS[line.target].format(line=f"{path} {shlex.quote(script)}")
        return HpcrunError(f"{path} takes one workload or script, and got {line.target}", hint=hint)
    if getattr(error, "option_name", "") in ARGUMENT_OPTIONS:
        return _explain_arguments(error.option_name, path, argv, line.params)
    if line.target in QUEUE_COMMANDS and not Path(line.target).exists():
        hint = hint_without_queue_command(argv, line.params)
        return HpcrunError(f"hpcrun calls the command that queues the job itself, and got {line.target}", hint=hint)
    return None


def _explain_arguments(name: str, path: str, argv: Sequence[str], params: Sequence[Any]) -> HpcrunError:
    """Explain an option with the program's own arguments: ``--args "--lr 0.1"``."""
    words = list(argv)
    index = next(index for index, word in enumerate(words) if word.partition("=")[0] == name)
    value = words[index].partition("=")[2] or "".join(words[index + 1 : index + 2])
    end = index + (1 if "=" in words[index] else 2)
    line = JobLine([*words[:index], *words[end:], *([] if "--" in words else ["--"]), *value.split()], params)
    hint = f"a program's own arguments go after --: {line.corrected_line()}"
    return HpcrunError(f"{path} has no option {name}", hint=hint)


def hint_without_queue_command(argv: Sequence[str], params: Sequence[Any]) -> str:
    """Return the hint for ``submit sbatch -N 2 job.sh``: the line without ``sbatch``, and with hpcrun's options."""
    command = next(word for word in argv if word in QUEUE_COMMANDS)
    line = JobLine([word for word in argv if word != command], params)
    if line.target.endswith(".py") or not Path(line.target).is_file():
        return f"did you mean {line.translated_line()}?"
    return hint_for_other_file(line, params)


def _translate_batch_script(
    line: JobLine, params: Sequence[Any], options: Sequence[str], launched_words: list[str]
) -> str:
    """Return the command line of hpcrun that replaces a batch script: its options, and the program that it launches."""
    line_options = [word for part in line.parts if part.kind == OPTION for word in part.words]
    option_names = {
        name for param in params for word in line_options if word.partition("=")[0] in param.opts for name in param.opts
    }
    script_options = translate_options(options, params)
    added_words = [
        word for option in script_options if option[0].partition("=")[0] not in option_names for word in option
    ]
    argv = (
        [line.argv[0], *added_words, *line_options, *launched_words]
        if launched_words
        else [line.argv[0], *added_words, *line.argv[1:]]
    )
    corrected_line = JobLine(argv, params).corrected_line()
    if launched_words:
        return f"hpcrun writes the job script, and starts what yours starts: {corrected_line}"
    return f"hpcrun reads no #SBATCH lines; any program goes after --: {corrected_line}"


def explain_second_launcher(error: HpcrunError, ctx: Any, argv: Sequence[str]) -> HpcrunError:
    """Return the error for ``-- mpirun -n 4 ./a.out`` with the corrected line.

    Args:
        error: The error of `hpcrun.job_program.require_one_launcher`.
        ctx: Click's context of the command.
        argv: The arguments of hpcrun.
    """
    start = argv.index("--")
    line = JobLine([*argv[:start], Path(argv[start + 1]).name, *argv[start + 2 :]], ctx.command.params)
    alternative = (error.hint or "").partition("; ")[2]
    return HpcrunError(error.message, hint=f"hpcrun starts the ranks: {line.corrected_line()}; {alternative}")


def _is_value_of_unknown_option(word: str, error: Any, argv: Sequence[str]) -> bool:
    """Return whether an argument is the value of an unknown option, as in ``--python /usr/bin/python3``."""
    unknown_option = getattr(error, "option_name", "")
    return unknown_option.startswith("--") and (unknown_option, word) in itertools.pairwise(argv)


def _explain_launcher(line: JobLine, path: str, extra_words: Sequence[str]) -> HpcrunError:
    name = line.launcher
    message = (
        f"{path} takes one workload or script, and got {' and '.join(filter(None, [name, ' '.join(extra_words)]))}"
    )
    if not is_python(name):
        return HpcrunError(message, hint=f"hpcrun starts the ranks: {line.corrected_line()}")
    if not line.starts_script:
        return HpcrunError(message, hint=f"any program goes after --: {line.corrected_line()}")
    return HpcrunError(
        message, hint=f"hpcrun starts scripts with Python: {line.corrected_line()}; any program goes after --"
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
                option_and_values = f"{key}={','.join(values if name == 'NAME' else values[:1])}"
                corrected_argv = [*words[:start], option_and_values, *(words[end:] if end else ())]
                message = f"{path}: {flag} {key} is not {param.metavar}"
                return HpcrunError(message, hint=f"did you mean {shlex.join(['hpcrun', *corrected_argv])}?")
    return None


def _is_target(word: str) -> bool:
    from hpcrun.workload import bundled_names

    return word.endswith(".py") or word in bundled_names() or Path(word).exists()


def _explain_extra(line: JobLine, path: str, extra_words: Sequence[str]) -> HpcrunError:
    """Explain arguments that follow the target of a job."""
    argv, text = list(line.argv), " ".join(extra_words)
    extra_index = next((number for number, word in enumerate(argv) if extra_words[0] == word and number > 1), len(argv))
    previous_word = argv[extra_index - 1] if extra_index else ""
    if "=" in text and "-x" in argv[:extra_index]:
        corrected_line = shlex.join(
            ["hpcrun", *argv[:extra_index], *(part for word in extra_words for part in ("-x", word))]
        )
        return HpcrunError(
            f"{path} takes one workload or script, and got more: {text}", hint=f"repeat -x: {corrected_line}"
        )
    option, equals, number = previous_word.partition("=")
    if not equals:
        option, number = argv[extra_index - 2] if extra_index > 1 else "", previous_word
    if number.isdigit() and _is_unit(text):
        size = f"{option}{equals or ' '}{number} {text}"
        return HpcrunError(f"{size}: a size has no space", hint=f"{option}={number}{text[0]}")
    if option in _LIST_OPTIONS and previous_word == number:  # -p main low
        words = [*argv[:extra_index], *argv[extra_index + len(extra_words) :]]
        words[words.index(previous_word, extra_index - 1)] = ",".join([previous_word, *extra_words])
        return HpcrunError(
            f"{path}: {option} takes one list, and got more: {text}",
            hint=f"commas separate names: {shlex.join(['hpcrun', *words])}",
        )
    if separated_values := _find_separated_values(line, argv):
        return HpcrunError(f"{path}: --sweep takes one word, and got more: {line.target}", hint=separated_values)
    if is_program(line.target):
        message = f"{path}: {line.target} is a program with arguments"
        return HpcrunError(message, hint=f"it goes after --: {line.corrected_line()}")
    return HpcrunError(
        f"{path} takes one workload or script, and got more: {text}",
        hint=f"a program's own arguments go after --: {line.corrected_line()}",
    )


def _find_separated_values(line: JobLine, argv: Sequence[str]) -> str:
    """Return the hint for ``--sweep lr=0.1 0.01``: commas separate values; empty for a different mistake."""
    for number, word in enumerate(argv[:-2]):
        if word == "--sweep" and argv[number + 2] == line.target and not _is_target(line.target):
            name = argv[number + 1].partition("=")[0]
            words = itertools.takewhile(
                lambda value: not value.startswith("-") and not _is_target(value), argv[number + 2 :]
            )
            values = [word.removeprefix(f"{name}=") for word in words]
            return f"commas separate values: --sweep {','.join([argv[number + 1], *values])}"
    return ""


_LIST_OPTIONS = {"-p", "--partition", "-w", "--nodelist", "--exclude", "--mail-type", "-d", "--dependency"}
"""Options whose values are lists."""


def _is_unit(word: str) -> bool:
    return word.upper() in {"K", "KB", "KIB", "M", "MB", "MIB", "G", "GB", "GIB", "T", "TB", "TIB"}
