"""Fine-tuning: a trained model with a new last layer for other classes.

Inception's guide restores all weights but those of the last layer, which begins anew, and trains with a learning rate
far below that of training from scratch (0.001).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from hpcrun.errors import HpcrunError
from hpcrun.train.saved_model import count_classes

if TYPE_CHECKING:
    from collections.abc import Iterator


def replace_head(model: keras.Model, classes: int, *, freeze: bool = False) -> keras.Model:
    """Return a copy of a model whose last layer with weights is new, with one output for each class.

    Args:
        model: A Sequential or Functional model that ends in `Dense`, or in a convolution of one pixel (MobileNet).
        classes: The number of classes.
        freeze: Whether only the new layer is trained; a frozen `BatchNormalization` keeps its statistics.

    Raises:
        HpcrunError: It is another model.
    """
    old_classes = count_classes(model)
    head = next((layer for layer in reversed(list(_leaves(model))) if layer.weights), None)
    units = {keras.layers.Dense: "units", keras.layers.Conv2D: "filters"}.get(type(head))
    if not head or not units or getattr(head, units) != old_classes:
        last = f"{type(head).__name__} {head.name!r}" if head else "none"
        raise HpcrunError(
            f"the model's last layer with weights is {last}; expected a Dense of {old_classes}, its number of classes"
        )

    def copy(layer: keras.Layer) -> keras.Layer:
        config = layer.get_config()
        if layer is head:
            config[units] = classes
        elif isinstance(layer, keras.layers.Reshape) and tuple(layer.target_shape) == (old_classes,):
            config["target_shape"] = (classes,)
        return type(layer).from_config(config)

    try:
        new = keras.models.clone_model(model, clone_function=copy, recursive=True)
    except ValueError as error:  # another subclass of Model
        raise HpcrunError(
            f"Keras cannot copy the model: {error}", hint="use a Sequential or Functional model"
        ) from error
    for old_layer, layer in zip(_leaves(model), _leaves(new), strict=True):
        if old_layer is not head:
            layer.set_weights(old_layer.get_weights())
        layer.trainable = old_layer is head or not freeze
    return new


def _leaves(model: keras.Model) -> Iterator[keras.Layer]:
    """Yield the layers of a model, and those of models in it, in order."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _leaves(layer)
        else:
            yield layer
