"""Corrections of command lines of ``hpcrun submit`` and ``run`` with misplaced options, launchers and arguments."""

from __future__ import annotations

import itertools
import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.cli.batch_options import translate_resources
from hpcrun.cli.synonyms import ENVIRONMENT_MANAGERS, FLAGS, OPTIONS
from hpcrun.errors import closest_match
from hpcrun.file_hints import find_interpreter
from hpcrun.frozen import frozen
from hpcrun.job_program import LAUNCHERS
from hpcrun.resource_hints import propose_value

if TYPE_CHECKING:
    from collections.abc import Sequence

OPTION, _UNKNOWN, _WORD = "option of hpcrun", "unknown option", "word"
_OPTION_VALUE_COUNTS = dict.fromkeys(["--mca", "-mca", "-env", "-genv", "--gmca", "--pmixmca", "--prtemca"], 2)
"""Number of values of launchers' options that take more than one value."""

_OTHER_NAMES = {name for names in OPTIONS.values() for name in names.split()}


@frozen
class _Part:
    kind: str
    words: tuple[str, ...]


@dataclass
class JobLine:
    """The arguments of ``hpcrun submit`` or ``hpcrun run``, split into options and other arguments.

    Attributes:
        argv: The command and its arguments, such as ``submit train.py``.
        params: Click's parameters of the command.
        parts: Options with their values, and other arguments, before ``--``.
        program_words: The arguments after ``--``.
    """

    argv: Sequence[str]
    params: Sequence[Any]
    parts: list[_Part] = field(init=False)
    program_words: list[str] = field(init=False)

    def __post_init__(self) -> None:
        words = list(self.argv[1:])
        split = words.index("--") if "--" in words else len(words)
        self.program_words = words[split + 1 :]
        self.parts = self._split(words[:split])

    @property
    def target(self) -> str:
        """The first argument that is not an option; empty if there is none."""
        return next((part.words[0] for part in self.parts if part.kind == _WORD), "")

    @property
    def launcher(self) -> str:
        """The program that starts the user's program, such as ``mpirun`` or ``python``; empty if there is none."""
        return self.target if _is_starter(self.target) else ""

    @property
    def starts_script(self) -> bool:
        """Whether the launcher starts a Python script, rather than a module or another program."""
        return _is_script(self._translate_launch_line()[1])

    def corrected_line(self) -> str:
        """Return the line without a launcher: hpcrun's options, ``--``, and the program's arguments."""
        if self.launcher:
            options, program_arguments = self._translate_launch_line()
            return (
                self._join(options, program_arguments[:1], program_arguments[1:])
                if _is_script(program_arguments)
                else self._join(options, [], program_arguments)
            )
        target_index = next((index for index, part in enumerate(self.parts) if part.kind == _WORD), len(self.parts))
        options = [word for part in self.parts if part.kind == OPTION for word in part.words]
        other_parts = [part for index, part in enumerate(self.parts) if part.kind != OPTION and index != target_index]
        program_arguments = [*(word for part in other_parts for word in part.words), *self.program_words]
        if self.argv[0] != "resubmit" and is_program(self.target):
            is_file = "." in self.target or Path(self.target).exists()
            interpreter = find_interpreter(Path(self.target)) if Path(self.target).is_file() else []
            needs_prefix = is_file and not interpreter and "/" not in self.target and not shutil.which(self.target)
            return self._join(options, [], [*interpreter, f"{'./' * needs_prefix}{self.target}", *program_arguments])
        return self._join(options, [self.target] if self.target else [], program_arguments)

    def translated_line(self) -> str:
        """Return the corrected line for a command of another program, with its options translated to hpcrun's."""
        target_index = next((number for number, part in enumerate(self.parts) if part.kind == _WORD), len(self.parts))
        words = [
            self._translate(part) if part.kind == _UNKNOWN and number < target_index else part.words
            for number, part in enumerate(self.parts)
        ]
        dashes_and_program = ["--", *self.program_words] if self.program_words else []
        return JobLine([self.argv[0], *itertools.chain(*words), *dashes_and_program], self.params).corrected_line()

    def _translate_launch_line(self) -> tuple[list[str], list[str]]:
        """Translate the options of a pasted line and its launcher to hpcrun's; return them and the program's words."""
        options: list[str] = []
        python = ""
        for index, part in enumerate(self.parts):
            word, *value = part.words
            following_words = [
                word for other_part in self.parts[index + 1 :] if other_part.kind != OPTION for word in other_part.words
            ]
            if part.kind == OPTION:
                options += part.words
            elif part.kind == _UNKNOWN and word in {"-m", "-c"} and value and (python or word == "-m"):
                if not value[0].startswith("torch.distributed."):
                    command = [python or "python", word, *value, *following_words, *self.program_words]
                    return self._options_after(index, options), command
            elif part.kind == _UNKNOWN:
                options += self._translate(part)
            elif is_python(word):
                python = word
            elif not (_is_starter(word) or word in {"run", "launch"}):
                return self._options_after(index, options), [word, *following_words, *self.program_words]
        words_after_dashes = self.program_words
        while (
            words_after_dashes
            and is_python(words_after_dashes[0])
            and words_after_dashes[1:]
            and words_after_dashes[1].endswith(".py")
        ):
            words_after_dashes = words_after_dashes[1:]
        return options, words_after_dashes or ["SCRIPT"]

    def _options_after(self, index: int, options: list[str]) -> list[str]:
        return [*options, *(word for part in self.parts[index + 1 :] if part.kind == OPTION for word in part.words)]

    def _translate(self, part: _Part) -> list[str]:
        """Return hpcrun's option for an option of a launcher; an empty list if hpcrun has none."""
        if part.words[0] == "-l":
            return translate_resources(part.words[1:])
        return _translate_option(part.words, self.params, count_nodes(self.argv))

    def _join(self, options: list[str], target: list[str], words_after_dashes: list[str]) -> str:
        if target and self.parts and self.parts[0].words[0] == target[0]:
            words_before = [*target, *options]
        else:
            words_before = [*options, *target]
        dashes = ["--", *words_after_dashes] if words_after_dashes else []
        return shlex.join(["hpcrun", self.argv[0], *words_before, *dashes])

    def _split(self, words: list[str]) -> list[_Part]:
        options = [param for param in self.params if param.param_type_name == "option"]
        known_options = {name for param in options for name in (*param.opts, *param.secondary_opts)}
        options_with_value = {name for param in options if not getattr(param, "is_flag", False) for name in param.opts}
        parts: list[_Part] = []
        while words:
            word = words.pop(0)
            name, equals, _ = word.partition("=")
            is_long = name in _OTHER_NAMES or (word[2:].isalpha() and any(_is_starter(part.words[0]) for part in parts))
            if name in known_options or (word[:2] in options_with_value and not is_long):  # -N2
                takes_next_word = word in options_with_value and bool(words)
                parts.append(_Part(OPTION, (word, words.pop(0)) if takes_next_word else (word,)))
            elif word.startswith("-") and len(word) > 1:
                values: list[str] = []
                while (
                    not equals
                    and words
                    and len(values) < _OPTION_VALUE_COUNTS.get(name, 1)
                    and _may_be_value(words[0], parts)
                ):
                    values.append(words.pop(0))
                parts.append(_Part(_UNKNOWN, (word, *values)))
            else:
                parts.append(_Part(_WORD, (word,)))
        return parts


