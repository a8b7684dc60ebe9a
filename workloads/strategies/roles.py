"""Roles of the ranks in a TensorFlow cluster, and TF_CONFIG.

https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import dataclass

import hpcrun.train


@dataclass(frozen=True)
class Role:
    """The role of a rank.

    Attributes:
        job: ``chief``, ``worker``, ``ps`` or ``evaluator``.
        index: The index among the ranks of this TensorFlow job, from 0.
    """

    job: str
    index: int

    def __str__(self) -> str:
        return self.job if self.job in {"chief", "evaluator"} else f"{self.job} {self.index}"


def assign(addresses: list[str], parameter_servers: int, evaluator: bool) -> list[Role]:
    """Return the role of each rank for ParameterServerStrategy.

    Rank 0 is the chief. Each parameter server is the last free rank of a node, in turn from the last node to the first,
    so that as few as possible share a node. The evaluator is chosen next. All remaining ranks are workers.

    Args:
        addresses: The host and port of each rank.
        parameter_servers: The number of ranks that only hold variables.
        evaluator: Whether one rank is the evaluator.

    Raises:
        HpcrunError: No rank is left for a worker.
    """
    needed_ranks = 2 + parameter_servers + evaluator
    if len(addresses) < needed_ranks:
        options = f"--parameter-servers={parameter_servers}{' --evaluator' if evaluator else ''}"
        raise hpcrun.train.HpcrunError(
            f"--strategy=parameter-server with {options} needs {needed_ranks} ranks or more, "
            f"and the job has {len(addresses)}",
            hint=f"hpcrun submit strategies --ntasks {needed_ranks} -- ...: a chief and at least one worker, too",
        )
    free_ranks = defaultdict(list)  # ranks by host
    for rank, address in enumerate(addresses[1:], 1):
        free_ranks[address.rpartition(":")[0]].append(rank)
    special: list[int] = []
    while len(special) < parameter_servers + evaluator:
        special += [ranks.pop() for ranks in reversed(free_ranks.values()) if ranks]
    roles = {rank: Role("ps", number) for number, rank in enumerate(special[:parameter_servers])}
    if evaluator:
        roles[special[parameter_servers]] = Role("evaluator", 0)
    workers = (Role("worker", number) for number in range(len(addresses)))
    roles[0] = Role("chief", 0)
    return [roles.get(rank) or next(workers) for rank in range(len(addresses))]


def tf_config(addresses: list[str], roles: list[Role], rank: int, ps_of_chief: str) -> dict[str, object]:
    """Return the TF_CONFIG of a rank; TensorFlow's cluster does not contain the evaluator.

    Args:
        addresses: The host and port of each rank.
        roles: The role of each rank.
        rank: The rank.
        ps_of_chief: The host and port of a parameter server in the chief's process, if no rank is a parameter server.
    """
    cluster: dict[str, list[str]] = {}
    for job in ("chief", "worker", "ps"):
        cluster[job] = [address for address, role in zip(addresses, roles, strict=True) if role.job == job]
    cluster["ps"] = cluster["ps"] or [ps_of_chief]
    return {"cluster": cluster, "task": {"type": roles[rank].job, "index": roles[rank].index}}


def read_addresses() -> list[str]:
    """Return the host and port of each rank, from the TF_CONFIG that hpcrun sets, with one worker per rank.

    Raises:
        HpcrunError: hpcrun did not set TF_CONFIG.
    """
    try:
        return list(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
    except (KeyError, ValueError):
        raise hpcrun.train.HpcrunError(
            "the ranks have no TF_CONFIG with a worker for each",
            hint="hpcrun submit strategies gives them one; omit --framework, and unset TF_CONFIG",
        ) from None
