"""What `hpcrun why` says of recorded logs and states."""

import json
import os
import re
import string
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcrun import paths
from hpcrun.jobs.runs import Run
from hpcrun.jobs.states import UNSUBMITTED
from hpcrun.why import literals
from hpcrun.why.explanation import explain
from hpcrun.why.job_facts import JobFacts
from hpcrun.why.signatures import describe_reason, load_table

pytestmark = pytest.mark.slow

LOGS = Path(__file__).parent / "logs"
FIXTURES = sorted(LOGS.glob("*.txt"))

# answers what a file beside it says
SQUEUE = """#!/bin/sh
case "$*" in
  *'%i|%T|%r'*) cat "$0.state" ;;
  *'%S|%P'*) cat "$0.waiting" ;;
  *'%Q|%i'*) cat "$0.queue" ;;
esac
"""
SACCT = """#!/bin/sh
[ -e "$0.state" ] && cat "$0.state"
"""


@dataclass
class Recorded:
    """A run directory, and a Slurm, as they were."""

    folder: Path

    def slurm(self, name, answer, command="squeue"):
        (self.folder / f"bin/{command}.{name}").write_text(answer)

    def job(self, state="FAILED", reason="None", exit_code=None, ended=None, logs=None, **spec):
        """Return a run: `logs` by file, `spec` on top of job.json's usual content."""
        directory = self.folder / "run"
        (directory / "logs").mkdir(parents=True)
        site = {"name": "alps", "mpi": {"library": "mpich", "type": "none"}}
        usual = {"name": "train", "scheduler": "slurm", "launcher": "srun", "site": site, "resources": {}}
        (directory / "job.json").write_text(json.dumps(usual | {"python": "/sw/python"} | spec))
        (directory / "submitted.json").write_text('{"job_id": "12", "submitted": 1.0, "host": "login1"}')
        if exit_code is not None:
            reason_told = ended or f"the ranks ended with exit code {exit_code}"
            record = {"exit_code": exit_code, "reason": reason_told, "host": "n1", "started": 1, "ended": 2}
            (directory / "exit.json").write_text(json.dumps(record))
        for file, text in (logs or {}).items():
            (directory / file).parent.mkdir(exist_ok=True)
            (directory / file).write_text(text)
        self.slurm("state", f"12|{state}|{reason}|n1|0:01\n")
        return Run(directory)


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    for name, script in (("squeue", SQUEUE), ("sacct", SACCT)):
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return Recorded(tmp_path)


def read(file):
    head, _, log = file.read_text().partition("---\n")
    return dict(line.removeprefix("# ").split(": ", 1) for line in head.splitlines()), log


def explain_log(recorded, file):
    head, log = read(file)
    code = int(head["exit_code"]) if "exit_code" in head else None
    where = {"out": "12_0_log.out", "err": "12_0_log.err"}.get(head.get("file", "out"), head.get("file"))
    spec = {"launcher": head["launcher"]} if "launcher" in head else {}
    if "gpus" in head:
        spec["resources"] = {"gpus_per_node": head["gpus"]}
    run = recorded.job(
        head.get("state", "FAILED"),
        head.get("slurm_reason", "None"),
        exit_code=code,
        ended=head.get("reason"),
        logs={where: log} if log.strip() else None,
        **spec,
    )
    if "cancelled_by" in head:
        uid = os.getuid() + (head["cancelled_by"] != "me")
        recorded.slurm("state", f"12|CANCELLED by {uid}\n", command="sacct")
    return head, explain(run)


@pytest.mark.parametrize("file", FIXTURES, ids=lambda file: file.stem)
def test_causes_of_failures_are_recognised(recorded, file):
    head, explanation = explain_log(recorded, file)
    assert explanation.diagnosis.name == head["name"]
    assert head["line"] in "\n".join(seen.line for seen in explanation.diagnosis.evidence)
    assert head["fix"] in explanation.diagnosis.fix
    assert explanation.headline.startswith("job 12 (train) ")
    assert not re.search(r"[{}\n]|\bNone\b", explanation.headline)


