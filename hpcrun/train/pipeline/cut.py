"""The division of a model's calls into stages.

A stage is a contiguous range of calls. A cut is the number of calls before it. Calls that share variables stay
together, so there is no cut between them. Dynamic programming over the allowed cuts finds the best division: the
slowest stage is as fast as possible, and of equally fast divisions, the stages send the fewest bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hpcrun.errors import HpcrunError, pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import keras

    from hpcrun.train.pipeline.graph import Graph

MEMORY_TOLERANCE = 1.5  # a stage may need this multiple of an even share of memory before memory decides its cut


class Costs(NamedTuple):
    """Costs of each call.

    Attributes:
        forward: Seconds of the forward pass of a micro-batch.
        backward: Seconds of its backward pass.
        weights: Bytes of variables, gradients and optimizer state.
        activations: Bytes of the outputs of a micro-batch.
    """

    forward: list[float]
    backward: list[float]
    weights: list[int]
    activations: list[int]


def allowed_cuts(graph: Graph) -> list[int]:
    """Return the positions at which the calls may be cut: the numbers of calls before the cuts, in ascending order."""
    return [position for position in range(1, len(graph.calls)) if position not in _spans(graph)]


def _spans(graph: Graph) -> dict[int, str]:
    """Return the positions that are not allowed, with the layers that each would tear apart."""
    first_uses: dict[int, int] = {}
    spans: dict[int, str] = {}
    for number, call in enumerate(graph.calls):
        for variable in call.variables:
            first = first_uses.setdefault(id(variable), number)
            names = " and ".join(map(repr, dict.fromkeys((graph.calls[first].name, call.name))))
            spans.update({position: spans.get(position, names) for position in range(first + 1, number + 1)})
    return spans


def crossing_tensors(graph: Graph, position: int) -> list[keras.KerasTensor]:
    """Return the tensors that a cut sends on: results of earlier calls that later calls or the model's user need."""
    needed = {id(tensor) for call in graph.calls[position:] for tensor in call.inputs}
    needed |= {id(tensor) for tensor in graph.outputs}
    return [tensor for call in graph.calls[:position] for tensor in call.outputs if id(tensor) in needed]


def best_cut(
    allowed: Sequence[int], seconds: Sequence[float], memory: Sequence[float], sent: Mapping[int, float], stages: int
) -> list[int]:
    """Return the cuts that make the stage with the largest cost as cheap as possible.

    The cost of a stage is its share of the time, or its share of the memory divided by `MEMORY_TOLERANCE` if that is
    larger.

    Args:
        allowed: The allowed cuts, in ascending order; at least `stages` - 1.
        seconds: Time of each call.
        memory: Bytes of each call.
        sent: Bytes that each allowed cut sends per sample.
        stages: Number of stages.
    """
    times, bytes_ = (
        np.concatenate([[0.0], np.cumsum(values)]) / max(sum(values), 1e-300) for values in (seconds, memory)
    )
    positions = [0, *allowed, len(seconds)]

    def cost(start: int, end: int) -> float:
        return float(max(times[end] - times[start], (bytes_[end] - bytes_[start]) / MEMORY_TOLERANCE))

    # best[i]: cost, bytes sent and cuts of the best division of the calls before positions[i] into the stages so far
    best: dict[int, tuple[float, float, list[int]]] = {0: (0.0, 0.0, [])}
    for stage in range(stages):
        ends = [len(positions) - 1] if stage == stages - 1 else range(1, len(positions) - 1)
        divisions = {}
        for end in ends:
            options = [
                (
                    max(before[0], cost(positions[start], positions[end])),
                    before[1] + sent.get(positions[end], 0.0),
                    [*before[2], positions[end]],
                )
                for start, before in best.items()
                if start < end
            ]
            if options:
                divisions[end] = min(options)
        best = divisions
    return best[len(positions) - 1][2][:-1]


def balance(cuts: Sequence[int], values: Sequence[float]) -> list[float]:
    """Return the sum of the calls' values of each stage."""
    return [float(sum(values[start:end])) for start, end in stage_ranges(cuts, len(values))]


def stage_ranges(cuts: Sequence[int], calls: int) -> list[tuple[int, int]]:
    """Return the first call and the end of each stage."""
    return list(zip([0, *cuts], [*cuts, calls], strict=True))


