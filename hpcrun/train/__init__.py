"""Data-parallel Keras on MPI: the script for one process is the script for all ranks.

    model = hpcrun.train.Model(keras_model)
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    model.fit(x, y, batch_size=256)  # the global batch size, over all ranks

Each rank computes the gradient of its shard of every batch. The weighted mean over the ranks is the gradient of the
whole batch, so p ranks take the same steps as one process (synchronous data parallelism: Goyal et al., "Accurate, Large
Minibatch SGD", arXiv:1706.02677; batches are divided as in Tarantella). MPI and Keras's backend start at the first use
of a function, not at the import; call `init()` at the top of a script.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError as HpcrunError
from hpcrun.train.ranks.independent_ranks import warn_at_exit as _warn_at_exit

if TYPE_CHECKING:
    from hpcrun.run.schedules import decay as decay
    from hpcrun.train import images as images
    from hpcrun.train.callbacks import Callback as Callback
    from hpcrun.train.data.batch_map import map_batches as map_batches
    from hpcrun.train.data.tf_arrays import dataset as dataset
    from hpcrun.train.fine_tune import replace_head as replace_head
    from hpcrun.train.gradients.optimizer import Optimizer as Optimizer
    from hpcrun.train.model import Model as Model
    from hpcrun.train.normalization import SyncBatchNormalization as SyncBatchNormalization
    from hpcrun.train.outputs.averaged_weights import average_weights as average_weights
    from hpcrun.train.outputs.run_callbacks import run_callbacks as run_callbacks
    from hpcrun.train.pipeline.lazy import lazy_weights as lazy_weights
    from hpcrun.train.pipeline.plan import plan as plan
    from hpcrun.train.pipeline.stage_scope import stage as stage
    from hpcrun.train.ranks.collectives import allreduce as allreduce
    from hpcrun.train.ranks.collectives import barrier as barrier
    from hpcrun.train.ranks.world import comm as comm
    from hpcrun.train.ranks.world import init as init
    from hpcrun.train.ranks.world import is_chief as is_chief
    from hpcrun.train.ranks.world import local_rank as local_rank
    from hpcrun.train.ranks.world import rank as rank
    from hpcrun.train.ranks.world import size as size
    from hpcrun.train.result import samples_per_second as samples_per_second
    from hpcrun.train.result import write_result as write_result
    from hpcrun.train.saved_model import load_model as load_model
    from hpcrun.train.state import broadcast as broadcast
    from hpcrun.train.warmup import WarmupScaling as WarmupScaling
    from hpcrun.train.workload_options import options as options

_MODULES = {
    "options": "workload_options",
    "dataset": "data.tf_arrays",
    "map_batches": "data.batch_map",
    "Callback": "callbacks",
    "Model": "model",
    "SyncBatchNormalization": "normalization",
    "Optimizer": "gradients.optimizer",
    "average_weights": "outputs.averaged_weights",
    "run_callbacks": "outputs.run_callbacks",
    "lazy_weights": "pipeline.lazy",
    "plan": "pipeline.plan",
    "stage": "pipeline.stage_scope",
    **dict.fromkeys(["samples_per_second", "write_result"], "result"),
    "broadcast": "state",
    "load_model": "saved_model",
    "replace_head": "fine_tune",
    "WarmupScaling": "warmup",
    "decay": ".run.schedules",
    **dict.fromkeys(["allreduce", "barrier"], "ranks.collectives"),
    **dict.fromkeys(["comm", "init", "is_chief", "local_rank", "rank", "size"], "ranks.world"),
}
_warn_at_exit()
__all__ = sorted(["HpcrunError", *_MODULES])  # noqa: PLE0605  (one table lists the public names and their modules)


def __getattr__(name: str) -> object:
    if name not in _MODULES and name != "images":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # TensorFlow reads this variable on import; without it, start-up messages fill every rank's log.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        if name == "images":
            return import_module(f"{__name__}.images")
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name not in {"tensorflow", "keras"}:
            raise
        hint = "pip install 'hpcrun-slurm[train-cpu]', or [train-gpu] for GPUs"
        if error.name == "tensorflow" and name == "dataset":
            hint = f"Model.fit(x, y, batch_size=...) splits arrays among the ranks without it; or {hint}"
        raise HpcrunError(f"hpcrun.train.{name} needs {error.name}, which is not installed", hint=hint) from None


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
