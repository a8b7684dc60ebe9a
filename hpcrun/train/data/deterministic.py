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
from hpcrun.train.data.pipeline_steps import check_same_pipeline, function_bodies, pipeline_steps
from hpcrun.train.data.random_ops import draws_differ, generator_states, warn_about_random_ops
from hpcrun.train.ranks.collectives import checked_allgather, shared_seed
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.data.pipeline_steps import Nodes, PipelineStep

# Where seed and seed2 are among the inputs; both 0 means unseeded (tensorflow/core/ops/dataset_ops.cc).
_SEED_INPUT = {"ShuffleDatasetV3": 2, "RandomDataset": 0, "RandomDatasetV2": 0}

# Where cycle_length is among the inputs, from the end; -1 means one for each core that the process may use.
_CYCLE_LENGTH_INPUT = {"InterleaveDataset": -2, "ParallelInterleaveDatasetV4": -5}

# In-memory data that may stay as it is: to change a graph copies what it holds.
_MAX_COPIED_BYTES = 64 * 2**20  # bytes

_SEED_HINT = "give all ranks the same seed: shuffle(n, seed=42), image_dataset_from_directory(folder, seed=42)"


def make_deterministic(dataset: tf.data.Dataset, seed: int | None = None) -> tf.data.Dataset:
    """Return a dataset that yields its elements in one order on all ranks.

    Args:
        dataset: Any dataset; shuffles that have a seed, from the user or from `tf.random.set_seed`, keep it. A shuffle
            inside `interleave` or `flat_map` will repeat its order every epoch, as seeded ones do there.
        seed: What the others get; without one, one of rank 0's.

    Raises:
        HpcrunError: Another rank made another dataset; or the order would differ and cannot be mended.
    """
    pipeline = list(pipeline_steps(dataset))
    check_same_pipeline(pipeline)
    local = [step.seeds for step in pipeline if step.seeds]
    given = local, len(os.sched_getaffinity(0)), generator_states(pipeline)
    gathered = checked_allgather("the order of a tf.data.Dataset", given)
    if any(seeds != gathered[0][0] for seeds, _, _ in gathered):
        raise HpcrunError(f"the ranks shuffle differently; this rank with the seeds {local}", hint=_SEED_HINT)
    cores = sorted({cores for _, cores, _ in gathered})
    if len(cores) > 1 and any(map(_depends_on_core_count, pipeline)):
        raise HpcrunError(
            "the tf.data.Dataset interleaves as many data sets at once as a rank has cores, and ranks have "
            + " or ".join(map(str, cores)),
            hint="give interleave a cycle_length (and a TFRecordDataset num_parallel_reads)",
        )
    if world().size > 1:
        _check_random_ops(pipeline, [generators for *_, generators in gathered])
    unseeded, nondeterministic = (any(map(what, pipeline)) for what in (_has_unseeded_shuffle, _is_nondeterministic))
    maybe = any(map(_may_be_nondeterministic, pipeline)) and sum(step.bytes for step in pipeline) < _MAX_COPIED_BYTES
    if not (unseeded or nondeterministic or maybe):
        return dataset
    if unseeded:
        seed = (shared_seed() if seed is None else seed) or 1
    try:
        return _rewrite_graph(dataset, seed if unseeded else None)
    except (tf.errors.OpError, ValueError) as error:
        if world().size == 1 or not (unseeded or nondeterministic):
            return dataset
        what = "shuffles without a seed" if unseeded else "has deterministic=False"
        raise HpcrunError(
            f"the tf.data.Dataset {what}, so its order would differ from rank to rank: {error}",
            hint=_SEED_HINT if unseeded else "leave it out",
        ) from error


def _rewrite_graph(dataset: tf.data.Dataset, seed: int | None) -> tf.data.Dataset:
    text = tf.raw_ops.DatasetToGraphV2(input_dataset=tf.data.experimental.to_variant(dataset)).numpy()
    graph = graph_pb2.GraphDef.FromString(text)
    for nodes in function_bodies(graph):
        if seed is not None:
            _set_seed(nodes, seed)
        _set_deterministic(nodes)
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    rewritten = tf.data.experimental.from_variant(variant, dataset.element_spec).with_options(dataset.options())
    rewritten.original = dataset  # its Python functions live only as long as it does
    return rewritten


def _has_unseeded_shuffle(step: PipelineStep) -> bool:
    return step.seeds == (0, 0) or step.any_node(lambda node: node.op in _SEED_INPUT)


def _is_nondeterministic(step: PipelineStep) -> bool:
    return getattr(step.dataset, "_deterministic", "") == "false" or step.any_node(_is_nondeterministic_node)


def _may_be_nondeterministic(step: PipelineStep) -> bool:
    return step.name == "ParallelInterleaveDataset"  # it does not tell


def _check_random_ops(pipeline: Sequence[PipelineStep], generators: list[list[list[object]]]) -> None:
    same_state = [all(each == step[0] for each in step) for step in zip(*generators, strict=True)]
    random_steps = {
        step.name for step, same in zip(pipeline, same_state, strict=True) if draws_differ(step, same_state=same)
    }
    if "FilterDataset" in random_steps:
        raise HpcrunError(
            "the tf.data.Dataset filters at random, and without a seed: ranks would keep other samples",
            hint="give a seed: tf.random.uniform([], seed=1)",
        )
    if random_steps:
        warn_about_random_ops()


def _depends_on_core_count(step: PipelineStep) -> bool:
    if getattr(step.dataset, "_cycle_length", 0) == -1:
        return True
    for nodes in step.function_bodies:
        by_name = {node.name: node for node in nodes}
        inside = (
            by_name.get(n.input[_CYCLE_LENGTH_INPUT[n.op]].split(":")[0], n)
            for n in nodes
            if n.op in _CYCLE_LENGTH_INPUT
        )
        if any(_constant(length) == -1 for length in inside):
            return True
    return False


def _is_nondeterministic_node(node: node_def_pb2.NodeDef) -> bool:
    return "deterministic" in node.attr and node.attr["deterministic"].s == b"false"


def _set_deterministic(nodes: Nodes) -> None:
    for node in filter(_is_nondeterministic_node, nodes):
        node.attr["deterministic"].s = b"true"


def _constant(node: node_def_pb2.NodeDef) -> int | None:
    return int(tf.make_ndarray(node.attr["value"].tensor)) if node.op == "Const" else None


def _set_constant(node: node_def_pb2.NodeDef, value: int) -> None:
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int64))


def _set_seed(nodes: Nodes, seed: int) -> None:
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        if node.op in _SEED_INPUT:
            inputs = [by_name.get(name.split(":")[0], node) for name in node.input]  # an argument: no constant
            first = _SEED_INPUT[node.op]
            pair, generator = inputs[first : first + 2], inputs[first + 2 :]
            if all(_constant(each) == 0 for each in pair):
                for each in pair:
                    _set_constant(each, seed)
                for resource in generator:  # of the original dataset, with the seeds that it drew for itself
                    resource.op = "DummySeedGenerator"
                    resource.attr.clear()
