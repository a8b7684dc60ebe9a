"""``hpcrun site upgrade``."""

from __future__ import annotations

import os
import shutil
import sys
from difflib import unified_diff
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import completion, output
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from pathlib import Path


def upgrade(
    name: Annotated[
        str, typer.Argument(metavar="SITE", help="A site file, or a site.", autocompletion=completion.sites)
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
) -> None:
    """Rewrite keys of older versions in your site file.

    Nothing else is changed: comments and order stay. The file as it was is kept beside it, as
    NAME.toml.bak.

    \b
    Examples:
      hpcrun site upgrade mycluster --dry-run
      hpcrun site upgrade ./mycluster.toml
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.sites.upgrade import upgraded

    changed = [(file, text) for file in _files(name) if (text := upgraded(file)) != file.read_text()]
    for file, text in changed:
        both = (file.read_text().splitlines(keepends=True), text.splitlines(keepends=True))
        sys.stdout.writelines(unified_diff(*both, str(file), str(file)))
    if not changed:
        output.message(f"{name} has no keys of older versions")
    elif not dry_run:
        if not yes:
            _confirm([str(file) for file, _ in changed])
        for file, text in changed:
            output.message(f"{file} is rewritten; as it was, it is {_rewrite(file, text)}")


def _files(name: str) -> list[Path]:
    """Return the files that are meant.

    Raises:
        HpcrunError: There are none, or none that this user may change.
    """
    from hpcrun import paths
    from hpcrun.sites import find

    files = find.files_of(name)
    # what was shipped or added is another's, also where this user owns the copy
    others = {folder for layer, folder in paths.layers() if layer.split()[0] in {"shipped", "added"}}
    own = [file for file in files if file.stat().st_uid == os.getuid() and file.parent not in others]
    if not own:
        hint = "copy it to your own folder (hpcrun config lists the folders), or ask who keeps it"
        raise HpcrunError(f"{', '.join(map(str, files))}: not yours to change", hint=hint)
    return own


def _confirm(files: list[str]) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise HpcrunError("nobody is here to ask whether to write this", hint="--yes writes it; --dry-run shows it")
    if not typer.confirm(f"Rewrite {', '.join(files)}?", err=True):
        output.message("nothing was changed")
        raise typer.Exit(1)


def _rewrite(file: Path, text: str) -> Path:
    """Write the new text, and return where the old one is."""
    from hpcrun import paths

    names = (file.with_name(f"{file.name}.bak{number or ''}") for number in range(1000))
    backup = next(one for one in names if not one.exists())
    shutil.copy2(file, backup)
    target = file.resolve()  # a link, as into somebody's dotfiles, stays one
    mode = target.stat().st_mode
    paths.write(target, text.encode())
    target.chmod(mode)
    return backup
