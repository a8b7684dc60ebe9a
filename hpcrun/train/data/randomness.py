"""Random numbers that the functions of a `tf.data.Dataset` draw: where ranks draw others, and what is said of it.

A pipeline draws in three ways. Stateful operations (`tf.random.uniform`, `tf.image.random_*`) have seeds of their own,
both 0 where nobody gave one. Keras's layers and `tf.random.Generator` move a variable on. Both give each sample what
comes next, so that a parallel map deals the numbers as its threads happen to come. Stateless operations depend on what
they are given alone.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hpcrun.train.ranks.world import say, world

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensorflow.core.framework import node_def_pb2

    from hpcrun.train.data.pipelines import Link

_told: list[bool] = []


def states(pipeline: Iterable[Link]) -> list[list[object]]:
    """Return the values of the generators that the functions of a pipeline draw from, a list for each of its steps."""
    return [_states(link) for link in pipeline]


def draws_otherwise(link: Link, *, alike: bool) -> bool:
    """Return whether the functions of a pipeline's step draw other random numbers on each rank.

    Args:
        link: The step.
        alike: Whether its generators have the same state on all ranks.
    """
    parallel = link.name.startswith("Parallel") or link.any(lambda node: node.op.startswith("Parallel"))
    if link.any(lambda node: _stateful(node) and (parallel or not (node.attr["seed"].i or node.attr["seed2"].i))):
        return True
    return _generates(link) and (parallel or not alike)


def tell_draws() -> None:
    """Tell, once, that a pipeline's functions draw other random numbers on each rank."""
    if not _told and world().rank == 0:
        say(
            "INFO: the tf.data.Dataset draws random numbers in a map, without a seed or with num_parallel_calls: each "
            "rank draws others, so results differ from run to run, and with the number of ranks\n"
            "HINT: draw them from the data: random = tf.data.Dataset.random(seed=1, rerandomize_each_iteration=True); "
            "tf.data.Dataset.zip(data, random).map(f), with tf.random.stateless_* or tf.image.stateless_random_*(..., "
            "seed=[number, 0]) in f; tf.keras.utils.set_random_seed seeds maps without num_parallel_calls alone"
        )
    _told[:] = [True]


def _states(link: Link) -> list[object]:
    found: list[object] = []
    if _generates(link):
        for function in link.dataset._functions():  # noqa: SLF001
            with suppress(AssertionError):  # TensorFlow's word for a variable that is gone
                variables = function.function.graph.variables
                found += [v.numpy().tolist() for v in variables if v.dtype.is_integer and v.shape.num_elements() < 10]
    return found


def _stateful(node: node_def_pb2.NodeDef) -> bool:
    return {"seed", "seed2"} <= set(node.attr)


def _generates(link: Link) -> bool:
    if link.any(lambda node: node.op.startswith("Rng")):
        return True
    stateless = link.any(lambda node: node.op.startswith("StatelessRandom"))
    return stateless and link.any(lambda node: node.op.startswith("Assign"))
