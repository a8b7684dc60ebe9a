"""Choice of the stages by the script that writes the model."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from keras.src.ops.node import Node  # Keras does not export it

from hpcrun.train.pipeline.checks import whole_number
from hpcrun.train.pipeline.graph import STAGE_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.train.types import Keras


@contextmanager
def stage(number: int) -> Iterator[None]:
    """Context manager that places the layers called inside on a stage of `hpcrun.train.Model(model, stages=...)`.

    Layers that are called outside go to the stage of the layers before them.

    Args:
        number: Number of the stage, from 0, in the order in which the model computes the stages.

    Raises:
        HpcrunError: The number is negative or not a whole number.
    """
    number = whole_number("number", number, "give the number of the stage: stage(0), stage(1), ...", minimum=0)
    original_init = Node.__init__

    def init(self: Keras, *args: Keras, **kwargs: Keras) -> None:
        original_init(self, *args, **kwargs)
        setattr(self, STAGE_MARK, number)

    Node.__init__ = init
    try:
        yield
    finally:
        Node.__init__ = original_init
