"""Comparison of the model configuration between the ranks.

If an activation, a loss or a learning rate differs, the variables still have equal shapes, and training continues, but
to weights that no single process would reach.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

import keras
import numpy as np

from hpcrun.errors import HpcrunError
from hpcrun.train.config_values import comparable, config_of
from hpcrun.train.gradients.optimizer import find_optimizers
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.collectives import checked_allgather
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAX_LISTED = 3  # differences listed in an error

_HINT = "make and compile the same model on all ranks: look for what depends on the rank, the host or the time"


def check_same_model(model: keras.Model) -> None:
    """Refuse a model whose layers, losses, metrics or optimizers differ between ranks; every rank must call this.

    Args:
        model: A compiled model.

    Raises:
        HpcrunError: The models differ; the message names the differences and the ranks.
    """
    if world().size == 1:
        return
    local = dict(_settings(model))
    digest = zlib.crc32(json.dumps(local).encode())  # usually the only value that is sent
    digests = checked_allgather("the comparison of models", digest)
    if len(set(digests)) == 1:
        return
    names = checked_allgather("the comparison of models", local)
    differing = [key for key in dict.fromkeys(key for each in names for key in each) if not _is_same(key, names)]
    require_agreement({key: local[key] for key in differing[:_MAX_LISTED] if key in local}, _HINT)


def check_same_learning_rate(model: keras.Model) -> None:
    """Refuse learning rates that differ, say after a callback on one rank; every rank must call this.

    Args:
        model: A compiled model.

    Raises:
        HpcrunError: They differ by more than the rounding of different processors.
    """
    rates = [float(keras.ops.convert_to_numpy(optimizer.learning_rate)) for optimizer in find_optimizers(model)]
    gathered = np.array(checked_allgather("the comparison of learning rates", rates))
    for rank, rates_of_rank in enumerate(gathered):
        if not np.allclose(rates_of_rank, gathered[0], rtol=1e-5, atol=0, equal_nan=True):
            raise HpcrunError(
                f"the ranks disagree about the learning rate: {_format_rates(gathered[0])} on rank 0; "
                f"{_format_rates(rates_of_rank)} on rank {rank}",
                hint="let callbacks change it on all ranks alike: from an epoch's logs or its number",
            )


def _format_rates(rates: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    return ", ".join(f"{rate:.6g}" for rate in rates)


def _is_same(key: str, gathered: list[dict[str, object]]) -> bool:
    first = gathered[0]
    return all((key in each, each.get(key)) == (key in first, first.get(key)) for each in gathered)


def _settings(model: keras.Model) -> Iterator[tuple[str, object]]:
    """Yield the names and values of a model's settings, as an error lists them."""
    found = model._flatten_layers(include_self=False)  # noqa: SLF001
    for number, layer in enumerate((each for each in found if not isinstance(each, keras.layers.InputLayer)), 1):
        kind = type(layer).__name__
        yield f"class of layer {number}", kind
        if not isinstance(layer, keras.Model):  # _flatten_layers yields its layers, too
            for key, value in config_of(layer).items():
                yield f"{key} of layer {number}, {kind}", comparable(value)
    compiled = getattr(model, "_compile_config", None)
    for key, value in getattr(compiled, "config", {}).items():
        if key not in {"optimizer", "jit_compile", "run_eagerly", "steps_per_execution", "auto_scale_loss"}:
            yield key, comparable(value)
    for optimizer in find_optimizers(model):
        yield "optimizer", type(optimizer).__name__
        for key, value in config_of(optimizer).items():
            yield f"{key} of the optimizer {type(optimizer).__name__}", comparable(value)
