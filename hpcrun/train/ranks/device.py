"""Settings of one rank's CPU threads and GPU in the backend library of Keras."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, pluralize
from hpcrun.train.ranks.startup_messages import drop_startup_messages
from hpcrun.train.settings import is_overlap_enabled, keras_backend, keras_library

if TYPE_CHECKING:
    from hpcrun.train.ranks.world import World

_HINT = "call hpcrun.train.init() before the first tensor or model"


def bind_device(this_rank: World) -> str:
    """Assign this rank its part of the host's CPU threads, and one GPU if there are GPUs.

    The index of the GPU is the local rank modulo the number of GPUs that the library sees, because the launcher may
    already have restricted CUDA_VISIBLE_DEVICES to this rank's GPU.

    Args:
        this_rank: This rank's number, hosts and CPU threads.

    Returns:
        A description of the device.

    Raises:
        HpcrunError: TensorFlow has already initialized its GPUs.
    """
    if gpu := {"jax": _bind_jax, "torch": _bind_torch}.get(keras_backend(), _bind_tensorflow)(this_rank):
        return gpu
    if this_rank.rank == 0 and int(os.environ.get("HPCRUN_GPUS_PER_NODE") or 0) > 0:
        gpus_per_node, library = os.environ["HPCRUN_GPUS_PER_NODE"], keras_library()
        print(
            f"WARNING: the job has {gpus_per_node} GPUs a node, but {library} sees none: training on the CPU. "
            "HINT: pip install 'hpcrun-slurm[train-gpu]', and look at the site's CUDA modules",
            file=sys.stderr,
        )
    return f"CPU ({pluralize(this_rank.threads, 'thread')})"


def _bind_tensorflow(this_rank: World) -> str | None:
    """Set TensorFlow's threads and GPU; GPU memory grows on demand, because ranks may share a GPU."""
    with drop_startup_messages():
        import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    try:
        tf.config.threading.set_intra_op_parallelism_threads(this_rank.threads)
        # One thread waits in MPI while a second thread continues the backward pass.
        tf.config.threading.set_inter_op_parallelism_threads(max(this_rank.threads, 1 + is_overlap_enabled()))
        if gpus:
            gpu = gpus[this_rank.local_rank % len(gpus)]
            tf.config.set_visible_devices([gpu], "GPU")
            tf.config.experimental.set_memory_growth(gpu, enable=True)
    except RuntimeError as error:  # TensorFlow fixes its devices when the first tensor is created
        if gpus and this_rank.size > 1:
            raise HpcrunError(
                "TensorFlow initialized its GPUs before hpcrun.train could assign them to ranks", hint=_HINT
            ) from error
        if this_rank.rank == 0:
            print(
                f"WARNING: TensorFlow started before hpcrun.train and keeps its devices. HINT: {_HINT}", file=sys.stderr
            )
    if not gpus:
        return None
    return str(
        tf.config.experimental.get_device_details(gpus[this_rank.local_rank % len(gpus)]).get("device_name", "GPU")
    )


def _bind_torch(this_rank: World) -> str | None:
    import torch

    torch.set_num_threads(this_rank.threads)
    if not torch.cuda.is_available():
        return None
    torch.cuda.set_device(this_rank.local_rank % torch.cuda.device_count())
    return str(torch.cuda.get_device_name())


def _bind_jax(this_rank: World) -> str | None:
    # XLA's CPU client reads XLA_FLAGS at start, and would otherwise use one thread per core of the host. If a flag
    # occurs twice, XLA uses the last one, here the user's. If XLA_FLAGS does not begin with a dash, it is the name of a
    # file with flags.
    flags = os.environ.get("XLA_FLAGS", "").strip()
    if this_rank.size > 1 and (not flags or flags.startswith("-")):
        threads_flag = f"--xla_cpu_multi_thread_eigen={'true' if this_rank.threads > 1 else 'false'}"
        os.environ["XLA_FLAGS"] = f"{threads_flag} {flags}".strip()
    visible_gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus_on_host = int(os.environ.get("HPCRUN_GPUS_PER_NODE") or 0) or len((visible_gpus or "").split(","))
    if visible_gpus and this_rank.local_size > gpus_on_host:  # JAX would reserve 3/4 of a GPU's memory per rank
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    if visible_gpus:
        jax.config.update("jax_cuda_visible_devices", str(this_rank.local_rank % len(visible_gpus.split(","))))
    device = jax.devices()[0]
    return str(device.device_kind) if device.platform == "gpu" else None