def translate_options(lines: Sequence[str], params: Sequence[Any]) -> list[list[str]]:
    """Return hpcrun's options, with values, for the options of a batch script; unknown options are left out.

    Args:
        lines: Lines with one option each, such as ``--nodes=2`` or ``-l walltime=1:00:00``.
        params: Click's parameters of the command.
    """
    known_options = {name for param in params for name in param.opts}
    found: list[list[str]] = []
    for line in lines:
        match = re.fullmatch(r"(-\w|--?[\w-]+)[= ]*(.*)", line)
        name, value = match.groups() if match else (line, "")
        if name == "-l":
            found += [[option] for option in translate_resources([value])]
        elif name in known_options - {"-o", "-e", "-W", "-x"}:
            found.append(shlex.split(assign(name, value)))
        else:
            found.append(_translate_option([name, value], params, 1))
    return [option for option in found if option]


def _translate_option(words: Sequence[str], params: Sequence[Any], nodes: int) -> list[str]:
    """Return hpcrun's option for an option of another program; an empty list if hpcrun has none."""
    name, equals, value = words[0].partition("=")
    value = value if equals else "".join(words[1:2])
    known_options = {name for param in params for name in param.opts}
    names = {name.replace("_", "-"), f"-{name}"}  # Hydra's -ppn is --ppn
    option_name = next(
        (option for option, words in OPTIONS.items() if names & {*words.split()} and option in known_options), ""
    )
    return shlex.split(assign(option_name, convert_value(value, name, option_name, nodes))) if option_name else []


