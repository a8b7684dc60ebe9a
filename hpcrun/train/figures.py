"""What an epoch or an evaluation came to, over all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np

from hpcrun.train.data.shares import noted
from hpcrun.train.ranks.agreement import agree
from hpcrun.train.ranks.meeting import allreduce, gathered
from hpcrun.train.ranks.world import world
from hpcrun.train.state import sum_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpcrun.train.kinds import Data, Keras


def sum_up(model: keras.Model) -> None:
    """Wrap what Keras asks after an epoch and after an evaluation, before any callback sees the result."""
    course, results = model.course, model._get_metrics_result_or_logs  # noqa: SLF001

    def results_of_all(logs: Keras) -> Keras:
        if course.whole:
            return results(logs)
        share = noted() if course.in_epoch else None
        if course.in_epoch and course.open_ended:
            for reducer in course.reducers:
                reducer.end()
        course.in_epoch = False
        logs = _flat(logs)
        mine = model.get_metrics_result()
        sum_metrics(model)
        found = results(logs)
        if found is not logs or not logs or world().size == 1:
            return found
        return _figures_of_all(logs, mine, model.get_metrics_result(), 1 / world().size if share is None else share)

    model._get_metrics_result_or_logs = results_of_all  # noqa: SLF001


def let_evaluate_alone(model: keras.Model) -> None:
    """Let what is evaluated past `hpcrun.train.Model`, by a callback, say, be this rank's alone."""
    course, evaluate = model.course, model.evaluate

    def evaluate_whole(*args: Keras, **kwargs: Keras) -> Keras:
        if kwargs.get("_use_cached_eval_dataset"):  # the validation of `fit`
            return evaluate(*args, **kwargs)
        course.whole = True
        try:
            return evaluate(*args, **kwargs)
        finally:
            course.whole = False

    model.evaluate, model.evaluate_parts = evaluate_whole, evaluate


def _figures_of_all(
    logs: Mapping[str, Data], mine: Mapping[str, Data], everybody: Mapping[str, Data], share: float
) -> dict[str, Data]:
    """Return what a step of the model's own returned: metrics over all samples, other figures as the last batch's mean.

    Args:
        logs: What it returned on this rank, by any names.
        mine: This rank's metrics.
        everybody: Those of all ranks.
        share: This rank's weight in figures that are no metric's; with 0 it had no sample, and has nothing to say.
    """
    figures = {name: np.asarray(keras.ops.convert_to_numpy(value), np.float64) for name, value in logs.items()}
    hint = "let the step return one number for a batch, such as a mean"
    agree({f"shape of the figure {name!r}": figure.shape for name, figure in figures.items()}, hint)
    same = {name: [m for m in mine if _near(mine[m], logs[name])] for name in logs} if share > 0 else None
    told = [each for each in gathered("what a step of the model's own returned", same) if each is not None]
    found = {}
    for name, figure in figures.items():
        everywhere = [metric for metric in told[0][name] if all(metric in each[name] for each in told)]
        if everywhere:
            found[name] = everybody[name if name in everywhere else everywhere[0]]
        else:
            found[name] = allreduce(share * figure if share > 0 else np.zeros_like(figure))
    return found


def _flat(logs: Mapping[str, Data]) -> dict[str, Data]:
    """Return figures without dicts among them, such as `compile_metrics.result()`, as Keras's callbacks see them."""
    flat: dict[str, Data] = {}
    for name, value in logs.items():
        flat |= _flat(value) if isinstance(value, dict) else {name: value}
    return flat


def _near(one: Data, other: Data) -> bool:
    one, other = (np.asarray(keras.ops.convert_to_numpy(figure)) for figure in (one, other))
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-5, atol=0, equal_nan=True)
