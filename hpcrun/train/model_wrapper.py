"""Wrapper of a Keras model whose rank 0 loads, saves and prints for all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.train.ranks.world import world
from hpcrun.train.state import broadcast

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    import keras

    from hpcrun.train.types import Data, Keras


class ModelWrapper:
    """A Keras model that rank 0 loads, saves and prints; all other attributes pass through.

    Args:
        keras_model: Any Keras model.
    """

    keras_model: keras.Model

    def __init__(self, keras_model: keras.Model) -> None:
        object.__setattr__(self, "keras_model", keras_model)
        object.__setattr__(self, "from_config", keras_model.from_config)

    @classmethod
    def from_config(cls, config: Keras, **_: Keras) -> NoReturn:
        """Refuse `keras.models.clone_model`, which calls this on the class.

        Raises:
            HpcrunError: Always.
        """
        raise HpcrunError(
            f"Keras cannot copy an hpcrun.train.Model, which wraps the Keras model {config.get('name', '')!r}",
            hint="copy the Keras model: hpcrun.train.Model(keras.models.clone_model(model.keras_model))",
        )

    def __deepcopy__(self, _: dict[int, Keras]) -> NoReturn:
        """Refuse `copy.deepcopy`, which would copy a model without the state of its training.

        Raises:
            HpcrunError: Always.
        """
        type(self).from_config({"name": self.keras_model.name})

    def __getattr__(self, name: str) -> Keras:
        if name == "keras_model":  # copy and pickle read it before __init__ has run
            raise AttributeError(name)
        return getattr(self.keras_model, name)

    def __setattr__(self, name: str, value: Keras) -> None:
        setattr(self.keras_model, name, value)

    def __call__(self, *args: Keras, **kwargs: Keras) -> Keras:
        """Call the Keras model."""
        return self.keras_model(*args, **kwargs)

    def load_weights(self, *args: Keras, **kwargs: Keras) -> None:
        """Load as `keras.Model.load_weights` does, on rank 0, and broadcast the weights; all ranks must call this."""
        self._on_chief(lambda: self.keras_model.load_weights(*args, **kwargs))

    def set_weights(self, weights: Data) -> None:
        """Set as `keras.Model.set_weights` does, to rank 0's weights on all ranks; all ranks must call this."""
        self._on_chief(lambda: self.keras_model.set_weights(weights))

    def _on_chief(self, change: Callable[[], None]) -> None:
        error = None
        if world().rank == 0:
            try:
                change()
            except Exception as found:
                if world().size == 1:
                    raise
                error = found
        if world().size > 1:
            if error := world().comm.bcast(error):
                raise error
            broadcast(self.keras_model)

    def save(self, *args: Keras, **kwargs: Keras) -> None:
        """Save as `keras.Model.save` does, on rank 0; others return at once (`barrier()` before they read it)."""
        if world().rank == 0:
            self.keras_model.save(*args, **kwargs)

    def save_weights(self, *args: Keras, **kwargs: Keras) -> None:
        """Save as `keras.Model.save_weights` does, on rank 0; others return at once."""
        if world().rank == 0:
            self.keras_model.save_weights(*args, **kwargs)

    def export(self, *args: Keras, **kwargs: Keras) -> None:
        """Export as `keras.Model.export` does, on rank 0; others return at once."""
        if world().rank == 0:
            self.keras_model.export(*args, **kwargs)

    def summary(self, *args: Keras, **kwargs: Keras) -> None:
        """Print the summary, on rank 0."""
        if world().rank == 0:
            self.keras_model.summary(*args, **kwargs)
