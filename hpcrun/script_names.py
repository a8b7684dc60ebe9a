"""Static analysis of a training script: the modules that it imports, and the strings that it contains."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from hpcrun.script_files import MAX_FILE_BYTES, ModuleFinder, find_script, import_folders
from hpcrun.script_imports import (
    dotted_name,
    find_attribute,
    find_full_names,
    function_name,
    imported_prefix,
    package_of_import,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MODULES_OF_FRAMEWORKS = {
    "hpcrun": frozenset({"hpcrun.train"}),
    "horovod": frozenset({"horovod"}),
    "torch": frozenset({
        "torch.distributed", "torch.nn.parallel", "accelerate", "deepspeed", "lightning", "pytorch_lightning",
        "lightning_fabric", "composer", "colossalai", "megatron", "trl", "idr_torch", "fastai.distributed",
        "ignite.distributed", "setfit.Trainer", "sentence_transformers.SentenceTransformerTrainer",
        "timm.utils.init_distributed_device", "transformers.Seq2SeqTrainer", "transformers.Seq2SeqTrainingArguments",
        "transformers.Trainer", "transformers.TrainingArguments", "transformers.trainer", "transformers.training_args",
    }),
    "jax": frozenset({"jax.distributed", "jax.experimental.multihost_utils", "keras.distribution.initialize"}),
}  # fmt: skip
"""Modules and their members that identify a framework; of several frameworks, the first in this table is used."""

_OTHER_COMMUNICATION_MODULES = frozenset({
    "mpi4py", "mpi4jax", "mpi4torch", "byteps", "bagua", "smdistributed", "ray", "dask", "dask_mpi", "distributed",
})  # fmt: skip
"""Other modules that let ranks communicate, or that start distributed training themselves."""

_CALLS_THAT_READ_VARIABLES = frozenset({
    "torch.distributed.init_process_group", "torch.distributed.init_device_mesh",
    "torch.distributed.device_mesh.init_device_mesh", "jax.distributed.initialize", "keras.distribution.initialize",
})  # fmt: skip
"""Functions that fail without the variables of the ranks."""

_MPI_MODULES = ("mpi4py", "mpi4jax", "mpi4torch")

TRAINING_MODULES = frozenset({"keras", "tf_keras", "tensorflow", "torch", "jax", "flax"})
"""Modules that train models; a program without these modules may run several independent copies on purpose."""

_LIBRARIES = frozenset(
    name.partition(".")[0]
    for names in (*_MODULES_OF_FRAMEWORKS.values(), _OTHER_COMMUNICATION_MODULES, TRAINING_MODULES)
    for name in names
)
"""Packages whose own files tell nothing about the user's script."""

_RANK_VARIABLE = re.compile(
    r"(HPCRUN|SLURM|PMI|PMIX|OMPI_COMM_WORLD|MPI|MV2_COMM_WORLD|PALS)_\w+|RANK|LOCAL_RANK|WORLD_SIZE"
)
_LOCAL_RANK_VARIABLES = (
    *("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK"),
    *("PALS_LOCAL_RANKID", "HPCRUN_LOCAL_RANK"),
)
_FRAMEWORK_COMMENT = re.compile(r"^# *hpcrun: *framework *[=:] *(\S+)", re.MULTILINE)
_IGNORED_COMMENT = re.compile(
    r"^# *hpcrun: *((?:--)?(?!framework\b)[a-z][a-z_-]*(?: *[=:] *| +(?=\d))\S+)", re.MULTILINE
)
"""Matches an option in a comment that hpcrun ignores, because it reads only the framework from comments."""
_IMPORT_STATEMENT = r"(?m)^[ \t]*(?:from|import)[ \t]+([\w.]+)(?:[ \t]+import[ \t]+([\w., ]+))?"
_GETTERS = frozenset({"get", "getenv"})
_IMPORTS_BY_NAME = frozenset({"import_module", "__import__", "run_module"})
_AST_NODE_TYPES = (ast.Attribute, ast.Call, ast.Compare, ast.Constant, ast.Import, ast.ImportFrom, ast.Subscript)
MAX_IMPORT_DEPTH = 3  # maximum depth to which imports of the user's modules are followed
MAX_FILES = 100  # maximum number of files that are read


