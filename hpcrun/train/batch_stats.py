"""Batch statistics (mean and variance) over all ranks, differentiable on each of Keras's backends.

A rank sends its statistics as an array of shape (3, C): number of values, mean and variance of each channel. The arrays
of all ranks are combined as in Chan, Golub and LeVeque ("Algorithms for Computing the Sample Variance", The American
Statistician 37, 1983), which is more accurate than E[x^2] - E[x]^2.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from hpcrun.errors import HpcrunError
from hpcrun.train.backends import call_on_host, is_compiled_by_xla
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.train.types import Data

    Array = np.ndarray[Any, Any]


def combine_over_ranks(local_stats: Data, share: Data) -> Data:
    """Return the statistics of the values of all ranks. Collective: all ranks must make these calls in the same order.

    The loss of rank r is a mean over its samples, and gradients are summed with the weight share_r. So the backward
    pass on rank r returns the gradient of sum_k share_k L_k with respect to its statistics, divided by share_r.

    Args:
        local_stats: This rank's counts, means and variances, shape (3, C), float32 or float64. Channels with a count of
            0 are ignored.
        share: This rank's share of the batch, a scalar of the same dtype as `local_stats`.

    Returns:
        The combined statistics, of the same shape and dtype as `local_stats`, equal on all ranks.

    Raises:
        HpcrunError: XLA compiles the step (on TensorFlow), or Keras's backend cannot train.
    """
    backends = {"tensorflow": _combine_on_tensorflow, "torch": _combine_on_torch, "jax": _combine_on_jax}
    if (backend := keras.backend.backend()) not in backends:
        raise _keep_message(HpcrunError(f"batch statistics cannot be synchronized on Keras's backend {backend}"))
    return backends[backend](local_stats, share)


def combine(local_stats: Array) -> Array:
    """Gather and combine the statistics of all ranks (one MPI_Allgather).

    Args:
        local_stats: This rank's counts, means and variances, shape (3, C).
    """
    gathered_stats = np.empty((world().size, *local_stats.shape), local_stats.dtype)
    world().comm.Allgather(np.ascontiguousarray(local_stats), gathered_stats)
    counts, means, variances = gathered_stats.astype(np.float64).swapaxes(0, 1)  # (ranks, C) each
    means, variances = (
        np.where(counts > 0, a, 0) for a in (means, variances)
    )  # for a channel without values, mean and variance may be NaN
    weights = counts / np.maximum(counts.sum(0), 1)
    mean = (weights * means).sum(0)
    variance = (weights * (variances + (means - mean) ** 2)).sum(0)
    return np.stack([counts.sum(0), mean, variance]).astype(local_stats.dtype)


def backpropagate(local_stats: Array, combined_stats: Array, share: Array, gradient: Array) -> Array:
    """Return the gradient with respect to this rank's statistics (one MPI_Allreduce).

    Args:
        local_stats: The argument of `combine`, shape (3, C).
        combined_stats: The result of `combine`.
        share: This rank's share of the batch, a scalar.
        gradient: The gradient of this rank's loss with respect to `combined_stats`.
    """
    # Gradients of a rank without samples may be infinite, and 0 times infinity would be NaN on all ranks.
    weighted_gradient = np.ascontiguousarray(gradient[1:] * share if share > 0 else np.zeros_like(gradient[1:]))
    global_gradient = np.empty_like(weighted_gradient)
    world().comm.Allreduce(weighted_gradient, global_gradient)
    local_gradient = np.zeros_like(gradient)
    if share > 0:
        weight = local_stats[0] / np.maximum(combined_stats[0], 1) / share
        local_gradient[1] = np.where(
            weight > 0, weight * (global_gradient[0] + 2 * (local_stats[1] - combined_stats[1]) * global_gradient[1]), 0
        )
        local_gradient[2] = weight * global_gradient[1]
    return local_gradient


def _combine_on_tensorflow(local_stats: Data, share: Data) -> Data:
    import tensorflow as tf

    if is_compiled_by_xla():
        raise _keep_message(
            HpcrunError(
                "XLA cannot compile synchronized batch normalization: its statistics come from the other ranks",
                hint="compile without jit_compile=True, or use keras.layers.BatchNormalization(synchronized=False)",
            )
        )

    @tf.custom_gradient  # type: ignore[untyped-decorator]  # tensorflow is untyped
    def combine_differentiably(local_stats: Data, share: Data) -> Data:
        combined_stats = _call_with_statistics(combine, local_stats)

        def gradient(upstream_gradient: Data) -> Data:
            return _call_with_statistics(backpropagate, local_stats, combined_stats, share, upstream_gradient), None

        return combined_stats, gradient

    return combine_differentiably(local_stats, share)


def _combine_on_torch(local_stats: Data, share: Data) -> Data:
    # Keras infers shapes on the device "meta", on which nothing can be computed.
    return local_stats if local_stats.device.type == "meta" else _torch_function().apply(local_stats, share)


@cache
def _torch_function() -> Data:
    import torch

    class CombineStatistics(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped
        @staticmethod
        def forward(context: Data, local_stats: Data, share: Data) -> Data:
            combined_stats = _call_with_statistics(combine, local_stats)
            context.save_for_backward(local_stats, combined_stats, share)
            return combined_stats

        @staticmethod
        def backward(context: Data, upstream_gradient: Data) -> Data:
            return _call_with_statistics(backpropagate, *context.saved_tensors, upstream_gradient), None

    return CombineStatistics


def _combine_on_jax(local_stats: Data, share: Data) -> Data:
    import jax

    # JAX refuses ordered callbacks inside a custom_vjp, but not before it or in its backward pass.
    combined_stats = _call_with_statistics(combine, jax.lax.stop_gradient(local_stats))

    @jax.custom_vjp  # type: ignore[untyped-decorator]  # jax is untyped
    def combine_differentiably(local_stats: Data, combined_stats: Data, share: Data) -> Data:  # noqa: ARG001
        return combined_stats

    def forward(*arguments: Data) -> Data:
        return arguments[1], arguments

    def backward(arguments: Data, upstream_gradient: Data) -> Data:
        local_stats, combined_stats, share = arguments
        local_gradient = _call_with_statistics(backpropagate, local_stats, combined_stats, share, upstream_gradient)
        return local_gradient, jax.numpy.zeros_like(combined_stats), jax.numpy.zeros_like(share)

    combine_differentiably.defvjp(forward, backward)
    return combine_differentiably(local_stats, combined_stats, share)


def _call_with_statistics(function: Callable[..., Array], local_stats: Data, *tensors: Data) -> Data:
    dtype = keras.backend.standardize_dtype(local_stats.dtype)
    return call_on_host(lambda *arrays: [function(*arrays)], [local_stats, *tensors], [local_stats.shape], dtype)[0]


def _keep_message(error: HpcrunError) -> HpcrunError:
    error._keras_call_info_injected = True  # type: ignore[attr-defined]  # noqa: SLF001  (keeps Keras from replacing this error by one without its hint)
    return error
