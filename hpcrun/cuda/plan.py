"""What a job exports so that XLA finds libdevice.10.bc and ptxas, and TensorFlow its libraries; and why."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.cuda import flags, libraries, places
from hpcrun.cuda.places import LIBDEVICE, Place, executable, root, there
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_TOOLS = ("ptxas", "nvlink", "fatbinary")
"""What XLA runs from its data dir's bin, else from PATH."""


@dataclass(frozen=True)
class Keys:
    """What a site file says; see `hpcrun.sites.tables.Cuda`."""

    data_dir: str | None = None
    libdevice: Sequence[str] = ()
    ptxas: Sequence[str] = ()
    search: bool = True


@dataclass(frozen=True)
class Plan:
    """What is to be done, for one job.

    Attributes:
        looked: The places that were looked at, in order.
        libdevice: The libdevice.10.bc that XLA gets.
        ptxas: The ptxas that XLA gets.
        links: Links to make, each with what it points to: a CUDA root of this job's own.
        root: The CUDA root that XLA_FLAGS shall name; None where they stay as they are.
        variables: Variables to export.
        says: What was chosen and why, a line each.
        warnings: What is missing, a line each.
    """

    looked: tuple[Place, ...] = ()
    libdevice: Path | None = None
    ptxas: Path | None = None
    links: dict[Path, Path] = field(default_factory=dict)
    root: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def shell(self, link: Path | None = None) -> str:
        """Return the plan as lines of bash.

        Args:
            link: Where links to the CUDA root are made, or to the files of it, for XLA_FLAGS that somebody else sets:
                ``hpcrun_linked`` is set where that is to be done. None: XLA_FLAGS are exported here.
        """
        lines = [f"echo {shlex.quote(f'hpcrun: {text}')}" for text in self.says]
        lines += [f"echo {shlex.quote(f'hpcrun: WARNING: {text}')} >&2" for text in self.warnings]
        links = self.links or ({link: self.root} if link and self.root else {})
        folders = dict.fromkeys(str(name.parent) for name in links)
        lines += [f"command rm -rf {shlex.quote(str(link))}"] if link and self.root else []  # an earlier start's
        lines += [f"command mkdir -p {shlex.join(folders)}"] if folders else []
        lines += [f"command ln -sfn {shlex.join([str(target), str(name)])}" for name, target in links.items()]
        apart = {"XLA_FLAGS"} if link else set()
        lines += [f"export {name}={shlex.quote(value)}" for name, value in self.variables.items() if name not in apart]
        lines += ["hpcrun_linked=yes"] if link and self.root else []
        return "".join(f"{line}\n" for line in lines)


def make(keys: Keys, environ: Mapping[str, str], packages: Sequence[Path], found: Sequence[Place], tree: Path) -> Plan:
    """Decide what a job exports.

    Args:
        keys: What the site file says, which comes first.
        environ: The job's environment.
        packages: The folders that Python packages lie in.
        found: The places where CUDA may lie without anybody saying so.
        tree: Where links may be made, for files that lie otherwise than XLA wants them.

    Raises:
        HpcrunError: ``data_dir`` names a variable that is not set.
    """
    said = _said(keys, environ)
    plan = _xla(environ.get("XLA_FLAGS", ""), (*said, *(found if keys.search else ())), tree)
    if not keys.search:  # what is missing may well be on PATH, or the job have no GPU
        return replace(plan, warnings=())
    if not said and not any(there(folder / name) for folder in packages for name in ("tensorflow", "jaxlib")):
        plan = replace(plan, warnings=())  # nothing here uses XLA
    value, says = libraries.preferred(environ, packages)
    if value is None:
        return plan
    return replace(plan, variables={**plan.variables, "LD_LIBRARY_PATH": value}, says=(*plan.says, says))


def here(keys: Keys) -> Plan:
    """Return the plan for this process: its environment, its Python, this host.

    Raises:
        HpcrunError: ``data_dir`` names a variable that is not set.
    """
    prefix = Path(sys.prefix)
    packages = places.packages(os.environ, sys.path, prefix)
    found = places.known(os.environ, packages, prefix) if keys.search else []
    return make(keys, os.environ, packages, found, tree())


def tree() -> Path:
    """Return where this process's job has a CUDA root of its own."""
    return Path(os.environ.get("HPCRUN_RUN_DIR") or Path.cwd()) / "cuda"


