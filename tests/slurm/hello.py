"""Print rank, size and host of each MPI rank."""

import os

from mpi4py import MPI

world = MPI.COMM_WORLD
output = world.gather((world.rank, os.uname().nodename))
if output is not None:  # on rank 0
    for rank, host in output:
        print(f"hello {rank}/{world.size} {host}")
