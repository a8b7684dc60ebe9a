"""What sbatch's refusals mean: what was given, what holds on this cluster, and what to type (``refusals.toml``).

An entry has ``message``, a regular expression that is searched for in sbatch's messages; ``given`` and ``holds``, what
was requested and what the cluster has; and ``hint``, a list of which the first applies whose facts are known. Facts in
braces are the properties of `Facts` and the fields of `Resources`; a text of which a fact is unknown is left out. The
group ``reason`` of a message is a limit of Slurm's accounting.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING

from hpcrun.errors import closest_feature, closest_match
from hpcrun.resources import FEATURE
from hpcrun.schedulers import slurm_limits, slurm_nodes, slurm_policies
from hpcrun.schedulers.environment import prefix_slurm_conf
from hpcrun.schedulers.slurm_names import list_names
from hpcrun.schedulers.slurm_partitions import find_partition, query_partitions

if TYPE_CHECKING:
    from hpcrun.resources import Resources
    from hpcrun.schedulers.slurm_client import SlurmClient
    from hpcrun.schedulers.slurm_partitions import SlurmPartition

_COMMAND = re.compile(r"(?<=; )(?=(?:sinfo|sacctmgr|scontrol|squeue) )")


@dataclass(frozen=True)
class Meaning:
    """The meaning of a refusal.

    Attributes:
        name: The entry's name.
        details: What was given, and what holds here; empty if neither is known.
        hint: What to do.
    """

    name: str
    details: str
    hint: str


def explain_refusal(message: str, resources: Resources, slurm: SlurmClient) -> Meaning | None:
    """Return the meaning of what sbatch printed; None for an unknown message.

    Args:
        message: What sbatch printed.
        resources: What the job requested.
        slurm: The commands of the Slurm that refused it, to query what it has.
    """
    entries = tomllib.loads((Path(__file__).parent / "refusals.toml").read_text(encoding="utf-8"))["refusal"]
    for entry in entries:
        if match := re.search(entry["message"], message):
            facts = Facts(resources, slurm, match.groupdict().get("reason") or "")
            details = "; ".join(filter(None, (facts.fill(entry.get(key, "")) for key in ("given", "holds"))))
            hint = next(filter(None, map(facts.fill, entry["hint"])), "")
            return Meaning(entry["name"], details, _COMMAND.sub(lambda _: prefix_slurm_conf(slurm.conf, ""), hint))
    return None


@dataclass(frozen=True)
class Facts:
    """Facts about a refused job and its cluster, queried on demand; a fact that is unknown is empty.

    Attributes:
        resources: What the job requested.
        slurm: The commands of its Slurm.
        reason: The limit that sbatch named.
    """

    resources: Resources
    slurm: SlurmClient
    reason: str

    def fill(self, text: str) -> str:
        """Return a text with its facts; empty if one of them is unknown."""
        names = [name for _, name, _, _ in Formatter().parse(text) if name]
        values = {name: str(getattr(self, name, None) or getattr(self.resources, name, None) or "") for name in names}
        return text.format_map(values) if all(values.values()) else ""

    @cached_property
    def _partitions(self) -> list[SlurmPartition]:
        return query_partitions(self.slurm, hardware=True, timeout=slurm_nodes.TIMEOUT_SECONDS)

    @property
    def _own(self) -> SlurmPartition | None:
        return find_partition(self._partitions, self.resources.partition)

    @property
    def partition(self) -> str:
        """The job's partition, or the default one."""
        return self.resources.partition or (self._own.name if self._own else "")

    @property
    def partitions(self) -> str:
        """All partitions."""
        return list_names([one.name for one in self._partitions])

    @property
    def like_partition(self) -> str:
        """The partition that was probably meant."""
        known = [one.name for one in self._partitions]
        likes = [closest_match(word, known) for word in re.split(r"[\s,]+", self.resources.partition or "")]
        return ",".join(filter(None, likes)) if all(likes) else ""

    @property
    def access(self) -> str:
        """Who may use the job's partition."""
        keys = {"AllowGroups": "groups", "AllowAccounts": "accounts", "AllowQos": "QoS"}
        properties = self._own.properties if self._own else {}
        allowed = {what: properties.get(key, "ALL") for key, what in keys.items()}
        return ", ".join(f"{what} {names}" for what, names in allowed.items() if names != "ALL")

    @property
    def max_time(self) -> str:
        """The longest time limit of the job's partition."""
        return self._own.max_time if self._own else ""

    @property
    def hardware(self) -> str:
        """The nodes of the job's partition."""
        if not (self._own and self._own.nodes):
            return ""
        groups = [
            f"{group.names} with {group.cpus} cores, {group.memory} MiB, "
            + (", ".join(f"{count} {kind} GPUs".replace("  ", " ") for kind, count in group.gpus.items()) or "no GPUs")
            for group in self._own.nodes
        ]
        return list_names(groups)

    @property
    def node_names(self) -> str:
        """The nodes of the job's partition, as a node list."""
        return list_names([group.names for group in self._own.nodes]) if self._own else ""

    @property
    def _feature_names(self) -> list[str]:
        groups = self._own.nodes if self._own else ()
        names = [name for group in groups for name in group.features.split(",") if name not in {"", "(null)"}]
        return list(dict.fromkeys(names))

    @property
    def features(self) -> str:
        """The features of the partition's nodes."""
        return list_names(self._feature_names)

    @property
    def no_features(self) -> str:
        """The partition, if its nodes have no features."""
        return self.partition if self._own and self._own.nodes and not self._feature_names else ""

    @property
    def like_constraint(self) -> str:
        """The constraint that was probably meant, if each of its unknown features is a misspelled one."""
        given, known = self.resources.constraint or "", self._feature_names
        unknown = [word for word in FEATURE.findall(given) if word not in known and not word.isdigit()]
        likes = {word: closest_feature(word, known) for word in unknown}
        return FEATURE.sub(lambda word: likes.get(word[0]) or word[0], given) if unknown and all(likes.values()) else ""

    @cached_property
    def _obstacles(self) -> list[slurm_limits.Obstacle]:
        return slurm_limits.find_obstacles(self.resources, self._partitions)

    @property
    def obstacles(self) -> str:
        """What was requested beyond the partition's limits."""
        return "; ".join(one.fault for one in self._obstacles)

    @property
    def obstacle_hints(self) -> str:
        """What to request instead."""
        return "; ".join(dict.fromkeys(one.hint for one in self._obstacles))

    @cached_property
    def _accounts(self) -> dict[str, list[str]]:
        return slurm_policies.query_accounts(self.slurm)

    @property
    def accounts(self) -> str:
        """This user's accounts."""
        return list_names(list(self._accounts))

    @property
    def like_account(self) -> str:
        """The account that was probably meant."""
        return closest_match(self.resources.account or "", list(self._accounts)) or ""

    @property
    def first_account(self) -> str:
        """The first of these accounts that was not given."""
        return next((name for name in self._accounts if name != self.resources.account), "")

    @property
    def _qos(self) -> list[str]:
        accounts = {name: qos for name, qos in self._accounts.items() if name == self.resources.account}
        return list(dict.fromkeys(name for names in (accounts or self._accounts).values() for name in names))

    @property
    def qos_names(self) -> str:
        """This user's QoS, with the given account if there is one."""
        return list_names(self._qos)

    @property
    def like_qos(self) -> str:
        """The QoS that was probably meant."""
        return closest_match(self.resources.qos or "", self._qos) or ""

    @property
    def first_qos(self) -> str:
        """The first of these QoS that was not given."""
        return next((name for name in self._qos if name != self.resources.qos), "")

    @property
    def policy(self) -> str:
        """The limit that sbatch named."""
        account = self.resources.account or next(iter(self._accounts), "")
        qos = [self.resources.qos or "normal", self._own.properties.get("QoS", "") if self._own else ""]
        return list_names(slurm_policies.query_limits(self.slurm, self.reason, qos=qos, account=account))

    @property
    def request(self) -> str:
        """The request in a few words."""
        names = [
            "nodes",
            "ntasks",
            "ntasks_per_node",
            "cpus_per_task",
            "gpus_per_node",
            "mem",
            "time",
            "qos",
            "account",
        ]
        explicit = self.resources.explicit()
        return " ".join(f"--{name.replace('_', '-')}={explicit[name]}" for name in names if name in explicit)

    @property
    def gpus(self) -> str:
        """The requested GPUs, or other generic resources."""
        raw = [option for option in self.resources.sbatch if option.startswith(("--gres", "--gpus", "--tres"))]
        given = self.resources.gpus_per_node
        return " ".join([*([f"--gpus-per-node={given}"] if given else []), *raw])

    @property
    def nodes(self) -> str:
        """The named nodes."""
        given = {"--nodelist": self.resources.nodelist, "--exclude": self.resources.exclude}
        return " ".join(f"{option}={names}" for option, names in given.items() if names)

    @property
    def unavailable(self) -> str:
        """Why the named nodes are unavailable."""
        return "; ".join(slurm_nodes.find_unavailable(self.slurm, self.resources.nodelist or ""))

    @property
    def reservation(self) -> str:
        """The requested reservation."""
        return " ".join(option for option in self.resources.sbatch if option.startswith("--reservation"))

    @property
    def reservations(self) -> str:
        """All reservations."""
        return list_names([one.name for one in slurm_nodes.query_reservations(self.slurm)])
