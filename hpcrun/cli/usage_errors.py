"""Errors of the command line: unknown commands and options, and wrong values, each with the line that was meant."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hpcrun.errors import HpcrunError, closest_match

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "hpcrun": {
        "status": "ps ls list queue squeue jobs job sacct qstat info",
        "logs": "tail log output cat attach",
        "cancel": "kill stop scancel delete qdel abort end",
        "submit": "sbatch start launch qsub train create",
        "run": "exec srun mpirun mpiexec",
        "resubmit": "rerun retry requeue repeat",
        "resume": "continue restart",
        "why": "explain debug diagnose reason",
        "watch": "top monitor follow progress",
        "result": "results show metrics",
        "cleanup": "clean purge killall",
        "prune": "rm remove gc",
        "compare": "diff",
        "report": "plot html",
        "doctor": "check test verify health",
        "site init": "init setup configure",
        "site list": "sites clusters partitions",
        "workload list": "workloads models examples",
        "--help": "help man usage",
        "--version": "version",
    },
    "hpcrun site": {
        "list": "ls sites",
        "init": "new create discover setup",
        "show": "cat view print get info",
        "check": "lint validate verify",
        "test": "run benchmark try",
        "add": "install clone share",
        "update": "pull upgrade refresh sync",
        "remove": "rm delete uninstall",
        "allow": "trust accept approve",
        "diff": "compare changes",
    },
    "hpcrun workload": {"list": "ls", "show": "cat view info help options"},
}
"""What other programs call each command, by group of commands."""

OPTIONS = {
    "--gpus-per-node": "--gpu --gpus -G --gres --num-gpus --ngpus --gpus-per-task --nproc-per-node --nproc_per_node",
    "--nodes": "--nnodes --num-nodes --node --hosts",
    "--ntasks": "--np -np --ranks --procs --nprocs --num-processes --tasks --workers",
    "--ntasks-per-node": "--tasks-per-node --ppn --ranks-per-node --procs-per-node",
    "--cpus-per-task": "--cpus --cores --threads --cpu --ncpus --num-cpus",
    "--time": "--walltime --wall-time --timeout --time-limit --max-time --duration",
    "--mem": "--memory --ram",
    "--partition": "--queue --queues --part",
    "--account": "--project --allocation --charge",
    "--job-name": "--name",
    "--mail-user": "--email --mail --notify",
    "--nodelist": "--host --on",
    "--dependency": "--after --afterok --depends-on --wait-for",
    "--container": "--image --singularity --apptainer --docker",
    "--sweep": "--array --grid --param",
    "--dry-run": "--test-only --print --preview --simulate -n-dry --noop --script",
    "-x": "--env --export --environment --setenv",
    "--site": "--cluster --config --profile --system --machine -M --clusters",
    "--no-gpu": "--cpu-only --no-gpus --nogpu",
    "--wait": "--follow --block --sync",
    "--max-requeue": "--requeue --retries --restarts",
    "--lines": "--tail --last --head",
    "--json": "--format --output-format -j",
    "--rank": "--ranks --all-ranks --task",
    "--grep": "--filter --search --match",
    "--output": "--file --out",
    "--yes": "--force --no-confirm",
}
"""What Slurm, other launchers and habit call each option of a job."""

OUTPUT = {"-o", "--output", "-e", "--error", "--log", "--logfile", "--log-file", "--stdout", "--stderr"}

SBATCH = (
    "array batch bb bbf begin cluster-constraint comment container-id contiguous core-spec cores-per-socket "
    "cpu-freq cpus-per-gpu deadline delay-boot distribution exclusive export-file extra get-user-env gpu-bind "
    "gpu-freq gpus-per-socket gpus-per-task gres-flags hint hold ignore-pbs kill-on-invalid-dep licenses mcs-label "
    "mem-bind mincpus network nice no-kill no-requeue ntasks-per-core ntasks-per-gpu ntasks-per-socket open-mode "
    "overcommit oversubscribe power prefer priority profile propagate reboot requeue reservation segment signal "
    "sockets-per-node spread-job switches thread-spec threads-per-core tmp tres-bind tres-per-task uid use-min-nodes "
    "wckey"
)
"""Options of sbatch(1) that hpcrun passes on in ``--sbatch``."""


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
        return _bad_value(error, path)
    message = error.format_message().rstrip(".")
    if "unexpected extra argument" in message:
        return _extra_argument(error, path, list(argv))
    message = message.replace("requires an argument", "needs a value").replace("Option '", "'")
    name = _quoted(error.message)
    hint = f"{_assign(name, 'VALUE')}; see {path} --help" if name.startswith("-") else f"see {path} --help"
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
    if (
        typed == "--all"
        and "--all" not in known
        and any("all" in (param.help or "").split()[-1] for param in _params(error))
    ):
        return HpcrunError(f"{path} has no option {typed}", hint=f"did you mean {path} all?")
    hint = _option_hint(typed, {name for name in known if name.startswith("-")}, argv)
    return HpcrunError(f"{path} has no option {typed}", hint=hint or f"{path} --help lists its options")


def _option_hint(typed: str, known: set[str], argv: list[str]) -> str:
    """Return what the user probably meant by an unknown option; empty if nothing is similar."""
    value = _value_of(typed, argv)
    for_jobs = "--ntasks" in known
    synonym = next((name for name, words in OPTIONS.items() if typed in words.split() and name in known), None)
    similar = closest_match(typed.replace("_", "-"), sorted(known, key=len))
    if for_jobs and typed in OUTPUT:
        return "the output of a job is in its run directory, and hpcrun logs JOB shows it"
    if synonym:
        return f"did you mean {_assign(synonym, _adapt(value, typed, synonym))}?"
    if for_jobs and typed.removeprefix("--") in SBATCH.split():
        return f"for sbatch's option, write --sbatch='{_assign(typed, value)}'"
    if similar:
        return f"did you mean {_assign(similar, value)}?"
    return f"a program's own options go after --: {_after_dashes(_words_from(typed, argv), argv)}" if for_jobs else ""


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
    if synonym in {"--dry-run", "--no-gpu", "--wait", "--json", "--yes"}:
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
    wrong = error.message.rstrip(".")
    for kind, words in _TYPES.items():
        wrong = wrong.replace(f"is not a valid {kind}", f"not {words}")
    text = f"{name}={given}: {wrong.replace(f'{given!r} ', '', 1)}" if given else f"{name}: {wrong}"
    return HpcrunError(text, hint=hint)


def _extra_argument(error: Any, path: str, argv: list[str]) -> HpcrunError:
    """Explain arguments beyond those of a command; a program's own go after ``--``."""
    extra = error.message.replace("(s)", "").partition("(")[2].rpartition(")")[0]
    first = next((number for number, word in enumerate(argv) if extra.split(" ")[0] == word and number > 1), len(argv))
    before = argv[first - 1] if first else ""
    command = argv[:1]
    if command and command[0] in {"submit", "run"}:
        if before.rpartition("/")[2].startswith("python"):
            line = shlex.join(["hpcrun", *command, *(word for word in argv[1:] if word != before)])
            return HpcrunError(
                f"{path} takes one workload or script, and got {before} and {extra}",
                hint=f"hpcrun starts scripts with Python: {line}; any program goes after --",
            )
        if "=" in extra and "-x" in argv[:first]:
            line = shlex.join(["hpcrun", *argv[:first], *(part for word in extra.split() for part in ("-x", word))])
            return HpcrunError(f"{path} takes one workload or script, and got more: {extra}", hint=f"repeat -x: {line}")
        if before.isdigit() and _is_unit(extra):
            option = argv[first - 2] if first > 1 else ""
            return HpcrunError(f"{option} {before} {extra}: a size has no space", hint=f"{option}={before}{extra[0]}")
        if not before.endswith(".py") and (Path(before).is_file() or "/" in before):
            line = _after_dashes([before, *extra.split(" ")], argv)
            return HpcrunError(f"{path}: {before} is a program with arguments", hint=f"it goes after --: {line}")
        line = _after_dashes(extra.split(" "), argv)
        return HpcrunError(
            f"{path} takes one workload or script, and got more: {extra}",
            hint=f"a program's own arguments go after --: {line}",
        )
    return HpcrunError(
        f"{path} got an unexpected argument: {extra}", hint=_example(error, path) or f"see {path} --help"
    )


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


def _is_unit(word: str) -> bool:
    return word.upper() in {"K", "KB", "KIB", "M", "MB", "MIB", "G", "GB", "GIB", "T", "TB", "TIB"}


def _quoted(message: str) -> str:
    """Return the first text in quotes of a message; empty without one."""
    return message.split("'")[1] if message.count("'") > 1 else ""
