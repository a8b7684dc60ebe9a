"""The memory of messages between stages: a buffer on the host, or the tensors themselves, also on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import tensorflow as tf

from hpcrun.train.ranks.cuda_support import require_cuda_support

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.types import Data

    Array = np.ndarray[Any, Any]

Spec = list[tuple[tuple[int, ...], str]]
"""Shape and dtype of each tensor of a message."""

_ALIGNMENT = 64  # of each tensor in a buffer, in bytes
_CPU = 1  # kDLCPU of DLPack


class MessageMemory(Protocol):
    """How the tensors of a message are given to MPI."""

    def pack(self, tensors: Sequence[tf.Tensor], spec: Spec) -> Sequence[Any]:
        """Return buffers for MPI with the tensors, which stay as they are until MPI has sent them."""

    def allocate(self, spec: Spec) -> Sequence[Any]:
        """Return buffers for MPI that take tensors."""

    def unpack(self, buffers: Sequence[Any], spec: Spec) -> Sequence[Data]:
        """Return the tensors that MPI has written to buffers."""


class HostMemory:
    """One buffer for all tensors, on the host."""

    def pack(self, tensors: Sequence[tf.Tensor], spec: Spec) -> list[Array]:
        """Copy tensors to a buffer."""
        buffers = self.allocate(spec)
        for tensor, part in zip(tensors, self.unpack(buffers, spec), strict=True):
            part[...] = tensor.numpy()
        return buffers

    def allocate(self, spec: Spec) -> list[Array]:
        """Return a buffer of bytes."""
        return [np.empty(sum(_padded_bytes(*item) for item in spec), np.uint8)]

    def unpack(self, buffers: Sequence[Array], spec: Spec) -> list[Array]:
        """Return views of a buffer."""
        views, start = [], 0
        for shape, dtype in spec:
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            views.append(buffers[0][start : start + size].view(dtype).reshape(shape))
            start += _padded_bytes(shape, dtype)
        return views


class DeviceMemory:
    """The memory of each tensor, which MPI reads and writes without a copy. MPI must be CUDA-aware.

    This class has not been tested with a CUDA-aware MPI: the tests use tensors on the CPU, which mpi4py also accepts.
    """

    def pack(self, tensors: Sequence[tf.Tensor], spec: Spec) -> list[SharedTensor]:  # noqa: ARG002
        """Return the tensors as buffers."""
        return [SharedTensor(tensor) for tensor in tensors]

    def allocate(self, spec: Spec) -> list[SharedTensor]:
        """Return tensors without values as buffers."""
        return [SharedTensor(tf.raw_ops.Empty(shape=shape, dtype=dtype)) for shape, dtype in spec]

    def unpack(self, buffers: Sequence[SharedTensor], spec: Spec) -> list[tf.Tensor]:  # noqa: ARG002
        """Return the tensors."""
        return [buffer.tensor for buffer in buffers]


class SharedTensor:
    """A tensor as mpi4py reads it, through DLPack's first protocol, which is the one that TensorFlow has.

    Args:
        tensor: The tensor.

    Raises:
        HpcrunError: The tensor is on a GPU, and the MPI library does not support CUDA.
    """

    def __init__(self, tensor: tf.Tensor) -> None:
        self.tensor = tensor
        self._device: tuple[int, int] = tensor.__dlpack_device__()
        if self._device[0] != _CPU:
            require_cuda_support()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, stream: int | None = None) -> Any:
        return tf.experimental.dlpack.to_dlpack(self.tensor)  # waits until the device has computed the tensor


def _padded_bytes(shape: tuple[int, ...], dtype: str) -> int:
    return -(-int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT
