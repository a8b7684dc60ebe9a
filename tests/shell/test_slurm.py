"""slurm.bash: the end of jobs that are signalled, preempted, or out of memory or nodes; Slurm's commands are fake."""

import json

import pytest

from tests.shell.job_script import OPTIONS
from tests.shell.slurm_job import SlurmJob

REQUEUE = 'case "$*" in "show job 7") echo "JobId=7 Requeue=1 PreemptTime=None" ;; esac'
PREEMPT = REQUEUE.replace("None", "2026-11-22T17:03:11")
REFUSE = 'case $1 in show) ;; *) echo "error:"; echo "it is closed"; exit 1 ;; esac'
"""What the fake commands do."""

OUT_OF_MEMORY = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."
)
FAILS_BY_MEMORY = f"echo '{OUT_OF_MEMORY}' >>$HPCRUN_RUN_DIR/7_0_log.err; exit 9"
NODE_FAILS = "echo 'srun: error: Node failure on n2' >>$HPCRUN_RUN_DIR/7_0_log.err; exit 1"
FAILED, NEAR_LIMIT = "the ranks ended with exit code 9", "stopped by SIGUSR2 before its time limit"
SUBMIT = "sbatch --parsable --open-mode=append --dependency=afterany:7"
STEP = "srun --overlap --quiet --mpi=none --mem=0 --cpus-per-task=1 --ntasks-per-node=1 --chdir=/"


@pytest.fixture
def job(tmp_path):
    return SlurmJob(tmp_path)


def test_a_job_has_slurms_id_and_nodes_and_records_what_slurm_knows(job):
    job.fake("scontrol", "echo JobId=7")
    assert job.end("env", environ={"SLURM_EXPORT_ENV": "NONE"}) == ("completed", False)
    start = json.loads((job.run / "starts.jsonl").read_text())
    assert (start["job_id"], start["slurm_job"], start["nodes"]) == ("7", "7", "n[1-2]")
    assert {"HPCRUN_JOB_ID=7", "SLURM_EXPORT_ENV=ALL"} <= set(job.out.splitlines())
    assert (job.run / "provenance/slurm.txt").read_text() == "JobId=7\n"
    assert (job.folder / "calls").read_text() == "scontrol show job 7\n"


