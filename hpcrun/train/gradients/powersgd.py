"""PowerSGD (Vogels et al., arXiv:1905.13727): sends a matrix of gradients as the product of two thin matrices.

The gradient M of a layer, (n, m), becomes P @ Q.T, with P (n, r) and Q (m, r). One step of the power method, starting
from the previous step's Q, computes P and Q. The difference between the gradient and the product is added to the next
step's gradient (error feedback). ``HPCRUN_POWERSGD_RANK`` is the rank r (default: 4).
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.run.job import read_whole_number
from hpcrun.train.gradients.allreduce import call_blocking
from hpcrun.train.gradients.layerwise import LayerwiseAllReduce
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from hpcrun.train.gradients.allreduce import Call
    from hpcrun.train.gradients.layerwise import Layout
    from hpcrun.train.types import Comm

    Array = np.ndarray[Any, Any]

_NEGLIGIBLE = 1e-6  # of the longest column of Q: the rounding errors of float32


class PowerSgdAllReduce(LayerwiseAllReduce):
    """Allreduce of float32 gradients as matrices of low rank."""

    has_error_feedback = True

    def __init__(self, comm: Comm, call: Call = call_blocking) -> None:
        super().__init__(comm, call)
        self.rank = read_whole_number("HPCRUN_POWERSGD_RANK", 4, "columns", "4", minimum=1)
        self._factors: dict[Layout, list[Array]] = {}  # Q of each layer
        self._limited_threads = _limit_blas_threads()

    def is_compressible(self, layer: Array) -> bool:
        """Return whether a layer is a matrix that is larger than its factors."""
        if layer.ndim < 2 or not super().is_compressible(layer):
            return False
        columns = layer.shape[-1]
        return bool(self.rank * (layer.size / columns + columns) < layer.size)

    def sum_layers(self, layout: Layout) -> None:
        """Replace all layers by their sums over the ranks, and update the residuals. Collective."""
        with self._limited_threads():
            self._sum_layers(layout)

    def _sum_layers(self, layout: Layout) -> None:
        matrices = [layer.reshape(-1, layer.shape[-1]) for layer in layout.compressed]
        factors = self._factors.setdefault(layout, []) or self._draw_factors(layout)
        left_factors = [matrix @ factor for matrix, factor in zip(matrices, factors, strict=True)]
        self._sum_together([*left_factors, *layout.floats])
        left_factors = [np.linalg.qr(left)[0] if np.isfinite(left).all() else left * np.nan for left in left_factors]
        right_factors = [matrix.T @ left for matrix, left in zip(matrices, left_factors, strict=True)]
        self._sum_together(right_factors)
        is_finite = all(np.isfinite(array).all() for array in (*right_factors, *layout.floats))
        for index, (matrix, left, right) in enumerate(zip(matrices, left_factors, right_factors, strict=True)):
            if not np.isfinite(right).all():
                matrix.fill(np.nan)  # a rank's value is not finite
                continue
            if layout.residuals and is_finite:
                residual = layout.residuals[index].reshape(matrix.shape)
                np.matmul(left, right.T / np.float32(-self.comm.size), out=residual)  # this rank's part of the sum
                np.add(residual, matrix, out=residual)
            np.matmul(left, right.T, out=matrix)
            if is_finite:  # else a `LossScaleOptimizer` skips the step
                factors[index] = _normalize(right, factors[index])

    def _draw_factors(self, layout: Layout) -> list[Array]:
        """Draw the first Q of each layer, equal on all ranks."""
        draw = np.random.default_rng(0)
        self._factors[layout] = [
            draw.standard_normal((layer.shape[-1], self.rank), dtype=np.float32) for layer in layout.compressed
        ]
        return self._factors[layout]

    def get_layout_state(self, layout: Layout) -> list[Array]:
        """Return the state of a chunk: its number of steps, its residuals, and Q of each layer."""
        return [*super().get_layout_state(layout), *self._factors.get(layout, [])]

    def restore_layout(self, layout: Layout, arrays: Sequence[Array]) -> None:
        """Restore the state of a chunk."""
        super().restore_layout(layout, arrays)
        factors = [np.array(array) for array in arrays[1 + int(arrays[0][1]) :]]
        if [factor.shape for factor in factors] == [(layer.shape[-1], self.rank) for layer in layout.compressed]:
            self._factors[layout] = factors


def _normalize(columns: Array, before: Array) -> Array:
    """Return columns with the length 1, so that the next product neither overflows nor vanishes.

    Args:
        columns: The new Q of a layer, (m, r).
        before: Its columns replace those of negligible length: a Q of 0, after a gradient of 0, would stay so for ever.
    """
    lengths = np.linalg.norm(columns.astype(np.float64), axis=0)
    is_negligible = lengths <= _NEGLIGIBLE * lengths.max()
    return np.where(is_negligible, before, columns / np.where(is_negligible, 1, lengths)).astype(columns.dtype)


def _limit_blas_threads() -> Callable[[], AbstractContextManager[object]]:
    """Return a function whose context limits NumPy to this rank's threads; more threads would compete for cores."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return nullcontext
    return partial(ThreadpoolController().limit, limits=world().threads, user_api="blas")
