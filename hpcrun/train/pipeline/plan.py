"""The plan of a pipeline: its stages, and how well they use the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, pluralize
from hpcrun.frozen import frozen
from hpcrun.train.pipeline.checks import check_pipeline_model, check_settings, whole_number
from hpcrun.train.pipeline.cut import (
    Costs,
    apply_marks,
    balance,
    best_cut,
    crossing_tensors,
    cuts_after,
    require_cuts,
    stage_ranges,
)
from hpcrun.train.pipeline.graph import Graph, trace_model
from hpcrun.train.pipeline.measurement import measure, tensor_bytes
from hpcrun.train.pipeline.schedule import held_micro_batches, step_seconds
from hpcrun.train.unsupported import check_is_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import keras

DEFAULT_MICRO_BATCH_SIZE = 4  # samples of a micro-batch in the measurement, if the batch size is not known


@frozen
class PlannedStage:
    """A stage of a plan.

    Attributes:
        first: Name of its first layer.
        last: Name of its last layer.
        parameters: Number of its weights.
        activation_bytes: Bytes of the activations that it holds at the same time.
        memory_bytes: Bytes of weights, gradients, optimizer state (two variables per weight) and activations.
        forward_seconds: Seconds of the forward pass of a micro-batch.
        backward_seconds: Seconds of its backward pass.
    """

    first: str
    last: str
    parameters: int
    activation_bytes: int
    memory_bytes: int
    forward_seconds: float
    backward_seconds: float


@frozen
class Plan:
    """The stages of a pipeline, as text by `str`.

    Attributes:
        stages: The stages.
        micro_batches: Number of micro-batches of a replica's shard of a batch.
        micro_batch_size: Number of samples of a micro-batch.
        schedule: Name of the schedule.
        efficiency: Fraction of a step in which the ranks compute, without the time of messages.
    """

    stages: tuple[PlannedStage, ...]
    micro_batches: int
    micro_batch_size: int
    schedule: str
    efficiency: float

    def __str__(self) -> str:
        """Return a table of the stages, and the efficiency."""
        header = ("stage", "first layer", "last layer", "parameters", "activations", "memory", "time")
        rows = [
            (
                str(number),
                stage.first,
                stage.last,
                f"{stage.parameters:,}",
                _megabytes(stage.activation_bytes),
                _megabytes(stage.memory_bytes),
                f"{1000 * (stage.forward_seconds + stage.backward_seconds):.2f} ms",
            )
            for number, stage in enumerate(self.stages)
        ]
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if column in {1, 2} else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (header, *rows)
        ]
        lines.append(
            f"{self.schedule}, {self.micro_batches} micro-batches of {pluralize(self.micro_batch_size, 'sample')}: "
            f"the ranks compute {self.efficiency:.0%} of the time"
        )
        return "\n".join(lines)


def plan(
    model: keras.Model,
    stages: int | Sequence[str],
    micro_batches: int | None = None,
    batch_size: int | None = None,
    *,
    schedule: str = "1f1b",
    recompute: bool = False,
    replicas: int = 1,
) -> Plan:
    """Measure a model on this process, and plan its stages; needs no other ranks, and trains nothing.

    Args:
        model: A functional or sequential Keras model, also one built inside `lazy_weights`.
        stages: Number of stages, or the name of the last layer of each stage but the last.
        micro_batches: Number of micro-batches (default: twice the number of stages).
        batch_size: The global batch size (default: 4 samples in each micro-batch).
        schedule: "1f1b" or "gpipe".
        recompute: Whether the backward pass repeats the forward pass, to hold fewer activations.
        replicas: Number of replicas of the pipeline.

    Raises:
        HpcrunError: The model is no Keras model, or cannot be cut into these stages, or another argument is wrong.
    """
    model = getattr(model, "keras_model", model)
    check_is_model(model, "hpcrun.train.plan")
    count = count_stages(stages)
    micro_batches = check_settings(count, micro_batches, schedule, recompute=recompute)
    replicas = whole_number("replicas", replicas, "give the number of copies of the model: ranks / stages")
    size = DEFAULT_MICRO_BATCH_SIZE
    if batch_size is not None:
        batch_size = whole_number("batch_size", batch_size, "give the number of samples of all replicas")
        size = max(1, batch_size // (replicas * micro_batches))
    check_pipeline_model(model)
    graph, cuts = choose_cuts(trace_model(model), stages, lambda graph: measure(graph, size))
    return describe(graph, cuts, measure(graph, size), (micro_batches, size, schedule), recompute=recompute)


def count_stages(stages: int | Sequence[str]) -> int:
    """Return the number of stages.

    Raises:
        HpcrunError: The argument is neither a positive number nor a list of names.
    """
    if isinstance(stages, list | tuple) and all(isinstance(name, str) for name in stages):
        return len(stages) + 1
    hint = "give the number of stages, or a list: the last layer of each stage but the last"
    return whole_number("stages", stages, hint)


def choose_cuts(
    graph: Graph, stages: int | Sequence[str], measure_costs: Callable[[Graph], Costs]
) -> tuple[Graph, list[int]]:
    """Return the graph in the order of the stages, and the cuts.

    Args:
        graph: The graph of the model.
        stages: Number of stages, or names of layers.
        measure_costs: Function that measures the calls; called only if neither names nor the script choose the cuts.

    Raises:
        HpcrunError: The model cannot be cut into these stages.
    """
    if not graph.calls:
        raise HpcrunError(f"the model {graph.model.name!r} has no layers", hint="add layers between input and output")
    graph, marked = apply_marks(graph)
    count = count_stages(stages)
    if marked is not None:
        if isinstance(stages, list | tuple) or len(marked) + 1 != count:
            raise HpcrunError(
                f"stages={stages!r}, and the script places layers on {pluralize(len(marked) + 1, 'stage')}",
                hint=f"give stages={len(marked) + 1}, or remove the stage() blocks",
            )
        return graph, marked
    if isinstance(stages, list | tuple):
        return graph, cuts_after(graph, stages)
    allowed = require_cuts(graph, count)
    costs = measure_costs(graph)
    sent = {cut: float(sum(tensor_bytes(t, 1) for t in crossing_tensors(graph, cut))) for cut in allowed}
    times = [sum(pair) for pair in zip(costs.forward, costs.backward, strict=True)]
    memory = [float(sum(pair)) for pair in zip(costs.weights, costs.activations, strict=True)]
    return graph, best_cut(allowed, times, memory, sent, count)


def describe(
    graph: Graph, cuts: Sequence[int], costs: Costs, settings: tuple[int, int, str], *, recompute: bool
) -> Plan:
    """Return the plan of given cuts.

    Args:
        graph: The graph of the model.
        cuts: The cuts.
        costs: The costs of its calls for a micro-batch.
        settings: Number of micro-batches, samples of a micro-batch, and the schedule.
        recompute: Whether the backward pass repeats the forward pass.
    """
    micro_batches, size, schedule = settings
    ranges = stage_ranges(cuts, len(graph.calls))
    forward, backward = balance(cuts, costs.forward), balance(cuts, costs.backward)
    if recompute:
        backward = [sum(pair) for pair in zip(forward, backward, strict=True)]
    stages = []
    for number, (start, end) in enumerate(ranges):
        held = held_micro_batches(schedule, len(ranges), micro_batches, number)
        activations = sum(costs.activations[start:end])
        if recompute:
            received = crossing_tensors(graph, start) if start else graph.inputs
            activations += held * sum(tensor_bytes(tensor, size) for tensor in received)
        else:
            activations *= held
        variables = {id(v): v for call in graph.calls[start:end] for v in call.variables}
        stages.append(
            PlannedStage(
                first=graph.calls[start].name,
                last=graph.calls[end - 1].name,
                parameters=sum(
                    v.shape.num_elements() if hasattr(v.shape, "num_elements") else 0 for v in variables.values()
                ),
                activation_bytes=activations,
                memory_bytes=sum(costs.weights[start:end]) + activations,
                forward_seconds=forward[number],
                backward_seconds=backward[number],
            )
        )
    step = step_seconds(schedule, micro_batches, forward, backward)
    busy = micro_batches * (sum(forward) + sum(backward))
    return Plan(tuple(stages), micro_batches, size, schedule, busy / (len(ranges) * step) if step else 1.0)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