def test_the_end_of_the_failed_rank_is_quoted(recorded):
    ended = "the ranks ended with exit code 1, that of rank 1 on n1"
    logs = {
        "12_0_log.out": "[rank 0] host n1\n",
        "logs/rank-0.log": "waits\n",
        "logs/rank-1.log": "the data are gone\n",
    }
    diagnosis = explain(recorded.job(exit_code=1, ended=ended, logs=logs)).diagnosis
    assert diagnosis.name == "rank-exited"
    assert [(seen.source, seen.line) for seen in diagnosis.evidence[1:]] == [("logs/rank-1.log", "the data are gone")]


LOST = "mpi4py.MPI.Exception: Other MPI error, error stack: poll failed: connection reset by peer\n"


@pytest.mark.parametrize(
    ("code", "log", "name"),
    [(139, "", "segmentation-fault"), (5, "last words\n", "rank-exited"), (1, "ValueError: x\n", "traceback")],
)
def test_errors_of_ranks_that_lost_the_failed_one_are_no_cause(recorded, code, log, name):
    ended = f"the ranks ended with exit code {code}, that of rank 1 on n1"
    trace = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 3, in <module>\n    x()\n'
    logs = {"12_0_log.out": trace + LOST, "logs/rank-0.log": trace + LOST, "logs/rank-2.log": trace + LOST}
    logs["logs/rank-1.log"] = (trace if code == 1 else "") + log
    explanation = explain(recorded.job(exit_code=code, ended=ended, logs=logs))
    assert explanation.diagnosis.name == name, explanation.headline
    assert "mpi4py" not in explanation.headline


@pytest.mark.parametrize("more", ["", "epoch 2: loss 0.1\n"])
def test_a_running_job_whose_log_ends_with_an_exception(recorded, more):
    trace = 'Traceback (most recent call last):\n  File "/home/me/a.py", line 3, in <module>\n    x()\nKeyError: 3\n'
    logs = {"12_0_log.out": "starts\n", "logs/rank-1.log": trace + more}
    resources = {"nodes": 1, "ntasks_per_node": 2, "ntasks": 2}
    explanation = explain(recorded.job(state="RUNNING", logs=logs, resources=resources))
    assert explanation.outcome == "runs"
    assert ("but its log logs/rank-1.log ends with an exception: KeyError: 3" in explanation.headline) == (not more)
    assert ("hpcrun cancel 12; with python -m mpi4py SCRIPT" in explanation.diagnosis.fix) == (not more)


@pytest.mark.parametrize(("completed", "text"), [(1, "rank 0 ended"), (3, "rank 0, and 2 others, ended"), (4, "")])
def test_a_running_job_of_which_some_ranks_have_ended(recorded, completed, text):
    files = {"12_0_log.out": "starts\n", **{f"completed/rank-{rank}": "n1\n" for rank in range(completed)}}
    resources = {"nodes": 1, "ntasks_per_node": 4, "ntasks": 4}
    explanation = explain(recorded.job(state="RUNNING", logs=files, resources=resources))
    headline = f", but {text} with exit code 0, while {4 - completed} of 4 ranks run"
    assert explanation.headline.partition("0:01")[2] == (headline if text else "")
    assert ("MPI_Init" in explanation.diagnosis.fix) == bool(text)


def test_what_srun_reports_after_mpi_abort_is_no_cause(recorded):
    ended = "the ranks ended with exit code 7, that of rank 1, which called MPI_Abort"
    abort = "Abort(7) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7) - process 1\n"
    logs = {
        "12_0_log.err": f"srun: error: n2: tasks 2-3: Killed\nhpcrun: {ended}; its log is in logs\n",
        "logs/rank-1.log": abort,
    }
    explanation = explain(recorded.job(exit_code=7, ended=ended, logs=logs))
    assert explanation.diagnosis.name == "mpi-abort", explanation.headline
    assert explanation.diagnosis.evidence[0].source == "logs/rank-1.log"