def _said(keys: Keys, environ: Mapping[str, str]) -> tuple[Place, ...]:
    """Return the places that site keys name; those with a variable that is not set are left out."""
    said = []
    if keys.data_dir:
        for name in _VARIABLE.findall(keys.data_dir):
            if name not in environ:
                hint = f"set {name} (a module may, or hpcrun submit -x {name}=FOLDER), or name the folder itself"
                raise HpcrunError(f"{name}: site key cuda.data_dir names it, and it is not set", hint=hint)
        said.append(root("cuda.data_dir", _expanded(keys.data_dir, environ)))
    for kind in ("libdevice", "ptxas"):
        for text in getattr(keys, kind):
            if all(name in environ for name in _VARIABLE.findall(text)):
                file = _expanded(text, environ)
                usable = executable(file) if kind == "ptxas" else there(file)
                said.append(Place(f"cuda.{kind}", file, **({kind: file} if usable else {})))
    return tuple(said)


def _expanded(text: str, environ: Mapping[str, str]) -> Path:
    return Path(paths.expand_user(_VARIABLE.sub(lambda match: environ[match[1]], text))).absolute()


def _xla(given: str, looked: tuple[Place, ...], tree: Path) -> Plan:
    if named := flags.data_dir(given):
        return _stays(given, root("XLA_FLAGS", named), looked)
    if flags.of_a_file(given):
        return Plan(looked, warnings=(f"XLA_FLAGS={given} names a file of flags, to which no folder can be added",))
    bitcode = next((place for place in looked if place.libdevice), None)
    own = [place for place in looked if place.why == "cuda.ptxas"]
    tools = next((place for place in (*own, bitcode, *looked) if place and place.ptxas), None)
    links: dict[Path, Path] = {}
    data_dir: Path | None
    if bitcode and bitcode.libdevice == bitcode.path / LIBDEVICE and tools in {None, bitcode}:
        data_dir = bitcode.path
    elif bitcode or tools:
        data_dir, links = tree, _links(bitcode, tools, tree)
    else:  # what a site says is heeded all the same: XLA's own message will name it
        data_dir = next((place.path for place in looked if place.why == "cuda.data_dir"), None)
    return Plan(
        looked,
        bitcode.libdevice if bitcode else None,
        tools.ptxas if tools else None,
        links,
        data_dir,
        {"XLA_FLAGS": f"{given} {flags.naming(data_dir)}".strip()} if data_dir else {},
        _chosen(bitcode, tools),
        _missing(looked, bitcode, tools),
    )


def _stays(given: str, named: Place, looked: tuple[Place, ...]) -> Plan:
    """Return the plan where XLA_FLAGS name a CUDA root: libdevice is there or nowhere, ptxas may be elsewhere, too."""
    whole = named.libdevice == named.path / LIBDEVICE
    return Plan(
        (named, *looked),
        named.libdevice if whole else None,
        next((place.ptxas for place in (named, *looked) if place.ptxas), None),
        says=(f"XLA_FLAGS={given} names a CUDA folder already, which stays",),
        warnings=() if whole else (f"{flags.DATA_DIR}={named.path}, as XLA_FLAGS has it, has no {LIBDEVICE}",),
    )


def _links(bitcode: Place | None, tools: Place | None, tree: Path) -> dict[Path, Path]:
    links = {tree / LIBDEVICE: bitcode.libdevice} if bitcode and bitcode.libdevice else {}
    if tools and tools.ptxas:
        beside = {name: tools.ptxas.with_name(name) for name in _TOOLS} | {"ptxas": tools.ptxas}
        links |= {tree / "bin" / name: file for name, file in beside.items() if executable(file)}
    return links


def _chosen(bitcode: Place | None, tools: Place | None) -> tuple[str, ...]:
    if bitcode and bitcode == tools:
        return (f"XLA gets libdevice.10.bc and ptxas from {bitcode.path} ({bitcode.why})",)
    parts = [f"libdevice.10.bc from {bitcode.libdevice} ({bitcode.why})"] if bitcode else []
    parts += [f"ptxas from {tools.ptxas} ({tools.why})"] if tools else []
    return (f"XLA gets {' and '.join(parts)}",) if parts else ()


def _missing(looked: tuple[Place, ...], bitcode: Place | None, tools: Place | None) -> tuple[str, ...]:
    faults = [
        f"cuda.data_dir = {place.path} has no {LIBDEVICE}"
        for place in looked
        if place.why == "cuda.data_dir" and place.libdevice != place.path / LIBDEVICE
    ]
    where = "hpcrun cuda tells where it was looked for"
    if not bitcode:
        fix = "set cuda.libdevice in the site file, or pip install 'tensorflow[and-cuda]'"
        faults.append(f"no libdevice.10.bc for XLA: what it compiles (jit_compile=True) may fail; {fix}; {where}")
    if not tools:
        fix = "set cuda.ptxas in the site file, or load a CUDA module"
        faults.append(f"no ptxas for XLA: what it compiles (jit_compile=True) may fail or be slow; {fix}; {where}")
    return tuple(faults)
