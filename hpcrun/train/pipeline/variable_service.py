"""Exchange of the values of variables between the ranks of a pipeline, one variable at a time.

Each rank answers requests whenever it waits for others (`ranks.polling`), and at the end of the script. So any code on
any rank can read the weights of the whole model, as Keras does when it saves, without a call on the other ranks.
"""

from __future__ import annotations

import atexit
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.run.waiting import waiting
from hpcrun.train.pipeline.absent import release
from hpcrun.train.ranks.collectives import checked_barrier
from hpcrun.train.ranks.polling import add_idle_task, poll
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import keras

    from hpcrun.train.pipeline.layout import Layout

    Array = np.ndarray[Any, Any]

_REQUEST, _VALUE, _NEW_VALUE = 1, 2, 3  # tags of messages
_MAX_MESSAGE_BYTES = 2**30  # MPI counts bytes in 32 bits
WAIT = "a variable of another stage"


class VariableService:
    """The variables of a model and its optimizer, of which this rank has those of its stage.

    Args:
        layout: This rank's place.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.variables: list[keras.Variable] = []
        self.stages: list[int | None] = []
        self._comm = world().comm.Dup()
        self._sends: list[tuple[Any, Array]] = []
        self._is_writing = False
        add_idle_task(self.serve)
        if not _services:
            atexit.register(_serve_until_all_ranks_end)
        _services.append(self)

    def add(self, variables: Sequence[keras.Variable], stages: Sequence[int | None]) -> None:
        """Add variables, equal on all ranks, and release those of other stages.

        Args:
            variables: The variables.
            stages: The stage of each; None if all ranks have it.
        """
        for variable, stage in zip(variables, stages, strict=True):
            if stage is not None and stage != self.layout.stage:
                release(variable, self, len(self.variables))
            self.variables.append(variable)
            self.stages.append(stage)

    def keep(self, count: int) -> None:
        """Forget all variables but the first ones, equally many on all ranks."""
        del self.variables[count:], self.stages[count:]

    def fetch(self, number: int) -> Array:
        """Return the value of a variable from the rank of its stage in this replica."""
        owner = self.layout.rank_of(self._stage(number))
        value = _empty(self.variables[number])
        requests = [self._comm.Irecv(part, owner, _VALUE) for part in _parts(value)]
        requests.append(self._comm.Isend(np.array([number]), owner, _REQUEST))
        self._wait(requests, number)
        return value

    def store(self, number: int, value: object) -> None:
        """Send a value to the rank of a variable's stage; no effect outside of `writing`."""
        if self._is_writing:
            array = np.ascontiguousarray(np.asarray(value), dtype=_empty(self.variables[number]).dtype)
            owner = self.layout.rank_of(self._stage(number))
            requests = [self._comm.Isend(np.array([-1 - number]), owner, _REQUEST)]
            requests += [self._comm.Isend(part, owner, _NEW_VALUE) for part in _parts(array)]
            self._wait(requests, number)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Context manager in which assignments to absent variables reach their ranks."""
        self._is_writing = True
        try:
            yield
        finally:
            self._is_writing = False

    def serve(self) -> bool:
        """Answer the requests that have arrived, and return whether there were any."""
        from mpi4py import MPI

        self._sends = [(request, part) for request, part in self._sends if not request.Test()]
        status, message, has_served = MPI.Status(), np.empty(1, int), False
        while self._comm.Iprobe(MPI.ANY_SOURCE, _REQUEST, status):
            source, has_served = status.Get_source(), True
            self._comm.Recv(message, source, _REQUEST)
            number = int(message[0])
            if number >= 0:
                value = _numpy(self.variables[number])
                self._sends += [(self._comm.Isend(part, source, _VALUE), part) for part in _parts(value)]
            else:
                variable = self.variables[-1 - number]
                value = _empty(variable)
                for part in _parts(value):
                    self._comm.Recv(part, source, _NEW_VALUE)
                variable.assign(value)
        return has_served

    def is_idle(self) -> bool:
        """Return whether all replies have been received."""
        self.serve()
        return not self._sends

    def _stage(self, number: int) -> int:
        return self.stages[number] or 0

    def _wait(self, requests: list[Any], number: int) -> None:
        with waiting(WAIT, f"{self.variables[number].path}, of stage {self._stage(number)}"):
            poll(lambda: sum(not request.Test() for request in requests) == 0)  # test all, so that all make progress


_services: list[VariableService] = []


def _serve_until_all_ranks_end() -> None:
    checked_barrier("the end of the script")
    poll(lambda: sum(not service.is_idle() for service in _services) == 0)
    checked_barrier("the end of the script")


def _empty(variable: keras.Variable) -> Array:
    import ml_dtypes  # noqa: F401  (registers bfloat16)

    return np.empty(tuple(variable.shape), np.dtype(variable._dtype))  # noqa: SLF001  (not that of an autocast scope)


def _numpy(variable: keras.Variable) -> Array:
    return np.ascontiguousarray(np.asarray(variable.numpy()))


def _parts(array: Array) -> list[Array]:
    """Return views of an array as bytes, each small enough for a message."""
    data = array.reshape(-1).view(np.uint8)
    return [data[start : start + _MAX_MESSAGE_BYTES] for start in range(0, max(1, data.size), _MAX_MESSAGE_BYTES)]
