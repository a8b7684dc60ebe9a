"""Whether ranks that run a training script would meet, as far as its text tells; nothing is run or imported."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MEETS = frozenset({
    "hpcrun.train", "mpi4py", "mpi4jax", "mpi4torch", "horovod", "torch.distributed", "torch.nn.parallel",
    "jax.distributed", "jax.experimental.multihost_utils", "deepspeed", "accelerate", "lightning", "pytorch_lightning",
    "lightning_fabric", "transformers", "composer", "colossalai", "megatron", "byteps", "bagua", "smdistributed", "ray",
    "dask", "dask_mpi", "distributed", "ignite.distributed",
})  # fmt: skip
"""Modules through which ranks meet, or which see to it themselves."""

TRAINS = frozenset({"keras", "tf_keras", "tensorflow", "torch", "jax", "flax"})
"""Modules of which scripts that do not distribute are warned of; whatever else runs many times may be meant to."""

_RANK = re.compile(r"(HPCRUN|SLURM|PMI|PMIX|OMPI_COMM_WORLD|MPI|MV2_COMM_WORLD|PALS)_\w+|RANK|LOCAL_RANK|WORLD_SIZE")
_PYTHON = re.compile(r"python[\d.]*")
_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+([\w.]+)(?:[ \t]+import[ \t]+([\w., ]+))?", re.MULTILINE)
_IMPORTS_BY_NAME = frozenset({"import_module", "__import__", "run_module"})
LEVELS = 2  # of the script's own modules that are followed
LARGEST = 1_000_000  # bytes of a file that is read


@dataclass
class Names:
    """What a Python file names.

    Attributes:
        modules: Dotted names that it imports, or uses of what it imports.
        texts: Its strings, as a whole each.
    """

    modules: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)

    @property
    def train(self) -> bool:
        """Whether it trains."""
        return any(_is_in(name, TRAINS) for name in self.modules)

    @property
    def distribute(self) -> bool:
        """Whether ranks may meet, or take parts of the work by their numbers."""
        words = {word for name in self.modules for word in name.split(".")}
        strategy = "distribute" in words and ("TF_CONFIG" in self.texts or any("ClusterResolver" in w for w in words))
        by_number = any(_RANK.fullmatch(text) for text in self.texts)
        return strategy or by_number or any(_is_in(name, MEETS) for name in self.modules)


def trains_alone(argv: tuple[str, ...], start: Path) -> bool:
    """Return whether each rank of a command line would train by itself, all the same.

    Args:
        argv: The command line of one rank; of another program than Python with a script nothing is known.
        start: The directory in which it starts.
    """
    if not argv or not _PYTHON.fullmatch(Path(argv[0]).name):
        return False
    script = next((word for word in argv[1:] if not word.startswith("-")), "")
    if not script.endswith(".py"):
        return False
    files = list(_files((start / script).resolve()))
    names = Names(set().union(*(each.modules for each in files)), set().union(*(each.texts for each in files)))
    return names.train and not names.distribute


def _is_in(name: str, modules: frozenset[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _files(script: Path) -> Iterator[Names]:
    """Yield what a script and its own modules name."""
    known, front = {script}, [script]
    for _ in range(LEVELS + 1):
        found: list[Path] = []
        for file in front:
            names = _read(file)
            yield names
            found += [each for name in names.modules for each in _own(name, {script.parent, file.parent})]
        front = [file for file in dict.fromkeys(found) if file not in known]
        known.update(front)


def _own(name: str, folders: set[Path]) -> Iterator[Path]:
    """Yield the files of a module, and of the packages that it is in, where they lie beside a script."""
    words = name.split(".")
    for folder in folders:
        for end in range(1, len(words) + 1):
            place = folder.joinpath(*words[:end])
            yield from (file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file())


def _read(file: Path) -> Names:
    names = Names()
    with suppress(OSError):
        if file.stat().st_size <= LARGEST:
            text = file.read_text(encoding="utf-8", errors="replace")
            try:
                _walk(ast.parse(text), names)
            except (SyntaxError, ValueError, RecursionError):  # of another Python than this one, perhaps
                for module, members in _IMPORT.findall(text):
                    names.modules |= {module, *(f"{module}.{each.strip()}" for each in members.split(",") if each)}
                names.texts |= set(re.findall(r"[\"'](\w+)[\"']", text))
    return names


def _walk(tree: ast.AST, names: Names) -> None:
    short: dict[str, str] = {}  # what a name in the file stands for
    nodes = list(ast.walk(tree))
    for node in nodes:
        match node:
            case ast.Import():
                for alias in node.names:
                    names.modules.add(alias.name)
                    short[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0]
                    )
            case ast.ImportFrom():
                module = f"{node.module}." if node.module else ""
                names.modules |= {module.rstrip("."), *(module + alias.name for alias in node.names)} - {""}
                short |= {alias.asname or alias.name: module + alias.name for alias in node.names}
            case ast.Call(args=[ast.Constant(value=str(module)), *_]) if _last(node.func) in _IMPORTS_BY_NAME:
                names.modules.add(module)
            case ast.Constant(value=str(text)):
                names.texts.add(text)
    for node in nodes:
        if isinstance(node, ast.Attribute) and (dotted := _dotted(node)) and dotted[0] in short:
            names.modules.add(".".join([short[dotted[0]], *dotted[1:]]))


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _dotted(node: ast.expr) -> list[str]:
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    return [node.id, *reversed(words)] if isinstance(node, ast.Name) else []
