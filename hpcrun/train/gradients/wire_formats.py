"""Allreduce of gradients: unrounded, as 16-bit numbers, or hierarchical by host.

``HPCRUN_WIRE`` is the format of numbers on the network: ``float32`` (unchanged, the default), or ``bfloat16`` or
``float16``, which halve the bytes but are faster on slow networks only. The 102 MB of ResNet-50 took 870 ms as float32,
460 ms as bfloat16 and 530 ms as float16 between two hosts at 1 Gbit/s; 130, 100 and 165 ms at 10 Gbit/s; 40, 60 and
130 ms in shared memory. ``bfloat16`` has float32's range and 8 significant bits. ``float16`` has 11 significant bits,
but only between 6e-8 and 65504: larger numbers become infinity, which a `LossScaleOptimizer` handles, and smaller
numbers become 0.

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
        comm: An MPI communicator of the participating ranks. Collective.
        hosts: Each rank's host, in rank order.
        call: `call_blocking` or `call_polling`, which calls a collective and waits for its end.

    Raises:
        HpcrunError: The wire format is unknown.
    """
    name = os.environ.get("HPCRUN_WIRE") or "float32"
    if name not in WIRE_FORMATS:
        raise HpcrunError(f"HPCRUN_WIRE={name}: unknown wire format", hint=f"one of {', '.join(WIRE_FORMATS)}")
    if read_switch("HPCRUN_HIERARCHICAL", default=False) and has_equal_host_sizes(hosts):
        return HierarchicalAllReduce(comm, hosts, call, WIRE_FORMATS[name])
    return WIRE_FORMATS[name](comm, call)
