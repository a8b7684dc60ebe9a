"""Jobs on a real Slurm of two hosts."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from hpcrun.nodelist import fold_hosts
from tests.slurm.cluster_user import LONG_TRAINING, OPENMPI_PYTHON, ClusterUser

pytestmark = pytest.mark.slurm
HELLO = Path(__file__).parent / "hello.py"
# AlexNet, since eight ranks take minutes to trace a ResNet-50, which two train in test_workloads.
TINY = ["--arch", "alexnet", "--image-size", "64", "--synthetic-data", "--batch-size", "16", "--train-epochs", "1"]
TINY += ["--train-num-samples", "32", "--val-num-samples", "16", "--num-classes", "10"]


def expected_hello_lines(user: ClusterUser, *ranks: int) -> list[str]:
    """Return the output of hello.py for given numbers of ranks on the first and the second node."""
    names = [name for name, count in zip(user.cluster.nodelist, ranks, strict=False) for _ in range(count)]
    return [f"hello {rank}/{len(names)} {name}" for rank, name in enumerate(names)]


def hello_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("hello")]


@pytest.mark.thorough
def test_resnet50_on_two_nodes_with_four_gpus_each(user):
    submission = user.json(
        "submit", "resnet50", "--nodes", "2", "--gpus-per-node", "4", "--wait", "--", *TINY, "--val-freq", "2"
    )
    log = user.log(submission)
    assert (submission["state"], submission["exit_code"]) == ("COMPLETED", 0), log
    assert submission["result"]["ranks"] == 8
    assert submission["result"]["hosts"] == user.cluster.nodelist
    status = user.json("status", submission["job_id"])
    assert (status["state"], status["exit_code"]) == ("COMPLETED", 0)
    for rank in range(8):
        node = user.cluster.nodelist[rank // 4]
        assert f"[rank {rank}] host {node}, CUDA_VISIBLE_DEVICES={rank % 4}\n" in log


@pytest.mark.parametrize(
    "site",
    ["srun-mpich", *(pytest.param(site, marks=pytest.mark.thorough) for site in ("srun-openmpi", "mpiexec", "mpirun"))],
)
def test_lenet5_with_each_launcher(user, site):
    submission = user.json("submit", "lenet5", "--site", site, "-N", "2", "--wait", "--", "--epochs", "1")
    assert submission["state"] == "COMPLETED", user.log(submission)
    assert submission["result"]["ranks"] == 2
    assert submission["result"]["hosts"] == user.cluster.nodelist
    assert Path(submission["run_dir"], "metrics.jsonl").read_text().count("\n") == 1


def test_allreduce_between_hosts(user):
    submission = user.json("submit", "allreduce", "-N", "2", "--wait", "--", "--max-size", "4M", "--iterations", "20")
    log = user.log(submission)
    assert submission["state"] == "COMPLETED", log
    assert f"hosts           2 ({', '.join(user.cluster.nodelist)})" in log
    rows = json.loads(Path(submission["run_dir"], "allreduce.json").read_text())["sizes"]
    assert [row["bytes"] for row in rows] == [4**k for k in range(1, 12)]
    assert submission["result"]["peak_busbw_GBps"] > 0


def test_one_process_without_a_launcher_uses_all_gpus(user):
    submission = user.json(
        "submit", "--site", "none", "--gpus-per-node", "2", "--wait", "--", "printenv", "CUDA_VISIBLE_DEVICES"
    )
    assert submission["state"] == "COMPLETED"
    assert "\n0,1\n" in user.log(submission)
    rejected = user.hpcrun("submit", "--site", "none", "-n", "2", "--", "true")
    assert (rejected.returncode, "launcher = none" in rejected.stderr) == (2, True)


@pytest.mark.thorough
@pytest.mark.parametrize(("site", "launcher"), [("mpirun", "mpirun"), ("srun-mpich", "mpiexec")])
def test_lenet5_over_ssh_with_a_hostfile(user, site, launcher):
    hostfile = user.home / "hosts"
    hostfile.write_text("".join(f"{node}\n" for node in user.cluster.nodelist))
    argv = ["run", "lenet5", "--site", site, "--hostfile", hostfile, "-x", "A=two words", "--", "--epochs", "1"]
    submission = user.json(*argv)
    assert submission["exit_code"] == 0, user.log(submission)
    assert submission["result"]["hosts"] == user.cluster.nodelist
    assert f"\n  {launcher} " in Path(submission["run_dir"], "job.sh").read_text()


@pytest.mark.parametrize("site", ["wrong-mpich", "wrong-openmpi"])
def test_a_training_with_a_wrong_mpi_type_fails_with_a_hint(user, site):
    submission = user.json("submit", "lenet5", "--site", site, "-N", "2", "--wait", "--", "--epochs", "1")
    log = user.log(submission)
    assert submission["state"] == "FAILED", log
    assert submission["exit_code"] != 0
    assert submission["result"] is None
    assert "mpi.type" in log
    assert site in log


@pytest.mark.parametrize("site", ["srun-mpich", "srun-openmpi", "mpiexec", "mpirun"])
def test_hostnames_of_uneven_ranks(user, site):
    python = OPENMPI_PYTHON if "openmpi" in site or site == "mpirun" else sys.executable
    submission = user.json("submit", "--site", site, "-N", "2", "-n", "3", "--wait", "--", python, HELLO)
    assert hello_lines(user.log(submission)) == expected_hello_lines(user, 2, 1)


def test_sbatch_runs_the_dry_run_script(user):
    dry_run = user.hpcrun("submit", HELLO, "-N", "2", "--ntasks-per-node", "2", "--dry-run")
    script = user.home / "job.sh"
    script.write_text(dry_run.stdout)
    completed = user.call("sbatch", "--wait", "--parsable", script)
    assert completed.returncode == 0, completed.stderr
    assert hello_lines((user.home / f"slurm-{completed.stdout.strip()}.out").read_text()) == expected_hello_lines(
        user, 2, 2
    )
    assert dry_run.stdout == script.read_text()
    run = Path(next(line for line in dry_run.stderr.splitlines() if line.startswith("directory")).split()[1])
    assert json.loads((run / "exit.json").read_text())["exit_code"] == 0
    assert (run / "hostfile").read_text().split() == user.cluster.nodelist


def test_jobs_have_states_and_results_without_accounting(user_without_accounting):
    user = user_without_accounting
    completed_job = user.json("submit", HELLO, "-N", "2", "--wait")
    failed_job = user.json("submit", "--wait", "--", "sh", "-c", "exit 4")
    assert (completed_job["state"], failed_job["state"], failed_job["exit_code"]) == ("COMPLETED", "FAILED", 4)
    assert hello_lines(user.log(completed_job)) == expected_hello_lines(user, 1, 1)
    states = {job["job_id"]: job["state"] for job in user.json("status")}
    assert states == {completed_job["job_id"]: "COMPLETED", failed_job["job_id"]: "FAILED"}


def test_submit_from_inside_a_job(user):
    argv = ["--nodes=1", "--gpus-per-node=1", "--wait", "--output", user.home / "outer.out"]
    outer_job = user.call("sbatch", *argv, "--wrap", f"hpcrun submit {HELLO} -N 2 --wait")
    assert outer_job.returncode == 0, (user.home / "outer.out").read_text()
    assert hello_lines((user.home / "outer.out").read_text()) == expected_hello_lines(user, 1, 1)


def test_sbatch_variables_do_not_override_the_script(user):
    sbatch_variables = {
        "SBATCH_PARTITION": "nowhere",
        "SBATCH_TIMELIMIT": "0:01",
        "SBATCH_JOB_NAME": "other",
        "SBATCH_EXPORT": "NONE",
    }
    submission = user.json("submit", HELLO, "-N", "2", "-J", "mine", "--wait", **sbatch_variables)
    assert submission["state"] == "COMPLETED"
    output = user.call("squeue", "--states=all", "--noheader", "--jobs", submission["job_id"], "--format=%j|%P")
    assert output.stdout == "mine|main\n"


def test_run_inside_an_allocation_uses_its_nodes(user):
    completed = user.call("salloc", "-N", "2", "--ntasks-per-node=2", "hpcrun", "run", HELLO)
    assert completed.returncode == 0, completed.stderr
    assert hello_lines(completed.stdout) == expected_hello_lines(user, 2, 2)
    completed = user.call("salloc", "-N", "2", "--ntasks-per-node=2", "hpcrun", "run", "-n", "3", HELLO)
    assert hello_lines(completed.stdout) == expected_hello_lines(user, 2, 1)
    assert {row["nodes"] for row in user.json("status")} == {fold_hosts(user.cluster.nodelist)}


def test_script_passed_to_sbatch_has_logs_and_a_state(user):
    printed = user.call("hpcrun", "submit", "-N", "2", "--dry-run", HELLO)
    directory = next(line.split()[1] for line in printed.stderr.splitlines() if line.startswith("directory"))
    script = user.home / "by-hand.sh"
    script.write_text(printed.stdout)
    job_id = user.call("sbatch", "--parsable", "--wait", str(script)).stdout.strip()
    log = user.call("hpcrun", "logs", directory)
    assert "hello" in log.stdout.lower()
    assert f"job {job_id} was started by hand: its own log is slurm-{job_id}.out" in log.stderr
    row = user.json("status", directory)
    assert (row["state"], row["nodes"], row["reason"]) == (
        "COMPLETED",
        fold_hosts(user.cluster.nodelist),
        f"started by hand, as job {job_id}",
    )


def test_each_rank_uses_one_gpu(user):
    submission = user.json("submit", "-N", "2", "-n", "7", "--gpus-per-node", "4", "--wait", "--", "true")
    lines = [line for line in user.log(submission).splitlines() if line.startswith("[rank ")]
    first, second = user.cluster.nodelist
    expected = [f"host {node}, CUDA_VISIBLE_DEVICES={gpu}" for node, n in ((first, 4), (second, 3)) for gpu in range(n)]
    assert sorted(line.split("] ")[1] for line in lines) == expected


def test_submit_wait_follows_a_requeued_job(user):
    script = 'echo "start $SLURM_RESTART_COUNT"; [ -n "$SLURM_RESTART_COUNT" ] || sleep 600'
    with user.start("hpcrun", "submit", "--sbatch=--requeue", "--wait", "--", "sh", "-c", script) as submit_process:
        lines = iter(submit_process.stdout.readline, "")
        assert any(line == "start \n" for line in lines)
        job = user.json("status", "last")["job_id"]
        assert user.call("scontrol", "requeue", job).returncode == 0
        assert any(line == "start 1\n" for line in lines)
        assert submit_process.wait(120) == 0
    assert user.json("status", "last")["state"] == "COMPLETED"


def test_ranks_get_the_jobs_environment_despite_export_none(user):
    argv = ["--sbatch=--export=NONE", "-x", "MINE=yes", "-N", "2", "--output-on-all-ranks"]
    submission = user.json("submit", *argv, "--wait", "--", "sh", "-c", "echo $MINE $HPCRUN_NTASKS")
    assert {"[rank 0] yes 2", "[rank 1] yes 2"} <= set(user.log(submission).splitlines())


def test_slots_of_a_hostfile_set_the_number_of_ranks(user):
    first, second = user.cluster.nodelist
    hostfile = user.home / "hosts"
    hostfile.write_text(f"{first} slots=2\n{second} slots=1\n")
    submission = user.json("run", "--site", "mpiexec", "--hostfile", hostfile, HELLO)
    assert hello_lines(user.log(submission)) == expected_hello_lines(user, 2, 1)
    submission = user.json("run", "--site", "mpiexec", "--hostfile", hostfile, "-N", "1", "-n", "3", HELLO)
    assert hello_lines(user.log(submission)) == expected_hello_lines(user, 3)


def test_a_program_without_training_gets_a_hint_on_a_wrong_mpi_type(user):
    submission = user.json("submit", "--site", "wrong-mpich", "-N", "2", "--wait", "--", sys.executable, HELLO)
    assert "set mpi.type in site wrong-mpich" in user.log(submission)


def test_variables_with_special_characters_reach_every_rank(user):
    value = "two words 'q' \"d\" $HOME `id` \\\nline, two"
    write_value = 'printf \'%s\' "$AWKWARD" >"$HPCRUN_RUN_DIR/value-$SLURM_PROCID"'
    submission = user.json("submit", "-N", "2", "-x", f"AWKWARD={value}", "--wait", "--", "sh", "-c", write_value)
    assert [Path(submission["run_dir"], f"value-{rank}").read_text() for rank in (0, 1)] == [value, value]


@pytest.fixture
def staging_user(user):
    """Return a user whose sites name the node-local disk, and a folder with data."""
    for name in ("srun-mpich", "mpiexec", "mpirun"):
        (user.home / f"disk-{name}.toml").write_text(f'extends = "{name}"\nlocal_scratch = ["/tmp/disk"]\n')
    (user.home / "images").mkdir()
    (user.home / "images/1.png").write_text("pixels")
    yield user
    for node in user.cluster.nodelist:
        user.cluster.run(node, "sh", "-c", "rm -rf /tmp/disk")


def staged(user):
    """Return what is on the disk of each node."""
    return [user.cluster.run(node, "sh", "-c", "ls /tmp/disk").stdout.split() for node in user.cluster.nodelist]


@pytest.mark.parametrize("site", ["srun-mpich", "mpiexec", "mpirun"])
def test_each_node_copies_data_once_and_removes_them(staging_user, site):
    user = staging_user
    argv = ["--site", f"./disk-{site}.toml", "-N", "2", "--ntasks-per-node", "2", "--stage-in", "images", "--wait"]
    program = 'cat "$0"; stat -c " %i $(hostname) $HPCRUN_STAGED" "$0"; sleep 1'
    submission = user.json(
        *("submit", *argv, "--output-on-all-ranks", "--", "sh", "-c", program, "{staged}/images/1.png")
    )
    log = user.log(submission)
    seen = re.findall(r"^\[rank \d\] pixels (\d+) (\S+) (\S+)$", log, re.MULTILINE)
    assert (len(seen), len(set(seen)), {node for _, node, _ in seen}) == (4, 2, set(user.cluster.nodelist)), log
    assert len(re.findall(r"^\[rank \d\] staged data in .* s, \d+ MB/s$", log, re.MULTILINE)) == 2
    assert staged(user) == [[], []]


def start_with_staged_data(user):
    """Submit a job whose ranks sleep on two nodes with a copy of data; return its id when they run."""
    argv = ["--site", "./disk-srun-mpich.toml", "-N", "2", "--stage-in", "images", "--output-on-all-ranks"]
    submission = user.json("submit", *argv, "--", "sh", "-c", "echo started; sleep 600")
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        lines = (line for line in logs_process.stdout if "started" in line)
        assert [next(lines), next(lines)]
        logs_process.terminate()
    name = Path(submission["run_dir"]).name
    assert staged(user) == [[name], [name]]
    return submission["job_id"]


def test_a_job_removes_the_staged_data_of_killed_ranks(staging_user):
    job = start_with_staged_data(staging_user)
    assert staging_user.call("scancel", "--signal=KILL", f"{job}.0").returncode == 0
    staging_user.wait_for_end(job)
    assert staged(staging_user) == [[], []]


def test_cleanup_removes_the_staged_data_of_a_killed_job(staging_user):
    job = start_with_staged_data(staging_user)
    assert staging_user.call("scancel", "--signal=KILL", "--full", job).returncode == 0
    staging_user.wait_for_end(job)
    assert staging_user.hpcrun("cleanup", job, "--yes").returncode == 0
    assert staged(staging_user) == [[], []]


def test_submitit_attaches_from_another_process(user):
    submission = user.json(
        "submit", "-N", "2", "--", "sh", "-c", """echo '{"loss": 1}' >"$HPCRUN_RUN_DIR/result.json"; echo out"""
    )
    code = "import hpcrun, sys; j = hpcrun.attach(sys.argv[1]); print(j.results(), j.state, 'out' in j.stdout())"
    completed = user.call(sys.executable, "-c", code, submission["job_id"])
    assert completed.stdout == "[{'loss': 1}] COMPLETED True\n", completed.stderr


def test_a_cancelled_job_leaves_no_rank(user):
    submission = user.json("submit", "-N", "2", "--", "sh", "-c", "echo started; sleep 600")
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        assert any(line == "started\n" for line in iter(logs_process.stdout.readline, ""))
        assert user.hpcrun("cancel", submission["job_id"]).returncode == 0
        assert logs_process.wait(60) == 0
    user.cluster.wait_idle()
    assert user.json("status", submission["job_id"])["state"] == "CANCELLED"
    assert json.loads(Path(submission["run_dir"], "exit.json").read_text())["reason"] == "stopped by SIGTERM"
    for node in user.cluster.nodelist:
        assert "sleep" not in user.cluster.run(node, "ps", "-eo", "args").stdout


def test_ctrl_c_while_waiting_cancels_the_job(user):
    with user.start(
        "hpcrun", "submit", "-N", "2", "--wait", "--", "sh", "-c", "echo started; sleep 600"
    ) as submit_process:
        assert any(line == "started\n" for line in iter(submit_process.stdout.readline, ""))
        submit_process.send_signal(signal.SIGINT)
        assert submit_process.wait(60) == 130
    user.cluster.wait_idle()
    assert user.json("status", "last")["state"] == "CANCELLED"


@pytest.mark.thorough  # only Slurm's commands stop and start the job
def test_a_script_submitted_again_resumes_from_the_checkpoint(user):
    submission = user.json("submit", LONG_TRAINING, "-N", "2", "--", "25")
    with user.start("hpcrun", "logs", "-f", submission["job_id"]) as logs_process:
        assert any(line.startswith("epoch 2/25") for line in iter(logs_process.stdout.readline, ""))
        assert (
            user.call("scancel", "--signal=USR2", submission["job_id"]).returncode == 0
        )  # the signal reaches the ranks
        assert logs_process.wait(60) == 0
    assert "stopped by SIGUSR2 in epoch " in user.log(submission), user.log(submission)
    assert user.json("status", submission["job_id"])["state"] == "FAILED"
    script = Path(submission["run_dir"], "job.sh")
    second_job = user.call("sbatch", "--parsable", "--output", user.home / "again.out", script).stdout.strip()
    user.wait_for_end(second_job, 300)
    assert "the log continues in " in (user.home / "again.out").read_text()
    log = user.log({**submission, "job_id": second_job})
    assert json.loads(Path(submission["run_dir"], "exit.json").read_text())["exit_code"] == 0, log
    assert "/checkpoints/fit-0.npz: " in log
    assert log.count("epoch 1/25  loss ") == 1
    assert "epoch 25/25" in log
    assert json.loads(Path(submission["run_dir"], "result.json").read_text())["test_accuracy"] > 0.9


@pytest.mark.thorough
@pytest.mark.parametrize(("failure", "code"), [("exit 3", 3), ("kill -SEGV $$", 139), ("kill -KILL $$", 137)])
def test_the_exit_code_is_not_that_of_ranks_killed_after_the_failure(user, failure, code):
    both_run = user.home / "both-run"
    os.mkfifo(both_run)  # a rank that starts after a failure does not start its program
    program = f"if [ $SLURM_PROCID = 0 ]; then echo >{both_run}; else read _ <{both_run}; {failure}; fi; exec sleep 60"
    submission = user.json("submit", "--site", "srun-mpich", "-N", "2", "--wait", "--", "sh", "-c", program)
    assert (submission["state"], submission["exit_code"]) == ("FAILED", code)
    termination = re.compile(r"task 0: (Exited with exit code 143|Terminated)")  # by srun
    log = user.log(submission)
    assert termination.search(log), log


def test_submit_prints_the_error_of_sbatch(user):
    completed = user.hpcrun("submit", "-p", "nowhere", "--", "true")
    assert completed.returncode == 1
    assert "sbatch refused the job: " in completed.stderr
    assert "invalid partition" in completed.stderr.lower()


def test_status_prints_the_reason_of_a_pending_job(user):
    submission = user.json("submit", "-N", "2", "--exclusive", "--", "sleep", "60")
    second = user.json("submit", "-N", "2", "--exclusive", "--", "true")
    status = user.json("status", second["job_id"])
    assert status["state"] == "PENDING"
    assert status["reason"] in {"Resources", "Priority", "None", ""}
    for job in (second, submission):
        assert user.hpcrun("cancel", job["job_id"]).returncode == 0
