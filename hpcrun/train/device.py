"""The part of a host that one rank's TensorFlow may use: its CPU threads and its GPU."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.train.quiet import without_notes

if TYPE_CHECKING:
    from hpcrun.train.world import World


def bind(me: World) -> str:
    """Give this rank its share of the host's CPU threads, and one GPU where there are GPUs.

    The launcher may already have narrowed CUDA_VISIBLE_DEVICES to this rank's GPU: the index is the local rank modulo
    the number of GPUs that TensorFlow sees. Memory grows on demand, because ranks may have to share a GPU.

    Args:
        me: This rank's place among the others.

    Returns:
        The device, in words.

    Raises:
        HpcrunError: TensorFlow had already settled on its GPUs.
    """
    with without_notes():
        import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    try:
        tf.config.threading.set_intra_op_parallelism_threads(me.threads)
        tf.config.threading.set_inter_op_parallelism_threads(me.threads)
        if gpus:
            gpu = gpus[me.local_rank % len(gpus)]
            tf.config.set_visible_devices([gpu], "GPU")
            tf.config.experimental.set_memory_growth(gpu, enable=True)
    except RuntimeError as error:  # TensorFlow's devices are fixed from its first tensor on
        hint = "call hpcrun.train.init() before anything that makes a tensor or a model"
        if gpus and me.size > 1:
            raise HpcrunError("TensorFlow took its GPUs before hpcrun.train could share them out", hint=hint) from error
        if me.rank == 0:
            print(
                f"WARNING: TensorFlow started before hpcrun.train: it keeps its devices. HINT: {hint}", file=sys.stderr
            )
    if gpus:
        return str(tf.config.experimental.get_device_details(gpus[me.local_rank % len(gpus)]).get("device_name", "GPU"))
    if me.rank == 0 and int(os.environ.get("HPCRUN_GPUS_PER_NODE") or 0) > 0:
        gpus_per_node = os.environ["HPCRUN_GPUS_PER_NODE"]
        print(
            f"WARNING: the job has {gpus_per_node} GPUs a node, but TensorFlow sees none: training on the CPU. "
            "HINT: pip install 'hpcrun[train-gpu]', and look at the site's CUDA modules",
            file=sys.stderr,
        )
    return f"CPU ({me.threads} thread{'s' * (me.threads > 1)})"
