"""Detects how the ranks of a training script communicate, from the text of the script, without running it."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, closest_match
from hpcrun.job_options import FRAMEWORKS

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMUNICATION_MODULES = frozenset({
    "hpcrun.train", "mpi4py", "mpi4jax", "mpi4torch", "horovod", "torch.distributed", "torch.nn.parallel",
    "jax.distributed", "jax.experimental.multihost_utils", "deepspeed", "accelerate", "lightning", "pytorch_lightning",
    "lightning_fabric", "transformers", "composer", "colossalai", "megatron", "byteps", "bagua", "smdistributed", "ray",
    "dask", "dask_mpi", "distributed", "ignite.distributed",
})  # fmt: skip
"""Modules that let ranks communicate, or that start distributed training themselves."""

_MODULES_OF_FRAMEWORKS = {
    "hpcrun": frozenset({"hpcrun.train"}),
    "horovod": frozenset({"horovod"}),
    "torch": frozenset({
        "torch.distributed", "torch.nn.parallel", "accelerate", "deepspeed", "lightning", "pytorch_lightning",
        "lightning_fabric", "transformers",
    }),
    "jax": frozenset({"jax.distributed", "jax.experimental.multihost_utils"}),
}  # fmt: skip
"""Modules that identify a framework; if a script imports several frameworks, the first in this table is used."""

_CALLS_THAT_READ_VARIABLES = frozenset({
    "torch.distributed.init_process_group", "torch.distributed.init_device_mesh",
    "torch.distributed.device_mesh.init_device_mesh", "jax.distributed.initialize",
})  # fmt: skip
"""Functions that fail without the variables of the ranks."""

TRAINING_MODULES = frozenset({"keras", "tf_keras", "tensorflow", "torch", "jax", "flax"})
"""Modules that train models; a program without these modules may run several independent copies on purpose."""

_RANK_VARIABLE = re.compile(
    r"(HPCRUN|SLURM|PMI|PMIX|OMPI_COMM_WORLD|MPI|MV2_COMM_WORLD|PALS)_\w+|RANK|LOCAL_RANK|WORLD_SIZE"
)
_FRAMEWORK_COMMENT = re.compile(r"^# *hpcrun: *framework *[=:] *(\S+)", re.MULTILINE)
_IGNORED_COMMENT = re.compile(
    r"^# *hpcrun: *((?:--)?(?!framework\b)[a-z][a-z_-]*(?: *[=:] *| +(?=\d))\S+)", re.MULTILINE
)
"""Matches an option in a comment, of which hpcrun reads only the framework."""
_OTHER_NAMES = {"pytorch": "torch", "tf": "tensorflow", "keras": "hpcrun", "ddp": "torch", "hvd": "horovod"}
_PYTHON_NAME = re.compile(r"python[\d.]*")
_IMPORT_STATEMENT = re.compile(r"^[ \t]*(?:from|import)[ \t]+([\w.]+)(?:[ \t]+import[ \t]+([\w., ]+))?", re.MULTILINE)
_IMPORTS_BY_NAME = frozenset({"import_module", "__import__", "run_module"})
MAX_IMPORT_DEPTH = 2  # maximum depth to which imports of the user's modules are followed
MAX_FILE_BYTES = 1_000_000  # larger files are not read


@dataclass
class ScriptNames:
    """The modules and strings that a Python file contains.

    Attributes:
        modules: Dotted names of imported modules, and of members of modules that the file uses.
        texts: The string constants in the file.
        comment: The framework that a comment in the file names; empty without such a comment.
        calls_fit: Whether the file calls a method ``fit``.
        ignored_option: An option in a comment that hpcrun does not read, such as ``nodes=2``; empty without one.
    """

    modules: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    comment: str = ""
    calls_fit: bool = False
    ignored_option: str = ""

    @property
    def imports_training_library(self) -> bool:
        """Whether the file imports a training library."""
        return any(_is_in_modules(name, TRAINING_MODULES) for name in self.modules)

    @property
    def distributes(self) -> bool:
        """Whether ranks that run the file may communicate, or read their rank number to divide the work."""
        reads_rank = any(_RANK_VARIABLE.fullmatch(text) for text in self.texts)
        return self.framework != "none" or reads_rank or self._imports(COMMUNICATION_MODULES)

    @property
    def joins_world(self) -> bool:
        """Whether the file needs the variables of its framework even on a single rank."""
        return bool(self.modules & _CALLS_THAT_READ_VARIABLES) or (
            self.framework == "torch" and bool(self.texts & {"RANK", "LOCAL_RANK", "WORLD_SIZE"})
        )

    @property
    def fits_under_strategy(self) -> bool:
        """Whether the file calls Keras's `fit` under a strategy for several workers, which only Keras 2 supports."""
        uses_legacy_keras = "TF_USE_LEGACY_KERAS" in self.texts or self._imports(frozenset({"tf_keras"}))
        return self.calls_fit and self.framework == "tensorflow" and not uses_legacy_keras

    @property
    def framework(self) -> str:
        """The framework through which ranks that run the file find each other; ``none`` if no framework is detected."""
        words = {word for name in self.modules for word in name.split(".")}
        strategies = {"MultiWorkerMirroredStrategy", "ParameterServerStrategy", "CollectiveAllReduceStrategy"} & words
        has_cluster = "TF_CONFIG" in self.texts or any("ClusterResolver" in word for word in words)
        for name, modules in _MODULES_OF_FRAMEWORKS.items():
            if self._imports(modules):
                return name
        return "tensorflow" if "distribute" in words and (strategies or has_cluster) else "none"

    def _imports(self, modules: frozenset[str]) -> bool:
        return any(_is_in_modules(name, modules) for name in self.modules)


