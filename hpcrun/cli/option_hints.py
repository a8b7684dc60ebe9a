"""Hints for unknown options: a similar option, the name that hpcrun has for an option of another program, or advice."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.cli.batch_options import translate_resources
from hpcrun.cli.job_lines import JobLine, assign, convert_value, count_nodes, count_ranks_per_node
from hpcrun.cli.synonyms import ADVICE, ARGUMENTS, JOB_COMMAND, OPTIONS, QUEUE_COMMAND, SBATCH_OPTIONS
from hpcrun.errors import closest_match

if TYPE_CHECKING:
    from collections.abc import Sequence


def hint_option(typed_option: str, ctx: Any, argv: list[str]) -> str:
    """Return a hint for an unknown option.

    Args:
        typed_option: The unknown option.
        ctx: Click's context of the command.
        argv: The arguments of hpcrun.
    """
    known_options = {name for param in ctx.command.params for name in (*param.opts, *param.secondary_opts)}
    hint = _option_hint(typed_option, ctx, {name for name in known_options if name.startswith("-")}, argv)
    return hint or f"{ctx.command_path} --help lists its options"


def _option_hint(typed_option: str, ctx: Any, known_options: set[str], argv: list[str]) -> str:
    """Return a hint with a similar option or with advice; empty if there is none."""
    path, value = ctx.command_path, find_option_value(typed_option, argv)
    starts_jobs = "--ntasks" in known_options
    dashed_option = typed_option.replace("_", "-")
    synonym = next(
        (name for name, words in OPTIONS.items() if dashed_option in words.split() and name in known_options), None
    )
    similar_option = closest_match(dashed_option, sorted(known_options, key=len))
    if not starts_jobs and not similar_option:
        similar_option = _longer_or_shorter_option(dashed_option, known_options)
    if dashed_option == "--config" and Path(value).suffix in {".yaml", ".yml", ".json", ".cfg", ".ini", ".py"}:
        synonym = similar_option = None  # probably an option of the program, because site files are TOML
    if len(typed_option) == 2 and not starts_jobs:  # such as -a for --all
        same_letter = [name for name in known_options if name.startswith(f"-{typed_option}")]
        similar_option = same_letter[0] if len(same_letter) == 1 else similar_option
    is_list = typed_option in {"-H", "--host"} or (typed_option == "--hosts" and "," in value)
    if "--hostfile" in known_options and value and is_list and not Path(value).exists():
        return f"printf '%s\\n' {shlex.join(value.split(','))} > hosts; then --hostfile=hosts"
    shared_path = (
        ["hpcrun submit", *([QUEUE_COMMAND] if "--hostfile" not in known_options else [])] if starts_jobs else []
    )
    argument = _first_argument(ctx)
    job_path = [JOB_COMMAND] if argument == "JOB" else []
    advice = _advise(typed_option, value, [path, *shared_path, *job_path], argv)
    if not (advice or synonym) and dashed_option in ARGUMENTS.get(argument, "").split():
        advice = f"did you mean {_line_with_argument(path, argv, typed_option, value or argument)}?"
    if advice:
        return advice
    if synonym:
        return _synonym_hint(typed_option, synonym, value or _metavar(synonym, ctx), argv)
    if starts_jobs and typed_option.removeprefix("--") in SBATCH_OPTIONS.split():
        return f"for sbatch's option, write --sbatch='{assign(typed_option, value)}'"
    if similar_option:
        is_flag = any(getattr(param, "is_flag", False) for param in ctx.command.params if similar_option in param.opts)
        return f"did you mean {assign(similar_option, '' if is_flag else value or _metavar(similar_option, ctx))}?"
    takes_program = path in {"hpcrun submit", "hpcrun run", "hpcrun resubmit"}
    line = JobLine(argv, ctx.command.params) if takes_program else None
    return f"a program's own options go after --: {line.corrected_line()}" if line and line.target else ""


def _longer_or_shorter_option(option: str, known_options: set[str]) -> str | None:
    """Return the known option of which an option is the beginning, or that is its beginning, as in ``--all-fields``.

    Return None if there is none, or several, of which none is the beginning of the others.
    """
    found = [
        name
        for name in known_options
        if name.startswith("--") and (option.startswith(f"{name}-") or (len(option) > 4 and name.startswith(option)))
    ]
    shortest_option = min(found, key=len, default="")
    return shortest_option if shortest_option and all(name.startswith(shortest_option) for name in found) else None


def _first_argument(ctx: Any) -> str:
    """Return the name of a command's first argument in its usage line; empty if it has none."""
    arguments = (param.metavar or "" for param in ctx.command.params if param.param_type_name == "argument")
    return next(arguments, "").strip("[].").partition("|")[0]


