"""Variables whose values are on the rank of another stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import keras
from keras.src.backend.common.stateless_scope import get_stateless_scope, in_stateless_scope

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpcrun.train.types import Data


class Owner(Protocol):
    """What reads and writes the values of absent variables."""

    def fetch(self, number: int) -> Data:
        """Return the value of a variable from the rank that has it."""

    def store(self, number: int, value: Data) -> None:
        """Send a value to the rank that has the variable, if this rank sets weights for all."""


class AbsentVariable(keras.Variable):  # type: ignore[misc]  # keras is untyped
    """A variable of another stage: reading it fetches the value, and this rank keeps no copy.

    An assignment has no effect, because the rank of the variable's stage makes it, too, except in
    `VariableService.writing`.
    """

    _owner: Owner
    _number: int

    @property
    def value(self) -> Data:
        """The value, fetched from the rank that has it."""
        if in_stateless_scope():
            scoped = get_stateless_scope().get_current_value(self)
            return self._maybe_autocast(keras.ops.zeros(self.shape, self.dtype) if scoped is None else scoped)
        if _is_in_graph():
            raise HpcrunError(
                f"a compiled function reads {self.path}, which is on the rank of another stage",
                hint="call fit, evaluate or predict of the hpcrun.train.Model on all ranks",
            )
        return self._maybe_autocast(self._convert_to_tensor(self._owner.fetch(self._number), dtype=self._dtype))

    def _direct_assign(self, value: Data) -> None:
        self._owner.store(self._number, value)


def release(variable: keras.Variable, owner: Owner, number: int) -> None:
    """Drop the value of a variable of another stage.

    Args:
        variable: The variable, changed in place.
        owner: What fetches its value.
        number: Number of the variable, equal on all ranks.
    """
    variable._value = variable._initializer = None  # noqa: SLF001
    variable.__class__ = AbsentVariable
    variable._owner, variable._number = owner, number  # noqa: SLF001


def present(variables: Iterable[keras.Variable]) -> list[keras.Variable]:
    """Return the variables whose values this rank has."""
    return [variable for variable in variables if not isinstance(variable, AbsentVariable)]


def _is_in_graph() -> bool:
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()
