"""PyTorch's gradients handed to MPI where they are, by an MPI library that can read a GPU's memory.

Not run on a GPU so far: the tests take the same path with tensors on the CPU, which mpi4py accepts likewise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.train.gradients.buffers import Buffer
from hpcrun.train.gradients.reducer import Reducer
from hpcrun.train.gradients.wire_formats import AllReduce
from hpcrun.train.ranks.collectives import checked_barrier
from hpcrun.train.ranks.waiting import waiting
from hpcrun.train.settings import keras_backend, read_switch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.types import Comm, Data


def is_cuda_aware() -> bool:
    """Return whether MPI gets PyTorch's tensors, as ``$HPCRUN_CUDA_AWARE`` says; off unless it is 1.

    An MPI library that is not CUDA-aware reads a GPU's address as one of the host's, and dies of it.

    Raises:
        HpcrunError: The variable is neither 1 nor 0.
    """
    return read_switch("HPCRUN_CUDA_AWARE", default=False) and keras_backend() == "torch"


class TorchReducer(Reducer):
    """Sums PyTorch tensors on the device that they are on; the numbers by which ranks stay in step go ahead of them.

    Args:
        comm: An MPI communicator of the ranks that take part.
    """

    on_device = True

    def __init__(self, comm: Comm) -> None:
        super().__init__(comm, allreduce=AllReduce(comm))
        self._flats: dict[tuple[Any, ...], Data] = {}
        (self._head,) = Buffer([np.zeros(0, np.float32)], 0, self.allreduce.memory, headed=True).pieces

    def __call__(self, gradients: Sequence[Data], share: float, group: int = 0, last: bool = True) -> list[Data]:
        """Return the weighted sum over all ranks; every rank must call it, with the same shapes and dtype.

        Args:
            gradients: This rank's gradients, of one float dtype, on one device.
            share: This rank's weight.
            group: Which of a step's groups of gradients these are.
            last: Whether it is the step's last one.

        Returns:
            Tensors of the same shapes: views of one that the next call for the same group overwrites.

        Raises:
            HpcrunError: Other ranks have no more batches, or the shares do not add up to a batch.
        """
        import torch

        first, sizes = gradients[0], [g.numel() for g in gradients]
        key = (group, first.dtype, *(g.shape for g in gradients))
        if key not in self._flats:
            self._flats[key] = torch.empty(sum(sizes), dtype=first.dtype, device=first.device)
            checked_barrier("the first gradients' allreduce")
        flat, self._last = self._flats[key], self._head
        with waiting("the gradients' allreduce of step", self.steps + 1), torch.no_grad():
            if group == 0:
                self._reduce_head(self._head, share, ended=False)
                self._read_head(self._head, self.steps + 1)
            torch.cat([g.detach().reshape(-1) for g in gradients], out=flat)
            flat.mul_(share)
            if flat.is_cuda:
                torch.cuda.synchronize_keras_layers(flat.device)  # MPI knows nothing of CUDA's streams
            for piece in flat.split(self.piece // flat.element_size() or len(flat)):
                self.allreduce.sum(piece)
        self.steps += last
        return [part.view(g.shape) for part, g in zip(flat.split(sizes), gradients, strict=True)]
