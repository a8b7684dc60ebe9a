"""What hpcrun says about jobs beyond the limits of a QoS or an account, with output recorded from Slurm 22.05."""

import pytest

from hpcrun.resources import Resources
from hpcrun.schedulers.slurm_partitions import parse_partitions
from hpcrun.schedulers.slurm_qos import Policies, find_obstacles
from tests.unit.slurm_clusters import CONFIG, format_partition

PARTITIONS = format_partition("main", default="YES") + format_partition("low").replace("QoS=N/A", "QoS=partqos")
QOS = """normal|||||||||
tiny||00:10:00|gres/gpu=2,node=1|gres/gpu=1|node=5||cpu=4||
over|OverPartQOS|02:00:00|||||||
partqos||00:30:00||||node=1|||
many|||mem=10G,gres/gpu:a100=2|||||gres/gpu=8|node=2
"""
ACCOUNTS = "alpha||tiny|normal,tiny|1-00:00:00||||\nbeta||||1:00:00||||\nbeta|other||normal|0:01:00||||\n"


def rows(text):
    return [line.split("|") for line in text.splitlines()]


POLICIES = Policies(rows(QOS), rows(ACCOUNTS))


@pytest.mark.parametrize(("options", "faults"), [
    ({"time": "20"}, ["--time=20 is more than QoS tiny allows: a time limit of 00:10:00",
                      "--time=20 with 1 node is more than QoS tiny allows: 5 node-minutes"]),
    ({"nodes": 2}, ["--nodes=2 is more than QoS tiny allows: 1 node"]),
    ({"ntasks": 2, "cpus_per_task": 4}, ["4 cores each is more than QoS tiny for all jobs of a user allows: 4"]),
    ({"gpus_per_node": "2"}, ["--gpus-per-node=2 is more than QoS tiny allows: 1 GPU a node"]),
    ({"gpus_per_node": "3", "ntasks": 1}, ["3 GPUs in all is more than QoS tiny allows: 2 GPUs", "1 GPU a node"]),
    ({"time": "5", "ntasks": 4}, []),
    ({"nodes": 2, "partition": "main,low"}, []),
    ({"qos": "normal", "time": "2-0", "nodes": 99}, ["account alpha allows: a time limit of 1-00:00:00"]),
    ({"qos": "nosuch", "nodes": 99}, []),
    ({"partition": "low", "qos": "normal", "time": "40"}, ["QoS partqos allows: a time limit of 00:30:00"]),
    ({"partition": "low", "qos": "normal", "nodes": 2}, ["--nodes=2 is more than QoS partqos for all its jobs allows"]),
    ({"partition": "low", "qos": "over", "time": "40"}, []),
    ({"partition": "low", "qos": "tiny", "time": "20"}, ["5 node-minutes"]),
    ({"qos": "many", "nodes": 1}, ["--nodes=1 is less than QoS many allows: 2 nodes"]),
    ({"qos": "many", "nodes": 2, "mem": "6G"}, ["--mem=6G on 2 nodes is more than QoS many allows: 10G"]),
    ({"qos": "many", "nodes": 2, "gpus_per_node": "a100:2"}, ["4 GPUs in all is more than QoS many allows: 2 GPUs"]),
    ({"qos": "many", "nodes": 2, "gpus_per_node": "h100:2"}, []),
])  # fmt: skip
def test_a_limit_that_a_job_exceeds_alone_is_named(options, faults):
    found = find_obstacles(Resources(account="alpha", **options), parse_partitions(PARTITIONS, ""), POLICIES)
    assert len(found) == len(faults), found
    for one, fault in zip(found, faults, strict=True):
        assert fault in one.fault
        assert one.hint
        assert not one.is_certain


def test_without_an_account_only_the_given_qos_is_known():
    partitions = parse_partitions(PARTITIONS, "")
    assert find_obstacles(Resources(time="2-0", nodes=2), partitions, POLICIES) == []
    assert [one.fault for one in find_obstacles(Resources(qos="tiny", nodes=2), partitions, POLICIES)] == [
        "--nodes=2 is more than QoS tiny allows: 1 node"
    ]


@pytest.mark.parametrize(("enforced", "warns"), [("associations,limits,qos", True), ("associations", False)])
def test_submit_warns_where_slurm_enforces_limits(fake_slurm, cli, enforced, warns):
    config = CONFIG.format(enforce=enforced, name="c", select="cons_tres", version="22.05.8", tmp="/tmp")
    answers = f"*config) echo '{config}' ;; *) echo '{PARTITIONS}' ;;"
    fake_slurm.replace_command("scontrol", f'case "$*" in {answers} esac')
    fake_slurm.replace_command("sacctmgr", f"""case "$*" in *"show qos"*) echo '{QOS}' ;; esac""")
    (fake_slurm.folder / "id").write_text("1")
    code, _, err = cli("submit", "--site", "slurm", "-q", "tiny", "-N", "2", "--", "true")
    warning = "WARNING: Slurm will not start this job: --nodes=2 is more than QoS tiny allows: 1 node (give --nodes=1"
    assert (code, warning in err) == (0, warns), err


@pytest.mark.parametrize(("enforced", "options", "warnings"), [
    ("none", ["-q", "tny"], ["Slurm has no QoS tny; it has normal, tiny, over, partqos, many; did you mean --qos=ti"]),
    ("none", ["-q", "tiny"], []),
    ("none", ["-A", "gamma"], ["gamma is not one of your accounts in Slurm, which are alpha, beta"]),
    ("none", ["-A", "ALPHA"], []),
    ("associations", ["-q", "x", "-A", "gamma"], ["Slurm has no QoS x; "]),  # sbatch refuses the account
    ("associations,limits,qos", ["-q", "x", "-A", "gamma"], []),
])  # fmt: skip
def test_submit_warns_of_names_that_slurm_accepts_but_does_not_know(fake_slurm, cli, enforced, options, warnings):
    config = CONFIG.format(enforce=enforced, name="c", select="cons_tres", version="22.05.8", tmp="/tmp")
    answers = f"*config) echo '{config}' ;; *) echo '{PARTITIONS}' ;;"
    fake_slurm.replace_command("scontrol", f'case "$*" in {answers} esac')
    queries = f"""*"show qos"*) echo '{QOS}' ;; *"show assoc"*) echo '{ACCOUNTS}' ;;"""
    fake_slurm.replace_command("sacctmgr", f'case "$*" in {queries} esac')
    (fake_slurm.folder / "id").write_text("1")
    code, _, err = cli("submit", "--site", "slurm", *options, "--", "true")
    assert code == 0
    assert err.count("WARNING: ") == len(warnings), err
    assert all(f"WARNING: {warning}" in err for warning in warnings), err
