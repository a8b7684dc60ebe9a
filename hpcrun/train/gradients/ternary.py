"""Ternary gradients (Wen et al., "TernGrad", arXiv:1705.07878), sent as codes of two bits.

A layer's gradient g becomes s * sign(g) * b, where b is 1 with the probability |g| / s, else 0: its mean is g.
The scale s is the largest |g| of the layer over all ranks, after a rank has clipped its g to ``HPCRUN_CLIP_FACTOR``
standard deviations (2.5; 0: no clipping), or times the mean if that is larger. Clipping reduces the largest values,
so the sum is unbiased only without clipping.

Each rank draws its own random numbers, from ``HPCRUN_COMPRESSION_SEED``, its number, the shapes of the layers and the
step, so that a resumed training draws the same ones.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpcrun.run.job import read_number, read_whole_number
from hpcrun.train.gradients.allreduce import POLL_SECONDS, bytes_sent, call_blocking, call_polling
from hpcrun.train.gradients.buffers import select_values
from hpcrun.train.gradients.layerwise import LayerwiseAllReduce
from hpcrun.train.gradients.packing import WORD_BITS, values_per_word
from hpcrun.train.gradients.ternary_codes import TILE_BYTES, load_codes, packed_size
from hpcrun.train.ranks.polling import poll

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.train.gradients.allreduce import Call
    from hpcrun.train.gradients.buffers import Chunk
    from hpcrun.train.gradients.layerwise import Layout
    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]

PIECE_BYTES = 2**18
"""Bytes of codes that are encoded together, and sent while the next numbers are encoded."""


class Piece(NamedTuple):
    """Numbers of a layer that are encoded together.

    Attributes:
        layer: The number of the layer among the compressed ones.
        values: Its numbers.
        codes: Their codes among those of all layers.
    """

    layer: int
    values: slice
    codes: slice


class CodeMemory:
    """Memory for the codes of a chunk, used again in each step, because the first use of memory takes time.

    Args:
        sizes: The number of numbers in each compressed layer.
        rows: The number of ranks that get the same number of this rank's codes; 1 if all get all codes.
        ranks: The number of ranks.

    Attributes:
        outgoing: The codes of this rank, (rows, bytes).
        incoming: The codes that this rank gets, of all ranks, (ranks, bytes).
        messages: Pieces whose codes are sent together, in order.
    """

    def __init__(self, sizes: Sequence[int], rows: int, ranks: int) -> None:
        pieces = list(_divide(sizes))
        row_bytes = -(-pieces[-1].codes.stop // (rows * TILE_BYTES)) * TILE_BYTES
        self.outgoing = np.zeros((rows, row_bytes), np.uint8)
        self.incoming = np.zeros((ranks, row_bytes), np.uint8)
        self.messages: list[list[Piece]] = [[]]
        for piece in pieces:
            if self.messages[-1] and piece.codes.stop - self.messages[-1][0].codes.start > PIECE_BYTES:
                self.messages.append([])
            self.messages[-1].append(piece)

    def incoming_of(self, message: list[Piece]) -> Array:
        """Return memory for the codes of all ranks in a message, (ranks, bytes)."""
        start, stop = message[0].codes.start, message[-1].codes.stop
        ranks = self.incoming.shape[0]
        return self.incoming.reshape(-1)[ranks * start : ranks * stop].reshape(ranks, -1)


class Source(NamedTuple):
    """The numbers of a chunk in a step, and how they are rounded.

    Attributes:
        layers: The numbers of each compressed layer, flattened, before they are weighted.
        weight: Their weight.
        limits: The value to which the numbers of each layer are clipped.
        scales: The scale of each layer, for weighted numbers.
        keys: Two keys of the random numbers.
        keeps_residuals: Whether a rank keeps what it does not send; not of a step that a `LossScaleOptimizer` skips,
            because a number of some layer is not finite.
    """

    layers: list[Array]
    weight: np.floating[Any]
    limits: Array
    scales: Array
    keys: tuple[int, int]
    keeps_residuals: bool = False


def _divide(sizes: Sequence[int]) -> Iterator[Piece]:
    """Divide layers of the given numbers of numbers into pieces."""
    first_code = 0
    for layer, size in enumerate(sizes):
        for start in range(0, size, 4 * PIECE_BYTES):
            stop = min(start + 4 * PIECE_BYTES, size)
            codes = slice(first_code, first_code + packed_size(stop - start))
            yield Piece(layer, slice(start, stop), codes)
            first_code = codes.stop


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
        self.seed = read_whole_number("HPCRUN_COMPRESSION_SEED", 0, "", "0 or a larger whole number")
        self.codes = load_codes()
        gathered_bits, sharded_bits = bits_per_number(comm.size)
        self._sends_all_codes = gathered_bits <= sharded_bits
        self._memory: dict[Layout, CodeMemory] = {}
        self._gradients: dict[Layout, tuple[list[Array], np.floating[Any]]] = {}  # unpacked layers and their weight

    def pack(self, chunk: Chunk, gradients: Sequence[Array], weight: np.floating[Any]) -> None:
        """Pack the layers that are not compressed; the others are encoded from where they are."""
        layout = self.find_layout(chunk) if chunk.segments else None
        if layout is None or layout.residuals or self.sends_floats(layout.steps + 1):
            super().pack(chunk, gradients, weight)
            return
        layers = []
        for (number, values, memory), is_compressed in zip(chunk.segments, layout.is_compressed, strict=True):
            gradient = select_values(gradients[number], values)
            if is_compressed:
                layers.append(np.ascontiguousarray(gradient))
            else:
                np.multiply(gradient, weight, out=memory)
        self._gradients[layout] = layers, weight

    def sum_layers(self, layout: Layout) -> None:
        """Replace all layers by their sums over the ranks, and update the residuals. Collective."""
        source = self._agree_on_scales(layout)
        self._sum_together(layout.floats)
        is_finite = all(np.isfinite(array).all() for array in (source.scales, *layout.floats))
        source = source._replace(keeps_residuals=bool(layout.residuals) and is_finite)
        if layout.compressed:
            self._gather_codes(layout, source) if self._sends_all_codes else self._reduce_scatter_codes(layout, source)
        for layer, scale in zip(layout.compressed, source.scales, strict=True):
            if not np.isfinite(scale):
                layer.fill(np.nan)  # a rank has a number that is not finite

    def _agree_on_scales(self, layout: Layout) -> Source:
        """Return what this rank encodes, with the largest scales of all ranks. Collective."""
        from mpi4py import MPI

        layers, weight = self._gradients.pop(layout, (layout.compressed, np.float32(1)))
        layers = [layer.reshape(-1) for layer in layers]
        limits = np.array([self._limit(layer) for layer in layers], np.float32)
        scales = np.where(np.isfinite(limits), limits, 1) * weight
        scales[~np.isfinite(limits)] = np.inf
        self.exchange("Allreduce", MPI.IN_PLACE, scales, MPI.MAX)
        return Source(layers, weight, limits, scales, self._keys(layout))

    def _limit(self, values: Array) -> float:
        """Return the largest absolute value of a layer after clipping; infinity if a value is not finite."""
        largest, mean, deviation = self.codes.statistics(values)
        if not np.isfinite(largest):
            return np.inf
        spread = max(deviation, abs(mean))  # numbers that are all alike, as a bias of one, do not deviate
        return min(largest, self.clip_factor * spread) if self.clip_factor else largest

    def _keys(self, layout: Layout) -> tuple[int, int]:
        """Return the keys of the random numbers of this rank in this step."""
        seeds = np.random.SeedSequence((self.seed, self.comm.rank, layout.identity, layout.steps))
        first, second = map(int, seeds.generate_state(2))
        return first, second

    def _find_memory(self, layout: Layout, rows: int) -> CodeMemory:
        if layout not in self._memory:
            sizes = [layer.size for layer in layout.compressed]
            self._memory[layout] = CodeMemory(sizes, rows, self.comm.size)
        return self._memory[layout]

    def _encode(self, layout: Layout, source: Source, piece: Piece, packed: Array) -> None:
        """Encode a piece into its part of `packed`, and update its residual."""
        values, codes = source.layers[piece.layer][piece.values], packed[piece.codes]
        limit, scale = source.limits[piece.layer], source.scales[piece.layer]
        if source.weight > 0 and 0 < scale < np.inf:
            self.codes.encode(values, 4 * piece.codes.start, source.keys, limit, scale / source.weight, codes)
        else:
            codes.fill(0)
        if source.keeps_residuals:
            residual = layout.residuals[piece.layer].reshape(-1)[piece.values]
            self.codes.decode(codes[np.newaxis], scale, residual)
            np.subtract(values, residual, out=residual)

    def _gather_codes(self, layout: Layout, source: Source) -> None:
        """Send all codes to all ranks; while they are on their way, encode the next numbers, and decode."""
        memory = self._find_memory(layout, 1)
        packed, requests, completed = memory.outgoing[0], [], 0
        for message in memory.messages:
            for piece in message:
                self._encode(layout, source, piece, packed)
            codes, incoming = packed[message[0].codes.start : message[-1].codes.stop], memory.incoming_of(message)
            self.sent_bytes += bytes_sent("Allgather", incoming.nbytes, self.comm.size)
            requests.append(self.comm.Iallgather(codes, incoming))
            while completed < len(requests) and requests[completed].Test():  # MPI sends while it is called
                completed += 1
        for message, request in zip(memory.messages, requests, strict=True):
            poll(request.Test, POLL_SECONDS) if self.call is call_polling else request.Wait()
            incoming, first = memory.incoming_of(message), message[0].codes.start
            for layer, values, codes in message:
                if np.isfinite(source.scales[layer]):
                    sums = layout.compressed[layer].reshape(-1)[values]
                    self.codes.decode(incoming[:, codes.start - first : codes.stop - first], source.scales[layer], sums)

    def _reduce_scatter_codes(self, layout: Layout, source: Source) -> None:
        """Exchange shards of the codes, add them, and send the sums to all ranks."""
        ranks, base = self.comm.size, 2 * self.comm.size + 1
        memory = self._find_memory(layout, ranks)
        for piece in chain.from_iterable(memory.messages):
            self._encode(layout, source, piece, memory.outgoing.reshape(-1))
        self.exchange("Alltoall", memory.outgoing, memory.incoming)
        words = self.codes.pack((self.codes.count(memory.incoming) + np.int16(ranks)).view(np.uint16), base)
        all_words = np.empty((ranks, words.size), words.dtype)
        self.exchange("Allgather", words, all_words)
        sums = np.concatenate([self.codes.unpack(row, base, 4 * memory.incoming.shape[1]) for row in all_words])
        for layer, values, codes in chain.from_iterable(memory.messages):
            if np.isfinite(source.scales[layer]):
                numbers = sums[4 * codes.start :][: values.stop - values.start].view(np.int16) - np.int16(ranks)
                np.multiply(numbers, source.scales[layer], out=layout.compressed[layer].reshape(-1)[values])
