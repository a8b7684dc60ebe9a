"""Unseeded random numbers of a step, which must not be the same on all ranks."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import keras
from keras.src.backend.common import global_state
from keras.src.random import seed_generator

from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.train.types import Data, Keras

_KEY = seed_generator.GLOBAL_SEED_GENERATOR


@contextmanager
def use_rank_seeds() -> Iterator[None]:
    """Let rank r draw other numbers than rank 0 inside the block, where a layer or a step gives no seed.

    `keras.utils.set_random_seed` gives all ranks one seed: `tf.random` and `keras.random` would draw the same numbers
    for the samples of each. Outside of steps they may, since a script may shuffle its data by them. Rank 0's numbers
    are those of a single process. On JAX, Keras refuses random numbers without a seed in a step.
    """
    if world().size == 1:
        yield
        return
    generator = _RankSeedGenerator(global_state.get_global_attribute(_KEY))
    global_state.set_global_attribute(_KEY, generator)
    try:
        with _use_graph_seed():
            yield
    finally:
        global_state.set_global_attribute(_KEY, generator.inner)


class _RankSeedGenerator:
    """Keras's generator for random numbers without a seed, which is created at its first use, plus the rank."""

    def __init__(self, inner: Keras) -> None:
        self.inner = inner

    def next(self, ordered: bool = True) -> Data:
        self.inner = self.inner or seed_generator.SeedGenerator()
        seed = self.inner.next(ordered=ordered)
        return seed + keras.ops.convert_to_tensor([world().rank, 0], seed.dtype)


@contextmanager
def _use_graph_seed() -> Iterator[None]:
    """Change the seed of operations that TensorFlow traces inside the block, if the script set one."""
    if keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if graph is None or graph.seed is None:
        yield
        return
    seed, graph.seed = graph.seed, (graph.seed + world().rank) % 2**31
    try:
        yield
    finally:
        graph.seed = seed
