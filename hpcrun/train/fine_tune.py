"""Fine-tuning: a trained model with a new last layer for other classes.

Inception's guide restores the weights of all layers except the last layer, which gets new initial weights, and trains
with a learning rate of 0.001, far smaller than for training from scratch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from hpcrun.errors import HpcrunError
from hpcrun.train.saved_model import count_classes

if TYPE_CHECKING:
    from collections.abc import Iterator


def replace_head(model: keras.Model, classes: int, *, freeze: bool = False) -> keras.Model:
    """Return a copy of a model in which a new layer with one output per class replaces the last layer with weights.

    Args:
        model: A Sequential or Functional model that ends in `Dense`, or in a 1x1 convolution (MobileNet).
        classes: Number of classes.
        freeze: Whether only the new layer is trained; a frozen `BatchNormalization` keeps its statistics.

    Raises:
        HpcrunError: The model has a different structure.
    """
    old_classes = count_classes(model)
    head = next((layer for layer in reversed(list(_flatten_layers(model))) if layer.weights), None)
    units_key = {keras.layers.Dense: "units", keras.layers.Conv2D: "filters"}.get(type(head))
    if not head or not units_key or getattr(head, units_key) != old_classes:
        last_layer = f"{type(head).__name__} {head.name!r}" if head else "none"
        raise HpcrunError(
            f"the model's last layer with weights is {last_layer}; expected a Dense of {old_classes} classes"
        )

    def copy_layer(layer: keras.Layer) -> keras.Layer:
        config = layer.get_config()
        if layer is head:
            config[units_key] = classes
        elif isinstance(layer, keras.layers.Reshape) and tuple(layer.target_shape) == (old_classes,):
            config["target_shape"] = (classes,)
        return type(layer).from_config(config)

    try:
        new_model = keras.models.clone_model(model, clone_function=copy_layer, recursive=True)
    except ValueError as error:  # the model is neither Sequential nor Functional
        raise HpcrunError(
            f"Keras cannot copy the model: {error}", hint="use a Sequential or Functional model"
        ) from error
    for old_layer, layer in zip(_flatten_layers(model), _flatten_layers(new_model), strict=True):
        if old_layer is not head:
            layer.set_weights(old_layer.get_weights())
        layer.trainable = old_layer is head or not freeze
    return new_model


def _flatten_layers(model: keras.Model) -> Iterator[keras.Layer]:
    """Yield the layers of a model in order, with nested models replaced by their layers."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _flatten_layers(layer)
        else:
            yield layer
