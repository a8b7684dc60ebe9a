"""The ranks among which batches are divided: all ranks, or with pipeline stages, the replicas of the pipeline."""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


class Replica(NamedTuple):
    """This rank's replica of the model; all stages of a replica get the same samples.

    Attributes:
        rank: Number of the replica, from 0.
        size: Number of replicas.
    """

    rank: int
    size: int


_replicas: list[Replica] = []


def replica() -> Replica:
    """Return this rank's replica; without pipeline stages, each rank is one."""
    return _replicas[-1] if _replicas else Replica(world().rank, world().size)


def set_replica(number: Replica) -> None:
    """Let data sets that the script makes from now on be divided among the replicas of a pipeline."""
    _replicas[:] = [number]


@contextmanager
def use_replica(number: Replica) -> Iterator[None]:
    """Context manager that divides batches among the replicas of a model."""
    _replicas.append(number)
    try:
        yield
    finally:
        _replicas.pop()


def divided_among_replicas(method: Callable[Concatenate[Any, _Params], _Result]) -> Callable[..., _Result]:
    """Let a method divide batches among the replicas of the model, which are its attribute `_replica`."""

    @wraps(method)
    def divided(model: Any, *args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        with use_replica(model._replica):  # noqa: SLF001
            return method(model, *args, **kwargs)

    return divided