@dataclass
class ScriptNames:
    """The modules and strings that a Python file contains.

    Attributes:
        modules: Dotted names of imported modules, and of members of modules that the file uses.
        texts: The string constants in the file.
        comment: The framework that a comment in the file names; empty if no comment names one.
        calls_fit: Whether the file calls a method ``fit``.
        ignored_option: An option in a comment that hpcrun ignores, such as ``nodes=2``; empty if there is none.
        sets_tf_config: Whether the file sets the variable TF_CONFIG itself.
        selects_gpu: Whether the file selects a GPU of TensorFlow or JAX.
        tests_rank: Whether the file tests if the variables of the ranks are set, and so can train without them.
    """

    modules: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    comment: str = ""
    calls_fit: bool = False
    ignored_option: str = ""
    tests_rank: bool = False
    sets_tf_config: bool = False
    selects_gpu: bool = False

    @property
    def imports_training_library(self) -> bool:
        """Whether the file imports a training library."""
        return any(_is_in_modules(name, TRAINING_MODULES) for name in self.modules)

    @property
    def training_library(self) -> str:
        """The library with which the file trains: ``keras``, ``torch`` or ``jax``; empty if it imports none.

        Keras also runs on PyTorch and JAX.
        """
        libraries = {"keras": {"keras", "tf_keras", "tensorflow"}, "torch": {"torch"}, "jax": {"jax", "flax"}}
        return next((name for name, modules in libraries.items() if self._imports(frozenset(modules))), "")

    @property
    def distributes(self) -> bool:
        """Whether ranks that run the file may communicate, or read their rank number to divide the work."""
        reads_rank = any(_RANK_VARIABLE.fullmatch(text) for text in self.texts)
        return self.framework != "none" or reads_rank or self._imports(_OTHER_COMMUNICATION_MODULES)

    @property
    def local_rank_variable(self) -> str:
        """The variable with the local rank that the file reads, perhaps to select a GPU; empty if it reads none."""
        return next((name for name in _LOCAL_RANK_VARIABLES if name in self.texts), "")

    @property
    def joins_world(self) -> bool:
        """Whether the file needs the variables of its framework even with a single rank, or names its framework."""
        return bool(self.comment or (self.modules & _CALLS_THAT_READ_VARIABLES and not self.tests_rank))

    @property
    def class_with_all_gpus(self) -> str:
        """The class by which the file uses all GPUs in one process; empty if it uses none."""
        words = {word for name in self.modules for word in name.split(".")}
        return next((name for name in ("MirroredStrategy", "DataParallel") if name in words), "")

    @property
    def mpi_library(self) -> str:
        """The package with which the file calls MPI itself; empty if it imports none."""
        return next((name for name in _MPI_MODULES if self._imports(frozenset({name}))), "")

    @property
    def calls_fit_under_strategy(self) -> bool:
        """Whether the file calls Keras's `fit` under a strategy for several workers, which only Keras 2 supports."""
        uses_legacy_keras = "TF_USE_LEGACY_KERAS" in self.texts or self._imports(frozenset({"tf_keras"}))
        return self.calls_fit and self.framework == "tensorflow" and not uses_legacy_keras

    @property
    def expects_parameter_servers(self) -> bool:
        """Whether the file needs a TF_CONFIG with other roles than worker."""
        words = {word for name in self.modules for word in name.split(".")}
        has_own_cluster = self.sets_tf_config or words & {"SlurmClusterResolver", "SimpleClusterResolver"}
        return "ParameterServerStrategy" in words and not has_own_cluster

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


def read_script(argv: tuple[str, ...], start: Path) -> ScriptNames:
    """Return the modules and strings in a command line's Python script, and in the user's modules that it imports."""
    if not (file := find_script(argv, start)):
        return ScriptNames()
    finder = ModuleFinder(import_folders(argv, start), _LIBRARIES)
    files = list(_read_files(file.resolve(), finder))
    modules, texts = (set().union(*sets) for sets in zip(*((each.modules, each.texts) for each in files), strict=True))
    calls_fit, tests_rank, sets_tf_config, selects_gpu = (
        any(getattr(each, name) for each in files)
        for name in ("calls_fit", "tests_rank", "sets_tf_config", "selects_gpu")
    )
    own_packages = {package for package in {name.partition(".")[0] for name in modules} if finder.is_own(package)}
    libraries = {name for name in modules if name.partition(".")[0] not in {"", *own_packages}}
    comment, ignored_option = files[0].comment, files[0].ignored_option
    return ScriptNames(libraries, texts, comment, calls_fit, ignored_option, tests_rank, sets_tf_config, selects_gpu)