@pytest.mark.parametrize(
    ("full", "name"), [("; the disk of the run directory is full", "disk-full"), ("", "no-hpcrun")]
)
def test_a_full_disk_is_the_cause_of_a_hostfile_that_could_not_be_written(recorded, full, name):
    ended = f"the hostfile could not be written: is hpcrun installed for this Python (site key python)?{full}"
    assert explain(recorded.job(exit_code=1, ended=ended, logs={})).diagnosis.name == name


def test_each_signature_has_a_fixture():
    without = {signature.name for signature in load_table("failures")} - {read(file)[0]["name"] for file in FIXTURES}
    assert without == set()


@pytest.mark.parametrize("which", ["failures", "pending"])
def test_texts_use_only_known_placeholders(recorded, which):
    known = set(JobFacts(recorded.job(), UNSUBMITTED).template_values)
    for signature in load_table(which):
        for clue in signature.clues:
            groups = {
                group for value in clue.values() if isinstance(value, str) for group in re.compile(value).groupindex
            }
            groups |= {"error", "place", "cause", "advice"} if "exception" in clue else set()
            groups |= {"meaning"} if "what" in groups else set()
            groups |= {"write"} if "change" in groups else set()
            for text in (signature.summary, signature.fix):
                named = {name for _, name, _, _ in string.Formatter().parse(text) if name}
                assert named <= known | groups, (signature.name, clue)


