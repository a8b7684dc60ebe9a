"""Explanations of sbatch's refusals: the given value, the values on this cluster, and a hint (``refusals.toml``).

An entry has ``message``, a regular expression for sbatch's output; ``given``, a text about the requested value;
``holds``, a text about the values on this cluster; and ``hint``, a list of hints. A name in braces is a property of
`Facts` or a field of `Resources`. A text with an unknown fact is omitted; the first hint without unknown facts is used.
The group ``reason`` of a regular expression is a limit in Slurm's accounting.
"""

from __future__ import annotations

import re
import tomllib
from functools import cached_property
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING

from hpcrun.errors import closest_match, closest_unambiguous_match
from hpcrun.frozen import frozen
from hpcrun.resources import FEATURE_PATTERN
from hpcrun.schedulers import slurm_limits, slurm_nodes, slurm_policies
from hpcrun.schedulers.environment import prefix_slurm_conf
from hpcrun.schedulers.slurm_names import list_names
from hpcrun.schedulers.slurm_partitions import find_partition, query_partitions

if TYPE_CHECKING:
    from hpcrun.resources import Resources
    from hpcrun.schedulers.slurm_client import SlurmClient
    from hpcrun.schedulers.slurm_partitions import SlurmPartition

_SLURM_COMMAND = re.compile(r"(?<=; )(?=(?:sinfo|sacctmgr|scontrol|squeue) )")


@frozen
class Meaning:
    """The explanation of a refusal.

    Attributes:
        name: The name of the entry in refusals.toml.
        details: The given value, and the values on this cluster; empty if neither is known.
        hint: The command or option that corrects the job.
    """

    name: str
    details: str
    hint: str


def explain_refusal(message: str, resources: Resources, slurm: SlurmClient) -> Meaning | None:
    """Return the explanation of an error message of sbatch; None for an unknown message.

    Args:
        message: The error message of sbatch.
        resources: The resources that the job requests.
        slurm: The client of the Slurm cluster that refused the job.
    """
    entries = tomllib.loads((Path(__file__).parent / "refusals.toml").read_text(encoding="utf-8"))["refusal"]
    for entry in entries:
        if match := re.search(entry["message"], message):
            facts = Facts(resources, slurm, match.groupdict().get("reason") or "")
            details = "; ".join(
                filter(None, (facts.fill_placeholders(entry.get(key, "")) for key in ("given", "holds")))
            )
            hint = next(filter(None, map(facts.fill_placeholders, entry["hint"])), "")
            return Meaning(
                entry["name"], details, _SLURM_COMMAND.sub(lambda _: prefix_slurm_conf(slurm.conf, ""), hint)
            )
    return None


