"""``hpcrun site init``: write a first site file for a cluster."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from pathlib import Path  # noqa: TC003 - Typer reads annotations
from typing import Annotated

import typer

from hpcrun import permissions
from hpcrun.cli import output
from hpcrun.errors import HpcrunError


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The site's name.")],
    file: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="File or folder to write, or - for stdout; default: your user layer."
        ),
    ] = None,
    scheduler: Annotated[
        str, typer.Option("--scheduler", metavar="NAME", help="slurm, or local for a single machine.")
    ] = "slurm",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Discover this cluster, and write its site file.

    The command queries Slurm, MPI, the module system and the file systems, and notes the source of each value in a
    comment. Load the modules that your jobs need first.

    \b
    Examples:
      hpcrun site init mycluster
      hpcrun site init mycluster --output -
      hpcrun site init laptop --scheduler local
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.doctor import discover

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or name.endswith(".toml"):
        hint = "hpcrun site init mycluster; --output sets the file"
        raise HpcrunError(f"{name!r} is not a valid site name: use letters, digits, . _ and -", hint=hint)
    discover_site = {"slurm": discover.discover_slurm_site, "local": discover.discover_local_site}.get(scheduler)
    if discover_site is None:
        raise HpcrunError(f"--scheduler={scheduler}: hpcrun knows slurm and local", hint="see hpcrun site init --help")
    target = None if str(file) == "-" else _choose_site_file(name, file, force=force)
    text = discover_site(name, output.message)
    if not target:
        print(text, end="")
        return
    permissions.make_own_folder(target.parent)
    with open(target, "w", encoding="utf-8", opener=permissions.opener) as stream:
        stream.write(text)
    _print_next_steps(target, text, shlex.quote(str(target)) if file else name)
    if not file:
        _print_site_in_use(name)


def _print_next_steps(target: Path, text: str, site: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if "# TODO: " in line:
            output.message(f"{target}:{number}: {line.partition('# ')[2]}")
    output.message(
        f"wrote {target}. Read it, and then\n"
        f"  hpcrun site check {site}\n"
        f"  hpcrun doctor {site} --in-job   checks this host and nodes\n"
        f"  hpcrun site test {site}   tests MPI in a real job\n"
        "To share it, see docs/sharing.md: its first line, #:schema, names a file of this installation"
    )


def _print_site_in_use(name: str) -> None:
    from hpcrun.sites import loader

    with suppress(HpcrunError):  # an invalid file of another site is reported by other commands
        loaded_site = loader.load_selected_site()
        if loaded_site.site.name != name:
            options = f"--site {name} or HPCRUN_SITE={name} uses the new one"
            output.message(f"used here: {loaded_site.site.name} ({loaded_site.chosen_by}); {options}")


def _choose_site_file(name: str, file: Path | None, *, force: bool) -> Path:
    """Return the path of the new site file.

    Raises:
        HpcrunError: The file or a site of this name exists, or the file name differs from the site's name.
    """
    from hpcrun import paths
    from hpcrun.sites import loader

    user_folder = next(folder for layer, folder in paths.config_layers() if layer == "user")
    target = file / f"{name}.toml" if file and file.is_dir() else file or user_folder / f"{name}.toml"
    if target.name != f"{name}.toml":
        raise HpcrunError(
            f"--output={file}: the file name must be {name}.toml", hint=f"--output {target.parent / name}.toml"
        )
    if target.exists() and not force:
        raise HpcrunError(f"{target} already exists", hint="--force overwrites it; --output - prints the new file")
    other_files = [
        site_file for site_file in loader.list_site_files().get(name, []) if site_file.resolve() != target.resolve()
    ]
    if other_files and not file and not force:
        hint = "use another name; --force merges both"
        raise HpcrunError(f"a site {name} already exists, and both files would be merged: {other_files[-1]}", hint=hint)
    return target