LOG_PATTERNS = sorted(
    {clue["log"] for table in ("failures", "pending") for s in load_table(table) for clue in s.clues if "log" in clue}
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_a_text_that_matches_a_pattern_is_not_skipped(data):
    pattern = data.draw(st.sampled_from(LOG_PATTERNS))
    text = data.draw(st.from_regex(re.compile(pattern, re.MULTILINE | re.ASCII)))
    assert literals.may_match(pattern, literals.condense(text))


@pytest.mark.parametrize(("pattern", "groups"), [
    (r"^(?P<what>disk (?:quota|space) .*exceeded)", (("disk ",), ("quota", "space"), ("exceeded",))),
    (r"files?-(?:x|yes)*abc{2}d+e", (("file",),)),
    (r"\x1B\[foo|\u00e9abc|\N{DASH}abc", (("\x1b[foo", "abc"),)),
    (r"(?!not this)(?<=nor)this|that {one}", (("that {one}", "this"),)),
    (r"^Error(?=(?:\n.*){0,9}?\n(?:halted|Calls: ))", (("error",), ("calls: ", "halted"))),
    (r"(?<=after )x(?=y|after that)?", (("after ",),)),
    (r"(?P<quote>['\"])name(?P=quote) is 42nd", (("name",), (" is nd",))),
])  # fmt: skip
def test_the_literals_of_a_pattern(pattern, groups):
    found = literals.required_literals(pattern)
    assert sorted(map(sorted, found)) == sorted(map(sorted, groups))


def test_patterns_are_skipped_in_an_ordinary_log():
    log = literals.condense("epoch 3/90  loss 2.1253  accuracy 0.2409  val_loss 1.6494  1,706 images/s\n" * 1000)
    assert not [pattern for pattern in LOG_PATTERNS if literals.may_match(pattern, log)]


def test_names_of_signatures_are_unique():
    for which in ("failures", "pending"):
        names = [signature.name for signature in load_table(which)]
        assert len(names) == len(set(names))


REASONS = [line for line in (LOGS / "reasons").read_text().splitlines() if not line.startswith("#")]


def test_every_slurm_reason_is_explained(recorded):
    run = recorded.job("PENDING")
    for reason in REASONS:
        recorded.slurm("state", f"12|PENDING|{reason}||0:00\n")
        explanation = explain(run)
        assert explanation.is_known, reason
        assert len(explanation.diagnosis.summary.split()) > 3, reason
        assert explanation.diagnosis.fix, reason
        assert 1 < len(describe_reason(reason).partition(" (")[2].split()) < 9, reason


@pytest.mark.parametrize(("reason", "name", "word"), [
    ("Resources", "resources", "nodes"),
    ("Priority", "priority", "--time"),
    ("QOSMaxJobsPerUserLimit", "own-jobs-limit", "squeue --me"),
    ("AssocMaxJobsLimit", "own-jobs-limit", "squeue --me"),
    ("AssocGrpGRES", "group-limit", "--account"),
    ("AssocGrpCPUMinutesLimit", "budget", "--account"),
    ("QOSGrpGRESRunMinutes", "budget", "--account"),
    ("QOSMaxGRESPerUser", "own-resources-limit", "--qos"),
    ("MaxGRESPerAccount", "own-resources-limit", "--qos"),
    ("QOSMaxNodePerJobLimit", "job-too-big", "--nodes"),
    ("QOSMinGRES", "job-too-small", "--qos"),
    ("QOSMaxWallDurationPerJobLimit", "too-long-for-account", "limits.max_time"),
    ("PartitionTimeLimit", "partition-time-limit", "limits.max_time"),
    ("PartitionConfig", "partition-config", "limits.max_nodes"),
    ("PartitionNodeLimit", "partition-node-limit", "limits.max_nodes"),
    ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "nodes-unavailable", "sinfo -R"),
    ("ReqNodeNotAvail(Unavailable:n1)", "nodes-unavailable", "sinfo -R"),
    ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
     "nodes-unavailable", "sinfo -R"),
    ("launch failed requeued held", "held-after-failures", "scontrol release 12"),
    ("JobHeldUser", "held-by-user", "scontrol release 12"),
    ("JobHeldAdmin", "held-by-admin", "administrators"),
    ("BeginTime", "begin-time", "StartTime=now"),
    ("Licenses", "licenses", "scontrol show licenses"),
    ("PartitionDown", "partition-down", "--partition"),
    ("Dependency", "dependency", "Dependency="),
    ("DependencyNeverSatisfied", "dependency-never-satisfied", "afterany"),
    ("None", "not-looked-at", "hpcrun why 12"),
])  # fmt: skip
def test_a_pending_reason_has_a_fix(recorded, reason, name, word):
    explanation = explain(recorded.job("PENDING", reason))
    assert explanation.diagnosis.name == name
    assert word in explanation.diagnosis.fix
    assert reason in explanation.diagnosis.evidence[0].line or reason == "None"
    assert explanation.headline.startswith("job 12 (train) waits: ")


def test_an_unknown_reason_is_reported_as_unknown(recorded):
    explanation = explain(recorded.job("PENDING", "WaitingForGodot"))
    assert (explanation.is_known, explanation.diagnosis.name) == (False, "unknown")
    assert "WaitingForGodot" in explanation.headline


def test_a_pending_job_shows_its_start_and_the_jobs_ahead(recorded):
    run = recorded.job("PENDING", "Priority")
    recorded.slurm("waiting", "2031-01-02T03:04:05|gpu|100|(null)\n")
    recorded.slurm("queue", "101|13\n100|11\n100|12\n100|14\n99|10\n101|9_[1-5]\n")
    lines = [seen.line for seen in explain(run).diagnosis.evidence]
    assert any("2031-01-02T03:04:05" in line for line in lines)
    assert any(line.startswith("3 pending jobs are ahead of it in partition gpu") for line in lines)


def test_a_pending_job_shows_its_dependencies(recorded):
    run = recorded.job("PENDING", "DependencyNeverSatisfied")
    recorded.slurm("waiting", "N/A|gpu|100|afterok:11_*(failed)\n")
    lines = [seen.line for seen in explain(run).diagnosis.evidence]
    assert lines[1:] == ["it depends on afterok:11_*(failed)"]


