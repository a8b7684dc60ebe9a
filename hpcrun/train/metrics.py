"""Reduction of the metrics of an epoch or an evaluation over all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np

from hpcrun.train.data.batch_share import last_share
from hpcrun.train.ranks.agreement import require_agreement
from hpcrun.train.ranks.collectives import allreduce, checked_allgather
from hpcrun.train.ranks.world import world
from hpcrun.train.state import sum_metrics, sum_metrics_over_stages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpcrun.train.types import Data, Keras


def reduce_metrics_over_ranks(model: keras.Model) -> None:
    """Let a model reduce its metrics over the ranks after an epoch or an evaluation, before callbacks get them."""
    training_state, original_results = model.training_state, model._get_metrics_result_or_logs  # noqa: SLF001

    def global_results(logs: Keras) -> Keras:
        if training_state.evaluates_locally:
            sum_metrics_over_stages(model)
            return original_results(logs)
        share = last_share() if training_state.in_epoch else None
        if training_state.in_epoch and training_state.open_ended:
            for reducer in training_state.reducers:
                reducer.end_epoch()
        training_state.in_epoch = False
        logs = _flatten(logs)
        local_metrics = model.get_metrics_result()
        sum_metrics(model)
        reduced_logs = original_results(logs)
        if reduced_logs is not logs or not logs or world().size == 1:
            return reduced_logs
        return _combine_step_results(
            logs, local_metrics, model.get_metrics_result(), 1 / world().size if share is None else share
        )

    model._get_metrics_result_or_logs = global_results  # noqa: SLF001


def keep_callback_evaluation_local(model: keras.Model) -> None:
    """Let a model's `evaluate` use this rank alone if a callback calls it."""
    training_state, evaluate = model.training_state, model.evaluate

    def evaluate_all_samples(*args: Keras, **kwargs: Keras) -> Keras:
        if kwargs.get("_use_cached_eval_dataset"):  # `fit` calls evaluate for validation
            return evaluate(*args, **kwargs)
        training_state.evaluates_locally = True
        try:
            return evaluate(*args, **kwargs)
        finally:
            training_state.evaluates_locally = False

    model.evaluate, model.evaluate_shards = evaluate_all_samples, evaluate


def _combine_step_results(
    logs: Mapping[str, Data], local_metrics: Mapping[str, Data], global_metrics: Mapping[str, Data], share: float
) -> dict[str, Data]:
    """Combine the results of a custom step over the ranks: metrics as sums, other values as means of the last batch.

    Args:
        logs: Results of the step on this rank, by name.
        local_metrics: Metrics of this rank.
        global_metrics: Metrics of all ranks.
        share: This rank's share of the last batch, its weight in values that are not metrics; 0 if it had no sample.
    """
    values = {name: np.asarray(keras.ops.convert_to_numpy(value), np.float64) for name, value in logs.items()}
    hint = "let the step return a single number for a batch, such as a mean"
    require_agreement({f"shape of the result {name!r}": value.shape for name, value in values.items()}, hint)
    equal_metrics = (
        {name: [m for m in local_metrics if _are_close(local_metrics[m], logs[name])] for name in logs}
        if share > 0
        else None
    )
    matches = [
        matches_of_rank
        for matches_of_rank in checked_allgather("the results of a custom training step", equal_metrics)
        if matches_of_rank is not None
    ]
    combined_results = {}
    for name, value in values.items():
        common_metrics = [
            metric for metric in matches[0][name] if all(metric in matches_of_rank[name] for matches_of_rank in matches)
        ]
        if common_metrics:
            combined_results[name] = global_metrics[name if name in common_metrics else common_metrics[0]]
        else:
            combined_results[name] = allreduce(share * value if share > 0 else np.zeros_like(value))
    return combined_results


def _flatten(logs: Mapping[str, Data]) -> dict[str, Data]:
    """Flatten nested dicts of metrics, such as `compile_metrics.result()`, as Keras does for callbacks."""
    flat: dict[str, Data] = {}
    for name, value in logs.items():
        flat |= _flatten(value) if isinstance(value, dict) else {name: value}
    return flat


def _are_close(result: Data, other_result: Data) -> bool:
    result, other_result = (np.asarray(keras.ops.convert_to_numpy(value)) for value in (result, other_result))
    return result.shape == other_result.shape and np.allclose(result, other_result, rtol=1e-5, atol=0, equal_nan=True)
