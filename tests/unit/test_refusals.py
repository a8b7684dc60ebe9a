"""What hpcrun says about jobs that sbatch refuses, with fake Slurm commands."""

import tomllib
from pathlib import Path

import pytest

from hpcrun.resources import Resources
from hpcrun.schedulers import refusals
from hpcrun.schedulers.slurm_client import SlurmClient
from hpcrun.schedulers.slurm_policies import query_limits
from tests.unit.slurm_clusters import format_partition

FAILED = "Batch job submission failed: "
CONFIGURATION = f"{FAILED}Requested node configuration is not available"
POLICY = f"{FAILED}Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
PARTITIONS = format_partition("main", default="YES", nodes=2) + format_partition(
    "tiny", nodes=2, max_nodes=1, max_time="00:10:00", accounts="alpha"
)
NODES = "main|8|4000|gpu:h100:4|q[1-2]|a100,nvme\ntiny|8|4000|gpu:h100:4|q1|(null)\n"

# the messages are those of slurm_strerror(), and of Slurm 22.05 for these options
CASES = [
    ({"account": "nosuch"}, FAILED + "Invalid account or account/partition combination specified", "account",
     ["--account=nosuch", "your accounts are alpha, beta", "--account=alpha"]),
    ({}, "error: You must specify an account (--account)", "account", ["your accounts are alpha, beta"]),
    ({"qos": "nosuch"}, FAILED + "Invalid qos specification", "qos", ["--qos=nosuch", "your QoS are normal, short"]),
    ({"qos": "nosuch", "account": "beta"}, FAILED + "Invalid qos specification", "qos", ["your QoS are normal"]),
    ({"qos": "short", "nodes": 2},
     f"QOSMaxNodePerJobLimit; {POLICY}", "policy",
     ["--nodes=2", "QoS short: MaxTRES node=1", "another --qos"]),
    ({"partition": "mian"}, f"invalid partition specified: mian; {FAILED}Invalid partition name specified",
     "partition", ["the partitions are main, tiny", "give --partition=main"]),
    ({"partition": "mian tiny"}, FAILED + "Invalid partition name specified", "partition",
     ["give --partition=main,tiny"]),
    ({"partition": "tiny"}, FAILED + "User's group not permitted to use this partition", "partition-access",
     ["it allows accounts alpha"]),
    ({"time": "1:00:00", "partition": "tiny"},
     FAILED + "Requested time limit is invalid (missing or exceeds some limit)", "time",
     ["--time=1:00:00", "partition tiny allows at most 00:10:00", "give --time=00:10:00 or less"]),
    ({"nodelist": "x9"}, FAILED + "Invalid node name specified", "nodelist",
     ["--nodelist=x9", "partition main has q[1-2]"]),
    ({"constraint": "v100"}, FAILED + "Invalid feature specification", "feature",
     ["--constraint=v100", "the features of partition main are a100, nvme"]),
    ({"constraint": "h100"}, FAILED + "Invalid feature specification", "feature", ["give another --constraint"]),
    ({"constraint": "A100"}, FAILED + "Invalid feature specification", "feature", ["did you mean --constraint=a100?"]),
    ({"constraint": "nvme&a1000"}, FAILED + "Invalid feature specification", "feature", ["give another --constraint"]),
    ({"constraint": "nvm&a100"}, FAILED + "Invalid feature specification", "feature",
     ["did you mean --constraint=nvme&a100?"]),
    ({"constraint": "gpu", "partition": "tiny"}, FAILED + "Invalid feature specification", "feature",
     ["--constraint=gpu", "no node of partition tiny has features"]),
    ({"qos": "shrt"}, FAILED + "Invalid qos specification", "qos", ["did you mean --qos=short?"]),
    ({"account": "alhpa"}, FAILED + "Invalid account or account/partition combination specified", "account",
     ["did you mean --account=alpha?"]),
    ({"gpus_per_node": "9"}, CONFIGURATION, "node-configuration",
     ["--gpus-per-node=9 is more than partition main allows: 4 GPUs", "give --gpus-per-node=4 or less"]),
    ({"gpus_per_node": "v100:1"}, CONFIGURATION, "node-configuration",
     ["the GPUs of partition main are h100", "give --gpus-per-node=h100:1"]),
    ({"mem": "99G"}, "Memory specification can not be satisfied; " + CONFIGURATION,
     "node-configuration", ["--mem=99G is more than partition main allows: 4000M", "give --mem=4000M or less"]),
    ({"nodes": 1, "ntasks": 9}, CONFIGURATION, "node-configuration",
     ["9 ranks a node", "8 cores a node"]),
    ({"nodelist": "q2", "partition": "tiny"}, CONFIGURATION,
     "node-configuration", ["partition tiny does not have q2, but q1"]),
    ({"sbatch": ("--gres=tpu:1",)}, "Invalid generic resource (gres) specification", "gres",
     ["--gres=tpu:1", "4 h100 GPUs"]),
    ({"sbatch": ("--reservation=x",)}, FAILED + "Requested reservation is invalid", "reservation",
     ["--reservation=x", "the reservations are course"]),
    ({"nodelist": "q2"}, FAILED + "Required node not available (down, drained or reserved)", "reserved-nodes",
     ["q2 drained: disk broken (root, 2026-11-23T18:00:00)", "q2 reserved: course from"]),
    ({}, FAILED + "Invalid license specification", "license", ["scontrol show licenses"]),
    ({}, "fetch_config: DNS SRV lookup failed; _establish_config_source: failed to fetch config", "no-configuration",
     ["submit from a login node, or start the job here with hpcrun run"]),
    ({"dependency": "afterok:9"}, FAILED + "Job dependency problem", "dependency", ["--dependency=afterok:9"]),
    ({}, FAILED + "Invalid job array specification", "array", ["MaxArraySize"]),
    ({}, FAILED + "MaxJobCount limit reached", "queue-full", ["squeue --me"]),
    ({}, f"Munge encode failed: Failed to access; {FAILED}Protocol authentication error", "munge",
     ["administrators"]),
    ({}, FAILED + "Incompatible versions of client and server code", "wrong-version", ["type -a sbatch"]),
    ({}, "sbatch: unrecognized option '--foo=1'", "option", ["--sbatch"]),
    ({}, FAILED + "Job cannot be submitted without the current working directory specified.", "folder", ["folder"]),
]  # fmt: skip


