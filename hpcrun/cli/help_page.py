"""The help page of a command: options in panels, each with its complete name and one sentence of description.

Pages are plain text. Typer's own layout imports rich, which would double the time of ``--help``, and cuts long names.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ARGUMENTS, OPTIONS, COMMANDS = "Arguments", "Options", "Commands"
USAGE_ERROR: Any = BadParameter.__mro__[1]
"""Click's UsageError, which Typer imports under a private name."""

_EMPTY_VALUE_HINT = "if the value comes from a variable, set the variable first"
NO_SHORT_NAME = " " * len("-h, ")
MAX_NAME_COLUMNS = 30
"""Maximum width of the column of names; a longer name is printed in a line above its description."""


class Command(TyperCommand):
    """A command with a plain help page, which rejects mistakes that Click would accept as values."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reject empty values, and an equals sign after a short option, before Click converts the values.

        Raises:
            HpcrunError: A value is empty, or begins with an equals sign after a short option.
        """
        if not ctx.resilient_parsing:
            self._require_two_dashes(ctx, args)
            self._require_values(ctx, list(args))
        return super().parse_args(ctx, args)

    def _require_two_dashes(self, ctx: Any, args: list[str]) -> None:
        if any(word[:1] == "-" != word[1:2] and len(word) > 2 for word in args):  # import it only if needed
            from hpcrun.cli import single_dash

            single_dash.require_two_dashes(self, ctx, args)

    def _require_values(self, ctx: Any, args: list[str]) -> None:
        try:
            values, extra_arguments, _ = self.make_parser(ctx).parse_args(args=args)
        except USAGE_ERROR as error:
            error.ctx = error.ctx or ctx  # Click omits the context if an option has no value
            raise
        for param in self.get_params(ctx):
            typed_values = values.get(param.name or "")
            typed_values = typed_values if isinstance(typed_values, list | tuple) else [typed_values]
            is_option = param.param_type_name == "option"
            (metavar,) = _without_braces([param.make_metavar(ctx)])
            name = max(param.opts, key=len) if is_option else metavar.strip("[].")
            if "" in typed_values:
                form = f"{name}{'=' if len(name) > 2 else ' '}{metavar}" if is_option else f"{ctx.command_path} {name}"
                raise HpcrunError(f"{ctx.command_path}: {name} is empty", hint=f"{form}; {_EMPTY_VALUE_HINT}")
            short_name = next((value for value in param.opts if len(value) == 2), "")
            if wrong_value := next(
                (value for value in typed_values if short_name and str(value).startswith("=")), None
            ):
                typed_option = f"{ctx.command_path}: {short_name}{wrong_value}"
                long_form = f", or {name}{wrong_value}" if len(name) > 2 else ""
                hint = f"{short_name} {shlex.quote(wrong_value[1:])}{long_form}"
                raise HpcrunError(f"{typed_option}: a short option and its value have no = between them", hint=hint)
        if "" in extra_arguments:
            raise HpcrunError(f"{ctx.command_path}: an argument is empty", hint=f"leave it out; {_EMPTY_VALUE_HINT}")

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Write required arguments without braces in the usage line: JOB."""
        return list(_without_braces(super().collect_usage_pieces(ctx)))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options by panel."""
        _write_panels(formatter, _parameters(self, ctx))


class Group(TyperGroup):
    """A group of commands with a plain help page."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, grouped by panel, and the options."""
        commands = [self.commands[name] for name in self.list_commands(ctx)]
        width = max((len(command.name or "") for command in commands), default=0)
        rows = (
            (
                getattr(command, "rich_help_panel", None) or COMMANDS,
                (command.name or "").ljust(width),
                command.get_short_help_str(formatter.width),
            )
            for command in commands
        )
        _write_panels(formatter, [*rows, *_parameters(self, ctx)])


def _write_panels(formatter: Any, rows: Iterable[tuple[str, str, str]]) -> None:
    """Write rows of panel, name and description; panels come in the order of their first row, `OPTIONS` last."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for panel, *row in rows:
        panels.setdefault(panel, []).append((row[0], row[1]))
    if OPTIONS in panels:
        panels[OPTIONS] = panels.pop(OPTIONS)
    for panel, records in panels.items():
        with formatter.section(panel):
            formatter.write_dl(records, col_max=MAX_NAME_COLUMNS)


def _parameters(command: Any, ctx: Any) -> Iterator[tuple[str, str, str]]:
    params = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    for param in sorted(params, key=lambda param: param.param_type_name):  # arguments first
        if param.param_type_name == "argument":
            (name,) = _without_braces([param.make_metavar(ctx)])
            yield ARGUMENTS, name.strip("[]").replace("]...", "..."), _describe(param)
            continue
        short_names = [name for name in param.opts if len(name) == 2]
        long_names = [name for name in [*param.opts, *param.secondary_opts] if len(name) > 2]
        names = ("" if short_names else NO_SHORT_NAME) + ", ".join([*short_names, *long_names])
        value = "" if param.is_flag else f" {param.make_metavar(ctx)}"
        yield getattr(param, "rich_help_panel", None) or OPTIONS, names + value, _describe(param)


def _describe(param: Any) -> str:
    """Return the description of a parameter, with its default unless the default is hidden."""
    text: str = param.help or ""
    default = param.default
    if not param.show_default or not isinstance(default, str | int | float) or isinstance(default, bool):
        return text
    return f"{text.removesuffix('.')}; default: {default if isinstance(default, str) else format(default, 'g')}."


def _without_braces(pieces: Iterable[str]) -> Iterator[str]:
    for piece in pieces:
        yield piece.replace("{", "").replace("}", "")
