"""The CUDA setup of a job: exports and links with which XLA finds libdevice.10.bc and ptxas, and TensorFlow CUDA."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.cuda import libraries, locations, xla_flags
from hpcrun.cuda.locations import LIBDEVICE, CudaLocation, inspect_root, is_executable, path_exists
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_TOOLS = ("ptxas", "nvlink", "fatbinary")
"""Programs that XLA runs from the folder bin of its data dir, or from PATH."""


@dataclass(frozen=True)
class CudaKeys:
    """The table ``cuda`` of a site file; see `hpcrun.sites.tables.Cuda`."""

    data_dir: str | None = None
    libdevice: Sequence[str] = ()
    ptxas: Sequence[str] = ()
    search: bool = True


@dataclass(frozen=True)
class CudaSetup:
    """The exports and links of one job.

    Attributes:
        searched: The searched locations, in order.
        libdevice: The libdevice.10.bc for XLA.
        ptxas: The ptxas for XLA.
        links: Symbolic links to create, with their targets: the job's own CUDA root.
        root: The CUDA root for XLA_FLAGS; None where XLA_FLAGS stays as it is.
        variables: Variables to export.
        messages: What was selected and why, a line each.
        warnings: What is missing, a line each.
    """

    searched: tuple[CudaLocation, ...] = ()
    libdevice: Path | None = None
    ptxas: Path | None = None
    links: dict[Path, Path] = field(default_factory=dict)
    root: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)
    messages: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def shell(self, link: Path | None = None) -> str:
        """Return the setup as lines of bash.

        Args:
            link: The path of a link to the CUDA root, or of a folder with links to its files, for a caller that sets
                XLA_FLAGS itself; ``hpcrun_linked`` is set if XLA_FLAGS needs it. None: export XLA_FLAGS.
        """
        lines = [f"echo {shlex.quote(f'hpcrun: {text}')}" for text in self.messages]
        lines += [f"echo {shlex.quote(f'hpcrun: WARNING: {text}')} >&2" for text in self.warnings]
        links = self.links or ({link: self.root} if link and self.root else {})
        folders = dict.fromkeys(str(name.parent) for name in links)
        lines += [f"command rm -rf {shlex.quote(str(link))}"] if link and self.root else []  # an earlier start's
        lines += [f"command mkdir -p {shlex.join(folders)}"] if folders else []
        lines += [f"command ln -sfn {shlex.join([str(target), str(name)])}" for name, target in links.items()]
        excluded = {"XLA_FLAGS"} if link else set()
        lines += [
            f"export {name}={shlex.quote(value)}" for name, value in self.variables.items() if name not in excluded
        ]
        lines += ["hpcrun_linked=yes"] if link and self.root else []
        return "".join(f"{line}\n" for line in lines)


def plan_setup(
    keys: CudaKeys,
    environ: Mapping[str, str],
    packages: Sequence[Path],
    found: Sequence[CudaLocation],
    folder_for_links: Path,
) -> CudaSetup:
    """Decide what a job exports.

    Args:
        keys: The keys of the site file, which take precedence.
        environ: The job's environment.
        packages: The folders with Python packages.
        found: The locations of CUDA that were found without site keys.
        folder_for_links: The folder for links, where files are not in the layout that XLA requires.

    Raises:
        HpcrunError: ``data_dir`` names a variable that is not set.
    """
    configured = _locations_from_keys(keys, environ)
    setup = _plan_xla(environ.get("XLA_FLAGS", ""), (*configured, *(found if keys.search else ())), folder_for_links)
    if not keys.search:  # missing files may be on PATH, or the job may have no GPU
        return replace(setup, warnings=())
    if not configured and not any(
        path_exists(folder / name) for folder in packages for name in ("tensorflow", "jaxlib")
    ):
        setup = replace(setup, warnings=())  # nothing here uses XLA
    value, message = libraries.find_library_path(environ, packages)
    if value is None:
        return setup
    return replace(setup, variables={**setup.variables, "LD_LIBRARY_PATH": value}, messages=(*setup.messages, message))


def plan_local_setup(keys: CudaKeys) -> CudaSetup:
    """Return the setup for this process: its environment, its Python, this host.

    Raises:
        HpcrunError: ``data_dir`` names a variable that is not set.
    """
    prefix = Path(sys.prefix)
    packages = locations.find_site_packages(os.environ, sys.path, prefix)
    found = locations.find_locations(os.environ, packages, prefix) if keys.search else []
    return plan_setup(keys, os.environ, packages, found, link_folder())


def link_folder() -> Path:
    """Return the folder for the links of this process's job."""
    return Path(os.environ.get("HPCRUN_RUN_DIR") or Path.cwd()) / "cuda"


def _locations_from_keys(keys: CudaKeys, environ: Mapping[str, str]) -> tuple[CudaLocation, ...]:
    """Return the locations that site keys name, except those with an unset variable."""
    configured = []
    if keys.data_dir:
        for name in _VARIABLE.findall(keys.data_dir):
            if name not in environ:
                hint = f"set {name} (a module may, or hpcrun submit -x {name}=FOLDER), or name the folder itself"
                raise HpcrunError(f"{name}: site key cuda.data_dir names it, and it is not set", hint=hint)
        configured.append(inspect_root("cuda.data_dir", _expand(keys.data_dir, environ)))
    for kind in ("libdevice", "ptxas"):
        for text in getattr(keys, kind):
            if all(name in environ for name in _VARIABLE.findall(text)):
                file = _expand(text, environ)
                usable = is_executable(file) if kind == "ptxas" else path_exists(file)
                configured.append(CudaLocation(f"cuda.{kind}", file, **({kind: file} if usable else {})))
    return tuple(configured)