def trains_model(argv: tuple[str, ...], start: Path) -> bool:
    """Return whether a command line runs a Python script that imports a training library.

    Args:
        argv: The command line of one rank.
        start: The directory in which the command line is started.
    """
    return _read_script(argv, start).imports_training_library


def find_framework(argv: tuple[str, ...], start: Path, framework: str) -> str:
    """Return the framework through which the ranks of a command line find each other; ``auto`` if it is unknown.

    Args:
        argv: The command line of one rank.
        start: The directory in which the command line is started.
        framework: The value of ``--framework``; it is returned unless it is ``auto``.

    Raises:
        HpcrunError: A comment in the script names an unknown framework.
    """
    if framework != "auto":
        return framework
    names = _read_script(argv, start)
    if names.comment and names.comment not in FRAMEWORKS:
        message = f"# hpcrun: framework={names.comment} in the script: hpcrun does not know this framework"
        word = names.comment.lower()
        similar = _OTHER_NAMES.get(word) or closest_match(word, [*FRAMEWORKS])
        suggestion = f"did you mean framework={similar}? " if similar else ""
        raise HpcrunError(message, hint=f"{suggestion}one of {', '.join(FRAMEWORKS)}; or remove the comment")
    return names.comment or names.framework.replace("none", "auto")


def joins_world(argv: tuple[str, ...], start: Path) -> bool:
    """Return whether a command line needs the variables of its framework even on a single rank.

    Args:
        argv: The command line of one rank.
        start: The directory in which the command line is started.
    """
    return _read_script(argv, start).joins_world


def fits_under_strategy(argv: tuple[str, ...], start: Path) -> bool:
    """Return whether a command line calls `fit` under a strategy with which `fit` of Keras 3 fails.

    Args:
        argv: The command line of one rank.
        start: The directory in which the command line is started.
    """
    return _read_script(argv, start).fits_under_strategy


def find_ignored_option(argv: tuple[str, ...], start: Path) -> str:
    """Return an option in a comment of a command line's script that hpcrun does not read; empty without one.

    Args:
        argv: The command line of one rank.
        start: The directory in which the command line is started.
    """
    return _read_script(argv, start).ignored_option


def trains_alone(argv: tuple[str, ...], start: Path) -> bool:
    """Return whether each rank of a command line would train a separate copy of the model.

    Args:
        argv: The command line of one rank; the result is False unless it runs a Python script.
        start: The directory in which the command line is started.
    """
    names = _read_script(argv, start)
    return names.imports_training_library and not names.distributes