def require_cuts(graph: Graph, stages: int) -> list[int]:
    """Return the allowed cuts, if there are enough.

    Raises:
        HpcrunError: The model cannot be cut into so many stages.
    """
    allowed = allowed_cuts(graph)
    if len(allowed) < stages - 1:
        shared = sorted(set(_spans(graph).values()))
        reason = f": {', '.join(shared[:3])} must stay in one stage" if shared else ""
        raise HpcrunError(
            f"the model {graph.model.name!r} has {pluralize(len(graph.calls), 'layer')}, which can be cut into "
            f"{pluralize(len(allowed) + 1, 'stage')}, not into {stages}{reason}",
            hint="layers that share weights are not cut apart: use a layer once, or take fewer stages"
            if shared
            else "take fewer stages",
        )
    return allowed


def cuts_after(graph: Graph, names: Sequence[str]) -> list[int]:
    """Return the cuts after layers with given names.

    Args:
        graph: The graph of the model.
        names: Name of the last layer of each stage but the last.

    Raises:
        HpcrunError: A name is unknown or out of order, or the cut after it is not allowed.
    """
    allowed, cuts = allowed_cuts(graph), list[int]()
    for name in names:
        numbers = [number for number, call in enumerate(graph.calls, 1) if call.name == name]
        numbers = numbers or _last_calls_inside(graph, name)
        if not numbers:
            raise HpcrunError(
                f"stages names the layer {name!r}, which the model {graph.model.name!r} does not call",
                hint=f"its layers: {', '.join(dict.fromkeys(call.name for call in graph.calls))}",
            )
        if numbers[-1] not in allowed:
            torn = _spans(graph).get(numbers[-1])
            raise HpcrunError(
                f"stages cuts after {name!r}, "
                + (f"and the weights of {torn} are used on both sides" if torn else "the last layer"),
                hint="name the last layer of each stage but the last",
            )
        cuts.append(numbers[-1])
    if cuts != sorted(set(cuts)):
        raise HpcrunError(f"stages={list(names)!r} is not in the order of the model", hint="name them in its order")
    return cuts


def _last_calls_inside(graph: Graph, name: str) -> list[int]:
    """Return the end of a nested model with this name, whose calls have been taken out of it."""
    nested = [layer for layer in graph.model.layers if layer.name == name and hasattr(layer, "outputs")]
    inside = [{id(graph.resolve(tensor)) for tensor in layer.outputs} for layer in nested]
    calls = enumerate(graph.calls, 1)
    return [number for number, call in calls if inside and any(id(tensor) in inside[0] for tensor in call.outputs)]


def apply_marks(graph: Graph) -> tuple[Graph, list[int] | None]:
    """Return the graph in the order of the stages that the script has marked, and the cuts; None without marks.

    A call without a mark belongs to the last stage of the calls whose results it takes.

    Raises:
        HpcrunError: A call takes the result of a later stage, stages are missing, or a layer is on two stages.
    """
    if all(call.mark is None for call in graph.calls):
        return graph, None
    stage_of_tensor: dict[int, int] = {}
    stage_of_call = []
    for call in graph.calls:
        earliest = max((stage_of_tensor.get(id(tensor), 0) for tensor in call.inputs), default=0)
        stage = earliest if call.mark is None else call.mark
        if stage < earliest:
            raise HpcrunError(
                f"the layer {call.name!r} is on stage {stage}, and takes the result of stage {earliest}",
                hint="number the stages in the order in which the model computes them",
            )
        stage_of_call.append(stage)
        stage_of_tensor.update({id(tensor): stage for tensor in call.outputs})
    if missing := sorted(set(range(max(stage_of_call) + 1)) - set(stage_of_call)):
        raise HpcrunError(f"no layer is on stage {missing[0]}", hint="number the stages 0, 1, 2, ...")
    order = sorted(range(len(stage_of_call)), key=lambda number: stage_of_call[number])  # stable
    graph = graph._replace(calls=[graph.calls[number] for number in order])
    cuts = [sum(stage < end for stage in stage_of_call) for end in range(1, max(stage_of_call) + 1)]
    for cut in cuts:
        if torn := _spans(graph).get(cut):
            raise HpcrunError(f"the weights of {torn} are on two stages", hint="call it on one stage")
    return graph, cuts