def test_a_requeued_job_shows_its_previous_end(recorded):
    explanation = explain(recorded.job("PENDING", "BeginTime", exit_code=143, ended="stopped by SIGTERM"))
    assert explanation.diagnosis.evidence[-1].line == "it ran before: stopped by SIGTERM"


@pytest.mark.parametrize(("uid", "name"), [(os.getuid(), "cancelled"), (os.getuid() + 1, "cancelled-by-other")])
def test_the_canceller_is_named(recorded, uid, name):
    run = recorded.job("CANCELLED", exit_code=143, ended="stopped by SIGTERM")
    recorded.slurm("state", f"12|CANCELLED by {uid}\n", command="sacct")
    explanation = explain(run)
    assert explanation.diagnosis.name == name
    assert explanation.others == ()


def test_without_accounting_the_canceller_is_unknown(recorded):
    explanation = explain(recorded.job("CANCELLED", exit_code=143, ended="stopped by SIGTERM"))
    assert explanation.diagnosis.name == "stopped"
    assert "not recorded" in explanation.headline


def test_specific_diagnoses_come_first_and_general_ones_are_dropped(recorded):
    text = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    import a\n'
    text += "ModuleNotFoundError: No module named 'a'\n"
    nan = "epoch 1/2  loss nan\nepoch 2/2  loss nan\n"
    explanation = explain(
        recorded.job(
            exit_code=1,
            logs={
                "12_0_log.out": nan + text,
                "12_0_log.err": "srun: error: n1: task 0: Segmentation fault\nNo space left on device\n",
            },
        )
    )
    assert [explanation.diagnosis.name, *(other.name for other in explanation.others)] == [
        "python-package",
        "disk-full",
        "nan-loss",
    ]
    assert explanation.others[1].evidence[0].line == "epoch 1/2  loss nan"


VENV = "there is no virtual environment in /nonexistent/venv (site key venv)"


def test_the_scripts_error_about_a_site_key_is_the_diagnosis(recorded):
    log = """Lmod has detected the following error:  The following module(s) are unknown: "gcc/13"
/runs/train/job.sh: line 88: /nonexistent/venv/bin/activate: No such file or directory
hpcrun: there is no virtual environment in /nonexistent/venv (site key venv)
"""
    explanation = explain(recorded.job(exit_code=1, ended=VENV, logs={"12_0_log.err": log}))
    assert explanation.headline == f"job 12 (train) failed: {VENV}"
    assert explanation.others == ()


@pytest.mark.parametrize(("key", "reason", "where"), [
    ("venv", VENV, "correct venv in /lab/alps.toml:4,"),
    ("partitions.gpu.venv", VENV, "correct venv in /lab/alps.toml:4,"),
    ("partitions.cpu.venv", VENV, "correct venv in the file of site alps,"),
    ("container.image", "the command apptainer is not there (site key container.runtime)",
     "correct container.runtime in /lab/alps.toml:4,"),
    ("containers", "the command apptainer is not there (site key container.runtime)", "in the file of site alps,"),
])  # fmt: skip
def test_the_line_of_the_site_file_is_named(recorded, key, reason, where):
    run = recorded.job(exit_code=1, ended=reason, resources={"partition": "gpu"})
    (run.directory / "provenance").mkdir()
    values = {key: {"value": "x", "from": "/lab/alps.toml:4"}, "launcher": {"value": "srun", "from": None}}
    (run.directory / "provenance/site.json").write_text(json.dumps({"name": "alps", "values": values}))
    assert where in explain(run).diagnosis.fix


def test_the_fix_does_not_name_shipped_files(recorded, isolated_home):
    run = recorded.job("FAILED", "JobLaunchFailure")
    (run.directory / "provenance").mkdir()
    values = {"run_root": {"value": "x", "from": f"{paths.shipped_folder('site-configs')}/slurm.toml:3"}}
    (run.directory / "provenance/site.json").write_text(json.dumps({"name": "alps", "values": values}))
    assert f"run_root in your own file ({isolated_home}/config/hpcrun/alps.toml)" in explain(run).diagnosis.fix


