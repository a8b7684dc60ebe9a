"""What in a `tf.data.Dataset` would come in another order on each rank: mended after the fact.

Ranks with other orders would deal different batches: some samples twice, others never. So shuffles that nobody seeded
get one seed on all ranks, and steps that need not keep the order (`deterministic=False`) keep it. The dataset's graph
is the only place where that can still be changed; `tf.data` has public functions to and from it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from hpcrun.errors import HpcrunError
from hpcrun.train.data.pipelines import bodies, check_same_steps, links
from hpcrun.train.data.randomness import draws_otherwise, states, tell_draws
from hpcrun.train.ranks.meeting import gathered, shared_seed
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.data.pipelines import Link, Nodes

# Where seed and seed2 are among the inputs; both 0 means unseeded (tensorflow/core/ops/dataset_ops.cc).
_SEEDS = {"ShuffleDatasetV3": 2, "RandomDataset": 0, "RandomDatasetV2": 0}

# Where cycle_length is among the inputs, from the end; -1 means one for each core that the process may use.
_CYCLES = {"InterleaveDataset": -2, "ParallelInterleaveDatasetV4": -5}

# In-memory data that may stay as it is: to change a graph copies what it holds.
_LARGE = 64 * 2**20  # bytes

_SEED = "give all ranks the same seed: shuffle(n, seed=42), image_dataset_from_directory(folder, seed=42)"


def same_order(dataset: tf.data.Dataset, seed: int | None = None) -> tf.data.Dataset:
    """Return a dataset that yields its elements in one order on all ranks.

    Args:
        dataset: Any dataset; shuffles that have a seed, from the user or from `tf.random.set_seed`, keep it. A shuffle
            inside `interleave` or `flat_map` will repeat its order every epoch, as seeded ones do there.
        seed: What the others get; without one, one of rank 0's.

    Raises:
        HpcrunError: Another rank made another dataset; or the order would differ and cannot be mended.
    """
    pipeline = list(links(dataset))
    check_same_steps(pipeline)
    mine = [link.seeds for link in pipeline if link.seeds]
    given = mine, len(os.sched_getaffinity(0)), states(pipeline)
    everybody = gathered("the order of a tf.data.Dataset", given)
    if any(seeds != everybody[0][0] for seeds, _, _ in everybody):
        raise HpcrunError(f"the ranks shuffle differently; this rank with the seeds {mine}", hint=_SEED)
    cores = sorted({cores for _, cores, _ in everybody})
    if len(cores) > 1 and any(map(_follows_cores, pipeline)):
        raise HpcrunError(
            "the tf.data.Dataset interleaves as many data sets at once as a rank has cores, and ranks have "
            + " or ".join(map(str, cores)),
            hint="give interleave a cycle_length (and a TFRecordDataset num_parallel_reads)",
        )
    if world().size > 1:
        _see_random_numbers(pipeline, [generators for *_, generators in everybody])
    unseeded, unordered = (any(map(what, pipeline)) for what in (_unseeded, _unordered))
    perhaps = any(map(_perhaps_unordered, pipeline)) and sum(link.bytes for link in pipeline) < _LARGE
    if not (unseeded or unordered or perhaps):
        return dataset
    if unseeded:
        seed = (shared_seed() if seed is None else seed) or 1
    try:
        return _mended(dataset, seed if unseeded else None)
    except (tf.errors.OpError, ValueError) as error:
        if world().size == 1 or not (unseeded or unordered):
            return dataset
        what = "shuffles without a seed" if unseeded else "has deterministic=False"
        raise HpcrunError(
            f"the tf.data.Dataset {what}, so its order would differ from rank to rank: {error}",
            hint=_SEED if unseeded else "leave it out",
        ) from error


def _mended(dataset: tf.data.Dataset, seed: int | None) -> tf.data.Dataset:
    text = tf.raw_ops.DatasetToGraphV2(input_dataset=tf.data.experimental.to_variant(dataset)).numpy()
    graph = graph_pb2.GraphDef.FromString(text)
    for nodes in bodies(graph):
        if seed is not None:
            _seed(nodes, seed)
        _keep_order(nodes)
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    mended = tf.data.experimental.from_variant(variant, dataset.element_spec).with_options(dataset.options())
    mended.original = dataset  # its Python functions live only as long as it does
    return mended


def _unseeded(link: Link) -> bool:
    return link.seeds == (0, 0) or link.any(lambda node: node.op in _SEEDS)


def _unordered(link: Link) -> bool:
    return getattr(link.dataset, "_deterministic", "") == "false" or link.any(_is_unordered)


def _perhaps_unordered(link: Link) -> bool:
    return link.name == "ParallelInterleaveDataset"  # it does not tell


def _see_random_numbers(pipeline: Sequence[Link], generators: list[list[list[object]]]) -> None:
    alike = [all(each == step[0] for each in step) for step in zip(*generators, strict=True)]
    drawing = {link.name for link, same in zip(pipeline, alike, strict=True) if draws_otherwise(link, alike=same)}
    if "FilterDataset" in drawing:
        raise HpcrunError(
            "the tf.data.Dataset filters at random, and without a seed: ranks would keep other samples",
            hint="give a seed: tf.random.uniform([], seed=1)",
        )
    if drawing:
        tell_draws()


def _follows_cores(link: Link) -> bool:
    if getattr(link.dataset, "_cycle_length", 0) == -1:
        return True
    for nodes in link.bodies:
        by_name = {node.name: node for node in nodes}
        inside = (by_name.get(n.input[_CYCLES[n.op]].split(":")[0], n) for n in nodes if n.op in _CYCLES)
        if any(_constant(length) == -1 for length in inside):
            return True
    return False


def _is_unordered(node: node_def_pb2.NodeDef) -> bool:
    return "deterministic" in node.attr and node.attr["deterministic"].s == b"false"


def _keep_order(nodes: Nodes) -> None:
    for node in filter(_is_unordered, nodes):
        node.attr["deterministic"].s = b"true"


def _constant(node: node_def_pb2.NodeDef) -> int | None:
    return int(tf.make_ndarray(node.attr["value"].tensor)) if node.op == "Const" else None


def _set_constant(node: node_def_pb2.NodeDef, value: int) -> None:
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int64))


def _seed(nodes: Nodes, seed: int) -> None:
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        if node.op in _SEEDS:
            inputs = [by_name.get(name.split(":")[0], node) for name in node.input]  # an argument: no constant
            first = _SEEDS[node.op]
            pair, generator = inputs[first : first + 2], inputs[first + 2 :]
            if all(_constant(each) == 0 for each in pair):
                for each in pair:
                    _set_constant(each, seed)
                for resource in generator:  # of the original dataset, with the seeds that it drew for itself
                    resource.op = "DummySeedGenerator"
                    resource.attr.clear()
