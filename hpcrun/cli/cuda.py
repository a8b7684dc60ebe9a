"""``hpcrun cuda``: where XLA and TensorFlow find CUDA's files, here and now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import completion
from hpcrun.cli.arguments import Json  # noqa: TC001 - Typer reads annotations

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.cuda.plan import Plan


def cuda(
    site: Annotated[
        str | None,
        typer.Option(
            "--site",
            metavar="NAME",
            help="Whose keys come first; default: the site used here.",
            autocompletion=completion.sites,
        ),
    ] = None,
    shell: Annotated[
        bool, typer.Option("--shell", help="Print bash that does it. Keys are the options below, not a site's.")
    ] = False,
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", metavar="FOLDER", help="Site key cuda.data_dir.")
    ] = None,
    libdevice: Annotated[
        list[str] | None, typer.Option("--libdevice", metavar="FILE", help="Site key cuda.libdevice; may be repeated.")
    ] = None,
    ptxas: Annotated[
        list[str] | None, typer.Option("--ptxas", metavar="FILE", help="Site key cuda.ptxas; may be repeated.")
    ] = None,
    link: Annotated[
        bool,
        typer.Option("--link", hidden=True, help="With --shell, in a job: its cuda links to it."),
    ] = False,
    search: Annotated[bool, typer.Option("--search/--no-search", help="Site key cuda.search.")] = True,
    as_json: Json = False,
) -> None:
    """Tell where libdevice.10.bc, ptxas and CUDA's libraries are found, and what a GPU job exports for them.

    A GPU job does this on its first node, after modules and environment; its
    log says what was chosen. Load the same modules before you try it by hand.

    \b
    Examples:
      hpcrun cuda                     # what is where, with the keys of this site
      hpcrun cuda --shell             # what a job's script evaluates
      eval "$(hpcrun cuda --shell)"   # the same for this shell
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    import os

    from hpcrun.cuda import plan
    from hpcrun.errors import HpcrunError

    if link and "HPCRUN_RUN_DIR" not in os.environ:
        raise HpcrunError("--link: HPCRUN_RUN_DIR is not set", hint="this option is for jobs")
    keys = plan.Keys(data_dir, libdevice or (), ptxas or (), search)
    if not shell:
        from hpcrun.sites import loader

        own = loader.load_selected_site(site).site.cuda
        keys = plan.Keys(
            data_dir or own.data_dir, libdevice or own.libdevice, ptxas or own.ptxas, search and own.search
        )
    made = plan.here(keys)
    if shell:
        print(made.shell(plan.tree() if link else None), end="")
    else:
        _tell(made, as_json=as_json)


def _tell(made: Plan, *, as_json: bool) -> None:
    from dataclasses import asdict
    from pathlib import Path

    from hpcrun.cli import output

    if as_json:
        links = {str(link): target for link, target in made.links.items()}
        output.value({**asdict(made), "looked": list(map(asdict, made.looked)), "links": links})
        return
    rows = [
        (place.why, place.path, _cell(place.libdevice, made.libdevice), _cell(place.ptxas, made.ptxas))
        for place in made.looked
    ]
    output.table(("place", "path", "libdevice.10.bc", "ptxas"), rows)
    for text in made.says:
        output.message(text)
    for text in made.warnings:
        output.message(f"WARNING: {text}")
    if not Path("/dev/nvidiactl").exists():
        output.message("There is no NVIDIA driver here: a job does this on such a host only for what a site key names.")


def _cell(file: Path | None, taken: Path | None) -> str:
    return "" if file is None else "taken" if file == taken else "there"
