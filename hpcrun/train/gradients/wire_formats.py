"""Allreduce of gradients: unrounded, as 16-bit numbers, or hierarchical by host.

``HPCRUN_WIRE`` is the format of numbers on the network: ``float32`` (unchanged, the default), or ``bfloat16`` or
``float16`` for half the bytes. These pay on slow networks only. ResNet-50's 102 MB took, between two hosts at 1 Gbit/s,
870 ms as float32, 460 as bfloat16 and 530 as float16; at 10 Gbit/s 130, 100 and 165; and in shared memory 40, 60 and
130. ``bfloat16`` has float32's range and 8 significant bits. ``float16`` has 11, but only between 6e-8 and 65504:
larger numbers become infinite, which a `LossScaleOptimizer` handles, and smaller ones 0.

``HPCRUN_HIERARCHICAL=1`` sums within each host first and then between the hosts, if all hosts have the same number of
ranks, and more than one. MPICH's MPI_Allreduce already sends the numbers between hosts once per host, and was as fast
or faster, so it is off by default.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.train.gradients.allreduce import AllReduce, call_blocking
from hpcrun.train.gradients.half_precision import BFloat16AllReduce, Float16AllReduce
from hpcrun.train.gradients.hierarchical import HierarchicalAllReduce, has_even_hosts
from hpcrun.train.settings import read_switch

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from hpcrun.train.gradients.allreduce import Call
    from hpcrun.train.types import Comm

WIRE_FORMATS: dict[str, type[AllReduce]] = {
    "float32": AllReduce,
    "float16": Float16AllReduce,
    "bfloat16": BFloat16AllReduce,
}


def choose_allreduce(comm: Comm, hosts: Sequence[Hashable], call: Call = call_blocking) -> AllReduce:
    """Create the allreduce that ``$HPCRUN_WIRE`` and ``$HPCRUN_HIERARCHICAL`` select.

    Args:
        comm: An MPI communicator of the ranks that take part; all of them must call this.
        hosts: Each rank's host, in rank order.
        call: How to wait.

    Raises:
        HpcrunError: The wire format is unknown.
    """
    name = os.environ.get("HPCRUN_WIRE") or "float32"
    if name not in WIRE_FORMATS:
        raise HpcrunError(f"HPCRUN_WIRE={name}: unknown wire format", hint=f"one of {', '.join(WIRE_FORMATS)}")
    if read_switch("HPCRUN_HIERARCHICAL", default=False) and has_even_hosts(hosts):
        return HierarchicalAllReduce(comm, hosts, call, WIRE_FORMATS[name])
    return WIRE_FORMATS[name](comm, call)
