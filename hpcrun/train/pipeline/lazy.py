"""Models whose variables get their values later, so that a rank never holds more than its own stage."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import keras

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hpcrun.train.types import Keras

_variable_class = keras.Variable
_initialize = _variable_class._initialize_with_initializer  # noqa: SLF001


@contextmanager
def lazy_weights() -> Iterator[None]:
    """Context manager in which a Keras model is built without memory for its weights.

    `hpcrun.train.Model` gives the variables of this rank's stage their values (with one stage: all variables). Keras's
    initializers have seeds of their own, so the values are those of a model that is built without this block.
    """
    original = _variable_class._initialize_with_initializer  # noqa: SLF001

    def postpone(variable: Keras, initializer: Keras) -> None:
        variable._value, variable._initializer = None, initializer  # noqa: SLF001

    _variable_class._initialize_with_initializer = postpone  # noqa: SLF001
    try:
        yield
    finally:
        _variable_class._initialize_with_initializer = original  # noqa: SLF001


def is_lazy(variable: keras.Variable) -> bool:
    """Return whether a variable has no value yet."""
    return variable._value is None  # noqa: SLF001


def initialize(variables: Iterable[keras.Variable]) -> None:
    """Give lazy variables their initial values."""
    for variable in variables:
        if is_lazy(variable) and variable._initializer is not None:  # noqa: SLF001
            _initialize(variable, variable._initializer)  # noqa: SLF001
            variable._initializer = None  # noqa: SLF001
