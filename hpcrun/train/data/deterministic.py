"""Rewriting of a `tf.data.Dataset` so that its order is deterministic and equal on all ranks.

If ranks used different orders, they would train on some samples twice and never on others. So unseeded shuffles get the
same seed on all ranks, and steps with `deterministic=False` become deterministic. The change is made in the dataset's
graph: `tf.data` has public functions that convert a dataset to a graph and back.
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

# Index of the input seed of each operation; seed2 is the next input. An operation is unseeded if both inputs are 0
# (tensorflow/core/ops/dataset_ops.cc).
_SEED_INPUT = {"ShuffleDatasetV3": 2, "RandomDataset": 0, "RandomDatasetV2": 0}

# Index of an operation's input cycle_length, from the end. The value -1 means the number of cores.
_CYCLE_LENGTH_INPUT = {"InterleaveDataset": -2, "ParallelInterleaveDatasetV4": -5}

# Datasets with more in-memory data are not rewritten unless necessary: rewriting a graph copies the data.
_MAX_COPIED_BYTES = 64 * 2**20  # bytes

_SEED_HINT = "give all ranks the same seed: shuffle(n, seed=42), image_dataset_from_directory(folder, seed=42)"


def make_deterministic(dataset: tf.data.Dataset, seed: int | None = None) -> tf.data.Dataset:
    """Return a dataset that yields its elements in the same order on all ranks.

    Args:
        dataset: A dataset. Shuffles with a seed, from the user or from `tf.random.set_seed`, keep their seed. Unseeded
            shuffles inside `interleave` or `flat_map` repeat their order every epoch, as seeded shuffles do.
        seed: The seed for unseeded shuffles; default: a random seed from rank 0.

    Raises:
        HpcrunError: The ranks' datasets differ, or their order cannot be made equal.
    """
    pipeline = list(pipeline_steps(dataset))
    check_same_pipeline(pipeline)
    local_seeds = [step.seeds for step in pipeline if step.seeds]
    local_order = local_seeds, len(os.sched_getaffinity(0)), generator_states(pipeline)
    all_orders = checked_allgather("the order of a tf.data.Dataset", local_order)
    if any(seeds != all_orders[0][0] for seeds, _, _ in all_orders):
        raise HpcrunError(f"the ranks shuffle differently: the seeds of this rank are {local_seeds}", hint=_SEED_HINT)
    cores = sorted({cores for _, cores, _ in all_orders})
    if len(cores) > 1 and any(map(_depends_on_core_count, pipeline)):
        raise HpcrunError(
            "the tf.data.Dataset interleaves one data set per core, but ranks have " + " or ".join(map(str, cores)),
            hint="set cycle_length of interleave (and num_parallel_reads of a TFRecordDataset)",
        )
    if world().size > 1:
        _check_random_ops(pipeline, [generators for *_, generators in all_orders])
    is_unseeded, is_nondeterministic = (
        any(map(predicate, pipeline)) for predicate in (_has_unseeded_shuffle, _is_nondeterministic)
    )
    may_be_nondeterministic = (
        any(map(_may_be_nondeterministic, pipeline)) and sum(step.bytes for step in pipeline) < _MAX_COPIED_BYTES
    )
    if not (is_unseeded or is_nondeterministic or may_be_nondeterministic):
        return dataset
    if is_unseeded:
        seed = (shared_seed() if seed is None else seed) or 1
    try:
        return _rewrite_graph(dataset, seed if is_unseeded else None)
    except (tf.errors.OpError, ValueError) as error:
        if world().size == 1 or not (is_unseeded or is_nondeterministic):
            return dataset
        problem = "shuffles without a seed" if is_unseeded else "has deterministic=False"
        raise HpcrunError(
            f"the tf.data.Dataset {problem}, so its order would differ from rank to rank: {error}",
            hint=_SEED_HINT if is_unseeded else "remove it",
        ) from error


def _rewrite_graph(dataset: tf.data.Dataset, seed: int | None) -> tf.data.Dataset:
    text = tf.raw_ops.DatasetToGraphV2(input_dataset=tf.data.experimental.to_variant(dataset)).numpy()
    graph = graph_pb2.GraphDef.FromString(text)
    for nodes in function_bodies(graph):
        if seed is not None:
            _set_seed(nodes, seed)
        _set_deterministic(nodes)
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    rewritten_dataset = tf.data.experimental.from_variant(variant, dataset.element_spec).with_options(dataset.options())
    rewritten_dataset.original = dataset  # keeps the dataset's Python functions alive
    return rewritten_dataset


def _has_unseeded_shuffle(step: PipelineStep) -> bool:
    return step.seeds == (0, 0) or step.any_node(lambda node: node.op in _SEED_INPUT)


def _is_nondeterministic(step: PipelineStep) -> bool:
    return getattr(step.dataset, "_deterministic", "") == "false" or step.any_node(_is_nondeterministic_node)


def _may_be_nondeterministic(step: PipelineStep) -> bool:
    return step.name == "ParallelInterleaveDataset"  # this class does not store the argument `deterministic`


def _check_random_ops(pipeline: Sequence[PipelineStep], generators: list[list[list[object]]]) -> None:
    are_states_equal = [all(states == step[0] for states in step) for step in zip(*generators, strict=True)]
    random_steps = {
        step.name
        for step, is_same in zip(pipeline, are_states_equal, strict=True)
        if draws_differ(step, are_states_equal=is_same)
    }
    if "FilterDataset" in random_steps:
        raise HpcrunError(
            "the tf.data.Dataset filters at random without a seed: ranks would keep different samples",
            hint="give a seed: tf.random.uniform([], seed=1)",
        )
    if random_steps:
        warn_about_random_ops()


def _depends_on_core_count(step: PipelineStep) -> bool:
    if getattr(step.dataset, "_cycle_length", 0) == -1:
        return True
    for nodes in step.function_bodies:
        nodes_by_name = {node.name: node for node in nodes}
        cycle_lengths = (
            nodes_by_name.get(n.input[_CYCLE_LENGTH_INPUT[n.op]].split(":")[0], n)
            for n in nodes
            if n.op in _CYCLE_LENGTH_INPUT
        )
        if any(_constant(length) == -1 for length in cycle_lengths):
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
    nodes_by_name = {node.name: node for node in nodes}
    for node in nodes:
        if node.op in _SEED_INPUT:
            inputs = [
                nodes_by_name.get(name.split(":")[0], node) for name in node.input
            ]  # skip function arguments, which are not constants
            seed_index = _SEED_INPUT[node.op]
            seed_inputs, generator_inputs = inputs[seed_index : seed_index + 2], inputs[seed_index + 2 :]
            if all(_constant(seed_input) == 0 for seed_input in seed_inputs):
                for seed_input in seed_inputs:
                    _set_constant(seed_input, seed)
                for resource in generator_inputs:  # the original dataset owns the seed generator
                    resource.op = "DummySeedGenerator"
                    resource.attr.clear()
