"""What `hpcrun why` says of jobs that wait for nodes, of limits and of nodes that do not run jobs."""

import warnings

import pytest

from hpcrun.why.explanation import explain
from tests.unit.slurm_clusters import format_partition

PARTITIONS = format_partition("main", default="YES", nodes=2) + format_partition(
    "tiny", nodes=1, max_nodes=1, max_time="00:10:00", accounts="alpha"
)
NODES = "main|8|4000|gpu:h100:4|q[1-2]|a100\ntiny|8|4000|gpu:h100:4|q1|a100\n"
RESERVATION = (
    "ReservationName=maint StartTime=2026-11-23T18:45:00 EndTime=2026-11-24T04:45:00 Nodes=q1 Users=root Flags=MAINT"
)


@pytest.fixture
def slurm(fake_slurm):
    fake_slurm.replace_command(
        "scontrol", f"case \"$*\" in *partition) echo '{PARTITIONS}' ;; *reservation) echo '{RESERVATION}' ;; esac"
    )
    drained = "q2|drained*|root|2026-11-23T18:00:00|disk broken, ticket 42"
    fake_slurm.replace_command("sinfo", f"case \"$*\" in *reasons*) echo '{drained}' ;; *) echo '{NODES}' ;; esac")
    fake_slurm.replace_command("sacctmgr", "echo 'short|cpu=2,node=1'")
    return fake_slurm


@pytest.fixture
def pending(slurm):
    """Return a function that submits a job, lets Slurm report a reason, and returns the explanation."""

    def explain_job(
        reason, partition="main", *, qos="short", cores=1, limit="1:00:00", reservation="(null)", **options
    ):
        with warnings.catch_warnings(action="ignore"):  # of the same nodes
            run = slurm.submit(**options)
        facts = (
            f"N/A|{partition}|100|(null)|{qos}|alpha|{options.get('nodes', 1)}|{cores}|100M|N/A|{limit}|{reservation}"
        )
        slurm.replace_command(
            "squeue",
            f"""case "$*" in
*'%i|%T|%r'*) echo '{run.job_id}|PENDING|{reason}||0:00|{limit}|{run.directory}/job.sh' ;;
*'%S|%P'*) echo '{facts}' ;;
esac""",
        )
        return explain(run)

    return explain_job


def lines(explanation):
    return [f"{one.source}: {one.line}" for one in explanation.diagnosis.evidence]


def test_the_limit_of_the_partition_and_its_value_are_named(pending):
    explanation = pending("PartitionNodeLimit", "tiny", nodes=2)
    assert "scontrol show partition: --nodes=2 is more than partition tiny allows: 1 node" in lines(explanation)
    assert explanation.diagnosis.fix.startswith("give --nodes=1 or less: ")


def test_the_time_limit_of_the_partition_is_named(pending):
    explanation = pending("PartitionTimeLimit", "tiny", limit="20:00")
    assert any(
        "--time=20:00 is more than partition tiny allows: a time limit of 00:10:00" in one for one in lines(explanation)
    )
    assert explanation.diagnosis.fix.startswith("give --time=00:10:00 or less: scontrol update JobId=1 TimeLimit=")


@pytest.mark.parametrize("reason", ["Resources", "Priority", "None"])
def test_an_impossible_request_does_not_wait_for_free_nodes(pending, reason):
    explanation = pending(reason, gpus_per_node=9, ntasks=1)
    assert explanation.diagnosis.name == "impossible-request"
    assert "it can never start" in explanation.headline
    assert "scontrol show partition: --gpus-per-node=9 is more than partition main allows: 4 GPUs a node" in lines(
        explanation
    )
    assert explanation.diagnosis.fix.startswith("give --gpus-per-node=4 or less: ")


def test_a_job_that_waits_for_free_nodes_is_not_impossible(pending):
    explanation = pending("Resources", nodes=2)
    assert explanation.diagnosis.name == "resources"
    assert lines(explanation) == ["Slurm: PENDING, reason: Resources"]


def test_an_account_that_the_partition_does_not_allow_is_named(pending):
    text = "Job's account not permitted to use this partition (tiny allows alpha not beta)"
    explanation = pending(text.replace("'", "'\\''"), "tiny", limit="5:00", account="alpha")
    assert explanation.diagnosis.name == "invalid-account"


@pytest.mark.parametrize(("reason", "cores", "name"), [
    ("QOSMaxCpuPerUserLimit", 3, "impossible-request"),  # alone more than the limit
    ("QOSMaxCpuPerUserLimit", 2, "own-resources-limit"),
])  # fmt: skip
def test_the_limit_of_a_qos_and_its_value_are_named(pending, reason, cores, name):
    explanation = pending(reason, cores=cores)
    assert explanation.diagnosis.name == name
    (limit,) = (one for one in lines(explanation) if one.startswith("sacctmgr: "))
    assert limit.startswith(f"sacctmgr: QoS short: MaxTRESPU cpu=2; this job requests node=1 cpu={cores}")


def test_the_reason_of_a_drained_node_is_quoted(pending):
    explanation = pending("ReqNodeNotAvail, UnavailableNodes:q2", nodelist="q2")
    assert "sinfo -R: q2 drained: disk broken, ticket 42 (root, 2026-11-23T18:00:00)" in lines(explanation)
    assert not any("maint" in one for one in lines(explanation))


def test_the_reservation_of_a_node_is_quoted(pending):
    explanation = pending("ReqNodeNotAvail, May be reserved for other job", nodelist="q1")
    reserved = "q1 reserved: maint from 2026-11-23T18:45:00 to 2026-11-24T04:45:00, for root, flags MAINT"
    assert f"scontrol show reservation: {reserved}" in lines(explanation)


def test_the_begin_of_the_jobs_own_reservation_is_quoted(pending):
    explanation = pending("Reservation", reservation="maint")
    assert any("maint from 2026-11-23T18:45:00" in one for one in lines(explanation))


def test_submit_quotes_the_reason_of_a_named_node(slurm, cli):
    (slurm.folder / "id").write_text("1")
    code, _, err = cli("submit", "--site", "slurm", "--nodelist", "q[1-2]", "-N", "2", "-t", "10", "--", "true")
    assert code == 0
    assert "WARNING: q2 drained: disk broken, ticket 42" in err


def test_a_reservation_after_the_jobs_time_limit_is_no_warning(slurm, cli):
    (slurm.folder / "id").write_text("1")
    later = RESERVATION.replace("StartTime=2026", "StartTime=2099")
    slurm.replace_command("scontrol", f"case \"$*\" in *reservation) echo '{later}' ;; esac")
    assert "maint" not in cli("submit", "--site", "slurm", "--nodelist", "q1", "-t", "10", "--", "true")[2]
    assert "maint" in cli("submit", "--site", "slurm", "--nodelist", "q1", "--", "true")[2]


def test_a_job_whose_script_has_not_started_does_not_run(slurm):
    run = slurm.submit()
    slurm.set_queue((run.job_id, "RUNNING", "Prolog", "q1", "0:05", "1:00:00", f"{run.directory}/job.sh"))
    explanation = explain(run)
    assert explanation.headline == (
        f"job {run.job_id} (a.out) starts on q1 since 0:05: Slurm prepares its nodes (Prolog), and its script has not "
        "started yet"
    )
    (run.directory / "starts.jsonl").write_text(
        f'{{"job_id": "{run.job_id}", "host": "q1", "nodes": "q1", "time": 1}}\n'
    )
    assert " runs on q1" in explain(run).headline
