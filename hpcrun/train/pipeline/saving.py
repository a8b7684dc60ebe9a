"""Saving of a model whose weights do not fit into the memory of a rank."""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING

from keras.src.saving import saving_lib  # Keras does not export it

if TYPE_CHECKING:
    from collections.abc import Iterator

    import keras

    from hpcrun.train.types import Keras


def save_on_disk(model: keras.Model) -> None:
    """Let `save` of a model write each variable to disk when it arrives.

    Args:
        model: A Keras model, changed in place.
    """
    original_save = model.save

    @wraps(original_save)
    def save(*args: Keras, **kwargs: Keras) -> None:
        with _weights_on_disk():
            original_save(*args, **kwargs)

    model.save = save


@contextmanager
def _weights_on_disk() -> Iterator[None]:
    """Let Keras collect the weights in a file next to the model, and not in memory.

    Keras compares their size with the memory of the host, but the memory of a job may be limited (--mem).
    """
    original = saving_lib.is_memory_sufficient
    saving_lib.is_memory_sufficient = lambda _: False
    try:
        yield
    finally:
        saving_lib.is_memory_sufficient = original
