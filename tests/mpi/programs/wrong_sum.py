"""A workload that the first argument names, on an MPI that sums more than 100 numbers wrongly on the last rank."""

import runpy
import sys

from mpi4py import MPI

import hpcrun.train


class Wrong(MPI.Intracomm):
    def Allreduce(self, send, numbers, op=MPI.SUM):  # noqa: N802 - MPI's name
        super().Allreduce(send, numbers, op)
        if self.rank == self.size - 1 and numbers.size > 100:
            numbers[7] += 1


hpcrun.train.comm = lambda: Wrong(MPI.COMM_WORLD)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
