"""What `hpcrun resubmit --fix` changes, with fake Slurm commands."""

import json
from pathlib import Path

import pytest

from tests.unit.slurm_clusters import format_partition

NODES = "main|8|4000|(null)|q[1-4]|\ntiny|8|4000|(null)|q1|\n"
PARTITIONS = format_partition("main", default="YES", nodes=4) + format_partition("tiny", max_time="2:00:00")


@pytest.fixture
def ended(fake_slurm):
    """Return a function that submits a job and lets Slurm report how it ended."""
    fake_slurm.replace_command("scontrol", f"echo '{PARTITIONS}'")

    def end(state, *, limit="1:00:00", log="", nodes="q1", slurm="", rss="", reason="", **options):
        run = fake_slurm.submit(**options)
        fake_slurm.set_queue((run.job_id, state, "None", nodes, "1:00", limit, f"{run.directory}/job.sh"))
        fake_slurm.replace_command("sinfo", f"case \"$*\" in *--Node*) echo 'q2|down*' ;; *) echo '{NODES}' ;; esac")
        fake_slurm.replace_command("sacct", f"printf '1|\\n1.0|{rss}\\n'")
        start = {"job_id": run.job_id, "host": "q1", "nodes": nodes, "time": 1}
        (run.directory / "starts.jsonl").write_text(json.dumps(start) + "\n")
        (run.directory / f"{run.job_id}_0_log.err").write_text(log)
        (run.directory / "provenance/slurm.txt").write_text(slurm)
        if reason:
            record = {"exit_code": 137, "reason": reason, "host": "q1", "started": 1, "ended": 2}
            (run.directory / "exit.json").write_text(json.dumps(record))
        (fake_slurm.folder / "id").write_text("77")
        return run

    return end


OUT_OF_MEMORY = "slurmstepd-q2: error: StepId=68.0 exceeded memory limit (515325952 > 209715200), being killed\n"
NODE_FAILURE = "srun: error: Node failure on q3\n"
KILLED = "the ranks ended with exit code 137: rank 0 on q1 was killed by SIGKILL"
GPU = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"


@pytest.mark.parametrize(("job", "option"), [
    ({"state": "TIMEOUT", "time": "1:00:00"}, "--time=1:30:00"),
    ({"state": "TIMEOUT", "time": "10", "limit": "10:00"}, "--time=0:15:00"),  # 15:00 could be read as 15 hours
    ({"state": "TIMEOUT"}, "--time=1:30:00"),  # Slurm's own default
    ({"state": "TIMEOUT", "limit": "1:40:00", "partition": "tiny"}, "--time=2:00:00"),  # the partition's longest
    ({"state": "TIMEOUT", "limit": "2-00:00:00"}, "--time=3-00:00:00"),
    ({"state": "OUT_OF_MEMORY", "mem": "1G"}, "--mem=1536M"),
    ({"state": "OUT_OF_MEMORY", "mem": "1G", "rss": "1100000K"}, "--mem=1612M"),
    ({"state": "OUT_OF_MEMORY", "mem": "1G", "rss": "600M", "ntasks_per_node": 2}, "--mem=1800M"),
    ({"state": "OUT_OF_MEMORY", "mem": "3G"}, "--mem=4000M"),  # the memory of a node
    ({"state": "OUT_OF_MEMORY", "mem_per_cpu": "100"}, "--mem-per-cpu=150M"),
    ({"state": "OUT_OF_MEMORY", "slurm": "NumNodes=2 NumCPUs=4\n   TRES=cpu=4,mem=400M,node=2"}, "--mem=300M"),
    ({"state": "FAILED", "mem": "1G", "log": OUT_OF_MEMORY}, "--mem=1536M"),
    ({"state": "FAILED", "mem": "1G", "reason": KILLED}, "--mem=1536M"),
    ({"state": "NODE_FAIL", "nodes": "q[1-4]", "log": NODE_FAILURE}, "--exclude=q3"),
    ({"state": "NODE_FAIL", "nodes": "q[1-4]"}, "--exclude=q2"),  # it is down
    ({"state": "NODE_FAIL", "nodes": "q4", "exclude": "q1"}, "--exclude=q[1,4]"),
    ({"state": "FAILED", "nodes": "q4", "log": GPU}, "--exclude=q4"),
])  # fmt: skip
def test_fix_requests_what_why_proposes(ended, cli, fake_slurm, job, option):
    run = ended(**job)
    code, _, err = cli("resubmit", run.job_id, "--fix", "--yes")
    assert code == 0, err
    assert f"fix        {option}, because " in err
    assert fake_slurm.calls("sbatch")[1:]
    script = Path(fake_slurm.calls("sbatch")[-1].split()[-1])
    assert f"#SBATCH {option}\n" in script.read_text().replace("'", "")


@pytest.mark.parametrize(("job", "words"), [
    ({"state": "FAILED", "log": "ModuleNotFoundError: No module named 'x'\n"}, "the failure implies no change"),
    ({"state": "COMPLETED"}, "the failure implies no change"),
    ({"state": "TIMEOUT", "limit": "2:00:00", "partition": "tiny"}, "the failure implies no change"),
    ({"state": "OUT_OF_MEMORY", "mem": "4000M"}, "the failure implies no change"),
    ({"state": "OUT_OF_MEMORY"}, "the failure implies no change"),
    ({"state": "RUNNING"}, "has not ended: running"),
])  # fmt: skip
def test_without_a_number_there_is_one_error(ended, cli, fake_slurm, job, words):
    run = ended(**job)
    code, out, err = cli("resubmit", run.job_id, "--fix", "--yes")
    assert (code, out) == (1, "")
    assert err.startswith("ERROR: --fix: ")
    assert words in err
    assert len(fake_slurm.calls("sbatch")) == 1


def test_options_of_the_command_line_come_first(ended, cli):
    run = ended("OUT_OF_MEMORY", mem="1G")
    code, out, err = cli("resubmit", run.job_id, "--fix", "--mem-per-cpu", "3000", "--dry-run")
    assert code == 0, err
    assert "#SBATCH --mem-per-cpu=3000\n" in out
    assert "--mem=" not in out


def test_without_a_terminal_fix_needs_yes(ended, cli, fake_slurm):
    run = ended("TIMEOUT")
    code, _, err = cli("resubmit", run.job_id, "--fix")
    assert code == 2
    assert "needs confirmation, and there is no terminal to ask on\nHINT: --yes submits it; --dry-run shows it" in err
    assert "changed    time: 1:30:00, was nothing" in err
    assert len(fake_slurm.calls("sbatch")) == 1
