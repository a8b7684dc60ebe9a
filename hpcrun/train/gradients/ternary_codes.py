"""Ternary codes: random rounding of numbers to codes of two bits, and sums of codes.

The codes 0, 1 and 2 stand for 0, 1 and -1. 256 codes fill a tile of 64 bytes, of which byte i has the codes i, i + 64,
i + 128 and i + 192. `NumpyCodes` needs NumPy alone; `CompiledCodes` gets the same bits five times as fast from
``ternary_codes.c``, which each rank compiles at its start (0.3 s) if its host has a C compiler.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hpcrun.train.gradients.packing import pack_numbers, unpack_numbers, values_per_word

Array = np.ndarray[Any, Any]

TILE, TILE_BYTES, _LANES = 256, 64, 16
BLOCK_VALUES = 2**16  # numbers that NumPy handles at once, in buffers that stay in the cache; as in ternary_codes.c
_FLAGS = ("-O2", "-ftree-vectorize", "-funroll-loops", "-ffp-contract=off", "-fPIC", "-shared")
_TARGETS = (("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ())
"""Flags to try, in this order. By default, GCC uses vectors of 256 bits only, which takes 1.5 times as long."""
_COMPILER_TIMEOUT = 60  # s


def packed_size(size: int) -> int:
    """Return the number of bytes of the codes of `size` numbers: whole tiles."""
    return -(-size // TILE) * TILE_BYTES


class NumpyCodes:
    """Encoding, decoding and summation of ternary codes, with NumPy."""

    def statistics(self, values: Array) -> tuple[float, float, float]:
        """Return a layer's largest absolute value, mean and standard deviation; NaN or infinity if any value is.

        Args:
            values: (n,), float32.
        """
        sums, squares, largest = np.zeros(_LANES), np.zeros(_LANES), np.zeros(_LANES, np.float32)
        whole = values.size // _LANES * _LANES
        self._add_moments(values[:whole], sums, squares, largest)
        if whole < values.size:
            self._add_moments(_pad(values[whole:], _LANES), sums, squares, largest)
        with np.errstate(invalid="ignore"):
            mean = float(sums.sum() / values.size)
            variance = float(squares.sum() / values.size - mean**2)
        return float(largest.max()), mean, max(variance, 0.0) ** 0.5

    def _add_moments(self, values: Array, sums: Array, squares: Array, largest: Array) -> None:
        with np.errstate(invalid="ignore"):
            for start in range(0, values.size, BLOCK_VALUES):
                rows = values[start : start + BLOCK_VALUES].reshape(-1, _LANES)
                np.maximum(largest, np.abs(rows).max(0), out=largest)
                sums += np.add.reduce(rows, axis=0, dtype=np.float64)
                squares += np.add.reduce(np.square(rows, dtype=np.float64), axis=0)

    def encode(  # noqa: PLR0917
        self, values: Array, first: int, keys: tuple[int, int], limit: float, scale: float, packed: Array
    ) -> None:
        """Round numbers g at random to scale * sign(g), with the probability |g| / scale, or to 0.

        Args:
            values: (n,), float32.
            first: The number of the first value, from which its random number follows; others count on from it.
            keys: Two keys of the random numbers, of 32 bits each.
            limit: The value to which g is clipped; at most `scale`.
            scale: The scale, more than 0.
            packed: Memory for the codes, `packed_size` bytes.
        """
        whole = values.size // TILE * TILE
        arguments = (*keys, np.float32(limit), np.float32(scale))
        self._encode_tiles(values[:whole], first, *arguments, packed[: whole // 4])
        if whole < values.size:
            self._encode_tiles(_pad(values[whole:], TILE), first + whole, *arguments, packed[whole // 4 :])

    def _encode_tiles(  # noqa: PLR0917
        self, values: Array, first: int, key: int, second_key: int, limit: np.float32, scale: np.float32, packed: Array
    ) -> None:
        for start in range(0, values.size, BLOCK_VALUES):
            block = values[start : start + BLOCK_VALUES]
            numbers = np.arange(first + start, first + start + block.size, dtype=np.uint64).astype(np.uint32)
            draws = (_hash(numbers, key, second_key) >> np.uint32(8)).astype(np.float32)
            draws *= np.float32(2**-24)
            draws *= scale
            codes = (draws < np.minimum(np.abs(block), limit)).view(np.uint8)
            codes <<= (block < 0).view(np.uint8)
            quarters = codes.reshape(-1, 4, TILE_BYTES)
            shifted = quarters << np.arange(0, 8, 2, dtype=np.uint8)[:, np.newaxis]
            np.bitwise_or.reduce(shifted, axis=1, out=packed[start // 4 :][: block.size // 4].reshape(-1, TILE_BYTES))

    def decode(self, packed: Array, scale: float, sums: Array) -> None:
        """Add codes over the ranks, and multiply the sums by the scale.

        Args:
            packed: (ranks, bytes), uint8, the codes of n numbers of each rank, by `encode`; rows may lie apart.
            scale: The scale.
            sums: Memory for the sums, (n,), float32.
        """
        np.multiply(self.count(packed)[: sums.size], np.float32(scale), out=sums, dtype=np.float32, casting="unsafe")

    def count(self, packed: Array) -> Array:
        """Return the sums of codes over the ranks.

        Args:
            packed: (ranks, bytes), uint8, whole tiles by `encode`; rows may lie apart.

        Returns:
            (4 * bytes,), int16.
        """
        sums = np.zeros((packed.shape[1] // TILE_BYTES, 4, TILE_BYTES), np.int16)
        for row in packed:
            tiles = row.reshape(-1, TILE_BYTES)
            for quarter in range(4):
                codes = (tiles >> np.uint8(2 * quarter)) & np.uint8(3)
                sums[:, quarter] += (codes & np.uint8(1)).view(np.int8)
                sums[:, quarter] -= (codes >> np.uint8(1)).view(np.int8)
        return sums.reshape(-1)

    def pack(self, numbers: Array, base: int) -> Array:
        """Pack integers into words of 64 bits; see `packing.pack_numbers`."""
        return pack_numbers(numbers, base)

    def unpack(self, words: Array, base: int, size: int) -> Array:
        """Return the numbers that `pack` packed into words; see `packing.unpack_numbers`."""
        return unpack_numbers(words, base, size)


class CompiledCodes(NumpyCodes):
    """The same functions, compiled.

    Args:
        library: ``ternary_codes.c``, compiled.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def _add_moments(self, values: Array, sums: Array, squares: Array, largest: Array) -> None:
        self._call("add_moments", values, values.size, sums, squares, largest)

    def _encode_tiles(  # noqa: PLR0917
        self, values: Array, first: int, key: int, second_key: int, limit: np.float32, scale: np.float32, packed: Array
    ) -> None:
        words = (ctypes.c_uint32(number) for number in (first, key, second_key))
        factors = (ctypes.c_float(float(number)) for number in (limit, scale))
        self._call("encode", values, values.size, *words, *factors, packed)

    def decode(self, packed: Array, scale: float, sums: Array) -> None:
        """Add codes over the ranks, and multiply the sums by the scale; see `NumpyCodes.decode`."""
        whole = sums.size // TILE * TILE
        arguments = packed.shape[0], packed.strides[0]
        self._call("decode", packed, *arguments, whole, ctypes.c_float(scale), sums)
        if whole < sums.size:
            last = np.empty(TILE, np.float32)
            self._call("decode", packed[:, whole // 4 :], *arguments, TILE, ctypes.c_float(scale), last)
            sums[whole:] = last[: sums.size - whole]

    def count(self, packed: Array) -> Array:
        """Return the sums of codes over the ranks; see `NumpyCodes.count`."""
        sums = np.empty(4 * packed.shape[1], np.int16)
        self._call("count", packed, packed.shape[0], packed.strides[0], sums.size, sums)
        return sums

    def pack(self, numbers: Array, base: int) -> Array:
        """Pack integers into words of 64 bits; see `packing.pack_numbers`."""
        digits = values_per_word(base)
        words = np.empty(-(-numbers.size // digits), np.uint64)
        self._call("pack", numbers, numbers.size, base, digits, words.size, words)
        return words

    def unpack(self, words: Array, base: int, size: int) -> Array:
        """Return the numbers that `pack` packed into words; see `packing.unpack_numbers`."""
        numbers = np.empty(size, np.uint16)
        self._call("unpack", words, size, base, values_per_word(base), words.size, numbers)
        return numbers

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function with arrays whose last axis is contiguous, whole numbers, and values of ctypes."""
        words = (
            ctypes.c_void_p(argument.ctypes.data)
            if isinstance(argument, np.ndarray)
            else ctypes.c_int64(argument)
            if isinstance(argument, int)
            else argument
            for argument in arguments
        )
        getattr(self._library, f"hpcrun_{name}")(*words)


def _pad(values: Array, multiple: int) -> Array:
    return np.concatenate([values, np.zeros(-values.size % multiple, values.dtype)])


def _hash(numbers: Array, key: int, second_key: int) -> Array:
    """Return 32 random bits for each number; as in ``ternary_codes.c``."""
    numbers = numbers + np.uint32(key)
    numbers ^= numbers >> np.uint32(16)
    numbers *= np.uint32(0x846CA68B)
    numbers ^= numbers >> np.uint32(16)
    numbers += np.uint32(second_key)
    numbers ^= numbers >> np.uint32(16)
    numbers *= np.uint32(0x21F0AAAD)
    numbers ^= numbers >> np.uint32(15)
    numbers *= np.uint32(0x735A2D97)
    numbers ^= numbers >> np.uint32(15)
    return numbers


@cache
def load_codes() -> NumpyCodes:
    """Compile the functions for this host's processor, with ``$CC`` or ``cc``; return those of NumPy if that fails."""
    compiler = shutil.which(os.environ.get("CC") or "cc") or ""
    source = Path(__file__).with_name("ternary_codes.c")
    for target in _TARGETS if compiler else ():
        # Only this process uses the library: another host's processor may be another one.
        with tempfile.TemporaryDirectory(prefix="hpcrun-") as folder:
            command = [compiler, *_FLAGS, *target, "-o", f"{folder}/codes.so", str(source), "-lm"]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=_COMPILER_TIMEOUT)
                return CompiledCodes(ctypes.CDLL(f"{folder}/codes.so"))
            except (OSError, subprocess.SubprocessError):
                continue
    return NumpyCodes()
