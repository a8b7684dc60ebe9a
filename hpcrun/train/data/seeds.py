"""Shuffles of `tf.data` that nobody seeded: give them one seed on all ranks, after the fact.

Ranks that shuffle differently would deal different batches: some samples twice, others never. The dataset's graph is
the only place where a shuffle's seed can still be changed; `tf.data` has public functions to and from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from hpcrun.errors import HpcrunError
from hpcrun.train.ranks.world import shared_seed, world

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Where seed and seed2 are among the inputs; both 0 means unseeded (tensorflow/core/ops/dataset_ops.cc).
_SEEDS = {"ShuffleDatasetV3": 2, "RandomDataset": 0, "RandomDatasetV2": 0}

_HINT = "give all ranks the same seed: dataset.shuffle(buffer_size, seed=42)"


def same_order(dataset: tf.data.Dataset, seed: int | None = None) -> tf.data.Dataset:
    """Return a dataset that yields its elements in one order on all ranks.

    Args:
        dataset: Any dataset; shuffles that have a seed, from the user or from `tf.random.set_seed`, keep it. A shuffle
            inside `interleave` or `flat_map` will repeat its order every epoch, as seeded ones do there.
        seed: What the others get; without one, one of rank 0's.

    Raises:
        HpcrunError: A shuffle has another seed on another rank, or has none and cannot be given one.
    """
    comm, chain = world().comm, list(_chain(dataset))
    mine = [seeds for d in chain if (seeds := _seeds(d))]
    if world().size > 1 and not all(comm.allgather(mine == comm.bcast(mine))):
        raise HpcrunError(f"the ranks shuffle differently; this rank with the seeds {mine}", hint=_HINT)
    if not any(_unseeded(d) for d in chain):
        return dataset
    seed = (shared_seed() if seed is None else seed) or 1
    try:
        text = tf.raw_ops.DatasetToGraphV2(input_dataset=tf.data.experimental.to_variant(dataset)).numpy()
        graph = graph_pb2.GraphDef.FromString(text)
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            _seed(nodes, seed)
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
        seeded = tf.data.experimental.from_variant(variant, dataset.element_spec).with_options(dataset.options())
    except (tf.errors.OpError, ValueError) as error:
        if world().size == 1:
            return dataset
        raise HpcrunError(
            f"the tf.data.Dataset shuffles without a seed, which would differ from rank to rank: {error}",
            hint=_HINT,
        ) from error
    seeded.original = dataset  # its Python functions live only as long as it does
    return seeded


def _chain(dataset: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    yield dataset
    for source in dataset._inputs():  # noqa: SLF001  (the only way to see what a dataset is made of)
        yield from _chain(source)


def _seeds(dataset: tf.data.Dataset) -> tuple[int, int] | None:
    shuffles = type(dataset).__name__ in {"_ShuffleDataset", "_RandomDataset"}
    return (int(dataset._seed), int(dataset._seed2)) if shuffles else None  # noqa: SLF001


def _unseeded(dataset: tf.data.Dataset) -> bool:
    if _seeds(dataset) == (0, 0):
        return True
    functions = dataset._functions()  # noqa: SLF001
    return any(node.op in _SEEDS for f in functions for node in f.function.graph.as_graph_def().node)


def _seed(nodes: Iterable[graph_pb2.NodeDef], seed: int) -> None:
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        if node.op in _SEEDS:
            inputs = [by_name.get(name.split(":")[0], node) for name in node.input]  # an argument: no constant
            first = _SEEDS[node.op]
            pair, generator = inputs[first : first + 2], inputs[first + 2 :]
            if all(n.op == "Const" and not tf.make_ndarray(n.attr["value"].tensor) for n in pair):
                for constant in pair:
                    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(seed, tf.int64))
                for resource in generator:  # of the original dataset, with the seeds that it drew for itself
                    resource.op = "DummySeedGenerator"
                    resource.attr.clear()
