"""What a `tf.data.Dataset` is made of, and the check that all ranks made the same one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf

from hpcrun.train.data.checksums import Checksum, sample_indices
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tensorflow.core.framework import graph_pb2, node_def_pb2

    Nodes = Iterable[node_def_pb2.NodeDef]

# What a step may be given otherwise on another rank; its seeds are compared as a pair.
_MAY_DIFFER = {"_num_parallel_calls", "_seed", "_seed2"}


class PipelineStep(NamedTuple):
    """A step of a pipeline, and the bodies of the functions that it calls."""

    dataset: tf.data.Dataset
    function_bodies: list[Nodes]

    @property
    def name(self) -> str:
        """Its class, as TensorFlow calls it."""
        return type(self.dataset).__name__.strip("_")

    @property
    def seeds(self) -> tuple[int, int] | None:
        """Of one that shuffles, or draws random numbers."""
        shuffles = self.name in {"ShuffleDataset", "RandomDataset"}
        return (int(self.dataset._seed), int(self.dataset._seed2)) if shuffles else None  # noqa: SLF001

    @property
    def tensors(self) -> list[tf.Tensor]:
        """What it holds in memory."""
        return list(getattr(self.dataset, "_tensors", ()))

    @property
    def bytes(self) -> int:
        """How much that is, as far as that is known."""
        return sum(t.shape.num_elements() * t.dtype.size for t in self.tensors if t.shape.is_fully_defined())

    def any_node(self, predicate: Callable[[node_def_pb2.NodeDef], bool]) -> bool:
        """Return whether something holds of a node of its functions."""
        return any(predicate(node) for nodes in self.function_bodies for node in nodes)

    def arguments(self) -> dict[str, object]:
        """Return what it was given that must be the same on all ranks: numbers, and checksums of what it holds."""
        own = _MAY_DIFFER if self.seeds else {*_MAY_DIFFER, "_buffer_size"}  # how far ahead it reads
        numbers: dict[str, object] = {
            name.strip("_"): value.numpy().item()
            for name, value in vars(self.dataset).items()
            if name not in own and isinstance(value, tf.Tensor) and value.shape.rank == 0
            if value.dtype.is_integer or value.dtype.is_bool
        }
        held = [_checksum(t) for t in self.tensors if t.dtype != tf.variant]
        return numbers | ({"tensors": held} if held else {})


def pipeline_steps(dataset: tf.data.Dataset) -> Iterator[PipelineStep]:
    """Yield the steps of a pipeline, the last one first."""
    graphs = (function.function.graph.as_graph_def() for function in dataset._functions())  # noqa: SLF001
    yield PipelineStep(dataset, [nodes for graph in graphs for nodes in function_bodies(graph)])
    inside = getattr(dataset, "_impl", None)  # of one that reads files
    for source in dataset._inputs() if inside is None else [inside]:  # noqa: SLF001  (the only way to see what it is made of)
        yield from pipeline_steps(source)


def function_bodies(graph: graph_pb2.GraphDef) -> list[Nodes]:
    """Return the nodes of a graph, and those of each of its functions."""
    return [graph.node, *(function.node_def for function in graph.library.function)]


def check_same_pipeline(pipeline: Sequence[PipelineStep]) -> None:
    """Compare what the ranks made their pipelines of; every rank must call it.

    Args:
        pipeline: Of this rank, the last step first.

    Raises:
        HpcrunError: Another rank has other steps, or gave them something else.
    """
    if world().size == 1:
        return
    steps = enumerate(reversed(pipeline), 1)
    require_agreement(
        {f"tf.data.Dataset's step {number}, {step.name}": step.arguments() for number, step in steps},
        "all ranks must make the same data set, and hpcrun.train deals its batches: seed what shuffles or splits, sort "
        "the names of files, leave shard() out; or fit(..., distribute=False), where each rank has data of its own",
    )


def _checksum(tensor: tf.Tensor) -> Checksum:
    with tf.device("CPU"):
        return Checksum(np.asarray(tf.gather(tensor, sample_indices(tensor.shape[0])) if tensor.shape.rank else tensor))
