"""Metrics of an epoch or an evaluation over all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np

from hpcrun.train.data.batch_share import last_share
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.collectives import allreduce, checked_allgather
from hpcrun.train.ranks.world import world
from hpcrun.train.state import sum_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpcrun.train.types import Data, Keras


def reduce_metrics_over_ranks(model: keras.Model) -> None:
    """Reduce metrics over the ranks after an epoch or an evaluation, before a callback sees them."""
    training_state, results = model.training_state, model._get_metrics_result_or_logs  # noqa: SLF001

    def global_results(logs: Keras) -> Keras:
        if training_state.evaluates_locally:
            return results(logs)
        share = last_share() if training_state.in_epoch else None
        if training_state.in_epoch and training_state.open_ended:
            for reducer in training_state.reducers:
                reducer.end_epoch()
        training_state.in_epoch = False
        logs = _flatten(logs)
        local = model.get_metrics_result()
        sum_metrics(model)
        found = results(logs)
        if found is not logs or not logs or world().size == 1:
            return found
        return _combine_step_results(
            logs, local, model.get_metrics_result(), 1 / world().size if share is None else share
        )

    model._get_metrics_result_or_logs = global_results  # noqa: SLF001


def keep_callback_evaluation_local(model: keras.Model) -> None:
    """Evaluate on this rank alone when a callback calls the Keras model's `evaluate` directly."""
    training_state, evaluate = model.training_state, model.evaluate

    def evaluate_whole(*args: Keras, **kwargs: Keras) -> Keras:
        if kwargs.get("_use_cached_eval_dataset"):  # the validation of `fit`
            return evaluate(*args, **kwargs)
        training_state.evaluates_locally = True
        try:
            return evaluate(*args, **kwargs)
        finally:
            training_state.evaluates_locally = False

    model.evaluate, model.evaluate_shards = evaluate_whole, evaluate


def _combine_step_results(
    logs: Mapping[str, Data], local: Mapping[str, Data], global_metrics: Mapping[str, Data], share: float
) -> dict[str, Data]:
    """Combine the results of a custom step: metrics over all samples, other values as the mean of the last batch.

    Args:
        logs: The step's results on this rank, with any names.
        local: This rank's metrics.
        global_metrics: The metrics of all ranks.
        share: This rank's weight in values that are not metrics; 0 if it had no sample.
    """
    values = {name: np.asarray(keras.ops.convert_to_numpy(value), np.float64) for name, value in logs.items()}
    hint = "let the step return one number for a batch, such as a mean"
    require_agreement({f"shape of the result {name!r}": value.shape for name, value in values.items()}, hint)
    equal_metrics = (
        {name: [m for m in local if _is_close(local[m], logs[name])] for name in logs} if share > 0 else None
    )
    matches = [
        each for each in checked_allgather("the results of a custom training step", equal_metrics) if each is not None
    ]
    found = {}
    for name, value in values.items():
        everywhere = [metric for metric in matches[0][name] if all(metric in each[name] for each in matches)]
        if everywhere:
            found[name] = global_metrics[name if name in everywhere else everywhere[0]]
        else:
            found[name] = allreduce(share * value if share > 0 else np.zeros_like(value))
    return found


def _flatten(logs: Mapping[str, Data]) -> dict[str, Data]:
    """Flatten nested dicts of metrics, such as `compile_metrics.result()`, as Keras's callbacks see them."""
    flat: dict[str, Data] = {}
    for name, value in logs.items():
        flat |= _flatten(value) if isinstance(value, dict) else {name: value}
    return flat


def _is_close(one: Data, other: Data) -> bool:
    one, other = (np.asarray(keras.ops.convert_to_numpy(value)) for value in (one, other))
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-5, atol=0, equal_nan=True)