def _is_script(words: Sequence[str]) -> bool:
    return words[0].endswith(".py") or words[0] == "SCRIPT"


def _may_be_value(word: str, parts: list[_Part]) -> bool:
    """Return whether an argument may be the value of a preceding unknown option, and not the program."""
    has_program = any(part.kind == _WORD and not _is_starter(part.words[0]) for part in parts)
    is_program = _is_starter(word) or word.endswith(".py") or "/" in word
    return not word.startswith("-") and (has_program or not is_program)


def _is_starter(word: str) -> bool:
    return is_python(word) or word in LAUNCHERS or word in ENVIRONMENT_MANAGERS


def is_python(word: str) -> bool:
    """Return whether an argument is a Python interpreter."""
    return word.rpartition("/")[2].startswith("python") and not word.endswith(".py")


def is_program(target: str) -> bool:
    """Return whether a target is a program, which belongs after ``--``, and not a workload, folder or Python script."""
    from hpcrun.workload import bundled_names

    if target.endswith((".py", ".ipynb")) or target in bundled_names() or Path(target).is_dir():
        return False
    if target.endswith(".sh") or Path(target).is_file() or "/" in target or shutil.which(target):
        return True
    return bool(target) and "." not in target and not closest_match(target, bundled_names())


def assign(option: str, value: str) -> str:
    """Return an option with its value, quoted for a shell."""
    if not value:
        return option
    return f"{option} {shlex.quote(value)}" if len(option) == 2 else f"{option}={shlex.quote(value)}"


def count_nodes(argv: Sequence[str]) -> int:
    """Return the number of nodes that a command line requests."""
    match = re.search(r" (?:-N *|--n?nodes[= ])([1-9]\d*) ", f" {' '.join(argv)} ")
    return int(match[1]) if match else 1


def count_ranks_per_node(argv: Sequence[str]) -> int:
    """Return the number of ranks on each node that a command line requests."""
    line = f" {' '.join(argv)} "
    ranks_per_node_match = re.search(r" --(?:n-per-node|ntasks-per-node)[= ]([1-9]\d*) ", line)
    rank_count = re.search(r" (?:-n *|--ntasks[= ])([1-9]\d*) ", line)
    return (
        int(ranks_per_node_match[1])
        if ranks_per_node_match
        else -(-int(rank_count[1]) // count_nodes(argv))
        if rank_count
        else 1
    )


def convert_value(value: str, typed_option: str, option: str, nodes: int = 1) -> str:
    """Convert the value of another program's option to a value of hpcrun's option: ``--gres=gpu:4`` to ``4``.

    Args:
        value: The value that was typed.
        typed_option: The option that was typed.
        option: The corresponding option of hpcrun.
        nodes: The number of nodes of the job.
    """
    if typed_option == "--gres":  # gpu:4, gpu:a100:4
        value = value.removeprefix("gpu").removeprefix(":") or "1"
    if typed_option in {"--gpus", "-G"} and nodes > 1:  # sbatch's --gpus counts the GPUs of all nodes
        kind, colon, total = value.rpartition(":")
        value = f"{kind}{colon}{int(total) // nodes}" if total.isdigit() and int(total) % nodes == 0 else "all"
    if option in {"--older-than", "--since"} and value.isdigit():
        value += "h" if typed_option == "--hours" else "d"
    if option == "--gpus-per-node" and value in {"all", "max", "auto"}:
        return "N"
    if option in FLAGS:
        return ""
    return propose_value(option.strip("-").replace("-", "_"), value) or value