def _expand(text: str, environ: Mapping[str, str]) -> Path:
    return Path(paths.expand_user(_VARIABLE.sub(lambda match: environ[match[1]], text))).absolute()


def _plan_xla(current_flags: str, searched: tuple[CudaLocation, ...], folder_for_links: Path) -> CudaSetup:
    if named := xla_flags.parse_data_dir(current_flags):
        return _keep_xla_flags(current_flags, inspect_root("XLA_FLAGS", named), searched)
    if xla_flags.names_flag_file(current_flags):
        return CudaSetup(
            searched, warnings=(f"XLA_FLAGS={current_flags} is a file of flags, to which no folder can be added",)
        )
    libdevice_location = next((place for place in searched if place.libdevice), None)
    own = [place for place in searched if place.why == "cuda.ptxas"]
    ptxas_location = next((place for place in (*own, libdevice_location, *searched) if place and place.ptxas), None)
    links: dict[Path, Path] = {}
    data_dir: Path | None
    if (
        libdevice_location
        and libdevice_location.libdevice == libdevice_location.path / LIBDEVICE
        and ptxas_location in {None, libdevice_location}
    ):
        data_dir = libdevice_location.path
    elif libdevice_location or ptxas_location:
        data_dir, links = folder_for_links, _plan_links(libdevice_location, ptxas_location, folder_for_links)
    else:  # the site key applies anyway: XLA's own error message then names the folder
        data_dir = next((place.path for place in searched if place.why == "cuda.data_dir"), None)
    return CudaSetup(
        searched,
        libdevice_location.libdevice if libdevice_location else None,
        ptxas_location.ptxas if ptxas_location else None,
        links,
        data_dir,
        {"XLA_FLAGS": f"{current_flags} {xla_flags.format_data_dir(data_dir)}".strip()} if data_dir else {},
        _describe_choice(libdevice_location, ptxas_location),
        _describe_missing(searched, libdevice_location, ptxas_location),
    )


def _keep_xla_flags(current_flags: str, named: CudaLocation, searched: tuple[CudaLocation, ...]) -> CudaSetup:
    """Return the setup if XLA_FLAGS names a CUDA root: libdevice must be in it, ptxas may also be elsewhere."""
    complete = named.libdevice == named.path / LIBDEVICE
    return CudaSetup(
        (named, *searched),
        named.libdevice if complete else None,
        next((place.ptxas for place in (named, *searched) if place.ptxas), None),
        messages=(f"XLA_FLAGS={current_flags} already names a CUDA folder, which is kept",),
        warnings=() if complete else (f"{xla_flags.DATA_DIR}={named.path}, as XLA_FLAGS has it, has no {LIBDEVICE}",),
    )


def _plan_links(
    libdevice_location: CudaLocation | None, ptxas_location: CudaLocation | None, folder_for_links: Path
) -> dict[Path, Path]:
    links = (
        {folder_for_links / LIBDEVICE: libdevice_location.libdevice}
        if libdevice_location and libdevice_location.libdevice
        else {}
    )
    if ptxas_location and ptxas_location.ptxas:
        beside = {name: ptxas_location.ptxas.with_name(name) for name in _TOOLS} | {"ptxas": ptxas_location.ptxas}
        links |= {folder_for_links / "bin" / name: file for name, file in beside.items() if is_executable(file)}
    return links


def _describe_choice(libdevice_location: CudaLocation | None, ptxas_location: CudaLocation | None) -> tuple[str, ...]:
    if libdevice_location and libdevice_location == ptxas_location:
        return (f"XLA gets libdevice.10.bc and ptxas from {libdevice_location.path} ({libdevice_location.why})",)
    parts = (
        [f"libdevice.10.bc from {libdevice_location.libdevice} ({libdevice_location.why})"]
        if libdevice_location
        else []
    )
    parts += [f"ptxas from {ptxas_location.ptxas} ({ptxas_location.why})"] if ptxas_location else []
    return (f"XLA gets {' and '.join(parts)}",) if parts else ()


def _describe_missing(
    searched: tuple[CudaLocation, ...], libdevice_location: CudaLocation | None, ptxas_location: CudaLocation | None
) -> tuple[str, ...]:
    faults = [
        f"cuda.data_dir = {place.path} has no {LIBDEVICE}"
        for place in searched
        if place.why == "cuda.data_dir" and place.libdevice != place.path / LIBDEVICE
    ]
    where = "hpcrun cuda lists the searched places"
    if not libdevice_location:
        fix = "set cuda.libdevice in the site file, or pip install 'tensorflow[and-cuda]'"
        faults.append(f"no libdevice.10.bc for XLA: what it compiles (jit_compile=True) may fail; {fix}; {where}")
    if not ptxas_location:
        fix = "set cuda.ptxas in the site file, or load a CUDA module"
        faults.append(f"no ptxas for XLA: what it compiles (jit_compile=True) may fail or be slow; {fix}; {where}")
    return tuple(faults)