def test_a_job_without_log_has_an_unshared_run_root(recorded):
    explanation = explain(recorded.job("FAILED", "JobLaunchFailure"))
    assert (explanation.is_known, explanation.diagnosis.name) == (True, "run-root")
    assert explanation.headline.endswith("/run, does not exist on n1")
    assert "hpcrun doctor --in-job" in explanation.diagnosis.fix


def test_a_started_job_has_a_shared_run_root(recorded):
    run = recorded.job("FAILED", "NonZeroExitCode")
    (run.directory / "starts.jsonl").write_text('{"job_id": "12"}\n')
    assert explain(run).diagnosis.name == "unknown"


def test_evidence_names_the_ranks_log(recorded):
    logs = {
        "12_0_log.out": "fine\n",
        "12_0_log.err": "",
        "logs/rank-0.log": "fine\n",
        "logs/rank-3.log": "MemoryError\n",
    }
    explanation = explain(recorded.job(exit_code=1, logs=logs))
    assert vars(explanation.diagnosis.evidence[0]) == {"source": "logs/rank-3.log", "line": "MemoryError"}


def test_the_rank_that_stopped_writing_first_has_the_cause(recorded):
    trace = 'Traceback (most recent call last):\n  File "/me/a.py", line 7, in <module>\n    load()\n'
    errors = ["ValueError: no batch", "KeyError: 'lr'", "ValueError: no batch"]
    logs = {f"logs/rank-{rank}.log": f"{trace}{error}\n" for rank, error in enumerate(errors)}
    run = recorded.job(logs=logs, exit_code=1)
    os.utime(run.directory / "logs/rank-1.log", (1, 1))
    assert "raised KeyError: 'lr'" in explain(run).headline


def test_merged_output_of_ranks_is_read(recorded):
    text = '[rank 1] Traceback (most recent call last):\n[rank 1]   File "t.py", line 7, in f\n[rank 1]     g()\n'
    explanation = explain(recorded.job(exit_code=1, logs={"12_0_log.out": text + "[rank 1] KeyError: 'x'\n"}))
    assert explanation.diagnosis.summary == "the program raised KeyError: 'x'"
    assert explanation.diagnosis.evidence[0].line == "[rank 1] KeyError: 'x'"
    assert "t.py, line 7" in explanation.diagnosis.fix


ENDED = "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-03-15T18:00:46 ***\n"
RAISED = (
    'Traceback (most recent call last):\n  File "/home/me/t.py", line 3, in <module>\n'
    "RuntimeError: Timed out initializing process group in store based barrier on rank: 0\n"
)


@pytest.mark.parametrize(("state", "log", "name"), [
    ("PREEMPTED", RAISED, "preempted"),
    ("NODE_FAIL", RAISED, "node-failure"),
    ("OUT_OF_MEMORY", RAISED, "host-memory"),
    ("TIMEOUT", ENDED + RAISED, "time-limit"),
    ("TIMEOUT", RAISED + ENDED, "rendezvous"),
    ("CANCELLED", ENDED + RAISED.replace("Timed out initializing process group in store", "x"), "stopped"),
    ("FAILED", ENDED + RAISED, "rendezvous"),
])  # fmt: skip
def test_what_ranks_report_after_slurm_ended_the_job_is_not_the_cause(recorded, state, log, name):
    assert explain(recorded.job(state, exit_code=1, logs={"12_0_log.err": log})).diagnosis.name == name


@pytest.mark.parametrize(("count", "name"), [(3, "traceback"), (2, "no-internet")])
def test_a_message_that_the_program_survived_is_not_the_cause_even_in_another_log(recorded, count, name):
    message = "Could not resolve host: example.org\n"
    steps = [f"epoch {number}/9 error 0.{number}\n" for number in range(1, 4)]
    error = 'Traceback (most recent call last):\n  File "/home/me/a.py", line 4, in <module>\nKeyError: 1\n'
    logs = {"12_0_log.out": message + "".join(steps[:count]), "12_0_log.err": error}
    assert explain(recorded.job(exit_code=1, logs=logs)).diagnosis.name == name