def _read_script(argv: tuple[str, ...], start: Path) -> ScriptNames:
    """Return the modules and strings in a command line's Python script, and in the user's modules that it imports."""
    if not argv or not _PYTHON_NAME.fullmatch(Path(argv[0]).name):
        return ScriptNames()
    options = list(takewhile(lambda word: word.startswith("-"), argv[1:]))
    script = "".join(argv[1 + len(options) :][:1])
    if options[-1:] == ["-m"]:
        path = start.joinpath(*script.split("."))
        file = next((each for each in (path.with_suffix(".py"), path / "__main__.py") if each.is_file()), None)
    else:
        file = start / script if script.endswith(".py") else None
    if not file:
        return ScriptNames()
    files = list(_read_files(file.resolve()))
    modules, texts = (set().union(*sets) for sets in zip(*((each.modules, each.texts) for each in files), strict=True))
    calls_fit = any(each.calls_fit for each in files)
    return ScriptNames(modules, texts, files[0].comment, calls_fit, files[0].ignored_option)


def _is_in_modules(name: str, modules: frozenset[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _read_files(script: Path) -> Iterator[ScriptNames]:
    """Yield the names in a script, and in the user's modules that the script imports."""
    seen, unread_files = {script}, [script]
    for _ in range(MAX_IMPORT_DEPTH + 1):
        found: list[Path] = []
        for file in unread_files:
            names = _read_file(file)
            yield names
            found += [
                each for name in names.modules for each in _find_local_modules(name, {script.parent, file.parent})
            ]
        unread_files = [file for file in dict.fromkeys(found) if file not in seen]
        seen.update(unread_files)


def _find_local_modules(name: str, folders: set[Path]) -> Iterator[Path]:
    """Yield the files of a module and of the packages that contain it, if the files are in given folders."""
    words = name.split(".")
    for folder in folders:
        for end in range(1, len(words) + 1):
            path = folder.joinpath(*words[:end])
            yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())


def _read_file(file: Path) -> ScriptNames:
    with suppress(OSError):
        file_stat = file.stat()
        if file_stat.st_size <= MAX_FILE_BYTES:
            return _parse_file(file, file_stat.st_mtime_ns, file_stat.st_size)
    return ScriptNames()


@lru_cache(maxsize=64)  # cached, because a submission asks several questions about a script
def _parse_file(file: Path, _mtime_ns: int, _size: int) -> ScriptNames:
    text = file.read_text(encoding="utf-8", errors="replace")
    matches = (pattern.search(text) for pattern in (_FRAMEWORK_COMMENT, _IGNORED_COMMENT))
    comment, ignored_option = (match[1] if match else "" for match in matches)
    names = ScriptNames(comment=comment, ignored_option=ignored_option)
    try:
        _collect_names(ast.parse(text), names)
    except (SyntaxError, ValueError, RecursionError):  # the file may need another Python version
        for module, members in _IMPORT_STATEMENT.findall(text):
            names.modules |= {module, *(f"{module}.{each.strip()}" for each in members.split(",") if each)}
        names.texts |= set(re.findall(r"[\"'](\w+)[\"']", text))
    return names


def _collect_names(tree: ast.AST, names: ScriptNames) -> None:
    full_names: dict[str, str] = {}  # local name -> dotted name
    nodes = list(ast.walk(tree))
    for node in nodes:
        match node:
            case ast.Import():
                for alias in node.names:
                    names.modules.add(alias.name)
                    full_names[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0]
                    )
            case ast.ImportFrom():
                module = f"{node.module}." if node.module else ""
                names.modules |= {module.rstrip("."), *(module + alias.name for alias in node.names)} - {""}
                full_names |= {alias.asname or alias.name: module + alias.name for alias in node.names}
            case ast.Call(args=[ast.Constant(value=str(module)), *_]) if _called_name(node.func) in _IMPORTS_BY_NAME:
                names.modules.add(module)
            case ast.Attribute(attr="fit"):
                names.calls_fit = True
            case ast.Constant(value=str(text)):
                names.texts.add(text)
    for node in nodes:
        if isinstance(node, ast.Attribute) and (dotted := _attribute_path(node)) and dotted[0] in full_names:
            names.modules.add(".".join([full_names[dotted[0]], *dotted[1:]]))


def _called_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _attribute_path(node: ast.expr) -> list[str]:
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    return [node.id, *reversed(words)] if isinstance(node, ast.Name) else []
