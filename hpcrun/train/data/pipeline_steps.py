"""The steps of a `tf.data.Dataset` pipeline, and their comparison between the ranks."""

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

# Attributes that may differ between ranks; seeds are compared elsewhere, as a pair.
_IGNORED_ATTRIBUTES = {"_num_parallel_calls", "_seed", "_seed2"}


class PipelineStep(NamedTuple):
    """A step of a pipeline, with the graphs of the functions that the step calls."""

    dataset: tf.data.Dataset
    function_bodies: list[Nodes]

    @property
    def name(self) -> str:
        """The name of the step's TensorFlow class."""
        return type(self.dataset).__name__.strip("_")

    @property
    def seeds(self) -> tuple[int, int] | None:
        """The seeds of a step that shuffles or draws random numbers; None for other steps."""
        shuffles = self.name in {"ShuffleDataset", "RandomDataset"}
        return (int(self.dataset._seed), int(self.dataset._seed2)) if shuffles else None  # noqa: SLF001

    @property
    def tensors(self) -> list[tf.Tensor]:
        """The tensors that the step holds in memory."""
        return list(getattr(self.dataset, "_tensors", ()))

    @property
    def bytes(self) -> int:
        """The size of the step's tensors of known shape in bytes."""
        return sum(t.shape.num_elements() * t.dtype.size for t in self.tensors if t.shape.is_fully_defined())

    def any_node(self, predicate: Callable[[node_def_pb2.NodeDef], bool]) -> bool:
        """Return whether a predicate is true for a node of the step's functions."""
        return any(predicate(node) for nodes in self.function_bodies for node in nodes)

    def arguments(self) -> dict[str, object]:
        """Return the arguments that must be equal on all ranks: numbers, and checksums of tensors."""
        ignored_attributes = (
            _IGNORED_ATTRIBUTES if self.seeds else {*_IGNORED_ATTRIBUTES, "_buffer_size"}
        )  # the number of elements that are read ahead
        scalar_arguments: dict[str, object] = {
            name.strip("_"): value.numpy().item()
            for name, value in vars(self.dataset).items()
            if name not in ignored_attributes and isinstance(value, tf.Tensor) and value.shape.rank == 0
            if value.dtype.is_integer or value.dtype.is_bool
        }
        checksums = [_checksum(t) for t in self.tensors if t.dtype != tf.variant]
        return scalar_arguments | ({"tensors": checksums} if checksums else {})


def pipeline_steps(dataset: tf.data.Dataset) -> Iterator[PipelineStep]:
    """Yield the steps of a pipeline, from the last to the first."""
    graphs = (function.function.graph.as_graph_def() for function in dataset._functions())  # noqa: SLF001
    yield PipelineStep(dataset, [nodes for graph in graphs for nodes in function_bodies(graph)])
    wrapped_dataset = getattr(dataset, "_impl", None)  # some classes, such as TFRecordDataset, wrap a dataset
    for source in dataset._inputs() if wrapped_dataset is None else [wrapped_dataset]:  # noqa: SLF001  (there is no public function)
        yield from pipeline_steps(source)


def function_bodies(graph: graph_pb2.GraphDef) -> list[Nodes]:
    """Return the nodes of a graph and of each of its functions."""
    return [graph.node, *(function.node_def for function in graph.library.function)]


def check_same_pipeline(pipeline: Sequence[PipelineStep]) -> None:
    """Compare the pipelines of all ranks. Collective.

    Args:
        pipeline: The steps of this rank, from the last to the first.

    Raises:
        HpcrunError: The steps or their arguments differ between ranks.
    """
    if world().size == 1:
        return
    steps = enumerate(reversed(pipeline), 1)
    require_agreement(
        {f"tf.data.Dataset's step {number}, {step.name}": step.arguments() for number, step in steps},
        "all ranks must build the same data set, and hpcrun.train shards its batches: seed shuffles and splits, sort "
        "file names, remove shard(); or use fit(..., distribute=False) if each rank has its own data",
    )


def _checksum(tensor: tf.Tensor) -> Checksum:
    with tf.device("CPU"):
        return Checksum(np.asarray(tf.gather(tensor, sample_indices(tensor.shape[0])) if tensor.shape.rank else tensor))
