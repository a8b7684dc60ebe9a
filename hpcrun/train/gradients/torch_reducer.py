"""The gradients of PyTorch are sent from GPU memory by a CUDA-aware MPI.

This module has not been tested with a CUDA-aware MPI: the tests use tensors on the CPU, which mpi4py also accepts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.run.waiting import waiting
from hpcrun.train.gradients.allreduce import AllReduce
from hpcrun.train.gradients.buffers import Buffer
from hpcrun.train.gradients.reducer import Reducer
from hpcrun.train.ranks.collectives import checked_barrier
from hpcrun.train.ranks.cuda_support import require_cuda_support

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.types import Comm, Data


class TorchReducer(Reducer):
    """Reducer of PyTorch tensors on their device; the header (share and stop flags) is a separate first message.

    Args:
        comm: The MPI communicator of the participating ranks.
    """

    on_device = True

    def __init__(self, comm: Comm) -> None:
        super().__init__(comm, allreduce=AllReduce(comm))
        self.codec = "none"  # HPCRUN_COMPRESS is ignored
        self._flats: dict[tuple[Any, ...], Data] = {}
        (self._header,) = Buffer([np.zeros(0, np.float32)], 0, self.allreduce.memory, with_header=True).chunks

    def __call__(
        self,
        gradients: Sequence[Data],
        share: float,
        group: int = 0,
        is_last_group: bool = True,
        paths: tuple[str, ...] = (),  # noqa: ARG002
    ) -> list[Data]:
        """Return the weighted sum of gradients over all ranks. Collective; equal shapes and dtype on all ranks.

        Args:
            gradients: This rank's gradients, of one float dtype, on one device.
            share: This rank's share of the batch, the weight of its gradients.
            group: Number of this group of gradients in the step, from 0.
            is_last_group: Whether this is the last group of the step.
            paths: The paths of the variables, which matter to codecs only.

        Returns:
            Tensors of the same shapes, as views of a buffer that the next call for the same group overwrites.

        Raises:
            HpcrunError: Other ranks have no more batches, or the ranks' shares do not add up to 1.
        """
        import torch

        first_gradient, sizes = gradients[0], [g.numel() for g in gradients]
        key = (group, first_gradient.dtype, *(g.shape for g in gradients))
        if key not in self._flats:
            if first_gradient.is_cuda:
                require_cuda_support()
            self._flats[key] = torch.empty(sum(sizes), dtype=first_gradient.dtype, device=first_gradient.device)
            checked_barrier("the first gradients' allreduce")
        flat, self._header_chunk = self._flats[key], self._header
        with waiting("the gradients' allreduce of step", self.steps + 1), torch.no_grad():
            if group == 0:
                self._reduce_header(self._header, share, has_ended=False)
                self._read_header(self._header, self.steps + 1)
            torch.cat([g.detach().reshape(-1) for g in gradients], out=flat)
            flat.mul_(share)
            if flat.is_cuda:
                torch.cuda.synchronize(flat.device)  # MPI does not wait for CUDA streams
            for chunk in flat.split(self.chunk_bytes // flat.element_size() or len(flat)):
                self.allreduce.sum(chunk)
        self.steps += is_last_group
        return [part.view(g.shape) for part, g in zip(flat.split(sizes), gradients, strict=True)]