@pytest.fixture
def slurm(fake_slurm):
    fake_slurm.replace_command(
        "scontrol",
        f"""case "$*" in
*partition) echo '{PARTITIONS}' ;;
*) echo 'ReservationName=course StartTime=2026-11-23T09:00:00 EndTime=2026-11-23T19:00:00 Nodes=q2 Users=ann' ;;
esac""",
    )
    fake_slurm.replace_command(
        "sinfo",
        f"""case "$*" in
*--list-reasons*) echo 'q2|drained*|root|2026-11-23T18:00:00|disk broken' ;;
*) echo '{NODES}' ;;
esac""",
    )
    fake_slurm.replace_command(
        "sacctmgr",
        """case "$*" in
*assoc*) printf 'alpha|normal,short\\nbeta|normal\\n' ;;
*) echo 'short|node=1,cpu=4' ;;
esac""",
    )
    return fake_slurm


def explain(options, message):
    return refusals.explain_refusal(message, Resources(**options), SlurmClient())


@pytest.mark.parametrize(("options", "message", "name", "words"), CASES)
def test_the_error_of_a_refused_job_has_the_value_the_limit_and_a_fix(slurm, options, message, name, words):
    meaning = explain(options, message)
    assert meaning.name == name
    for word in words:
        assert word in f"{meaning.details}\n{meaning.hint}"


def test_each_entry_has_a_case():
    text = Path(refusals.__file__).with_name("refusals.toml").read_text()
    assert {name for _, _, name, _ in CASES} == {entry["name"] for entry in tomllib.loads(text)["refusal"]}


@pytest.mark.parametrize(("options", "message", "name", "words"), CASES)
def test_without_an_answer_of_slurm_there_is_still_a_hint(fake_slurm, options, message, name, words):
    for command in ("scontrol", "sinfo", "sacctmgr"):
        fake_slurm.replace_command(command, "exit 1")
    meaning = explain(options, message)
    assert meaning.name == name
    assert meaning.hint
    assert "{" not in meaning.details + meaning.hint


def test_an_unknown_refusal_has_no_meaning():
    assert explain({}, FAILED + "Slurm internal error") is None


def test_submit_shows_the_meaning_of_a_refusal(slurm, cli):
    slurm.replace_command("sbatch", f"echo 'sbatch: error: {FAILED}Invalid qos specification' >&2; exit 1")
    code, _, err = cli("submit", "--site", "slurm", "--qos", "nosuch", "--", "true")
    first, hint = err.splitlines()
    assert code == 1
    assert first == (
        f"ERROR: sbatch refused the job: {FAILED}Invalid qos specification; --qos=nosuch; your QoS are normal, short"
    )
    assert hint == "HINT: give one of yours, such as --qos=normal (site key defaults.qos), or leave it out"


def test_a_banner_is_not_the_reason_of_a_refusal(slurm, cli):
    slurm.replace_command("sbatch", f"printf '%s\\n' '8 of 10 TB are in use' 'sbatch: error: {FAILED}Oops' >&2; exit 1")
    _, _, err = cli("submit", "--site", "slurm", "--", "true")
    assert err.startswith(f"ERROR: sbatch refused the job: {FAILED}Oops (sbatch also printed: 8 of 10 TB are in use)\n")


@pytest.mark.parametrize(("reason", "column"), [
    ("QOSMaxWallDurationPerJobLimit", "MaxWall"), ("QOSMaxCpuPerUserLimit", "MaxTRESPU"),
    ("QOSMaxGRESPerUser", "MaxTRESPU"), ("QOSMaxNodePerJobLimit", "MaxTRES"), ("QOSGrpGRES", "GrpTRES"),
    ("QOSGrpCpuLimit", "GrpTRES"), ("QOSMaxJobsPerUserLimit", "MaxJobsPU"),
    ("QOSMaxSubmitJobPerUserLimit", "MaxSubmitPU"), ("QOSGrpCPUMinutesLimit", "GrpTRESMins"),
    ("QOSMaxCpuPerNode", "MaxTRESPerNode"), ("QOSMinCpuNotSatisfied", "MinTRES"), ("QOSMaxMemoryPerJob", "MaxTRES"),
    ("QOSGrpWallLimit", "GrpWall"), ("QOSGrpSubmitJobsLimit", "GrpSubmit"),
    ("AssocMaxWallDurationPerJobLimit", "MaxWall"), ("AssocMaxJobsLimit", "MaxJobs"), ("AssocGrpCpuLimit", "GrpTRES"),
    ("AssocGrpCPURunMinutesLimit", "GrpTRESRunMins"), ("AssocMaxCpuMinutesPerJobLimit", "MaxTRESMins"),
])  # fmt: skip
def test_a_reason_names_a_column_of_sacctmgr(slurm, reason, column):
    query_limits(SlurmClient(), reason, qos=["short", ""], account="alpha")
    assert slurm.calls("sacctmgr")[-1].endswith(f"format={'Name' if reason.startswith('QOS') else 'Account'},{column}")
