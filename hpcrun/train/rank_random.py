"""Unseeded random numbers in training steps, which differ between ranks."""

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

_GENERATOR_KEY = seed_generator.GLOBAL_SEED_GENERATOR


@contextmanager
def use_rank_seeds() -> Iterator[None]:
    """Let ranks draw different random numbers inside the block, for layers and steps without a seed.

    After `keras.utils.set_random_seed`, `tf.random` and `keras.random` would draw equal numbers on all ranks. Outside
    of steps, ranks still draw equal numbers, because a script may shuffle its data with them. Rank 0 draws the numbers
    of a single process. On JAX, Keras refuses random numbers without a seed in a step.
    """
    if world().size == 1:
        yield
        return
    generator = _RankSeedGenerator(global_state.get_global_attribute(_GENERATOR_KEY))
    global_state.set_global_attribute(_GENERATOR_KEY, generator)
    try:
        with _use_graph_seed():
            yield
    finally:
        global_state.set_global_attribute(_GENERATOR_KEY, generator.inner)


class _RankSeedGenerator:
    """Wrapper of Keras's global seed generator that adds the rank to each seed."""

    def __init__(self, generator: Keras) -> None:
        self.inner = generator

    def next(self, ordered: bool = True) -> Data:
        self.inner = self.inner or seed_generator.SeedGenerator()
        seed = self.inner.next(ordered=ordered)
        return seed + keras.ops.convert_to_tensor([world().rank, 0], seed.dtype)


@contextmanager
def _use_graph_seed() -> Iterator[None]:
    """Add the rank to the graph's seed, if the script set one, while TensorFlow traces operations in the block."""
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