@pytest.mark.parametrize(("filler", "name"), [("1", "no-internet"), (" ", "traceback")])
def test_long_lines_take_no_longer(recorded, filler, name):
    line = filler * 60_000 + "\n"
    out = f"Could not resolve host: example.org\n{line}" if name == "no-internet" else ""
    error = f'Traceback (most recent call last):\n  File "/home/me/a.py", line 4, in <module>\n{line}KeyError: 1\n'
    run = recorded.job(exit_code=1, logs={"12_0_log.out": out, "12_0_log.err": error})
    start = time.process_time()
    assert explain(run).diagnosis.name == name
    assert time.process_time() - start < 2


def test_only_the_ends_of_logs_are_read(recorded):
    early = "MemoryError\n" + "x" * 99 + "\n"
    explanation = explain(recorded.job(exit_code=1, logs={"12_0_log.out": early + ("y" * 99 + "\n") * 20_000}))
    assert explanation.diagnosis.name == "unknown"


def test_an_unknown_failure_shows_the_last_log_lines(recorded):
    text = "".join(f"line {number}\n" for number in range(40))
    explanation = explain(recorded.job(exit_code=3, logs={"12_0_log.err": text}))
    assert (explanation.is_known, explanation.diagnosis.name) == (False, "unknown")
    assert "failed with exit code 3: hpcrun does not know why" in explanation.headline
    assert [seen.line for seen in explanation.diagnosis.evidence] == [f"line {number}" for number in range(25, 40)]
    assert "hpcrun logs 12" in explanation.diagnosis.fix


def test_a_job_that_never_started_has_no_log_to_read(recorded):
    fix = explain(recorded.job(state="UNKNOWN")).diagnosis.fix
    assert ("its script has not started" in fix, "its log" in fix) == (True, False)


def test_secrets_in_an_error_are_masked_wherever_it_is_quoted(recorded):
    password, token = "pw" * 4, "hf_" + "Ab3" * 12
    text = (
        'Traceback (most recent call last):\n  File "/home/me/a.py", line 3, in <module>\n'
        f'    get("https://bob:{password}@host/x", token="{token}")\n'
        f"RuntimeError: cannot reach https://bob:{password}@host/x with {token}\n"
    )
    explanation = explain(recorded.job(exit_code=1, logs={"12_0_log.err": text}))
    shown = f"{explanation.headline}\n{json.dumps(explanation.as_json())}"
    assert "cannot reach https://***@host/x with ***" in explanation.headline
    assert password not in shown
    assert token not in shown


@pytest.mark.parametrize(("state", "name"), [("RUNNING", "running"), ("COMPLETED", "completed")])
def test_a_running_or_completed_job_has_one_line(recorded, state, name):
    # what would explain a failure is no failure here
    explanation = explain(recorded.job(state, logs={"12_0_log.out": "MemoryError\n"}))
    assert (
        explanation.is_known,
        explanation.diagnosis.name,
        explanation.diagnosis.evidence,
        explanation.diagnosis.fix,
    ) == (True, name, (), "")
    assert "\n" not in explanation.headline


def test_a_completed_job_may_have_a_diagnosis(recorded):
    warning = "hpcrun: WARNING: srun gave the ranks no PMI or PMIx: MPI programs would run as 2 worlds of one rank\n"
    explanation = explain(recorded.job("COMPLETED", exit_code=0, ended="completed", logs={"12_0_log.out": warning}))
    assert explanation.headline.startswith("job 12 (train) completed, but srun's --mpi=none does not fit")
    assert 'mpi.type = "pmi2"' in explanation.diagnosis.fix


def test_an_unsubmitted_run_is_explained(recorded):
    run = recorded.job()
    (run.directory / "submitted.json").unlink()
    assert explain(run).diagnosis.name == "not-submitted"
