"""The part of a checkpoint that differs between ranks."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from hpcrun.train.gradients.codec_choice import Choice
from hpcrun.train.gradients.codecs import AUTO
from hpcrun.train.gradients.virtual_workers import split_workers
from hpcrun.train.pipeline.absent import AbsentVariable, present
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Array = np.ndarray[Any, Any]
    RankState = dict[str, list[Array]]


def rank_state(model: keras.Model) -> RankState:
    """Return the state of this rank that differs between ranks, by kind.

    The kinds of state are metrics, variables (moving statistics, seeds), PyTorch's random generators, and the state
    of each allreduce of gradients; with pipeline stages, also the cuts and the positions of the variables among those
    of the whole model.
    """
    state = {
        "metrics": [array_of(v) for v in model.metrics_variables],
        "variables": [array_of(v) for v in present(model.non_trainable_variables)],
        "generators": _generators(),
    }
    if pipeline := model.training_state.pipeline:
        positions = [i for i, v in enumerate(model.non_trainable_variables) if not isinstance(v, AbsentVariable)]
        state |= {"cuts": [np.array(pipeline.cuts, int)], "positions": [np.array(positions, int)]}
    reducers = model.training_state.reducers
    for number, reducer in enumerate(reducers):
        state[f"reducer {number}"] = reducer.allreduce.state()
        if reducer.codec_reason:
            state[f"codec {number}"] = [np.array([reducer.codec, reducer.codec_reason])]
    return state


def restore_rank_state(model: keras.Model, arrays: Mapping[str, Array]) -> list[Array]:
    """Restore the state of each rank, or an equivalent state if the ranks or stages have changed. Collective.

    If the stages have changed, which measured times may also do, gradients lose the rounding errors that a codec has
    kept.

    Args:
        model: The model, changed in place.
        arrays: Arrays of the checkpoint file; used on rank 0 only.

    Returns:
        The values of this rank's metrics if the checkpoint is from the middle of an epoch.
    """
    this_rank = world()
    rank_states: list[RankState] = _read_rank_states(arrays) if this_rank.rank == 0 else []
    if this_rank.size > 1:
        rank_states = this_rank.comm.bcast(rank_states)
    pipeline = model.training_state.pipeline
    stage, cuts = (pipeline.layout.stage, pipeline.cuts) if pipeline else (0, [])
    has_same_stages = cuts == (rank_states[0]["cuts"][0].tolist() if "cuts" in rank_states[0] else [])
    peers = rank_states[stage :: len(cuts) + 1]  # the ranks with the same weights
    for number, reducer in enumerate(model.training_state.reducers if has_same_stages else ()):
        if reducer.codec == AUTO and (choices := peers[0].get(f"codec {number}")):
            reducer.use_codec(Choice(*map(str, choices[0])))
        reducer.allreduce.restore(split_workers([of_rank[f"reducer {number}"] for of_rank in peers]))
    if has_same_stages and len(rank_states) == this_rank.size:
        state_of_rank = rank_states[this_rank.rank]
        for variable, value in zip(present(model.non_trainable_variables), state_of_rank["variables"], strict=False):
            assign(variable, value)
        _set_generators(state_of_rank["generators"])
        return state_of_rank["metrics"]
    values_by_position: dict[int, list[Array]] = defaultdict(list)
    for state_of_rank in rank_states:
        values = state_of_rank["variables"]
        positions = state_of_rank["positions"][0].tolist() if "positions" in state_of_rank else range(len(values))
        for position, value in zip(positions, values, strict=True):
            values_by_position[position].append(value)
    for position, variable in enumerate(model.non_trainable_variables):
        values = values_by_position[position]
        if values and "float" in variable.dtype and not isinstance(variable, AbsentVariable):
            variable.assign(np.mean([_as_dtype(value, variable.dtype) for value in values], axis=0))
    sums = [
        np.sum(values, axis=0) for values in _group_by_array(rank_states, "metrics")
    ]  # only rank 0 gets the summed metrics, because metrics are summed over the ranks later
    return sums if this_rank.rank == 0 else [np.zeros_like(total) for total in sums]


def array_of(variable: keras.Variable) -> Array:
    """Return the value of a variable as a NumPy array."""
    return np.asarray(keras.ops.convert_to_numpy(variable.value))


def assign(variable: keras.Variable, value: Array) -> None:
    """Assign a value from a checkpoint file to a variable."""
    variable.assign(_as_dtype(value, variable.dtype))


def _as_dtype(value: Array, dtype: str) -> Array:
    """Restore the dtype of an array from a file, because NumPy files cannot store bfloat16."""
    return value.view(dtype) if value.dtype.kind == "V" else value


def _read_rank_states(arrays: Mapping[str, Array]) -> list[RankState]:
    ranks: dict[str, RankState] = {}
    for name in arrays:  # a file yields its arrays in the order of writing, which is rank order
        if name.startswith("rank/"):
            _, rank, kind, _ = name.split("/")
            ranks.setdefault(rank, defaultdict(list))[kind].append(arrays[name])
    return list(ranks.values())


def _group_by_array(rank_states: Sequence[RankState], kind: str) -> Iterator[tuple[Array, ...]]:
    return zip(*(state_of_rank[kind] for state_of_rank in rank_states), strict=True)


def _generators() -> list[Array]:
    if keras.backend.backend() != "torch":
        return []
    import torch

    return [torch.get_rng_state().numpy(), *(state.numpy() for state in torch.cuda.get_rng_state_all())]


def _set_generators(states: Sequence[Array]) -> None:
    if states:
        import torch

        torch.set_rng_state(torch.from_numpy(states[0].copy()))
        if len(states) - 1 == torch.cuda.device_count():
            torch.cuda.set_rng_state_all([torch.from_numpy(state.copy()) for state in states[1:]])
