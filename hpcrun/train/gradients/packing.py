"""Bit packing of small integers."""

from __future__ import annotations

from math import ceil, log2
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
WORD_BITS = 64


def pack_codes(codes: Array) -> Array:
    """Pack codes from 0 to 3 into bytes; the byte i has the codes i, i + n/4, i + n/2 and i + 3n/4.

    Args:
        codes: (n,), uint8, with n a multiple of four.

    Returns:
        (n / 4,), uint8.
    """
    quarters = codes.reshape(4, -1)
    packed: Array = quarters[3] << 2
    for quarter in (quarters[2], quarters[1]):
        packed |= quarter
        packed <<= 2
    packed |= quarters[0]
    return packed


def add_codes(packed: Array) -> Array:
    """Return the sums of packed codes over the rows.

    Args:
        packed: (ranks, n / 4), uint8, by `pack_codes`.

    Returns:
        (n,), uint8, or uint16 if the sums may be larger than 255.
    """
    ranks, size = packed.shape
    sums = np.zeros((4, size), np.uint8 if 2 * ranks < 256 else np.uint16)
    for row in packed:
        for index in range(4):
            sums[index] += (row >> (2 * index)) & 3
    return sums.reshape(-1)


def values_per_word(base: int) -> int:
    """Return how many digits to a base fit into a word of 64 bits."""
    return int(WORD_BITS / log2(base))


def pack_numbers(numbers: Array, base: int) -> Array:
    """Pack integers into words of 64 bits, as digits to a base.

    Args:
        numbers: (n,), integers from 0 to base - 1.
        base: The base.

    Returns:
        The words, uint64.
    """
    count = values_per_word(base)
    size = ceil(numbers.size / count)
    digits: Array = np.zeros((count, size), numbers.dtype)
    digits.reshape(-1)[: numbers.size] = numbers
    words = np.zeros(size, np.uint64)
    for row in digits:
        words *= np.uint64(base)
        words += row
    return words


def unpack_numbers(words: Array, base: int, size: int) -> Array:
    """Return the numbers that `pack_numbers` packed into words.

    Args:
        words: The words, uint64.
        base: The base, of which the numbers are digits.
        size: How many numbers there are.

    Returns:
        (size,), uint16.
    """
    digits = np.empty((values_per_word(base), words.size), np.uint16)
    for row in reversed(digits):
        words, row[:] = np.divmod(words, np.uint64(base))
    return digits.reshape(-1)[:size]
