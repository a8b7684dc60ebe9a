"""``hpcrun site init``."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from pathlib import Path  # noqa: TC003 - Typer reads annotations
from typing import Annotated

import typer

from hpcrun.cli import output
from hpcrun.errors import HpcrunError


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The site's name.")],
    file: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Write NAME.toml there, or to stdout for -; default: your own sites."
        ),
    ] = None,
    scheduler: Annotated[
        str, typer.Option("--scheduler", metavar="NAME", help="slurm, or local for this machine alone.")
    ] = "slurm",
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
) -> None:
    """Ask this cluster, and write a site file of the answers.

    Slurm, MPI, the module system and the file systems are asked; each value
    has its source beside it. Load the modules that your jobs need before.

    \b
    Examples:
      hpcrun site init mycluster
      hpcrun site init mycluster --output -
      hpcrun site init laptop --scheduler local
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.doctor import discover

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or name.endswith(".toml"):
        hint = "hpcrun site init mycluster; --output says where the file goes"
        raise HpcrunError(f"{name!r} is no name of a site: letters, digits, . _ and - only", hint=hint)
    if scheduler not in {"slurm", "local"}:
        raise HpcrunError(f"--scheduler={scheduler}: hpcrun knows slurm and local", hint="see hpcrun site init --help")
    target = None if str(file) == "-" else _target(name, file, force=force)
    make = discover.discover_slurm_site if scheduler == "slurm" else discover.discover_local_site
    text = make(name, output.message)
    if not target:
        print(text, end="")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    _tell_what_to_do(target, text, shlex.quote(str(target)) if file else name)
    if not file:
        _tell_where_another_is_used(name)


def _tell_what_to_do(target: Path, text: str, site: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if "# TODO: " in line:
            output.message(f"{target}:{number}: {line.partition('# ')[2]}")
    output.message(
        f"{target} is written. Read it, and then\n"
        f"  hpcrun site check {site}\n"
        f"  hpcrun doctor {site} --in-job   looks at this host and at nodes\n"
        f"  hpcrun site test {site}   tries MPI in a real job\n"
        "To share it, see docs/sharing.md: its first line, #:schema, names a file of this installation"
    )


def _tell_where_another_is_used(name: str) -> None:
    from hpcrun.sites import loader

    with suppress(HpcrunError):  # of another site's file, other commands tell
        found = loader.load_selected_site()
        if found.site.name != name:
            how = f"--site {name} or HPCRUN_SITE={name} uses this one"
            output.message(f"here, the site {found.site.name} is used ({found.chosen_by}): {how}")


def _target(name: str, file: Path | None, *, force: bool) -> Path:
    """Return the file to write.

    Raises:
        HpcrunError: It, or another site of the name, is there; or its name is not the site's.
    """
    from hpcrun import paths
    from hpcrun.sites import loader

    user = next(folder for layer, folder in paths.config_layers() if layer == "user")
    target = file / f"{name}.toml" if file and file.is_dir() else file or user / f"{name}.toml"
    if target.name != f"{name}.toml":
        raise HpcrunError(f"--output={file}: a site's name is its file's", hint=f"--output {target.parent / name}.toml")
    if target.exists() and not force:
        raise HpcrunError(f"{target} is there already", hint="--force overwrites it; --output - shows what would be")
    others = [one for one in loader.list_site_files().get(name, []) if one.resolve() != target.resolve()]
    if others and not file and not force:
        hint = "give it another name; --force writes it over that one"
        raise HpcrunError(f"there is a site {name} already, and both would be merged: {others[-1]}", hint=hint)
    return target
