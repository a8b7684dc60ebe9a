"""Ternary gradients (Wen et al., "TernGrad", arXiv:1705.07878), sent as codes of two bits.

A layer's gradient g becomes s * sign(g) * b, where b is 1 with the probability |g| / s, else 0: its mean is g.
The scale s is the largest |g| of the layer over all ranks, after a rank has clipped its g to ``HPCRUN_CLIP_FACTOR``
standard deviations (2.5; 0: no clipping). Clipping reduces the largest values, so the sum is unbiased only without
clipping.

Each rank draws its own random numbers, from ``HPCRUN_COMPRESSION_SEED``, its number and the step, so that a resumed
training draws the same ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.run.job import read_number
from hpcrun.train.gradients.allreduce import bytes_sent, call_blocking, call_polling, poll
from hpcrun.train.gradients.layerwise import LayerwiseAllReduce
from hpcrun.train.gradients.packing import WORD_BITS, values_per_word
from hpcrun.train.gradients.ternary_codes import TILE_BYTES, load_codes, packed_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.train.gradients.allreduce import Call
    from hpcrun.train.gradients.layerwise import Layout
    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]

GROUP_BYTES = 2**20
"""Bytes of codes that are sent together, while the next layers are encoded."""


def bits_per_number(ranks: int) -> tuple[float, float]:
    """Return how many bits a rank sends for each number: its codes to all ranks; or shards of codes, and their sums."""
    sum_bits = WORD_BITS / values_per_word(2 * ranks + 1)
    return 2.0 * (ranks - 1), (2 + sum_bits) * (ranks - 1) / ranks


class TernaryAllReduce(LayerwiseAllReduce):
    """Allreduce of float32 gradients as ternary numbers.

    With few ranks, each sends its codes to all others (MPI_Allgather). With more ranks, they exchange shards of the
    codes (MPI_Alltoall), and each sends the sums of its shard, whole numbers up to the number of ranks, in as few bits
    as they need.
    """

    def __init__(self, comm: Comm, call: Call = call_blocking) -> None:
        super().__init__(comm, call)
        self.clip_factor = read_number("HPCRUN_CLIP_FACTOR", 2.5, "standard deviations", "2.5, or 0 for no clipping")
        self.seed = int(read_number("HPCRUN_COMPRESSION_SEED", 0, "", "0"))
        self.codes = load_codes()
        gathered_bits, sharded_bits = bits_per_number(comm.size)
        self._sends_all_codes = gathered_bits <= sharded_bits

    def sum_layers(self, layout: Layout) -> None:
        """Replace all layers by their sums over the ranks, and update the residuals. Collective."""
        from mpi4py import MPI

        limits = np.array([self._limit(layer.reshape(-1)) for layer in layout.compressed], np.float32)
        scales = limits.copy()
        self._sum_together(layout.floats)
        self.exchange("Allreduce", MPI.IN_PLACE, scales, MPI.MAX)
        if self._sends_all_codes:
            self._gather_codes(layout, limits, scales)
        else:
            self._reduce_scatter_codes(layout, limits, scales)
        for layer, scale in zip(layout.compressed, scales, strict=True):
            if not np.isfinite(scale):
                layer.fill(np.nan)  # a rank has a number that is not finite

    def _limit(self, values: Array) -> float:
        """Return the largest absolute value of a layer after clipping; infinity if a value is not finite."""
        largest, deviation = self.codes.statistics(values)
        if not np.isfinite(largest):
            return np.inf
        return min(largest, self.clip_factor * deviation) if self.clip_factor else largest

    def _keys(self, layout: Layout) -> tuple[int, int]:
        """Return the keys of the random numbers of this rank in this step."""
        seeds = np.random.SeedSequence((self.seed, self.comm.rank, layout.number, layout.steps))
        first, second = map(int, seeds.generate_state(2))
        return first, second

    def _encode_layers(self, layout: Layout, limits: Array, scales: Array, packed: Array) -> Iterator[int]:
        """Encode all layers, and yield the end of the codes after each."""
        keys, start = self._keys(layout), 0
        for index, layer in enumerate(layout.compressed):
            values, scale = layer.reshape(-1), scales[index]
            codes = packed[start : start + packed_size(values.size)]
            if 0 < scale < np.inf:
                self.codes.encode(values, 4 * start, keys, limits[index], scale, codes)
            else:
                codes.fill(0)
            if layout.residuals and np.isfinite(scale):
                residual = layout.residuals[index].reshape(-1)
                self.codes.decode(codes[np.newaxis], scale, residual)
                np.subtract(values, residual, out=residual)
            start += codes.size
            yield start

    def _gather_codes(self, layout: Layout, limits: Array, scales: Array) -> None:
        """Send all codes to all ranks; while they are on their way, encode the next layers."""
        packed = np.empty(sum(packed_size(layer.size) for layer in layout.compressed), np.uint8)
        groups: list[tuple[int, int, Array, Any]] = []  # start and end of the codes, codes of all ranks, MPI request
        start = 0
        for end in self._encode_layers(layout, limits, scales, packed):
            if end - start >= GROUP_BYTES or end == packed.size:
                received = np.empty((self.comm.size, end - start), np.uint8)
                self.sent_bytes += bytes_sent("Allgather", received.nbytes, self.comm.size)
                groups.append((start, end, received, self.comm.Iallgather(packed[start:end], received)))
                start = end
            for *_, request in groups:
                request.Test()  # MPI sends while it is called
        layers, first = iter(zip(layout.compressed, scales, strict=True)), 0
        for start, end, received, request in groups:
            poll(request) if self.call is call_polling else request.Wait()
            while first < end:
                layer, scale = next(layers)
                size = packed_size(layer.size)
                if np.isfinite(scale):
                    self.codes.decode(received[:, first - start : first - start + size], scale, layer.reshape(-1))
                first += size

    def _reduce_scatter_codes(self, layout: Layout, limits: Array, scales: Array) -> None:
        """Exchange shards of the codes, add them, and send the sums to all ranks."""
        ranks, base = self.comm.size, 2 * self.comm.size + 1
        ends = [packed_size(layer.size) for layer in layout.compressed]
        total = sum(ends)
        shard = -(-total // (ranks * TILE_BYTES)) * TILE_BYTES
        outgoing = np.zeros((ranks, shard), np.uint8)
        for _ in self._encode_layers(layout, limits, scales, outgoing.reshape(-1)):
            pass
        incoming = np.empty_like(outgoing)
        self.exchange("Alltoall", outgoing, incoming)
        words = self.codes.pack((self.codes.count(incoming) + np.int16(ranks)).view(np.uint16), base)
        all_words = np.empty((ranks, words.size), words.dtype)
        self.exchange("Allgather", words, all_words)
        sums = np.concatenate([self.codes.unpack(row, base, 4 * shard) for row in all_words])
        start = 0
        for layer, scale in zip(layout.compressed, scales, strict=True):
            if np.isfinite(scale):
                numbers = sums[start : start + layer.size].view(np.int16) - np.int16(ranks)
                np.multiply(numbers.reshape(layer.shape), scale, out=layer)
            start += 4 * packed_size(layer.size)