def test_a_task_of_a_sweep_has_the_id_of_the_array_and_its_number(job):
    job.run /= "job.3"
    array = {"HPCRUN_TASK": "3", "SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "3"}
    job.fake("sbatch", "echo 8")
    reason = f"{NEAR_LIMIT}; job 8_3 goes on with it, 1 of at most 1 times"
    assert job.end("exit 140", environ=array, of_job="--sweep --max-requeue 1 --resubmit") == (reason, True)
    start = json.loads((job.run / "starts.jsonl").read_text())
    assert (job.record()["job_id"], start["slurm_job"]) == ("5_3", "7")
    assert job.calls() == [f"{SUBMIT.replace('7', '5_3')} --array=3 {job.folder}/job.sh"]


def test_a_script_without_slurm_calls_no_command_of_slurm(job):
    job.fake("scontrol", PREEMPT)
    assert job.end("exit 9", environ={"SLURM_JOB_ID": ""}, of_job="--max-requeue 1") == (FAILED, False)
    assert (job.folder / "calls").read_text() == ""


@pytest.mark.parametrize(
    ("option", "exists", "is_kept"), [("--own-slurm-conf", 0, False), ("--own-slurm-conf", 1, True), ("", 0, True)]
)
def test_the_login_nodes_slurm_conf_is_unset_where_it_does_not_exist(job, option, exists, is_kept):
    conf = job.folder / ("calls" if exists else "slurm.conf")
    job.end("env", of_job=option, environ={"SLURM_CONF": conf})
    assert (f"SLURM_CONF={conf}" in job.out.splitlines()) == is_kept


@pytest.mark.parametrize(
    ("names", "got", "reason", "calls"),
    [
        (("USR1",), ["TERM"], "stopped by SIGTERM", ["scancel 7"]),  # Slurm's state is then CANCELLED
        (("TERM",), ["TERM"], "stopped by SIGTERM", []),
        (("USR2",), ["USR2"], "stopped by SIGUSR2", []),
        (("TERM", "USR2"), ["TERM"], "stopped by SIGTERM", []),
    ],
)
def test_signals_stop_the_ranks(job, names, got, reason, calls):
    assert job.end_by(*names) == (reason, False)
    assert [line[4:] for line in job.out.splitlines() if line.startswith("got")] == got
    assert job.calls() == calls


def test_a_job_is_not_cancelled_after_its_ranks_have_ended(job):
    assert job.end("exit 0", after="kill -USR1 $$") == ("completed", False)
    assert job.calls() == []


def test_ranks_have_most_of_the_time_before_the_limit_for_a_checkpoint(job):
    job.end("exit 0", setup="#SBATCH --signal=B:USR2@40")
    assert "hpcrun_stop_seconds=30\n" in (job.run / "rank.sh").read_text()


def test_a_job_near_its_time_limit_is_requeued(job):
    reason = f"{NEAR_LIMIT}; requeued, 1 of at most 2 times"
    assert job.end_by("USR2", of_job="--max-requeue 2") == (reason, True)
    assert job.calls() == ["scontrol requeue 7"]


@pytest.mark.parametrize(
    ("earlier", "end", "calls"),
    [
        (1, ("; requeued, 2 of at most 2 times", True), ["scontrol requeue 7"]),
        (2, (", and requeued as often as --max-requeue=2 allows", False), []),
    ],
)
def test_ranks_that_end_by_sigusr2_are_requeued_until_the_maximum(job, earlier, end, calls):
    job.earlier_starts("requeued", earlier)
    assert job.end("exit 140", of_job="--max-requeue 2") == (NEAR_LIMIT + end[0], end[1])
    assert job.calls() == calls


def test_a_job_without_requeue_ends_by_sigusr2(job):
    assert job.end("exit 140") == ("the ranks ended with exit code 140", False)
    assert job.calls() == []


def test_a_requeue_that_slurm_refuses_is_recorded(job):
    job.fake("scontrol", REFUSE)
    reason = f"{NEAR_LIMIT}; scontrol requeue fails: error: it is closed"
    assert job.end("exit 140", of_job="--max-requeue 2") == (reason, False)


def test_a_job_that_must_not_requeue_submits_its_script_again(job):
    options = job.submit()
    job.fake("sbatch", f"env >{job.folder}/environ; echo a banner; echo '8;cluster'")
    environ = {"SLURM_MEM_PER_NODE": "1000", "SBATCH_PARTITION": "p", "SLURM_CONF": "/slurm.conf", "MY": "1"}
    how = {"environ": environ, "of_job": "--max-requeue 3 --resubmit --memory-retries 1"}
    assert job.end("exit 140", **how) == (f"{NEAR_LIMIT}; job 8 goes on with it, 1 of at most 3 times", True)
    assert job.calls() == [f"{SUBMIT} {options} --mem=1000M {job.run}/job.sh"]
    assert job.err == ""
    lines = (job.folder / "environ").read_text().splitlines()
    assert [line for line in lines if line.startswith(("SLURM", "SBATCH", "MY"))] == ["SLURM_CONF=/slurm.conf", "MY=1"]
    assert json.loads((job.run / "submitted.json").read_text()) == {"job_id": "8"}
    links = {name: str((job.run / name).readlink()) for name in ("8_0_log.out", "8_0_log.err", "7_0_result.pkl")}
    assert links == {"8_0_log.out": "7_0_log.out", "8_0_log.err": "7_0_log.err", "7_0_result.pkl": "8_0_result.pkl"}


def test_a_task_of_a_sweep_submits_the_script_of_the_sweep_again(job):
    job.run /= "job.3"
    job.run.mkdir()
    (job.run.parent / "job.sh").touch(0o600)
    (job.run / "job.sh").symlink_to("../job.sh")
    (job.run / "5_3_0_log.out").touch(0o600)
    array = {"HPCRUN_TASK": "3", "SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "3"}
    job.fake("sbatch", "echo 8")
    job.end("exit 140", environ=array, of_job="--sweep --max-requeue 1 --resubmit")
    assert job.calls()[0].endswith(f" --array=3 {job.run.parent}/job.sh")  # by which hpcrun recognizes the job


def test_a_script_that_others_can_write_is_not_submitted_again(job):
    job.submit()
    (job.run / "job.sh").chmod(0o620)
    reason = f"{NEAR_LIMIT}; not submitted again: others can write {job.run}/job.sh"
    assert job.end("exit 140", of_job="--max-requeue 3 --resubmit") == (reason, False)
    assert job.calls() == []


@pytest.mark.parametrize(
    ("scontrol", "program", "options", "requeues"),
    [
        (PREEMPT, "exit 9", "", True),
        (PREEMPT, "exit 0", "--hides-signals", True),
        (PREEMPT, "exit 0", "", False),
        (REQUEUE, "exit 9", "", False),
        (PREEMPT.replace("Requeue=1", "Requeue=0"), "exit 9", "", False),
    ],
)
def test_a_preempted_job_is_requeued(job, scontrol, program, options, requeues):
    job.fake("scontrol", scontrol)
    reason = "completed" if program == "exit 0" else FAILED
    wanted = ("stopped by preemption; requeued", True) if requeues else (reason, False)
    assert job.end(program, options=f"{OPTIONS} {options}") == wanted
    assert job.calls() == ["scontrol requeue 7"] * requeues


def test_a_job_waits_until_slurm_requeues_it_after_a_node_failure(job):
    job.fake("scontrol", REQUEUE)
    job.fake(
        "sleep", 'case $1 in 1) cp $HPCRUN_RUN_DIR/exit.json $0.json; kill -TERM $PPID ;; esac; exec /bin/sleep "$1"'
    )
    end = ("stopped by the failure of a node; requeued", True)
    assert job.end(NODE_FAILS) == end
    waiting = json.loads((job.folder / "bin/sleep.json").read_text())
    assert (waiting["reason"], waiting["requeued"], waiting["exit_code"]) == (*end, 1)
    assert not [line for line in job.calls() if not line.startswith("sleep")]


def test_a_job_that_slurm_may_not_requeue_does_not_wait_after_a_node_failure(job):
    job.fake("scontrol", REQUEUE.replace("Requeue=1", "Requeue=0"))
    assert job.end(NODE_FAILS, of_job="--max-requeue 1") == ("the ranks ended with exit code 1", False)


@pytest.mark.parametrize(("config", "seconds"), [("SlurmdTimeout           = 40 sec", 100), ("", 360)])
def test_the_wait_for_slurm_ends_a_minute_after_its_timeout(job, config, seconds):
    job.fake("scontrol", f"echo '{config}'")
    sleep = 'command() { if [ "$1" = sleep ]; then SECONDS=$((SECONDS + $2)); else builtin command "$@"; fi; }'
    clock = f"unset SECONDS; SECONDS=0; {sleep}"  # once unset, Bash no longer counts the real seconds into it
    wait = "begin=$SECONDS hpcrun_reason=before hpcrun_requeued=false; hpcrun_await_slurm 9 2>&1"
    output = job.call(f'{clock}; {wait}; echo "$((SECONDS - begin)) $hpcrun_reason $hpcrun_requeued"')
    message = "hpcrun: a node of this job does not answer; Slurm requeues the job when it detects that"
    assert output == f"{message}\n{seconds} before false\n"


@pytest.mark.parametrize(
    ("maximum", "nodes", "own_node", "all_nodes", "has_failed"),
    [(1, 2, 0, 1, True), (1, 2, 1, 1, False), (1, 2, 0, 0, False), (0, 2, 0, 1, False), (1, 1, 0, 1, False)],
)
def test_a_node_that_starts_no_step_has_failed(job, maximum, nodes, own_node, all_nodes, has_failed):
    job.fake("srun", f'case "$*" in *--nodelist=n1*) exit {own_node} ;; *) exit {all_nodes} ;; esac')
    job.fake("timeout", 'shift 2; exec "$@"')
    commands = f"hpcrun_max_requeue={maximum}; hpcrun_node_failed && echo failed"
    output = job.call(commands, SLURM_JOB_NUM_NODES=str(nodes), SLURMD_NODENAME="n1")
    assert output == "failed\n" * has_failed
    own, every = f"{STEP} --nodes=1 --ntasks=1 --nodelist=n1 true", f"{STEP} --nodes=2 --ntasks=2 true"
    steps = [line for call in (own, every) for line in (f"timeout --signal=KILL 60 {call}", call)]
    assert job.calls() == steps[: 4 if own_node == 0 else 2] * (maximum == 1 and nodes == 2)


@pytest.mark.parametrize(
    ("line", "is_out"),
    [
        (OUT_OF_MEMORY, True),
        ("slurmstepd: error: Detected 2 oom-kill event(s) in StepId=7.0", True),
        ("slurmstepd: error: Step 7.0 exceeded memory limit (2048 > 1024), being killed", True),
        ("slurmstepd: error: Exceeded job memory limit", True),
        ("srun: error: n1: task 0: Out Of Memory", True),
        ("slurmstepd: error: Exceeded memory limit at some point.", False),  # the page cache
        ("my program: oom_kill, Out Of Memory", False),
    ],
)
def test_messages_of_slurm_tell_that_memory_ran_out(job, line, is_out):
    (job.run / "7_0_log.err").write_text(f"{line}\n")
    assert job.call("hpcrun_ran_out_of_memory && echo out", hpcrun_code="9") == "out\n" * is_out


@pytest.mark.parametrize(
    ("cgroup", "file"),
    [("0::/job_7\n", "job_7/memory.events"), ("9:cpu:/\n4:memory:/job_7\n", "memory/job_7/memory.oom_control")],
)
@pytest.mark.parametrize(("code", "kills", "is_out"), [(137, 1, True), (137, 0, False), (9, 1, False)])
def test_the_cgroup_of_a_killed_rank_tells_that_memory_ran_out(job, cgroup, file, code, kills, is_out):
    events = job.folder / file
    events.parent.mkdir(parents=True)
    events.write_text(f"oom 2\noom_kill {kills}\n")
    (job.folder / "cgroup").write_text(cgroup)
    sed = f'builtin command "${{@:1:$#-1}}" {job.folder}/cgroup | builtin command sed "s|^/sys/fs/cgroup|{job.folder}|"'
    commands = f'command() {{ if [ "$1" = sed ]; then {sed}; else builtin command "$@"; fi; }}'
    assert job.call(f"{commands}; hpcrun_ran_out_of_memory && echo out", hpcrun_code=str(code)) == "out\n" * is_out


@pytest.mark.parametrize(
    ("memory", "option"),
    [
        ({"SLURM_MEM_PER_NODE": "1000"}, "--mem=1500M"),
        ({"SLURM_MEM_PER_CPU": "333", "SLURM_MEM_PER_NODE": "1"}, "--mem-per-cpu=500M"),
        ({"SLURM_MEM_PER_CPU": "1", "SLURM_MEM_PER_GPU": "100"}, "--mem-per-gpu=150M"),
    ],
)
def test_a_job_that_ran_out_of_memory_goes_on_with_more(job, memory, option):
    job.fake("sbatch", "echo 8")
    reason = f"stopped by the lack of memory; job 8 goes on with {option}, 2 of at most 2 times"
    job.earlier_starts("more_memory", 1)
    assert job.end(FAILS_BY_MEMORY, environ=memory, of_job="--memory-retries 2") == (reason, True)
    assert job.calls() == [f"{SUBMIT} {option} {job.folder}/job.sh"]


@pytest.mark.parametrize(
    ("program", "memory", "earlier", "reason"),
    [
        (FAILS_BY_MEMORY, "1000", 2, "; it ran out of memory as often as --memory-retries=2 allows"),
        (FAILS_BY_MEMORY, "0", 0, "; it ran out of memory, and has all of the node"),
        (FAILS_BY_MEMORY, "1000", 0, "; sbatch fails: error: it is closed"),
        ("exit 9", "1000", 0, ""),
    ],
)
def test_a_job_that_does_not_go_on_with_more_memory_says_why(job, program, memory, earlier, reason):
    job.fake("sbatch", REFUSE)
    job.earlier_starts("more_memory", earlier)
    end = job.end(program, environ={"SLURM_MEM_PER_NODE": memory}, of_job="--memory-retries 2")
    assert end == (f"{FAILED}{reason}", False)


def test_slurm_itself_ends_the_ranks_of_a_killed_script(job):
    assert job.call("hpcrun_end_orphans") == ""
    assert job.calls() == []
