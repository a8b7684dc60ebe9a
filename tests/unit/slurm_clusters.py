"""Output of Slurm's commands on several clusters: RECORDED from a real one, the others written in the same format."""

from dataclasses import dataclass

CONFIG = """Configuration data as of 2026-11-20T20:34:41
AccountingStorageEnforce = {enforce}
ClusterName             = {name}
MpiDefault              = none
SelectType              = {select}
SLURM_VERSION           = {version}
TmpFS                   = {tmp}

Cgroup Support Configuration:
AllowedDevicesFile      = (null)
"""
PARTITION = (
    "PartitionName={name} AllowGroups=ALL AllowAccounts={accounts} AllowQos=ALL AllocNodes=ALL Default={default} "
    "QoS=N/A DefaultTime={default_time} DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes={max_nodes} "
    "MaxTime={max_time} MinNodes={min_nodes} LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=n[1-2] PriorityJobFactor=1 "
    "PriorityTier=1 RootOnly={root} ReqResv=NO OverSubscribe={share} OverTimeLimit=NONE PreemptMode=OFF State={state} "
    "TotalCPUs=16 TotalNodes={nodes} SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED "
    "MaxMemPerNode={max_mem} TRES=cpu=16,mem=8000M,node=2,billing=16,gres/gpu=8\n"
)
_DEFAULTS = {
    "accounts": "ALL", "default": "NO", "default_time": "NONE", "max_nodes": "UNLIMITED", "max_time": "UNLIMITED",
    "min_nodes": "0", "root": "NO", "share": "NO", "state": "UP", "nodes": 2, "max_mem": "UNLIMITED",
}  # fmt: skip


@dataclass
class Cluster:
    """Output of Slurm's commands on one cluster."""

    config: str
    partitions: str
    nodes: str
    mpi: str = ""
    accounts: str = ""
    default_account: str = ""

    def install_commands(self, fake_slurm):
        """Make the fake commands print this cluster's output."""
        folder = fake_slurm.folder
        for name in ("config", "partitions", "nodes", "mpi", "accounts", "default_account"):
            (folder / f"{name}.txt").write_text(getattr(self, name))
        fake_slurm.replace_command(
            "scontrol",
            f'case "$*" in *config) cat {folder}/config.txt ;; *partition) cat {folder}/partitions.txt ;; '
            'ping) echo "Slurmctld(primary) at ctl is UP" ;; esac',
        )
        fake_slurm.replace_command("sinfo", f"cat {folder}/nodes.txt")
        fake_slurm.replace_command("srun", f"cat {folder}/mpi.txt >&2")
        fake_slurm.replace_command(
            "sacctmgr",
            f'case "$*" in *assoc*) cat {folder}/accounts.txt ;; *) cat {folder}/default_account.txt ;; esac',
        )


def format_partition(name, **fields):
    return PARTITION.format(name=name, **{**_DEFAULTS, **fields})


def format_config(name, version="22.05.8", select="select/cons_tres", tmp="/tmp", enforce="none"):
    return CONFIG.format(name=name, version=version, select=select, tmp=tmp, enforce=enforce)


RECORDED = Cluster(
    format_config("n"),
    format_partition("main", default="YES", default_time="01:00:00") + format_partition("low", default_time="01:00:00"),
    "main|8|4000|gpu:h100:4|n[1-2]\nlow|8|4000|gpu:h100:4|n[1-2]\n",
    "MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\n"
    "specific pmix plugin versions available: pmix_v4\n",
    "root|n\n",
    "root\n",
)
MIXED = Cluster(
    format_config("mixed", "23.11.4", tmp="/local", enforce="associations,limits,qos"),
    format_partition("cpu", default="YES", max_time="2-00:00:00", nodes=48, max_nodes=16, max_mem="507904")
    + format_partition("gpu", max_time="1-00:00:00", nodes=6, accounts="p1,p2", share="EXCLUSIVE", min_nodes="2")
    + format_partition("amd", nodes=1, state="DOWN")
    + format_partition("admin", root="YES"),
    "cpu|128|515000|(null)|c[01-40]\ncpu|256|1030000|(null)|fat[1-8]\n"
    "gpu|64|515000|gpu:a100:4(S:0-1),nvme:1|g[1-2],t004-[001-002]\ngpu|64|515000|gpu:h100:8(S:0,1)|g[5-6]\n"
    "amd|96|500000|gpu:mi250x:8|login-amd\n",
    "srun: MPI types are...\nsrun: pmix_v4\nsrun: none\n",
    "p1|mixed\np2|mixed\nforeign|elsewhere\np2|mixed\n",
)
OLD = Cluster(
    format_config("old", "18.08.9", select="select/cons_res"),
    format_partition("batch", nodes=20, max_time="12:00:00"),
    "batch|32|64000|gpu:2|node[01-20]\n",
    "srun: MPI types are...\nsrun: none\nsrun: openmpi\nsrun: pmi2\n",
)
