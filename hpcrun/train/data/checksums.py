"""Checksums by which ranks compare their data."""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_COMPARED_SAMPLES = 64  # number of samples: enough to detect a different order, without reading a whole file
_TOLERANCE = 1e-6  # allowed difference of two checksums, relative to the sum of magnitudes


def sample_indices(samples: int) -> Array:
    """Return the indices of the samples to compare, int64 of shape (n,), with n at most 64."""
    return np.linspace(0, samples - 1, min(samples, _COMPARED_SAMPLES)).astype(int)


class Checksum:
    """A checksum of an array that depends on its values and their order.

    Floats that differ by rounding count as equal, because processors round `np.log` or a matrix product differently.
    Only the file names of paths are compared, because folders may differ between hosts.

    Args:
        array: An array of any dtype; Python objects other than strings are compared by repr().
    """

    def __init__(self, array: Array) -> None:
        kind = array.dtype.kind
        self.kind = f"{'strings' if kind in 'OSU' else array.dtype}{list(array.shape)}"
        self.value: float
        self.magnitude = 0.0
        if kind == "f" and array.size:
            table = array.reshape(array.shape[0] if array.ndim else 1, -1).astype(float)
            values = np.nan_to_num(table, posinf=1, neginf=-1)
            rows, columns = (np.cos(np.arange(length)) for length in values.shape)
            self.value = float(rows @ values @ columns)
            self.magnitude = float(np.abs(values).sum())
        else:
            data = repr([_file_name(value) for value in array.flat]).encode() if kind in "OSU" else array.tobytes()
            self.value = zlib.crc32(data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Checksum) or self.kind != other.kind:
            return False
        return abs(self.value - other.value) <= _TOLERANCE * max(self.magnitude, other.magnitude)

    __hash__ = None  # type: ignore[assignment]  # not hashable: equality has a tolerance

    def __repr__(self) -> str:
        return f"{self.kind} {self.value:{'.6g' if isinstance(self.value, float) else '08x'}}"


def _file_name(value: object) -> object:
    return os.fsdecode(value).rpartition("/")[2] if isinstance(value, str | bytes) else value
