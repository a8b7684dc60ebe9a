"""The choice of a codec by ``--compress auto``, after the first steps of a training.

The first steps send float32. Their times give the bandwidth of the link, and a cost model predicts the step in each
codec of `CANDIDATES`. A codec is chosen if it makes a step at least 5 % shorter. ``fp16`` sends as many bytes as
``bf16``, and takes longer. If the next steps are not shorter in the codec, float32 is sent again. With
``HPCRUN_FLOAT_FIRST``, the codec is chosen after that many steps.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpcrun.train.gradients.codecs import CODECS
from hpcrun.train.gradients.cost_model import CodecCost, Link, fit_link, measure_codec
from hpcrun.train.gradients.layerwise import read_float_first

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]

CANDIDATES = ("bf16", "powersgd")
SKIPPED_STEPS, MEASURED_STEPS = 3, 12  # the first steps compile and touch new memory
MIN_GAIN = 0.05
_PROBES = 5


class Choice(NamedTuple):
    """A codec, and the reason for it as a line of text."""

    codec: str
    reason: str


class CodecChooser:
    """Measurement of the first steps of a training, and the choice of a codec.

    Args:
        comm: The MPI communicator of the ranks.
    """

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self._starts: list[float] = []
        self._sums: list[float] = []
        self._plain_step = 0.0
        self._steps_before = read_float_first()
        self.choice = Choice("auto", "")

    def begin_sum(self) -> None:
        """Record that this rank has the gradients of a step."""
        self._starts.append(perf_counter())

    def end_sum(self) -> None:
        """Record that the gradients of a step have been summed."""
        self._sums.append(perf_counter() - self._starts[-1])

    def is_complete(self) -> bool:
        """Return whether enough steps have been measured."""
        return len(self._sums) >= max(SKIPPED_STEPS + MEASURED_STEPS, self._steps_before)

    def choose(self, gradients: Sequence[Array], chunks: int) -> Choice:
        """Choose the codec, or at the next call check the choice. Collective; the same on all ranks.

        Args:
            gradients: The gradients of a step, of one float dtype.
            chunks: The number of messages in which a step sends them as float32.
        """
        step, latency = self._max_over_ranks([self._median_step(), self._measure_latency()])
        if self.choice.codec != "auto":
            return check(self.choice, self._plain_step, step)
        self.choice = self._choose(gradients, chunks, step, latency)
        self._starts, self._sums, self._plain_step, self._steps_before = [], [], step, 0
        return self.choice

    def _choose(self, gradients: Sequence[Array], chunks: int, step: float, latency: float) -> Choice:
        from mpi4py import MPI

        # The rank that comes last to a sum waits for no other, so the shortest time is that of the communication.
        sums = np.array(self._sums[SKIPPED_STEPS:])
        self._comm.Allreduce(MPI.IN_PLACE, sums, MPI.MIN)
        communication = float(np.median(sums))
        if communication < MIN_GAIN * step or gradients[0].dtype != np.float32:
            return Choice("none", f"of a step of {_ms(step)}, communication takes {_ms(communication)}")
        costs = self.measure_costs(gradients)
        plain = costs.pop("none")._replace(collectives=chunks)
        link = fit_link(communication, plain, latency)
        return choose(step, communication, costs, link)

    def measure_costs(self, gradients: Sequence[Array]) -> dict[str, CodecCost]:
        """Measure float32 and all candidates, and return the largest costs of all ranks. Collective."""
        costs = {name: measure_codec(CODECS[name], gradients, self._comm.size) for name in ("none", *CANDIDATES)}
        largest = self._max_over_ranks([value for cost in costs.values() for value in cost])
        size = len(CodecCost._fields)
        return {name: CodecCost(*largest[i * size :][:size]) for i, name in enumerate(costs)}  # type: ignore[arg-type]

    def _median_step(self) -> float:
        return float(np.median(np.diff(self._starts[SKIPPED_STEPS:])))

    def _measure_latency(self) -> float:
        """Return the time of an allreduce of a single number, in s."""
        from mpi4py import MPI

        number, times = np.zeros(1), []
        for _ in range(_PROBES):
            start = perf_counter()
            self._comm.Allreduce(MPI.IN_PLACE, number)
            times.append(perf_counter() - start)
        return min(times[1:])

    def _max_over_ranks(self, values: Sequence[float]) -> list[float]:
        from mpi4py import MPI

        largest = np.array(values, np.float64)
        self._comm.Allreduce(MPI.IN_PLACE, largest, MPI.MAX)
        return [float(value) for value in largest]


def choose(step: float, communication: float, costs: Mapping[str, CodecCost], link: Link) -> Choice:
    """Return the codec with the shortest predicted step, or none if no codec saves 5 %.

    A codec that would save nothing if none of its work passed while data are sent is not chosen: on a fast link, data
    are sent by the same cores.

    Args:
        step: The time of a step with float32, in s.
        communication: The time of the sum of gradients in such a step, in s.
        costs: The cost of each codec.
        link: The link of a rank.
    """
    steps = {name: step - communication + cost.predict(link) for name, cost in costs.items()}
    serial = {name: cost._replace(overlapped=0).predict(link) for name, cost in costs.items()}
    safe = [name for name in steps if serial[name] < communication]
    best = min(safe or steps, key=lambda name: steps[name])
    measured = f"float32: {_ms(step)}, {_ms(communication)} of them communication at {8e-9 * link.bandwidth:.3g} Gbit/s"
    unsafe = {name: f" (without overlap {_ms(step - communication + serial[name])})" for name in steps.keys() - safe}
    predicted = ", ".join(f"{name}: {_ms(seconds)}{unsafe.get(name, '')}" for name, seconds in steps.items())
    reason = f"a step with {measured}; predicted with {predicted}"
    if steps[best] > (1 - MIN_GAIN) * step:
        return Choice("none", f"{reason}, which saves less than {100 * MIN_GAIN:.0f} %")
    if not safe:
        return Choice("none", f"{reason}, which saves nothing if no data are sent meanwhile")
    return Choice(best, reason)


def check(choice: Choice, plain_step: float, step: float) -> Choice:
    """Return the choice, or none if a step in the codec is not shorter than one with float32.

    Args:
        choice: The codec of the last steps.
        plain_step: The time of a step with float32, in s.
        step: The time of a step in the codec, in s.
    """
    if step < plain_step:
        return choice
    return Choice("none", f"a step took {_ms(step)} with {choice.codec}, and {_ms(plain_step)} with float32")


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"