def _is_in_modules(name: str, modules: frozenset[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _read_files(script: Path, finder: ModuleFinder) -> Iterator[ScriptNames]:
    """Yield the names in a script, and in the user's modules that the script imports."""
    seen, unread_files = {script}, [script]
    for _ in range(MAX_IMPORT_DEPTH + 1):
        found: list[Path] = []
        for file in unread_files:
            names = _read_file(file)
            yield names
            more_folders = [script.parent, file.parent, *_find_added_folders(names, file)]
            found += finder.find(names.modules, file, more_folders)
        unread_files = [file for file in dict.fromkeys(found) if file not in seen][: MAX_FILES - len(seen)]
        seen.update(unread_files)


def _find_added_folders(names: ScriptNames, file: Path) -> Iterator[Path]:
    """Yield the folders that a file probably adds to Python's path, if it changes the path: those of its project."""
    if any(_is_in_modules(name, frozenset({"sys.path"})) for name in names.modules):
        yield from (file.parent / "src", file.parent.parent, file.parent.parent / "src")


def _read_file(file: Path) -> ScriptNames:
    with suppress(OSError):
        file_stat = file.stat()
        if file_stat.st_size <= MAX_FILE_BYTES:
            return _parse_file(file, file_stat.st_mtime_ns, file_stat.st_size)
    return ScriptNames()


@lru_cache(maxsize=2 * MAX_FILES)  # cached, because a submission checks a script several times
def _parse_file(file: Path, _mtime_ns: int, _size: int) -> ScriptNames:
    text = file.read_text(encoding="utf-8", errors="replace")
    matches = (pattern.search(text) for pattern in (_FRAMEWORK_COMMENT, _IGNORED_COMMENT))
    comment, ignored_option = (match[1] if match else "" for match in matches)
    names = ScriptNames(comment=comment, ignored_option=ignored_option)
    try:
        _collect_names(ast.parse(text), names)
    except (SyntaxError, ValueError, RecursionError):  # the file may need a different Python version
        for module, members in re.findall(_IMPORT_STATEMENT, text):
            prefix = module if module.endswith(".") else f"{module}."
            names.modules |= {module, *(prefix + each.strip() for each in members.split(",") if each)}
        names.texts |= set(re.findall(r"[\"'](\w+)[\"']", text))
    return names


def _collect_names(tree: ast.AST, names: ScriptNames) -> None:
    nodes = [node for node in ast.walk(tree) if isinstance(node, _AST_NODE_TYPES)]
    names.tests_rank = any(map(_tests_rank, nodes))
    names.sets_tf_config = any(map(_sets_tf_config, nodes))
    names.selects_gpu = any(map(_selects_gpu, nodes))
    for node in nodes:
        match node:
            case ast.Import():
                names.modules |= {alias.name for alias in node.names}
            case ast.ImportFrom():
                prefix = imported_prefix(node)
                names.modules |= {
                    *([prefix[:-1]] if node.module else []),
                    *(prefix + alias.name for alias in node.names),
                }
            case ast.Call(args=[ast.Constant(value=str(module)), *_]) if function_name(node.func) in _IMPORTS_BY_NAME:
                names.modules.add(package_of_import(node) + module)
            case ast.Call(args=[ast.JoinedStr(values=[ast.Constant(value=str(prefix)), *_]), *_]) if (
                function_name(node.func) in _IMPORTS_BY_NAME
            ):
                names.modules.add(prefix.rstrip("."))
            case ast.Attribute(attr="fit"):
                names.calls_fit = True
            case ast.Constant(value=str(text)):
                names.texts.add(text)
    full_names = find_full_names(nodes)
    attributes = filter(None, map(find_attribute, nodes))
    names.modules |= {name for attribute in attributes if (name := dotted_name(attribute, full_names))}


def _sets_tf_config(node: ast.AST) -> bool:
    """Return whether an AST node sets the variable TF_CONFIG."""
    match node:
        case ast.Subscript(slice=ast.Constant(value="TF_CONFIG"), ctx=ast.Store()):
            return True
        case ast.Call(func=ast.Attribute(attr="setdefault" | "putenv"), args=[ast.Constant(value="TF_CONFIG"), *_]):
            return True
        case ast.Call(func=ast.Attribute(attr="update"), args=[ast.Dict(keys=keys)]):
            return any(isinstance(key, ast.Constant) and key.value == "TF_CONFIG" for key in keys)
        case ast.Call(func=ast.Attribute(attr="update"), keywords=keywords):
            return any(keyword.arg == "TF_CONFIG" for keyword in keywords)
    return False


def _selects_gpu(node: ast.AST) -> bool:
    """Return whether an AST node selects a GPU of TensorFlow or JAX."""
    match node:
        case ast.Attribute(attr="set_visible_devices") | ast.Constant(value="CUDA_VISIBLE_DEVICES"):
            return True
        case ast.Call(keywords=keywords):
            return any(keyword.arg == "local_device_ids" for keyword in keywords)
    return False


def _tests_rank(node: ast.AST) -> bool:
    """Return whether an AST node tests whether a rank variable is set, or reads it without 0 or 1 as the default."""
    match node:
        case ast.Compare(left=ast.Constant(value=str(text)), ops=[ast.In() | ast.NotIn()]):
            return bool(_RANK_VARIABLE.fullmatch(text))
        case ast.Call(args=[ast.Constant(value=str(text)), *defaults]) if function_name(node.func) in _GETTERS:
            values = {str(default.value) for default in defaults if isinstance(default, ast.Constant)}
            return bool(_RANK_VARIABLE.fullmatch(text)) and not values & {"0", "1"}  # a single rank's values
    return False