def _line_with_argument(path: str, argv: Sequence[str], typed_option: str, value: str) -> str:
    """Return the command line with the value of an option as the first argument of the command."""
    words = list(argv)
    index = next(number for number, word in enumerate(words) if word.partition("=")[0] == typed_option)
    end = index + (1 if "=" in words[index] or words[index + 1 : index + 2] != [value] else 2)
    other_words = [*words[:index], *words[end:]][len(path.split()) - 1 :]
    return shlex.join([*path.split(), value, *other_words])


def _synonym_hint(typed_option: str, synonym: str, value: str, argv: Sequence[str]) -> str:
    """Return the hint for an option that has another name in hpcrun."""
    dashed, nodes = typed_option.replace("_", "-"), count_nodes(argv)
    if dashed == "--gpus-per-task" and value.isdigit():
        value = str(int(value) * count_ranks_per_node(argv))
    suggestion = f"did you mean {assign(synonym, convert_value(value, typed_option, synonym, nodes))}?"
    # a total over all nodes
    if typed_option in {"--gpus", "-G"} and value in {"8", "12", "16", "24", "32"} and nodes == 1:
        return f"{suggestion} on several nodes: --nodes={int(value) // 4} --gpus-per-node=4"
    # torchrun's --nproc-per-node counts processes, with or without GPUs
    is_processes = dashed == "--nproc-per-node" and value.isdigit()
    return f"{suggestion} without GPUs: --ntasks-per-node={value}" if is_processes else suggestion


def _advise(typed_option: str, value: str, paths: Sequence[str], argv: Sequence[str]) -> str:
    """Return the advice for an option that a command does not have; empty if there is none."""
    variables = [value_part for value_part in value.split(",") if "=" in value_part]
    if "hpcrun submit" in paths and typed_option in {"--export", "-e", "-E", "-v"} and variables:
        return f"did you mean {' '.join(assign('-x', value_part) for value_part in variables)}?"
    if (
        "hpcrun submit" in paths
        and typed_option == "-l"
        and (options := translate_resources(find_option_values("-l", argv)))
    ):
        return f"did you mean {shlex.join(options)}?"
    other_parts = [value_part for value_part in value.split(",") if value_part and not value_part.startswith("gpu")]
    if "hpcrun submit" in paths and typed_option == "--gres" and other_parts:
        gpus = [
            convert_value(value_part, typed_option, "--gpus-per-node")
            for value_part in value.split(",")
            if value_part.startswith("gpu")
        ]
        line = [*(f"--gpus-per-node={value_part}" for value_part in gpus), f"--sbatch=--gres={','.join(other_parts)}"]
        return f"did you mean {shlex.join(line)}?"
    if typed_option == "-v" and ":" in value:  # as in docker run -v
        typed_option = "--volume"
    return next(
        (advice for path in paths for words, advice in ADVICE.get(path, {}).items() if typed_option in words.split()),
        "",
    )


def find_option_value(option: str, argv: Sequence[str]) -> str:
    """Return the first value of an option in the arguments; empty if the option is missing."""
    return next(iter(find_option_values(option, argv)), "")


def find_option_values(option: str, argv: Sequence[str]) -> list[str]:
    """Return the values of a repeated option in the arguments."""
    values = []
    for number, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == option:
            next_word = argv[number + 1] if number + 1 < len(argv) else ""
            values.append(value if equals else "" if next_word.startswith("-") else next_word)
        elif len(option) == 2 and name.startswith(option):  # -G2
            values.append(word[2:])
    return values


def _metavar(option: str, ctx: Any) -> str:
    """Return the metavar of an option; empty for a flag."""
    params = (param for param in ctx.command.params if option in param.opts and not getattr(param, "is_flag", False))
    return next((param.metavar or "" for param in params), "")
