"""``hpcrun cuda``: show where XLA and TensorFlow find CUDA's files on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import completion
from hpcrun.cli.parameters import Json  # noqa: TC001 - Typer reads annotations

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.cuda.job_setup import CudaSetup


def cuda(
    site: Annotated[
        str | None,
        typer.Option(
            "--site",
            metavar="NAME",
            help="Site that has the cuda keys; default: the site used here.",
            autocompletion=completion.sites,
        ),
    ] = None,
    shell: Annotated[
        bool,
        typer.Option("--shell", help="Print the exports as bash, with the options below instead of a site's keys."),
    ] = False,
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", metavar="FOLDER", help="Site key cuda.data_dir.")
    ] = None,
    libdevice: Annotated[
        list[str] | None, typer.Option("--libdevice", metavar="FILE", help="Site key cuda.libdevice (repeatable).")
    ] = None,
    ptxas: Annotated[
        list[str] | None, typer.Option("--ptxas", metavar="FILE", help="Site key cuda.ptxas (repeatable).")
    ] = None,
    link: Annotated[
        bool,
        typer.Option("--link", hidden=True, help="With --shell: link the files in the run directory."),
    ] = False,
    search: Annotated[bool, typer.Option("--search/--no-search", help="Site key cuda.search; default: search.")] = True,
    as_json: Json = False,
) -> None:
    """Show the CUDA libraries and the variables that a GPU job sets for them.

    The files are libdevice.10.bc, ptxas and CUDA's libraries. A GPU job runs
    this on its first node, after modules and environment, and logs the
    result. Load the same modules before you try it interactively.

    \b
    Examples:
      hpcrun cuda                     # all places, with the keys of this site
      hpcrun cuda --shell             # the exports that a job script evaluates
      eval "$(hpcrun cuda --shell)"   # set them in this shell
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    import os

    from hpcrun.cuda.job_setup import CudaKeys, link_folder, plan_local_setup
    from hpcrun.errors import HpcrunError

    if link and "HPCRUN_RUN_DIR" not in os.environ:
        raise HpcrunError("--link: HPCRUN_RUN_DIR is not set", hint="use this option only in jobs")
    keys = CudaKeys(data_dir, libdevice or (), ptxas or (), search)
    if not shell:
        from hpcrun.sites import loader

        site_keys = loader.load_selected_site(site).site.cuda
        keys = CudaKeys(
            data_dir or site_keys.data_dir,
            libdevice or site_keys.libdevice,
            ptxas or site_keys.ptxas,
            search and site_keys.search,
        )
    setup = plan_local_setup(keys)
    if shell:
        print(setup.shell(link_folder() if link else None), end="")
    else:
        _show(setup, as_json=as_json)


def _show(setup: CudaSetup, *, as_json: bool) -> None:
    from dataclasses import asdict
    from pathlib import Path

    from hpcrun.cli import output

    if as_json:
        links = {str(link): target for link, target in setup.links.items()}
        values = asdict(setup)
        searched_places, messages = values.pop("searched"), values.pop("messages")
        output.value({"looked": searched_places, **values, "says": messages, "links": links})
        return
    rows = [
        (
            location.why,
            location.path,
            _format_match(location.libdevice, setup.libdevice),
            _format_match(location.ptxas, setup.ptxas),
        )
        for location in setup.searched
    ]
    output.table(("place", "path", "libdevice.10.bc", "ptxas"), rows)
    for text in setup.messages:
        output.message(text)
    for text in setup.warnings:
        output.message(f"WARNING: {text}")
    if not Path("/dev/nvidiactl").exists():
        output.message("This host has no NVIDIA driver: on such a host, a job uses only files that a site key names.")


def _format_match(file: Path | None, selected_file: Path | None) -> str:
    return "" if file is None else "used" if file == selected_file else "found"
