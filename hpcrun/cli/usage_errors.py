"""Errors of the command line: unknown commands and options, and wrong values, each with the line that was meant."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hpcrun.cli.synonyms import ADVICE, COMMANDS, FLAGS, LAUNCHERS, OPTIONS, SBATCH
from hpcrun.errors import HpcrunError, closest_match

if TYPE_CHECKING:
    from collections.abc import Sequence

_TYPES = {
    "int range": "a whole number in the range",
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
    if error.ctx and hasattr(error.ctx.command, "commands") and not hasattr(error, "option_name"):
        return _unknown_command(error, path, list(argv))
    if hasattr(error, "possibilities"):
        return _unknown_option(error, path, list(argv))
    if isinstance(error, typer.BadParameter):
        return _single_dash(error, path, list(argv)) or _bad_value(error, path)
    message = error.format_message().rstrip(".")
    if "unexpected extra argument" in message:
        return _extra_argument(error, path, list(argv))
    message = message.replace("requires an argument", "needs a value").replace("Option '", "'")
    name = _quoted(error.message)
    form = name if "does not take a value" in message else _assign(name, "VALUE")
    hint = f"{form}; see {path} --help" if name.startswith("-") else f"see {path} --help"
    return HpcrunError(f"{path}: {message}", hint=hint)


def _unknown_command(error: Any, path: str, argv: list[str]) -> HpcrunError:
    group = error.ctx.command
    typed = next(iter([*getattr(error.ctx, "_protected_args", []), *error.ctx.args]), "") or _quoted(error.message)
    meant = next((name for name, words in COMMANDS.get(path, {}).items() if typed in words.split()), None)
    if path == "hpcrun" and (line := _line_of_target(typed, argv) or _line_of_help(typed, argv)):
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


def _line_of_help(typed: str, argv: list[str]) -> str:
    """Return the line that prints the help of a command: ``hpcrun help submit``."""
    named = argv[argv.index(typed) + 1 :] if typed in argv else []
    return shlex.join(["hpcrun", *named, "--help"]) if typed in {"help", "man"} and named else ""


def _unknown_option(error: Any, path: str, argv: list[str]) -> HpcrunError:
    typed = error.option_name
    known = {name for param in _params(error) for name in (*param.opts, *param.secondary_opts)}
    if path == "hpcrun" and (line := _move_behind_command(typed, argv)):
        return HpcrunError(f"{path} has no option {typed}", hint=f"options follow the command: {line}")
    helps = [param.help or "" for param in _params(error) if param.param_type_name == "argument"]
    if typed == "--all" and any(text.endswith(("or all.", "default: all.")) for text in helps):
        line = path if any(text.endswith("default: all.") for text in helps) else f"{path} all"
        return HpcrunError(f"{path} has no option {typed}", hint=f"did you mean {line}?")
    hint = _option_hint(typed, {name for name in known if name.startswith("-")}, path, argv)
    return HpcrunError(f"{path} has no option {typed}", hint=hint or f"{path} --help lists its options")


def _option_hint(typed: str, known: set[str], path: str, argv: list[str]) -> str:
    """Return what the user probably meant by an unknown option; empty if nothing is similar."""
    value = _value_of(typed, argv)
    for_jobs = "--ntasks" in known
    synonym = next((name for name, words in OPTIONS.items() if typed in words.split() and name in known), None)
    similar = closest_match(typed.replace("_", "-"), sorted(known, key=len))
    if advice := _advise(typed, value, "hpcrun submit" if for_jobs else path):
        return advice
    if synonym:
        return f"did you mean {_assign(synonym, _adapt(value, typed, synonym))}?"
    if for_jobs and typed.removeprefix("--") in SBATCH.split():
        return f"for sbatch's option, write --sbatch='{_assign(typed, value)}'"
    if similar:
        return f"did you mean {_assign(similar, value)}?"
    return f"a program's own options go after --: {_after_dashes(_words_from(typed, argv), argv)}" if for_jobs else ""


def _advise(typed: str, value: str, path: str) -> str:
    """Return what a command has in place of an option; empty if unknown."""
    variables = [one for one in value.split(",") if "=" in one]
    if path == "hpcrun submit" and typed == "--export" and variables:
        return f"did you mean {' '.join(_assign('-x', one) for one in variables)}?"
    return next((advice for words, advice in ADVICE.get(path, {}).items() if typed in words.split()), "")


def _move_behind_command(option: str, argv: list[str]) -> str:
    """Return the command line with an option, and its value, behind the command; empty without a command."""
    command = next((word for word in argv if word in COMMANDS["hpcrun"]), "")
    if not command:
        return ""
    before, behind = argv[: argv.index(command)], argv[argv.index(command) + 1 :]
    return shlex.join(["hpcrun", command, *before, *behind]) if before and option in OPTIONS else ""


def _adapt(value: str, typed: str, synonym: str) -> str:
    if typed == "--gres":  # gpu:4, gpu:a100:4
        return value.removeprefix("gpu").removeprefix(":")
    if synonym in FLAGS:
        return ""
    return value


def _value_of(option: str, argv: list[str]) -> str:
    """Return the value of an option in the arguments; empty without one."""
    for number, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == option:
            following = argv[number + 1] if number + 1 < len(argv) else ""
            return value if equals else "" if following.startswith("-") else following
    return ""


def _assign(option: str, value: str) -> str:
    if not value:
        return option
    return f"{option} {shlex.quote(value)}" if len(option) == 2 else f"{option}={shlex.quote(value)}"


def _words_from(option: str, argv: list[str]) -> list[str]:
    """Return an option and all after it, up to ``--``."""
    start = next((number for number, word in enumerate(argv) if word.partition("=")[0] == option), len(argv))
    return argv[start : argv.index("--") if "--" in argv else None]


def _after_dashes(words: Sequence[str], argv: list[str]) -> str:
    """Return the command line with some of its words, and all after ``--``, behind ``--``."""
    split = argv.index("--") if "--" in argv else len(argv)
    before = argv[:split]
    for word in words:
        if word in before:
            before.remove(word)
    return shlex.join(["hpcrun", *before, "--", *words, *argv[split + 1 :]])


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
    wrong = error.message.rstrip(".")
    for kind, words in _TYPES.items():
        wrong = wrong.replace(f"is not a valid {kind}", f"not {words}")
    text = f"{name}={given}: {wrong.replace(f'{given!r} ', '', 1)}" if given else f"{name}: {wrong}"
    return HpcrunError(text, hint=hint)


def _extra_argument(error: Any, path: str, argv: list[str]) -> HpcrunError:
    """Explain arguments beyond those of a command; a program's own go after ``--``."""
    extra = error.message.replace("(s)", "").partition("(")[2].rpartition(")")[0]
    first = next((number for number, word in enumerate(argv) if extra.split(" ")[0] == word and number > 1), len(argv))
    if argv[:1] in (["submit"], ["run"]):
        return _extra_argument_of_job(path, extra, first, argv)
    if path == "hpcrun site list":
        return HpcrunError(
            f"{path} got an unexpected argument: {extra}", hint=f"did you mean hpcrun site show {extra}?"
        )
    if path == "hpcrun config":
        hint = "it only shows settings: HPCRUN_SITE chooses the site, and site files have the rest: docs/sites.md"
        return HpcrunError(f"{path} got an unexpected argument: {extra}", hint=hint)
    return HpcrunError(
        f"{path} got an unexpected argument: {extra}", hint=_example(error, path) or f"see {path} --help"
    )