@frozen
class Facts:
    """Facts about a refused job and its cluster, queried on demand; the text of an unknown fact is empty.

    Attributes:
        resources: The resources that the job requests.
        slurm: The client of the job's Slurm cluster.
        reason: The limit that sbatch's message names; empty without one.
    """

    resources: Resources
    slurm: SlurmClient
    reason: str

    def fill_placeholders(self, text: str) -> str:
        """Return a text with its placeholders replaced by facts; empty if one of the facts is unknown."""
        fact_names = [name for _, name, _, _ in Formatter().parse(text) if name]
        values = {
            name: str(getattr(self, name, None) or getattr(self.resources, name, None) or "") for name in fact_names
        }
        return text.format_map(values) if all(values.values()) else ""

    @cached_property
    def _partitions(self) -> list[SlurmPartition]:
        return query_partitions(self.slurm, hardware=True, timeout=slurm_nodes.TIMEOUT_SECONDS)

    @property
    def _job_partition(self) -> SlurmPartition | None:
        return find_partition(self._partitions, self.resources.partition)

    @property
    def partition(self) -> str:
        """The name of the job's partition, or of the default partition."""
        return self.resources.partition or (self._job_partition.name if self._job_partition else "")

    @property
    def partitions(self) -> str:
        """The names of all partitions."""
        return list_names([one.name for one in self._partitions])

    @property
    def closest_partition(self) -> str:
        """The existing partition whose name is most similar to the requested name."""
        known_names = [one.name for one in self._partitions]
        closest_names = [
            closest_match(word, known_names) for word in re.split(r"[\s,]+", self.resources.partition or "")
        ]
        return ",".join(filter(None, closest_names)) if all(closest_names) else ""

    @property
    def access(self) -> str:
        """The groups, accounts and QoS that may use the job's partition."""
        nouns_by_key = {"AllowGroups": "groups", "AllowAccounts": "accounts", "AllowQos": "QoS"}
        properties = self._job_partition.properties if self._job_partition else {}
        allowed_names = {what: properties.get(key, "ALL") for key, what in nouns_by_key.items()}
        return ", ".join(f"{what} {names}" for what, names in allowed_names.items() if names != "ALL")

    @property
    def max_time(self) -> str:
        """The maximum time limit of the job's partition."""
        return self._job_partition.max_time if self._job_partition else ""

    @property
    def hardware(self) -> str:
        """The nodes of the job's partition, with cores, memory and GPUs."""
        if not (self._job_partition and self._job_partition.nodes):
            return ""
        descriptions = [
            f"{group.names} with {group.cpus} cores, {group.memory} MiB, "
            + (", ".join(f"{count} {kind} GPUs".replace("  ", " ") for kind, count in group.gpus.items()) or "no GPUs")
            for group in self._job_partition.nodes
        ]
        return list_names(descriptions)

    @property
    def node_names(self) -> str:
        """The nodes of the job's partition, as a node list."""
        return list_names([group.names for group in self._job_partition.nodes]) if self._job_partition else ""

    @property
    def _feature_names(self) -> list[str]:
        groups = self._job_partition.nodes if self._job_partition else ()
        names = [name for group in groups for name in group.features.split(",") if name not in {"", "(null)"}]
        return list(dict.fromkeys(names))

    @property
    def features(self) -> str:
        """The features of the nodes of the job's partition."""
        return list_names(self._feature_names)

    @property
    def no_features(self) -> str:
        """The name of the job's partition if its nodes have no features; else empty."""
        return self.partition if self._job_partition and self._job_partition.nodes and not self._feature_names else ""

    @property
    def corrected_constraint(self) -> str:
        """The given constraint with misspelled features corrected; empty if an unknown feature has no similar name."""
        constraint, known_features = self.resources.constraint or "", self._feature_names
        unknown_features = [
            word for word in FEATURE_PATTERN.findall(constraint) if word not in known_features and not word.isdigit()
        ]
        corrections = {word: closest_unambiguous_match(word, known_features) for word in unknown_features}
        return (
            FEATURE_PATTERN.sub(lambda word: corrections.get(word[0]) or word[0], constraint)
            if unknown_features and all(corrections.values())
            else ""
        )

    @cached_property
    def _obstacles(self) -> list[slurm_limits.Obstacle]:
        return slurm_limits.find_obstacles(self.resources, self._partitions)

    @property
    def obstacles(self) -> str:
        """Messages about requests beyond the limits of the job's partition."""
        return "; ".join(one.fault for one in self._obstacles)

    @property
    def obstacle_hints(self) -> str:
        """Hints about a request that the job's partition can fulfil."""
        return "; ".join(dict.fromkeys(one.hint for one in self._obstacles))

    @cached_property
    def _accounts(self) -> dict[str, list[str]]:
        return slurm_policies.query_accounts(self.slurm)

    @property
    def accounts(self) -> str:
        """The names of this user's accounts."""
        return list_names(list(self._accounts))

    @property
    def closest_account(self) -> str:
        """The account of this user whose name is most similar to the requested name."""
        return closest_match(self.resources.account or "", list(self._accounts)) or ""

    @property
    def first_account(self) -> str:
        """The first account of this user that is not the requested account."""
        return next((name for name in self._accounts if name != self.resources.account), "")

    @property
    def _qos(self) -> list[str]:
        given_account = {name: qos for name, qos in self._accounts.items() if name == self.resources.account}
        return list(dict.fromkeys(name for names in (given_account or self._accounts).values() for name in names))

    @property
    def qos_names(self) -> str:
        """The QoS that this user may use: with the requested account if the user has it, else with any account."""
        return list_names(self._qos)

    @property
    def closest_qos(self) -> str:
        """The QoS of this user whose name is most similar to the requested name."""
        return closest_match(self.resources.qos or "", self._qos) or ""

    @property
    def qos_partition(self) -> str:
        """The value of ``--qos`` if it is the name of a partition, because PBS's option ``-q`` names a queue."""
        return next((one.name for one in self._partitions if one.name == self.resources.qos), "")

    @property
    def first_qos(self) -> str:
        """The first QoS of this user that is not the requested QoS."""
        return next((name for name in self._qos if name != self.resources.qos), "")

    @property
    def policy(self) -> str:
        """The limit that sbatch's message names, with its value in Slurm's accounting."""
        account = self.resources.account or next(iter(self._accounts), "")
        qos = [
            self.resources.qos or "normal",
            self._job_partition.properties.get("QoS", "") if self._job_partition else "",
        ]
        return list_names(slurm_policies.query_limits(self.slurm, self.reason, qos=qos, account=account))

    @property
    def request(self) -> str:
        """The main options of the request, such as ``--nodes=2 --time=10``."""
        option_names = [
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
        explicit_values = self.resources.explicit()
        return " ".join(
            f"--{name.replace('_', '-')}={explicit_values[name]}" for name in option_names if name in explicit_values
        )

    @property
    def gpus(self) -> str:
        """The options that request GPUs or other generic resources (GRES)."""
        raw_options = [option for option in self.resources.sbatch if option.startswith(("--gres", "--gpus", "--tres"))]
        gpus_per_node = self.resources.gpus_per_node
        return " ".join([*([f"--gpus-per-node={gpus_per_node}"] if gpus_per_node else []), *raw_options])

    @property
    def nodes(self) -> str:
        """The options --nodelist and --exclude of the request."""
        nodes_by_option = {"--nodelist": self.resources.nodelist, "--exclude": self.resources.exclude}
        return " ".join(f"{option}={names}" for option, names in nodes_by_option.items() if names)

    @property
    def unavailable_nodes(self) -> str:
        """The reasons why nodes in --nodelist are unavailable."""
        return "; ".join(slurm_nodes.find_unavailable_nodes(self.slurm, self.resources.nodelist or ""))

    @property
    def reservation(self) -> str:
        """The option --reservation of the request."""
        return " ".join(option for option in self.resources.sbatch if option.startswith("--reservation"))

    @property
    def reservations(self) -> str:
        """The names of all reservations."""
        return list_names([one.name for one in slurm_nodes.query_reservations(self.slurm)])
