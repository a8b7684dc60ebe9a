"""Long options with one dash, as other launchers and schedulers have: Click reads ``-nodes 2`` as ``-n odes 2``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hpcrun.cli.job_lines import assign
from hpcrun.cli.synonyms import ADVICE, LAUNCHERS, OPTIONS, SBATCH
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence

_ONE_DASH = re.compile(r"-[A-Za-z][\w-]+")


def require_two_dashes(command: Any, ctx: Any, args: Sequence[str]) -> None:
    """Refuse a long option with one dash, of this command or of those that people expect.

    Args:
        command: Click's command.
        ctx: Its context.
        args: Its arguments before ``--``.

    Raises:
        HpcrunError: There is one; the hint has the option that was meant.
    """
    from hpcrun.cli import usage_errors

    options = [param for param in command.get_params(ctx) if param.param_type_name == "option"]
    known = {name for param in options for name in (*param.opts, *param.secondary_opts)}
    valued = {name for param in options if not getattr(param, "is_flag", False) for name in param.opts}
    for number, word in enumerate(args):
        typed = word.partition("=")[0]
        if word in LAUNCHERS:  # the line has mpirun's options, and its own explanation
            return
        if not _ONE_DASH.fullmatch(typed) or args[number - 1] in valued:
            continue
        meant = typed if typed in _synonyms() else f"-{typed.replace('_', '-')}"
        if meant not in known and meant not in _synonyms():
            continue
        others = [*args[:number], meant + word.removeprefix(typed), *args[number + 1 :]]
        argv = [*ctx.command_path.split()[1:], *others]
        value = usage_errors.value_of(meant, argv) if meant in valued else ""
        hint = f"did you mean {assign(meant, value)}?" if meant in known else usage_errors.hint_option(meant, ctx, argv)
        raise HpcrunError(f"{ctx.command_path} has no option {typed}", hint=hint)


def _synonyms() -> set[str]:
    """Return all words that have a hint."""
    texts = [*OPTIONS.values(), *(words for table in ADVICE.values() for words in table)]
    return {*" ".join(texts).split(), *(f"--{name}" for name in SBATCH.split())}
