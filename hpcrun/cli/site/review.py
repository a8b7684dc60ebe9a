"""Review of site files by the user before hpcrun uses them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from hpcrun.cli import output
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hpcrun.sites.layers import Change
    from hpcrun.sites.source import SiteSource


def check_templates(files: Mapping[str, SiteSource]) -> None:
    """Check the syntax of a layer's templates.

    Args:
        files: The layer's files, by their paths relative to the layer's folder.

    Raises:
        HpcrunError: A template is not valid; the message names the template and the line.
    """
    templates = {name: source.text for name, source in files.items() if "/" in name}
    if templates:
        from hpcrun.script.templates import check_template

        for name, text in templates.items():
            check_template(text, name)


def show_change(change: Change) -> dict[str, SiteSource]:
    """Show the differences between a layer's new files and the files in use, and warnings about new and changed files.

    Returns:
        The new files, by their paths relative to the layer's folder.

    Raises:
        HpcrunError: A template is not valid.
    """
    from hpcrun.sites import layer_files
    from hpcrun.sites.lint import layer_checks

    old_files, new_files = (
        layer_files.read_sources(folder) if folder else {} for folder in (change.old_folder, change.new_folder)
    )
    check_templates(new_files)
    old_texts, new_texts = ({name: source.text for name, source in files.items()} for files in (old_files, new_files))
    show_diff(layer_files.diff_texts(old_texts, new_texts))
    for warning in layer_checks.lint_files(
        change.sites, change.new_folder, {name for name in new_texts if new_texts[name] != old_texts.get(name)}
    ):
        output.message(f"WARNING: {warning}")
    return new_files


def show_diff(lines: Iterable[str]) -> None:
    """Print the lines of a diff on stderr; on a terminal, added lines are green and removed lines red."""
    colours = {"+": "32", "-": "31", "@": "36"} if sys.stderr.isatty() else {}
    for line in lines:
        output.message(line, colours.get(line[:1], ""))


def confirm(question: str, *, yes: bool, decline_message: str) -> None:
    """Ask once for confirmation.

    Args:
        question: The question to the user.
        yes: Whether the option --yes was given; then there is no question.
        decline_message: The message that is printed if the user declines.

    Raises:
        HpcrunError: There is no terminal to ask on.
        Exit: The user declined.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise HpcrunError(
            f"there is no terminal to ask on: {question}", hint="read the files shown above; --yes confirms"
        )
    if not typer.confirm(question, err=True):
        output.message(decline_message)
        raise typer.Exit(1)
