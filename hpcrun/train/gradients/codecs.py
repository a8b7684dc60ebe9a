"""Codecs, in which ranks send gradients to each other: unrounded, in 16 bits, ternary, or as matrices of low rank.

``HPCRUN_COMPRESS``, which the option ``--compress`` sets, names the codec. ``none`` sends float32 unchanged. ``bf16``
and ``fp16`` halve the bytes, but are faster only on slow networks. The 102 MB of ResNet-50 took 870 ms as float32, 460
ms as bf16 and 530 ms as fp16 between two hosts at 1 Gbit/s; 130, 100 and 165 ms at 10 Gbit/s; 40, 60 and 130 ms in
shared memory. ``bf16`` has float32's range and 8 significant bits. ``fp16`` has 11 significant bits, but only between
6e-8 and 65504: larger numbers become infinity, which a `LossScaleOptimizer` handles, and smaller numbers become 0.
``ternary`` and ``powersgd`` change the gradients; see `hpcrun.train.gradients.ternary` and `powersgd`.

``HPCRUN_HIERARCHICAL=1`` sums within each host first and then between hosts, if all hosts have the same number of
ranks, at least two. The hierarchical sum is off by default: MPICH's MPI_Allreduce also sends numbers between hosts only
once per host, and was at least as fast.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.train.gradients.allreduce import AllReduce, call_blocking
from hpcrun.train.gradients.half_precision import BFloat16AllReduce, Float16AllReduce
from hpcrun.train.gradients.hierarchical import HierarchicalAllReduce, has_equal_host_sizes
from hpcrun.train.gradients.layerwise import LayerwiseAllReduce
from hpcrun.train.gradients.powersgd import PowerSgdAllReduce
from hpcrun.train.gradients.ternary import TernaryAllReduce
from hpcrun.train.settings import read_switch

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from hpcrun.train.gradients.allreduce import Call
    from hpcrun.train.types import Comm

CODECS: dict[str, type[AllReduce]] = {
    "none": AllReduce,
    "fp16": Float16AllReduce,
    "bf16": BFloat16AllReduce,
    "ternary": TernaryAllReduce,
    "powersgd": PowerSgdAllReduce,
}

AUTO = "auto"
"""The value of ``$HPCRUN_COMPRESS`` that lets `codec_choice` choose."""


def choose_allreduce(comm: Comm, hosts: Sequence[Hashable], call: Call = call_blocking) -> AllReduce:
    """Create the allreduce that ``$HPCRUN_COMPRESS`` and ``$HPCRUN_HIERARCHICAL`` select.

    Args:
        comm: An MPI communicator of the participating ranks. Collective.
        hosts: Each rank's host, in rank order.
        call: `call_blocking` or `call_polling`, which calls a collective and waits for its end.

    Raises:
        HpcrunError: The codec is unknown, or compresses layers that the hierarchical sum would divide.
    """
    codec = read_codec()
    is_hierarchical = read_switch("HPCRUN_HIERARCHICAL", default=False)
    if is_hierarchical and issubclass(codec, LayerwiseAllReduce):
        raise HpcrunError(
            f"--compress={os.environ['HPCRUN_COMPRESS']} compresses whole layers, which HPCRUN_HIERARCHICAL=1 divides "
            "among the ranks of a host",
            hint="leave out one of them",
        )
    if is_hierarchical and has_equal_host_sizes(hosts):
        return HierarchicalAllReduce(comm, hosts, call, codec)
    return codec(comm, call)


def create_codec(comm: Comm) -> AllReduce:
    """Create the allreduce that ``$HPCRUN_COMPRESS`` selects, for a communicator of any kind.

    Raises:
        HpcrunError: The codec is unknown.
    """
    return read_codec()(comm)


def read_codec() -> type[AllReduce]:
    """Return the codec that ``$HPCRUN_COMPRESS`` names; ``auto`` begins without compression.

    Raises:
        HpcrunError: The codec is unknown.
    """
    name = "none" if is_automatic() else os.environ.get("HPCRUN_COMPRESS") or "none"
    if name not in CODECS:
        raise HpcrunError(f"HPCRUN_COMPRESS={name}: unknown codec", hint=f"one of {', '.join((*CODECS, AUTO))}")
    return CODECS[name]


def is_automatic() -> bool:
    """Return whether ``$HPCRUN_COMPRESS`` leaves the choice of the codec to a measurement of the first steps."""
    return os.environ.get("HPCRUN_COMPRESS") == AUTO