def _single_dash(error: Any, path: str, argv: list[str]) -> HpcrunError | None:
    """Explain a long option with one dash, which Click reads as a short one with a value: ``-np 4``."""
    words = {name for names in OPTIONS.values() for name in names.split() if len(name) > 2 and name[1] != "-"}
    typed = next((word for word in argv if word.partition("=")[0] in words), "").partition("=")[0]
    if not typed or _quoted(error.message).partition("=")[0] != typed[2:]:
        return None
    return _unknown_option(_UnknownOption(typed, error.ctx), path, argv)


@dataclass
class _UnknownOption:
    option_name: str
    ctx: Any


def _extra_argument_of_job(path: str, extra: str, first: int, argv: list[str]) -> HpcrunError:
    """Explain arguments that follow the target of a job, of which the first has this number."""
    command, before = argv[:1], argv[first - 1] if first else ""
    message = f"{path} takes one workload or script, and got more: {extra}"
    hint = f"a program's own arguments go after --: {_after_dashes(extra.split(' '), argv)}"
    if launcher := next((word for word in argv[1:first] if word in LAUNCHERS), ""):
        words = [word for word in argv[1:] if word != launcher and not _is_python(word)]
        start = words.index(next(word for word in extra.split(" ") if not _is_python(word)))
        dashes = [] if words[start].endswith(".py") else ["--"]
        message = f"{path} takes one workload or script, and got {launcher} and {extra}"
        hint = f"hpcrun starts the ranks: {shlex.join(['hpcrun', *command, *words[:start], *dashes, *words[start:]])}"
    elif _is_python(before):
        line = shlex.join(["hpcrun", *command, *(word for word in argv[1:] if word != before)])
        message = f"{path} takes one workload or script, and got {before} and {extra}"
        hint = f"hpcrun starts scripts with Python: {line}; any program goes after --"
    elif "=" in extra and "-x" in argv[:first]:
        line = shlex.join(["hpcrun", *argv[:first], *(part for word in extra.split() for part in ("-x", word))])
        hint = f"repeat -x: {line}"
    elif before.isdigit() and _is_unit(extra):
        option = argv[first - 2] if first > 1 else ""
        message, hint = f"{option} {before} {extra}: a size has no space", f"{option}={before}{extra[0]}"
    elif not before.endswith(".py") and (Path(before).is_file() or "/" in before):
        message = f"{path}: {before} is a program with arguments"
        hint = f"it goes after --: {_after_dashes([before, *extra.split(' ')], argv)}"
    return HpcrunError(message, hint=hint)


def _params(error: Any) -> Sequence[Any]:
    return error.ctx.command.params if error.ctx else ()


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


def _is_python(word: str) -> bool:
    return word.rpartition("/")[2].startswith("python")


def _is_unit(word: str) -> bool:
    return word.upper() in {"K", "KB", "KIB", "M", "MB", "MIB", "G", "GB", "GIB", "T", "TB", "TIB"}


def _quoted(message: str) -> str:
    """Return the first text in quotes of a message; empty without one."""
    return message.split("'")[1] if message.count("'") > 1 else ""
