"""Errors of the command line: unknown commands and options, and wrong values, each with the line that was meant."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hpcrun.cli.job_lines import JobLine, adapt, assign, count_nodes, is_program
from hpcrun.cli.job_mistakes import explain_job
from hpcrun.cli.synonyms import ADVICE, COMMANDS, OPTIONS, QUEUE, SBATCH
from hpcrun.errors import HpcrunError, closest_match

if TYPE_CHECKING:
    from collections.abc import Sequence

_TYPES = {
    "int range": "a whole number",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}


def explain(error: Any, argv: Sequence[str]) -> HpcrunError:
    """Return a usage error of Click in hpcrun's form: what was given, and what to type.

    Args:
        error: Click's UsageError, with its context.
        argv: The arguments of hpcrun.
    """
    path = error.ctx.command_path if error.ctx else " ".join(["hpcrun", *argv[:1]])
    if job := explain_job(error, path, argv):
        return job
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
    name = _quoted(error.message)
    metavar = next((param.metavar for param in _params(error) if name in param.opts and param.metavar), "VALUE")
    form = name if "does not take a value" in message else f"{name}{' ' if len(name) == 2 else '='}{metavar}"
    hint = f"{form}; see {path} --help" if name.startswith("-") else f"see {path} --help"
    return HpcrunError(f"{path}: {message}", hint=hint)


def _unknown_command(error: Any, path: str, argv: list[str]) -> HpcrunError:
    group = error.ctx.command
    typed = next(iter([*getattr(error.ctx, "_protected_args", []), *error.ctx.args]), "") or _quoted(error.message)
    meant = next((name for name, words in COMMANDS.get(path, {}).items() if typed in words.split()), None)
    if path == "hpcrun" and (line := _line_of_target(typed, argv) or _line_of_help(typed, argv)):
        return HpcrunError(f"{path} has no command '{typed}'", hint=f"did you mean {line}?")
    if path == "hpcrun" and (line := _line_of_job(typed, meant, argv, group)):
        return HpcrunError(f"{path} has no command '{typed}'", hint=f"did you mean {line}?")
    meant = meant or closest_match(typed, list(group.commands))
    if path != "hpcrun" and not meant and typed in COMMANDS["hpcrun"]:
        return HpcrunError(
            f"{path} has no command '{typed}'", hint=f"did you mean {shlex.join(['hpcrun', *argv[1:]])}?"
        )
    if typed in {"use", "select", "set", "default"} and path == "hpcrun site":
        meant_line = f"--site={shlex.quote(argv[2])}" if len(argv) > 2 else "--site=NAME"
        hint = f"each command has {meant_line}; export HPCRUN_SITE={meant_line.partition('=')[2]} sets it for a shell"
        return HpcrunError(f"{path} has no command '{typed}'", hint=hint)
    hint = f"did you mean {path} {meant}?" if meant else f"its commands: {', '.join(group.commands)}"
    return HpcrunError(f"{path} has no command '{typed}'", hint=hint)


def _line_of_target(typed: str, argv: list[str]) -> str:
    """Return the line that submits a workload or script that was typed in place of a command; empty for others."""
    from hpcrun.workload import bundled_names

    is_target = typed.endswith(".py") or typed in bundled_names() or Path(typed, "workload.toml").exists()
    return shlex.join(["hpcrun", "submit", *argv]) if is_target else ""


def _line_of_job(typed: str, meant: str | None, argv: list[str], group: Any) -> str:
    """Return the line for a program that another command would start: ``hpcrun sbatch job.sh``; empty for others."""
    is_launcher = bool(JobLine(["submit", typed], ()).launcher)
    command = meant if meant in {"submit", "run"} else "submit" if is_launcher else ""
    if not command or len(argv) < 2 or argv[0] != typed:
        return ""
    line = JobLine([command, *(argv if is_launcher else argv[1:])], group.commands[command].params)
    return line.corrected() if line.launcher or is_program(line.target) else ""


def _line_of_help(typed: str, argv: list[str]) -> str:
    """Return the line that prints the help of a command: ``hpcrun help submit``."""
    named = argv[argv.index(typed) + 1 :] if typed in argv else []
    return shlex.join(["hpcrun", *named, "--help"]) if typed in {"help", "man"} and named else ""


def _unknown_option(error: Any, path: str, argv: list[str]) -> HpcrunError:
    typed = error.option_name
    if path == "hpcrun" and (line := _move_behind_command(error, argv)):
        return HpcrunError(f"{path} has no option {typed}", hint=f"options follow the command: {line}")
    helps = [param.help or "" for param in _params(error) if param.param_type_name == "argument"]
    if typed in {"--all", "-a"} and any(text.endswith(("or all.", "default: all.")) for text in helps):
        line = path if any(text.endswith("default: all.") for text in helps) else f"{path} all"
        return HpcrunError(f"{path} has no option {typed}", hint=f"did you mean {line}?")
    hint = hint_option(typed, error.ctx, argv)
    return HpcrunError(f"{path} has no option {typed}", hint=hint)


def hint_option(typed: str, ctx: Any, argv: list[str]) -> str:
    """Return what to type in place of an unknown option.

    Args:
        typed: The option.
        ctx: Click's context of the command.
        argv: The arguments of hpcrun.
    """
    known = {name for param in ctx.command.params for name in (*param.opts, *param.secondary_opts)}
    hint = _option_hint(typed, ctx, {name for name in known if name.startswith("-")}, argv)
    return hint or f"{ctx.command_path} --help lists its options"


def _option_hint(typed: str, ctx: Any, known: set[str], argv: list[str]) -> str:
    """Return what the user probably meant by an unknown option; empty if nothing is similar."""
    path, value = ctx.command_path, value_of(typed, argv)
    for_jobs = "--ntasks" in known
    dashed = typed.replace("_", "-")
    synonym = next((name for name, words in OPTIONS.items() if dashed in words.split() and name in known), None)
    similar = closest_match(dashed, sorted(known, key=len))
    if len(typed) == 2 and not for_jobs:  # -a for --all
        same_letter = [name for name in known if name.startswith(f"-{typed}")]
        similar = same_letter[0] if len(same_letter) == 1 else similar
    is_list = typed in {"-H", "--host"} or (typed == "--hosts" and "," in value)
    if "--hostfile" in known and value and is_list and not Path(value).exists():
        return f"printf '%s\\n' {shlex.join(value.split(','))} > hosts; then --hostfile=hosts"
    shared = ["hpcrun submit", *([QUEUE] if "--hostfile" not in known else [])] if for_jobs else []
    if advice := _advise(typed, value, [path, *shared]):
        return advice
    if synonym:
        value = value or _metavar(synonym, ctx)
        meant = f"did you mean {assign(synonym, adapt(value, typed, synonym, count_nodes(argv)))}?"
        is_processes = dashed == "--nproc-per-node" and value.isdigit()  # torchrun's, with or without GPUs
        return f"{meant} without GPUs: --ntasks-per-node={value}" if is_processes else meant
    if for_jobs and typed.removeprefix("--") in SBATCH.split():
        return f"for sbatch's option, write --sbatch='{assign(typed, value)}'"
    if similar:
        return f"did you mean {assign(similar, value or _metavar(similar, ctx))}?"
    line = JobLine(argv, ctx.command.params) if for_jobs else None
    return f"a program's own options go after --: {line.corrected()}" if line and line.target else ""


def _advise(typed: str, value: str, paths: Sequence[str]) -> str:
    """Return what a command, or one with the same options, has in place of an option; empty if unknown."""
    variables = [one for one in value.split(",") if "=" in one]
    if "hpcrun submit" in paths and typed in {"--export", "-e", "-E", "-v"} and variables:
        return f"did you mean {' '.join(assign('-x', one) for one in variables)}?"
    others = [one for one in value.split(",") if one and not one.startswith("gpu")]
    if "hpcrun submit" in paths and typed == "--gres" and others:
        gpus = [adapt(one, typed, "--gpus-per-node") for one in value.split(",") if one.startswith("gpu")]
        line = [*(f"--gpus-per-node={one}" for one in gpus), f"--sbatch=--gres={','.join(others)}"]
        return f"did you mean {shlex.join(line)}?"
    if typed == "-v" and ":" in value:  # docker's volumes
        typed = "--volume"
    return next(
        (advice for path in paths for words, advice in ADVICE.get(path, {}).items() if typed in words.split()), ""
    )


def _move_behind_command(error: Any, argv: list[str]) -> str:
    """Return the command line with an option, and its value, behind the command that has it; empty without one."""
    commands = error.ctx.command.commands
    command = next((word for word in argv if word in commands), "")
    if not command:  # -N 2 train.py
        line = JobLine(["submit", *argv], commands["submit"].params)
        return line.corrected() if line.target.endswith(".py") else ""
    before, behind = argv[: argv.index(command)], argv[argv.index(command) + 1 :]
    known = {*OPTIONS, *(name for param in getattr(commands[command], "params", ()) for name in param.opts)}
    return shlex.join(["hpcrun", command, *before, *behind]) if error.option_name in known else ""


def value_of(option: str, argv: list[str]) -> str:
    """Return the value of an option in the arguments; empty without one."""
    for number, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == option:
            following = argv[number + 1] if number + 1 < len(argv) else ""
            return value if equals else "" if following.startswith("-") else following
        if len(option) == 2 and name.startswith(option):  # -G2
            return word[2:]
    return ""


def _bad_value(error: Any, path: str) -> HpcrunError:
    message = error.format_message().rstrip(".")
    param = error.param
    if param is None:
        return HpcrunError(message, hint=f"see {path} --help")
    name = max(param.opts, key=len) if param.param_type_name == "option" else param.make_metavar(error.ctx)
    hint = _describe(param) or f"see {path} --help"
    if message.startswith("Missing"):
        return HpcrunError(f"{path}: {name} is missing", hint=_example(error, path) or hint)
    given = _quoted(error.message)
    if name == "--nodes" and re.fullmatch(r"\d+-\d+", given):
        hint = f"the number of ranks depends on it: give one number, as --nodes={given.partition('-')[2]}"
    if param.param_type_name == "option" and " -" in given:
        hint = f"without quotes: {assign(name, given.partition(' ')[0])} {given.partition(' ')[2]}"
    if like := closest_match(given, [str(choice) for choice in getattr(param.type, "choices", ())]):
        hint = f"did you mean {assign(name, like) if name.startswith('-') else like}?"
    wrong = error.message.rstrip(".").replace("is not one of", "not one of")
    for kind, words in _TYPES.items():
        wrong = wrong.replace(f"is not a valid {kind}", f"not {words}")
    text = f"{name}={given}: {wrong.replace(f'{given!r} ', '', 1)}" if given else f"{name}: {wrong}"
    return HpcrunError(text, hint=hint)


def _extra_argument(error: Any, path: str) -> HpcrunError:
    """Explain arguments beyond those of a command."""
    extra = error.message.replace("(s)", "").partition("(")[2].rpartition(")")[0]
    if path == "hpcrun site list":
        return HpcrunError(
            f"{path} got an unexpected argument: {extra}", hint=f"did you mean hpcrun site show {extra}?"
        )
    if path == "hpcrun config":
        hint = "it only shows settings: HPCRUN_SITE chooses the site, and site files have the rest: docs/sites.md"
        return HpcrunError(f"{path} got an unexpected argument: {extra}", hint=hint)
    if error.ctx.params.get("job"):
        jobs = shlex.join([error.ctx.params["job"], *extra.split()])
        hint = f"hpcrun status {jobs} --watch" if path == "hpcrun watch" else f"for job in {jobs}; do {path} $job; done"
        return HpcrunError(f"{path} takes one JOB, and got more: {extra}", hint=hint)
    return HpcrunError(
        f"{path} got an unexpected argument: {extra}", hint=_example(error, path) or f"see {path} --help"
    )


def _params(error: Any) -> Sequence[Any]:
    return error.ctx.command.params if error.ctx else ()


def _metavar(option: str, ctx: Any) -> str:
    """Return the placeholder of an option's value; empty for a flag."""
    params = (param for param in ctx.command.params if option in param.opts and not getattr(param, "is_flag", False))
    return next((param.metavar or "" for param in params), "")


def _describe(param: Any) -> str:
    """Return an option or argument with its description: ``--nodes=N: Number of nodes.``; empty without one."""
    if param is None or not getattr(param, "help", None):
        return ""
    name = max(param.opts, key=len) if param.param_type_name == "option" else param.metavar
    form = f"{name}={param.metavar}" if name.startswith("--") and param.metavar else name
    return f"{form}: {param.help}"


def _example(error: Any, path: str) -> str:
    """Return the first example of a command's help."""
    lines = (line.strip() for line in (error.ctx.command.help or "").splitlines())
    first = next((line for line in lines if line.startswith(f"{path} ")), "")
    return f"for example: {first}" if first else ""


def _quoted(message: str) -> str:
    """Return the first text in quotes of a message; empty without one."""
    return message.split("'")[1] if message.count("'") > 1 else ""
