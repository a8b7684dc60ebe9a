"""The division of the ranks into replicas of a pipeline, each with one rank per stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, pluralize
from hpcrun.frozen import frozen
from hpcrun.train.ranks.collectives import checked_barrier
from hpcrun.train.ranks.communicator import duplicate_communicator
from hpcrun.train.ranks.replicas import Replica
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from hpcrun.train.types import Comm


@frozen
class Layout:
    """This rank's place: rank = replica * stages + stage.

    Attributes:
        stages: Number of stages.
        stage: This rank's stage, from 0.
        replica: This rank's replica.
        pipeline: Communicator of the ranks of this replica, in the order of the stages.
        peers: Communicator of the ranks with this stage, in the order of the replicas.
        hosts: Hosts of `peers`.
    """

    stages: int
    stage: int
    replica: Replica
    pipeline: Comm
    peers: Comm
    hosts: tuple[str, ...]

    @property
    def is_last(self) -> bool:
        """Whether this rank has the last stage, which computes the loss."""
        return self.stage == self.stages - 1

    def rank_of(self, stage: int) -> int:
        """Return the rank of a stage in this replica."""
        return self.replica.rank * self.stages + stage

    def ranks_of(self, stage: int) -> range:
        """Return the ranks of a stage in all replicas."""
        return range(stage, self.replica.size * self.stages, self.stages)

    def describe(self, rank: int) -> str:
        """Return the stage of a rank, and its replica if there are several, for messages."""
        replica, stage = divmod(rank, self.stages)
        return f"stage {stage} of {self.stages}" + (f", replica {replica}" if self.replica.size > 1 else "")


def create_layout(stages: int) -> Layout:
    """Divide the ranks into replicas. Collective.

    Args:
        stages: Number of stages.

    Raises:
        HpcrunError: The number of ranks is not a multiple of the number of stages.
    """
    this_rank = world()
    require_divisible(this_rank.size, stages)
    checked_barrier("the division of the ranks into stages")  # creating communicators would block
    replica, stage = divmod(this_rank.rank, stages)
    communicators = [
        duplicate_communicator(this_rank.comm.Split(color, key)) for color, key in ((replica, stage), (stage, replica))
    ]
    return Layout(
        stages=stages,
        stage=stage,
        replica=Replica(replica, this_rank.size // stages),
        pipeline=communicators[0],
        peers=communicators[1],
        hosts=this_rank.hosts[stage::stages],
    )


def require_divisible(ranks: int, stages: int) -> None:
    """Raise an error if ranks cannot be divided into replicas of a pipeline.

    Raises:
        HpcrunError: The number of ranks is not a multiple of the number of stages.
    """
    if ranks % stages:
        raise HpcrunError(
            f"stages={stages} does not divide {pluralize(ranks, 'rank')}: a replica of the model takes {stages} ranks",
            hint=f"start a multiple of {stages} ranks (--nodes times --ntasks-per-node), or give stages that divides "
            f"{ranks}",
        )
