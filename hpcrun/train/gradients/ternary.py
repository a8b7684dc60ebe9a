"""Ternary gradients (Wen et al., "TernGrad", arXiv:1705.07878), sent as codes of two bits.

A layer's gradient g becomes s * sign(g) * b, where b is 1 with the probability |g| / s, else 0: its mean is g.
The scale s is the largest |g| of the layer over all ranks, after a rank has clipped its g to ``HPCRUN_CLIP_FACTOR``
standard deviations (2.5; 0: no clipping). Clipping shortens a few gradients, so only without it is the sum unbiased.

Each rank draws its own random numbers, from ``HPCRUN_COMPRESSION_SEED``, its number and the step, so that a resumed
training draws the same ones.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.run.job import read_number
from hpcrun.train.gradients.allreduce import call_blocking
from hpcrun.train.gradients.layerwise import LayerwiseAllReduce
from hpcrun.train.gradients.packing import (
    WORD_BITS,
    add_codes,
    pack_codes,
    pack_numbers,
    unpack_numbers,
    values_per_word,
)

if TYPE_CHECKING:
    from hpcrun.train.gradients.allreduce import Call
    from hpcrun.train.gradients.layerwise import Layout
    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]

BLOCK_VALUES = 2**16  # numbers encoded at once; buffers of this size stay in the cache


class TernaryAllReduce(LayerwiseAllReduce):
    """Allreduce of float32 gradients as ternary numbers.

    Few ranks send their codes to all others (MPI_Allgather). More ranks exchange shards of the codes (MPI_Alltoall),
    and each sends the sums of its shard, whole numbers up to the number of ranks, in as few bits as they need.
    """

    def __init__(self, comm: Comm, call: Call = call_blocking) -> None:
        super().__init__(comm, call)
        self.clip_factor = read_number("HPCRUN_CLIP_FACTOR", 2.5, "standard deviations", "2.5, or 0 for no clipping")
        self.seed = int(read_number("HPCRUN_COMPRESSION_SEED", 0, "", "0"))
        self._scratch = np.empty((2, BLOCK_VALUES), np.float32)

    def sum_layers(self, layout: Layout) -> None:
        """Replace all layers by their sums over the ranks, and update the residuals. Collective."""
        from mpi4py import MPI

        limits = np.array([self._limit(layer.reshape(-1)) for layer in layout.compressed], np.float32)
        scales = limits.copy()
        self._sum_together(layout.floats)
        self.call(self.comm, "Allreduce", MPI.IN_PLACE, scales, MPI.MAX)
        ends = np.cumsum([0, *(layer.size for layer in layout.compressed)]).tolist()
        codes = np.ones(ends[-1], np.uint8)  # 0, 1 and 2 for -1, 0 and 1
        generator = self._generator(layout)
        for index, layer in enumerate(layout.compressed):
            layer_codes = codes[ends[index] : ends[index + 1]]
            self._encode(layer.reshape(-1), limits[index], scales[index], generator, layer_codes)
            if layout.residuals:
                self._keep_residual(layer, scales[index], layer_codes, layout.residuals[index])
        sums = self._sum_codes(codes)
        for index, layer in enumerate(layout.compressed):
            if np.isfinite(scales[index]):
                np.multiply(sums[ends[index] : ends[index + 1]].reshape(layer.shape), scales[index], out=layer)
            else:
                layer.fill(np.nan)  # a rank has a number that is not finite

    def _limit(self, values: Array) -> float:
        """Return the largest absolute value of a layer after clipping; infinity if a value is not finite."""
        largest = max(values.max(), -values.min())
        if not np.isfinite(largest):
            return np.inf
        if not self.clip_factor:
            return float(largest)
        mean = values.mean(dtype=np.float64)
        variance = float(np.dot(values, values)) / values.size - mean**2
        return float(min(largest, self.clip_factor * max(variance, 0) ** 0.5))

    def _generator(self, layout: Layout) -> np.random.Generator:
        key = self.seed, self.comm.rank, layout.number, layout.steps
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence(key)))

    def _encode(self, values: Array, limit: float, scale: float, generator: np.random.Generator, codes: Array) -> None:
        """Round the values of a layer at random to the codes 0, 1 and 2."""
        if not 0 < scale < np.inf:
            return
        for start in range(0, values.size, BLOCK_VALUES):
            block, block_codes = values[start : start + BLOCK_VALUES], codes[start : start + BLOCK_VALUES]
            draws, sizes = self._scratch[:, : block.size]
            generator.random(dtype=np.float32, out=draws)
            np.abs(block, out=sizes)
            np.minimum(sizes, limit, out=sizes)
            draws *= scale
            chosen = draws < sizes
            block_codes += chosen
            block_codes -= 2 * (chosen & (block < 0)).view(np.uint8)

    def _keep_residual(self, layer: Array, scale: float, codes: Array, residual: Array) -> None:
        if not np.isfinite(scale):
            return
        np.multiply(codes.reshape(layer.shape), -np.float32(scale), out=residual)
        residual += scale
        residual += layer

    def _sum_codes(self, codes: Array) -> Array:
        """Return the sum over the ranks of the numbers -1, 0 and 1 that the codes stand for."""
        ranks = self.comm.size
        if not codes.size:
            return codes.astype(np.int16)
        base = 2 * ranks + 1
        sharded_bits = (ranks - 1) / ranks * (2 + WORD_BITS / values_per_word(base))  # sent for each code
        if (ranks - 1) * 2 <= sharded_bits:
            packed = pack_codes(np.concatenate([codes, np.ones(-codes.size % 4, np.uint8)]))
            received = np.empty((ranks, packed.size), np.uint8)
            self.call(self.comm, "Allgather", packed, received)
            sums = add_codes(received)
            return _centre(sums[: codes.size], ranks)
        size = 4 * ceil(codes.size / ranks / 4)  # codes in a shard
        padded = np.concatenate([codes, np.ones(ranks * size - codes.size, np.uint8)]).reshape(ranks, size)
        outgoing = np.stack([pack_codes(shard) for shard in padded])  # (ranks, size / 4)
        incoming = np.empty_like(outgoing)
        self.call(self.comm, "Alltoall", outgoing, incoming)
        words = pack_numbers(add_codes(incoming), base)
        all_words = np.empty((ranks, words.size), words.dtype)
        self.call(self.comm, "Allgather", words, all_words)
        sums = np.concatenate([unpack_numbers(row, base, size) for row in all_words])
        return _centre(sums[: codes.size], ranks)


def _centre(sums: Array, ranks: int) -> Array:
    """Return sums of the numbers -1, 0 and 1, given those of 0, 1 and 2."""
    return np.subtract(sums, ranks, dtype=np.int16, casting="unsafe")
