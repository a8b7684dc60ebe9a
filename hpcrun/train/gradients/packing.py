"""Packing of small integers into words of 64 bits."""

from __future__ import annotations

from math import ceil, log2
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
WORD_BITS = 64


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
