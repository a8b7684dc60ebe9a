"""Showing what site files say before they are used, and asking whether they may be."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from hpcrun.cli import output
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hpcrun.sites.layers import Change
    from hpcrun.sites.source import Source


def check_templates(found: Mapping[str, Source]) -> None:
    """Refuse a layer with a template that cannot be read as one.

    Args:
        found: The layer's files, by their names in it.

    Raises:
        HpcrunError: Names the template and the line.
    """
    templates = {name: source.text for name, source in found.items() if "/" in name}
    if templates:
        from hpcrun.script import check_template

        for name, text in templates.items():
            check_template(text, name)


def show_change(change: Change) -> dict[str, Source]:
    """Show how a layer's files differ from those in use, and what is doubtful in those that are new.

    Returns:
        The files, by their names in the layer.

    Raises:
        HpcrunError: A template cannot be read as one.
    """
    from hpcrun.sites import layer_files
    from hpcrun.sites.lint import layer_checks

    old, new = (layer_files.read_sources(folder) if folder else {} for folder in (change.old_folder, change.new_folder))
    check_templates(new)
    before, now = ({name: source.text for name, source in found.items()} for found in (old, new))
    show(layer_files.diff_texts(before, now))
    for doubt in layer_checks.lint_files(
        change.sites, change.new_folder, {name for name in now if now[name] != before.get(name)}
    ):
        output.message(f"WARNING: {doubt}")
    return new


def show(lines: Iterable[str]) -> None:
    """Show lines of files, or of a difference, on stderr; on a terminal what is new is green, and what goes is red."""
    colours = {"+": "32", "-": "31", "@": "36"} if sys.stderr.isatty() else {}
    for line in lines:
        output.message(line, colours.get(line[:1], ""))


def confirm(question: str, *, yes: bool, otherwise: str) -> None:
    """Ask once whether what was shown may be used.

    Args:
        question: The question.
        yes: Whether it was answered on the command line.
        otherwise: What is told after a no.

    Raises:
        HpcrunError: There is nobody to ask.
        Exit: The answer is no.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise HpcrunError(f"nobody is here to ask: {question}", hint="read what is shown above; --yes says yes to it")
    if not typer.confirm(question, err=True):
        output.message(otherwise)
        raise typer.Exit(1)
