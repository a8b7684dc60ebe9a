"""Comparison of the model configuration between the ranks.

If an activation, a loss or a learning rate differs between ranks, the variables still have equal shapes, so training
would continue, but the weights would differ from those of a single process.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

import keras
import numpy as np

from hpcrun.errors import HpcrunError
from hpcrun.train.config_values import config_of, to_comparable
from hpcrun.train.gradients.optimizer import find_optimizers
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.collectives import checked_allgather
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAX_LISTED = 3  # maximum number of differences listed in an error

_HINT = "make and compile the same model on all ranks: look for values that depend on the rank, the host or the time"


def check_same_model(model: keras.Model) -> None:
    """Raise an error if layers, losses, metrics or optimizers differ between ranks. Collective.

    Args:
        model: A compiled model.

    Raises:
        HpcrunError: The models differ; the message names the differing values and their ranks.
    """
    if world().size == 1:
        return
    local_settings = dict(_settings(model))
    digest = zlib.crc32(json.dumps(local_settings).encode())  # if the digests are equal, ranks exchange nothing else
    digests = checked_allgather("the comparison of models", digest)
    if len(set(digests)) == 1:
        return
    all_settings = checked_allgather("the comparison of models", local_settings)
    differing_keys = [
        key
        for key in dict.fromkeys(key for settings_of_rank in all_settings for key in settings_of_rank)
        if not _has_equal_values(key, all_settings)
    ]
    require_agreement(
        {key: local_settings[key] for key in differing_keys[:_MAX_LISTED] if key in local_settings}, _HINT
    )


def check_same_learning_rate(model: keras.Model) -> None:
    """Raise an error if learning rates differ between ranks, for example because of a callback on one rank. Collective.

    Args:
        model: A compiled model.

    Raises:
        HpcrunError: The learning rates differ by more than the rounding of different processors.
    """
    rates = [float(keras.ops.convert_to_numpy(optimizer.learning_rate)) for optimizer in find_optimizers(model)]
    learning_rates = np.array(checked_allgather("the comparison of learning rates", rates))
    for rank, rates_of_rank in enumerate(learning_rates):
        if not np.allclose(rates_of_rank, learning_rates[0], rtol=1e-5, atol=0, equal_nan=True):
            raise HpcrunError(
                f"the ranks disagree about the learning rate: {_format_rates(learning_rates[0])} on rank 0; "
                f"{_format_rates(rates_of_rank)} on rank {rank}",
                hint="callbacks must set the same learning rate on all ranks: use the number or the logs of the epoch",
            )


def _format_rates(rates: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    return ", ".join(f"{rate:.6g}" for rate in rates)


def _has_equal_values(key: str, all_settings: list[dict[str, object]]) -> bool:
    settings_of_rank_0 = all_settings[0]
    return all(
        (key in settings_of_rank, settings_of_rank.get(key)) == (key in settings_of_rank_0, settings_of_rank_0.get(key))
        for settings_of_rank in all_settings
    )


def _settings(model: keras.Model) -> Iterator[tuple[str, object]]:
    """Yield names and values of a model's settings, for comparison and error messages."""
    layers = model._flatten_layers(include_self=False)  # noqa: SLF001
    for number, layer in enumerate((item for item in layers if not isinstance(item, keras.layers.InputLayer)), 1):
        class_name = type(layer).__name__
        yield f"class of layer {number}", class_name
        if not isinstance(layer, keras.Model):  # _flatten_layers also yields the layers of nested models
            for key, value in config_of(layer).items():
                yield f"{key} of layer {number}, {class_name}", to_comparable(value)
    compile_config = getattr(model, "_compile_config", None)
    for key, value in getattr(compile_config, "config", {}).items():
        if key not in {"optimizer", "jit_compile", "run_eagerly", "steps_per_execution", "auto_scale_loss"}:
            yield key, to_comparable(value)
    for optimizer in find_optimizers(model):
        yield "optimizer", type(optimizer).__name__
        for key, value in config_of(optimizer).items():
            yield f"{key} of the optimizer {type(optimizer).__name__}", to_comparable(value)
