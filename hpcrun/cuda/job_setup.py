"""The CUDA setup of a job: variables and links with which XLA finds libdevice.10.bc and ptxas."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.cuda import libraries, locations, xla_flags
from hpcrun.cuda.locations import LIBDEVICE, CudaLocation, inspect_root, is_executable, path_exists
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_TOOLS = ("ptxas", "nvlink", "fatbinary")
"""Programs that XLA runs from the folder ``bin`` of its CUDA root, or from PATH."""


@frozen
class CudaKeys:
    """The table ``cuda`` of a site file; see `hpcrun.sites.tables.Cuda`."""

    data_dir: str | None = None
    libdevice: Sequence[str] = ()
    ptxas: Sequence[str] = ()
    search: bool = True


@frozen
class CudaSetup:
    """The variables and symbolic links of a job for CUDA.

    Attributes:
        searched: The searched locations, in order.
        libdevice: The path of libdevice.10.bc for XLA; None if not found.
        ptxas: The path of ptxas for XLA; None if not found.
        links: The target of each symbolic link to create; the links form a CUDA root for the job.
        root: The CUDA root for XLA_FLAGS; None if XLA_FLAGS is not changed.
        variables: The environment variables to export.
        messages: Lines about the selected files.
        warnings: Lines about missing files.
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
            link: The path of a link to the CUDA root, or of a folder with links, for a caller that sets XLA_FLAGS
                itself if ``hpcrun_linked`` is set. None: export XLA_FLAGS.
        """
        lines = [f"echo {shlex.quote(f'hpcrun: {text}')}" for text in self.messages]
        lines += [f"echo {shlex.quote(f'hpcrun: WARNING: {text}')} >&2" for text in self.warnings]
        links = self.links or ({link: self.root} if link and self.root else {})
        link_folders = dict.fromkeys(str(name.parent) for name in links)
        lines += (
            [f"command rm -rf {shlex.quote(str(link))}"] if link and self.root else []
        )  # the link of an earlier start
        lines += [f"command mkdir -p {shlex.join(link_folders)}"] if link_folders else []
        lines += [f"command ln -sfn {shlex.join([str(target), str(name)])}" for name, target in links.items()]
        excluded_names = {"XLA_FLAGS"} if link else set()
        lines += [
            f"export {name}={shlex.quote(value)}"
            for name, value in self.variables.items()
            if name not in excluded_names
        ]
        lines += ["hpcrun_linked=yes"] if link and self.root else []
        return "".join(f"{line}\n" for line in lines)


def plan_setup(
    keys: CudaKeys,
    environ: Mapping[str, str],
    package_folders: Sequence[Path],
    found_locations: Sequence[CudaLocation],
    folder_for_links: Path,
) -> CudaSetup:
    """Plan the variables and links of a job.

    Args:
        keys: The site's CUDA keys, which take precedence.
        environ: The job's environment variables.
        package_folders: The folders with Python packages.
        found_locations: The locations of CUDA that were found without site keys.
        folder_for_links: The folder for links, which are needed if files are not in the layout that XLA requires.

    Raises:
        HpcrunError: ``data_dir`` names a variable that is not set.
    """
    configured_locations = _locations_from_keys(keys, environ)
    setup = _plan_xla(
        environ.get("XLA_FLAGS", ""),
        (*configured_locations, *(found_locations if keys.search else ())),
        folder_for_links,
    )
    if not keys.search:  # XLA may find missing files on PATH, or the job may have no GPU
        return replace(setup, warnings=())
    if not configured_locations and not any(
        path_exists(folder / name) for folder in package_folders for name in ("tensorflow", "jaxlib")
    ):
        setup = replace(setup, warnings=())  # no package here uses XLA
    library_path, message = libraries.find_library_path(environ, package_folders)
    if library_path is None:
        return setup
    return replace(
        setup, variables={**setup.variables, "LD_LIBRARY_PATH": library_path}, messages=(*setup.messages, message)
    )


def plan_local_setup(keys: CudaKeys) -> CudaSetup:
    """Plan the setup for the environment and Python of this process, on this host.

    Raises:
        HpcrunError: ``data_dir`` names a variable that is not set.
    """
    prefix = Path(sys.prefix)
    package_folders = locations.find_site_packages(os.environ, sys.path, prefix)
    found_locations = locations.find_locations(os.environ, package_folders, prefix) if keys.search else []
    return plan_setup(keys, os.environ, package_folders, found_locations, link_folder())


def link_folder() -> Path:
    """Return the folder for the links of the job to which this process belongs."""
    return Path(os.environ.get("HPCRUN_RUN_DIR") or Path.cwd()) / "cuda"


def _locations_from_keys(keys: CudaKeys, environ: Mapping[str, str]) -> tuple[CudaLocation, ...]:
    """Return the locations that site keys name, except locations with an unset variable."""
    locations_of_keys = []
    if keys.data_dir:
        for name in _VARIABLE.findall(keys.data_dir):
            if name not in environ:
                hint = f"set {name} (a module may, or hpcrun submit -x {name}=FOLDER), or name the folder itself"
                raise HpcrunError(f"{name}: site key cuda.data_dir names it, and it is not set", hint=hint)
        locations_of_keys.append(inspect_root("cuda.data_dir", _expand(keys.data_dir, environ)))
    for tool in ("libdevice", "ptxas"):
        for text in getattr(keys, tool):
            if all(name in environ for name in _VARIABLE.findall(text)):
                file = _expand(text, environ)
                is_usable = is_executable(file) if tool == "ptxas" else path_exists(file)
                locations_of_keys.append(CudaLocation(f"cuda.{tool}", file, **({tool: file} if is_usable else {})))
    return tuple(locations_of_keys)


def _expand(text: str, environ: Mapping[str, str]) -> Path:
    return Path(paths.expand_user(_VARIABLE.sub(lambda match: environ[match[1]], text))).absolute()


def _plan_xla(current_flags: str, searched_locations: tuple[CudaLocation, ...], folder_for_links: Path) -> CudaSetup:
    if named := xla_flags.parse_data_dir(current_flags):
        return _keep_xla_flags(current_flags, inspect_root("XLA_FLAGS", named), searched_locations)
    if xla_flags.names_flag_file(current_flags):
        return CudaSetup(
            searched_locations,
            warnings=(f"XLA_FLAGS={current_flags} is a file of flags, to which no folder can be added",),
        )
    libdevice_location = next((location for location in searched_locations if location.libdevice), None)
    key_locations = [location for location in searched_locations if location.why == "cuda.ptxas"]
    ptxas_location = next(
        (
            location
            for location in (*key_locations, libdevice_location, *searched_locations)
            if location and location.ptxas
        ),
        None,
    )
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
    else:  # use the site key even if files are missing: XLA's error message then names the folder
        data_dir = next((location.path for location in searched_locations if location.why == "cuda.data_dir"), None)
    return CudaSetup(
        searched_locations,
        libdevice_location.libdevice if libdevice_location else None,
        ptxas_location.ptxas if ptxas_location else None,
        links,
        data_dir,
        {"XLA_FLAGS": f"{current_flags} {xla_flags.format_data_dir(data_dir)}".strip()} if data_dir else {},
        _describe_choice(libdevice_location, ptxas_location),
        _describe_missing(searched_locations, libdevice_location, ptxas_location),
    )


def _keep_xla_flags(
    current_flags: str, flag_location: CudaLocation, searched_locations: tuple[CudaLocation, ...]
) -> CudaSetup:
    """Return the setup for a CUDA root in XLA_FLAGS: the root must contain libdevice; ptxas may be elsewhere."""
    has_libdevice = flag_location.libdevice == flag_location.path / LIBDEVICE
    return CudaSetup(
        (flag_location, *searched_locations),
        flag_location.libdevice if has_libdevice else None,
        next((location.ptxas for location in (flag_location, *searched_locations) if location.ptxas), None),
        messages=(f"XLA_FLAGS={current_flags} already names a CUDA folder, which is kept",),
        warnings=()
        if has_libdevice
        else (f"{xla_flags.DATA_DIR}={flag_location.path}, as XLA_FLAGS has it, has no {LIBDEVICE}",),
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
        tool_paths = {name: ptxas_location.ptxas.with_name(name) for name in _TOOLS} | {"ptxas": ptxas_location.ptxas}
        links |= {folder_for_links / "bin" / name: file for name, file in tool_paths.items() if is_executable(file)}
    return links


def _describe_choice(libdevice_location: CudaLocation | None, ptxas_location: CudaLocation | None) -> tuple[str, ...]:
    if libdevice_location and libdevice_location == ptxas_location:
        return (f"XLA gets libdevice.10.bc and ptxas from {libdevice_location.path} ({libdevice_location.why})",)
    descriptions = (
        [f"libdevice.10.bc from {libdevice_location.libdevice} ({libdevice_location.why})"]
        if libdevice_location
        else []
    )
    descriptions += [f"ptxas from {ptxas_location.ptxas} ({ptxas_location.why})"] if ptxas_location else []
    return (f"XLA gets {' and '.join(descriptions)}",) if descriptions else ()


def _describe_missing(
    searched_locations: tuple[CudaLocation, ...],
    libdevice_location: CudaLocation | None,
    ptxas_location: CudaLocation | None,
) -> tuple[str, ...]:
    faults = [
        f"cuda.data_dir = {location.path} has no {LIBDEVICE}"
        for location in searched_locations
        if location.why == "cuda.data_dir" and location.libdevice != location.path / LIBDEVICE
    ]
    advice = "hpcrun cuda lists the searched places"
    if not libdevice_location:
        fix = "set cuda.libdevice in the site file, or pip install 'tensorflow[and-cuda]'"
        faults.append(f"no libdevice.10.bc for XLA: compiled steps (jit_compile=True) may fail; {fix}; {advice}")
    if not ptxas_location:
        fix = "set cuda.ptxas in the site file, or load a CUDA module"
        faults.append(f"no ptxas for XLA: compiled steps (jit_compile=True) may fail or be slow; {fix}; {advice}")
    return tuple(faults)
