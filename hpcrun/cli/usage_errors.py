"""Explanations of errors of the command line (unknown commands and options, wrong values) with a corrected line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hpcrun.cli.job_lines import JobLine, assign
from hpcrun.cli.job_mistakes import explain_job, hint_without_queue_command
from hpcrun.cli.option_hints import hint_option
from hpcrun.cli.synonyms import COMMANDS, OPTIONS, QUEUE_COMMANDS
from hpcrun.errors import HpcrunError, closest_match

if TYPE_CHECKING:
    from collections.abc import Sequence

_TYPE_DESCRIPTIONS = {
    "int range": "a whole number",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}


def explain(error: Any, argv: Sequence[str]) -> HpcrunError:
    """Convert a usage error of Click to hpcrun's form: the mistake, and a hint with the correct line.

    Args:
        error: Click's UsageError, with its context.
        argv: The arguments of hpcrun.
    """
    path = error.ctx.command_path if error.ctx else " ".join(["hpcrun", *argv[:1]])
    if job_error := explain_job(error, path, argv):
        return job_error
    if error.ctx and hasattr(error.ctx.command, "commands") and not hasattr(error, "option_name"):
        return _unknown_command(error, path, list(argv))
    if hasattr(error, "possibilities"):
        return _unknown_option(error, path, list(argv))
    if isinstance(error, typer.BadParameter):
        return _bad_value(error, path)
    message = error.format_message().rstrip(".")
    if "unexpected extra argument" in message:
        return _extra_argument(error, path)
    message = message.replace("requires an argument", "needs a value").replace("Option '", "'")
    name = _find_quoted_text(error.message)
    metavar = next((param.metavar for param in _params(error) if name in param.opts and param.metavar), "VALUE")
    form = name if "does not take a value" in message else f"{name}{' ' if len(name) == 2 else '='}{metavar}"
    hint = f"{form}; see {path} --help" if name.startswith("-") else f"see {path} --help"
    return HpcrunError(f"{path}: {message}", hint=hint)


def _unknown_command(error: Any, path: str, argv: list[str]) -> HpcrunError:
    group = error.ctx.command
    typed_word = next(iter([*getattr(error.ctx, "_protected_args", []), *error.ctx.args]), "") or _find_quoted_text(
        error.message
    )
    command = next((name for name, words in COMMANDS.get(path, {}).items() if typed_word in words.split()), None)
    if path == "hpcrun" and (
        line := _corrected_submit_command(typed_word, argv) or _corrected_help_command(typed_word, argv)
    ):
        return HpcrunError(f"{path} has no command '{typed_word}'", hint=f"did you mean {line}?")
    if path == "hpcrun" and typed_word in QUEUE_COMMANDS and len(argv) > 1:
        hint = hint_without_queue_command(["submit", *argv], group.commands["submit"].params)
        return HpcrunError(f"{path} has no command '{typed_word}'", hint=hint)
    if path == "hpcrun" and (line := _corrected_job_command(typed_word, command, argv, group)):
        return HpcrunError(f"{path} has no command '{typed_word}'", hint=f"did you mean {line}?")
    command = command or closest_match(typed_word, list(group.commands))
    if path != "hpcrun" and not command and typed_word in COMMANDS["hpcrun"]:
        return HpcrunError(
            f"{path} has no command '{typed_word}'", hint=f"did you mean {shlex.join(['hpcrun', *argv[1:]])}?"
        )
    if typed_word in {"use", "select", "set", "default"} and path == "hpcrun site":
        site_option = f"--site={shlex.quote(argv[2])}" if len(argv) > 2 else "--site=NAME"
        hint = f"each command has {site_option}; export HPCRUN_SITE={site_option.partition('=')[2]} sets it for a shell"
        return HpcrunError(f"{path} has no command '{typed_word}'", hint=hint)
    hint = f"did you mean {path} {command}?" if command else f"its commands: {', '.join(group.commands)}"
    return HpcrunError(f"{path} has no command '{typed_word}'", hint=hint)


def _corrected_submit_command(typed_word: str, argv: list[str]) -> str:
    """Return the command line that submits a workload or script, if it was typed in place of a command; else empty."""
    from hpcrun.workload import bundled_names

    is_target = (
        typed_word.endswith(".py") or typed_word in bundled_names() or Path(typed_word, "workload.toml").exists()
    )
    return shlex.join(["hpcrun", "submit", *argv]) if is_target else ""


def _corrected_job_command(typed_word: str, synonym: str | None, argv: list[str], group: Any) -> str:
    """Return the corrected line for a command of another program, as in ``hpcrun sbatch job.sh``; else empty."""
    is_launcher = bool(JobLine(["submit", typed_word], ()).launcher)
    command = synonym if synonym in {"submit", "run"} else "submit" if is_launcher else ""
    if not command or len(argv) < 2 or argv[0] != typed_word:
        return ""
    line = JobLine([command, *(argv if is_launcher else argv[1:])], group.commands[command].params)
    return line.corrected_line() if line.launcher else line.translated_line() if line.target else ""


def _corrected_help_command(typed_word: str, argv: list[str]) -> str:
    """Return the line that prints the help of a command: ``hpcrun help submit``."""
    command_words = argv[argv.index(typed_word) + 1 :] if typed_word in argv else []
    return shlex.join(["hpcrun", *command_words, "--help"]) if typed_word in {"help", "man"} and command_words else ""


def _unknown_option(error: Any, path: str, argv: list[str]) -> HpcrunError:
    typed_option = error.option_name
    if path == "hpcrun" and (line := _move_behind_command(error, argv)):
        return HpcrunError(f"{path} has no option {typed_option}", hint=f"options follow the command: {line}")
    argument_helps = [param.help or "" for param in _params(error) if param.param_type_name == "argument"]
    if typed_option in {"--all", "-a"} and any(text.endswith(("or all.", "default: all.")) for text in argument_helps):
        line = path if any(text.endswith("default: all.") for text in argument_helps) else f"{path} all"
        return HpcrunError(f"{path} has no option {typed_option}", hint=f"did you mean {line}?")
    hint = hint_option(typed_option, error.ctx, argv)
    return HpcrunError(f"{path} has no option {typed_option}", hint=hint)


def _move_behind_command(error: Any, argv: list[str]) -> str:
    """Return the line with an option moved behind the command; empty if the command does not have the option."""
    commands = error.ctx.command.commands
    command = next((word for word in argv if word in commands), "")
    if not command:  # such as hpcrun -N 2 train.py
        line = JobLine(["submit", *argv], commands["submit"].params)
        return line.corrected_line() if line.target.endswith(".py") else ""
    words_before, words_behind = argv[: argv.index(command)], argv[argv.index(command) + 1 :]
    known_options = {*OPTIONS, *(name for param in getattr(commands[command], "params", ()) for name in param.opts)}
    return shlex.join(["hpcrun", command, *words_before, *words_behind]) if error.option_name in known_options else ""


def _bad_value(error: Any, path: str) -> HpcrunError:
    message = error.format_message().rstrip(".")
    param = error.param
    if param is None:
        return HpcrunError(message, hint=f"see {path} --help")
    name = max(param.opts, key=len) if param.param_type_name == "option" else param.make_metavar(error.ctx)
    hint = _describe(param) or f"see {path} --help"
    if message.startswith("Missing"):
        return HpcrunError(f"{path}: {name} is missing", hint=_example(error, path) or hint)
    typed_value = _find_quoted_text(error.message)
    if name == "--nodes" and re.fullmatch(r"\d+-\d+", typed_value):
        max_nodes = typed_value.partition("-")[2]
        hint = f"the number of ranks depends on the number of nodes: give one number, as --nodes={max_nodes}"
    if param.param_type_name == "option" and " -" in typed_value:
        hint = f"without quotes: {assign(name, typed_value.partition(' ')[0])} {typed_value.partition(' ')[2]}"
    if suggestion := closest_match(typed_value, [str(choice) for choice in getattr(param.type, "choices", ())]):
        hint = f"did you mean {assign(name, suggestion) if name.startswith('-') else suggestion}?"
    problem = error.message.rstrip(".").replace("is not one of", "not one of")
    for kind, type_name in _TYPE_DESCRIPTIONS.items():
        problem = problem.replace(f"is not a valid {kind}", f"not {type_name}")
    text = (
        f"{name}={typed_value}: {problem.replace(f'{typed_value!r} ', '', 1)}" if typed_value else f"{name}: {problem}"
    )
    return HpcrunError(text, hint=hint)


def _extra_argument(error: Any, path: str) -> HpcrunError:
    """Explain that a command got more arguments than it takes."""
    extra_text = error.message.replace("(s)", "").partition("(")[2].rpartition(")")[0]
    if path == "hpcrun site list":
        return HpcrunError(
            f"{path} got an unexpected argument: {extra_text}", hint=f"did you mean hpcrun site show {extra_text}?"
        )
    if path == "hpcrun config":
        hint = (
            "hpcrun config only shows settings; HPCRUN_SITE selects the site, site files have the rest: docs/sites.md"
        )
        return HpcrunError(f"{path} got an unexpected argument: {extra_text}", hint=hint)
    if error.ctx.params.get("job"):
        jobs = shlex.join([error.ctx.params["job"], *extra_text.split()])
        hint = f"hpcrun status {jobs} --watch" if path == "hpcrun watch" else f"for job in {jobs}; do {path} $job; done"
        return HpcrunError(f"{path} takes one JOB, and got more: {extra_text}", hint=hint)
    return HpcrunError(
        f"{path} got an unexpected argument: {extra_text}", hint=_example(error, path) or f"see {path} --help"
    )


def _params(error: Any) -> Sequence[Any]:
    return error.ctx.command.params if error.ctx else ()


def _describe(param: Any) -> str:
    """Return an option or argument with its description: ``--nodes=N: Number of nodes.``; empty if it has no help."""
    if param is None or not getattr(param, "help", None):
        return ""
    name = max(param.opts, key=len) if param.param_type_name == "option" else param.metavar
    form = f"{name}={param.metavar}" if name.startswith("--") and param.metavar else name
    return f"{form}: {param.help}"


def _example(error: Any, path: str) -> str:
    """Return the first example of a command's help."""
    lines = (line.strip() for line in (error.ctx.command.help or "").splitlines())
    example = next((line for line in lines if line.startswith(f"{path} ")), "")
    return f"for example: {example}" if example else ""


def _find_quoted_text(message: str) -> str:
    """Return the first quoted text in a message; empty if there is none."""
    return message.split("'")[1] if message.count("'") > 1 else ""
