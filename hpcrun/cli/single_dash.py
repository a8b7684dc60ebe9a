"""Detection of long options with one dash, as other launchers have: Click would read ``-nodes 2`` as ``-n odes 2``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hpcrun.cli.job_lines import assign
from hpcrun.cli.synonyms import ADVICE, OPTIONS, SBATCH_OPTIONS
from hpcrun.errors import HpcrunError
from hpcrun.job_program import LAUNCHERS

if TYPE_CHECKING:
    from collections.abc import Sequence

_ONE_DASH = re.compile(r"-[A-Za-z][\w-]+")


def require_two_dashes(command: Any, ctx: Any, args: Sequence[str]) -> None:
    """Reject a long option with one dash, if the command has this option or a hint for it.

    Args:
        command: Click's command.
        ctx: The context of the command.
        args: The arguments of the command before ``--``.

    Raises:
        HpcrunError: An argument is a long option with one dash; the hint names the correct option.
    """
    from hpcrun.cli import option_hints

    options = [param for param in command.get_params(ctx) if param.param_type_name == "option"]
    known_options = {name for param in options for name in (*param.opts, *param.secondary_opts)}
    options_with_value = {name for param in options if not getattr(param, "is_flag", False) for name in param.opts}
    for index, word in enumerate(args):
        typed_option = word.partition("=")[0]
        if word in LAUNCHERS:  # `hpcrun.cli.job_mistakes` explains a line with options of mpirun
            return
        if not _ONE_DASH.fullmatch(typed_option) or args[index - 1] in options_with_value:
            continue
        correct_option = typed_option if typed_option in _synonyms() else f"-{typed_option.replace('_', '-')}"
        if correct_option not in known_options and correct_option not in _synonyms():
            continue
        corrected_args = [*args[:index], correct_option + word.removeprefix(typed_option), *args[index + 1 :]]
        argv = [*ctx.command_path.split()[1:], *corrected_args]
        value = option_hints.find_option_value(correct_option, argv) if correct_option in options_with_value else ""
        hint = (
            f"did you mean {assign(correct_option, value)}?"
            if correct_option in known_options
            else option_hints.hint_option(correct_option, ctx, argv)
        )
        raise HpcrunError(f"{ctx.command_path} has no option {typed_option}", hint=hint)


def _synonyms() -> set[str]:
    """Return all option names for which there is a hint."""
    texts = [*OPTIONS.values(), *(synonyms for table in ADVICE.values() for synonyms in table)]
    return {*" ".join(texts).split(), *(f"--{name}" for name in SBATCH_OPTIONS.split())}
