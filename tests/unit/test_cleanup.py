"""What jobs of this machine leave is ended and removed; what is not theirs, or not beyond doubt, is left."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import hpcrun
from hpcrun.cleanup import cleaning, targets
from hpcrun.cleanup.belonging import Mark, belonging
from hpcrun.cleanup.program import program
from hpcrun.jobs.runs import Run
from hpcrun.schedulers import processes
from hpcrun.schedulers.processes import Process
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.usefixtures("shared_memory")
ORPHAN = Path(__file__).parents[1] / "orphan.py"


def alive(pid):
    return processes.start_time(pid) is not None


def cleanup(*argv, **more):
    """Run hpcrun cleanup as a person does, with no terminal; return its exit code, output and messages."""
    more = {"stdin": subprocess.DEVNULL, **more}
    command = [sys.executable, "-m", "hpcrun", "cleanup", *map(str, argv)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **more)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def started():
    """Processes that a test starts, and that end with it."""
    found = []
    yield found
    for process in found:
        process.kill()
        process.wait()


@pytest.fixture
def leaving(tmp_path):
    """Jobs that end and leave an orphan; the orphans end with the test."""
    pids = []

    def leave(*words, site="local"):
        file = tmp_path / f"orphan{len(pids)}"
        job = hpcrun.submit(None, [sys.executable, str(ORPHAN), str(file), *words], site=site)
        until(Run(job.directory).ended)
        found = [int(pid) for pid in until(lambda: file.exists() and file.read_text()).split()]
        pids.extend(found)
        assert all(map(alive, found))
        return (Run(job.directory), *found)

    yield leave
    for pid in filter(alive, pids):
        os.kill(pid, signal.SIGKILL)


def test_an_orphan_is_ended_and_a_second_time_nothing_is_to_do(leaving, started):
    run, pid = leaving()
    bystander = subprocess.Popen(["bash", "-c", f"exec -a '{sys.executable} {ORPHAN}' sleep 600"])
    started.append(bystander)
    code, out, err = cleanup(run.job_id, "--yes")
    assert (code, alive(pid), alive(bystander.pid)) == (0, False, True), err
    assert out.split()[-4:] == [os.uname().nodename, "1", "0", "0"], out
    assert not (run.directory / "hostfile").exists()
    assert (run.directory / "job.sh").exists()
    assert cleanup(run.job_id, "--yes") == (0, "", "there is nothing to clean on 1 node\n")
    assert cleanup(run.job_id) == (0, "", "there is nothing to clean on 1 node\n")
    assert cleanup("--all") == (0, "", "there is nothing to clean on 0 nodes\n")


def test_what_ignores_sigterm_lives_without_force(leaving):
    run, pid, child = leaving("ignoring", "bare-child")
    code, out, err = cleanup("last", "--yes", "--grace", "0.2", "--json")
    told = json.loads(out)["nodes"][0]["jobs"][0]
    assert (code, alive(pid), alive(child), (run.directory / "hostfile").exists()) == (1, True, True, True)
    assert [one["pid"] for one in told["survivors"]] == [pid, child]
    assert f"process {pid} (innocent) lives on; --force ends it" in err
    code, _, err = cleanup("last", "--force", "--grace", "0.2")
    assert (code, alive(pid), alive(child)) == (0, False, False), err


def test_a_child_without_environment_is_known_by_its_parent_after_that_has_ended(leaving, tmp_path):
    run, pid = leaving()
    os.kill(pid, signal.SIGKILL)
    code = "import signal, subprocess, time; signal.signal(15, signal.SIG_IGN); "
    code += "subprocess.Popen(['sleep', '600'], env={}); signal.signal(15, signal.SIG_DFL); "
    code += "print(flush=True); time.sleep(600)"
    environment = {"HPCRUN_RUN_DIR": str(run.directory)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=-1, start_new_session=True) as parent:
        parent.stdout.readline()
        code, out, _ = cleanup("last", "--force", "--grace", "0.5", "--json")
    told = json.loads(out)["nodes"][0]["jobs"][0]
    assert (code, len(told["processes"]), told["survivors"]) == (0, 2, [])
    assert not any(alive(one["pid"]) for one in told["processes"])


def test_without_a_terminal_and_a_word_nothing_is_touched(leaving):
    _, pid = leaving()
    code, out, err = cleanup("last")
    assert (code, alive(pid)) == (1, True)
    assert "no terminal to ask on" in err
    assert f"process {pid} (innocent)" in err
    code, out, _ = cleanup("last", "--dry-run", "--json")
    assert (code, alive(pid)) == (0, True)
    assert json.loads(out)["nodes"][0]["jobs"][0]["processes"] == [{"pid": pid, "name": "innocent"}]


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_a_person_is_asked_once_with_the_list(leaving, answer, code):
    _, pid = leaving()
    keyboard, terminal = pty.openpty()
    os.write(keyboard, f"{answer}\n".encode())
    done, _, err = cleanup("last", "--force", stdin=terminal)
    os.close(terminal)
    os.close(keyboard)
    assert (done, alive(pid)) == (code, answer == "n"), err
    assert err.index(f"process {pid} (innocent)") < err.index("End and remove this?")
    assert err.count("?") == 1


def test_a_running_job_is_touched_only_where_it_is_named_and_that_is_meant(leaving):
    _, orphan = leaving()
    job = hpcrun.submit(None, ["sleep", "600"], site="local")
    until((job.directory / "logs/rank-0.log").exists)
    code, _, err = cleanup("--all", "--yes")
    assert (code, alive(orphan), alive(int(job.job_id))) == (0, False, True), err
    assert f"job {job.job_id} (sleep) is RUNNING and left alone" in err
    code, _, err = cleanup(job.job_id, "--force")
    assert (code, alive(int(job.job_id))) == (1, True)
    assert f"job {job.job_id} (sleep) is RUNNING: cleaning up ends it" in err
    code, _, err = cleanup(job.job_id, "--yes")
    assert (code, alive(int(job.job_id)), processes.marked(job.directory)) == (0, False, []), err
    assert Run(job.directory).record()["reason"] == "stopped by SIGTERM"


def test_a_shell_that_has_the_marker_is_no_leftover(leaving):
    run, pid = leaving()
    environment = {**os.environ, "HPCRUN_RUN_DIR": str(run.directory)}
    line = f"sleep 600 & {sys.executable} -m hpcrun cleanup last --yes 2>&1 | cat; echo survived; kill -9 $!"
    done = subprocess.run(
        ["bash", "-c", line], env=environment, capture_output=True, text=True, check=False, start_new_session=True
    )
    assert done.stdout.endswith("survived\n"), done.stdout
    assert "(bash) is left: this command runs under it" in done.stdout
    assert not alive(pid)


def test_another_job_and_another_users_process_live(leaving, started):
    run, pid = leaving()
    _, other = leaving()
    marker = {"HPCRUN_RUN_DIR": str(run.directory)}
    theirs = [{"SLURM_JOB_ID": "7", **marker}, {"HPCRUN_RUN_DIR": f"{run.directory}2"}, {"X": f"HPCRUN_RUN_DIR={run}"}]
    for environment in theirs:
        started.append(subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True))
    if os.getuid() == 0:
        started.append(subprocess.Popen(["sleep", "600"], env=marker, start_new_session=True, user=65534))
    code, _, err = cleanup(run.job_id, "--force")
    assert (code, alive(pid), alive(other)) == (0, False, True), err
    assert [process.poll() for process in started] == [None] * len(started)


MARK = Mark("/runs/a", "12", 1000.0, 2000.0)


def process(pid, parent=1, started=1500.0, cgroup=None, **environ):
    ticks = int((started - processes._booted()) * os.sysconf("SC_CLK_TCK"))
    return Process(pid, ticks, parent, pid, "x", environ, cgroup)


@pytest.mark.parametrize(("own", "other"), [
    (True, process(5, HPCRUN_RUN_DIR="/runs/a")),
    (True, process(5, HPCRUN_RUN_DIR="/runs/a", SLURM_JOB_ID="12")),
    (True, process(5, SLURM_JOB_ID="12")),
    (True, process(5, cgroup="12")),
    (False, process(5, HPCRUN_RUN_DIR="/runs/a", SLURM_JOB_ID="13")),  # sbatch in a job hands the variable on
    (False, process(5, HPCRUN_RUN_DIR="/runs/b", SLURM_JOB_ID="12")),  # hpcrun run in a job
    (False, process(5, SLURM_JOB_ID="12", started=2500.0)),  # another cluster's job 12
    (False, process(5, SLURM_JOB_ID="12", cgroup="13")),
    (False, process(5, SLURM_JOB_ID="123")),
    (None, process(5)),
])  # fmt: skip
def test_whose_a_process_is(own, other):
    assert MARK.owns(other) is own


def test_in_an_allocation_its_id_alone_tells_nothing():
    assert not replace(MARK, ended=None).owns(process(5, SLURM_JOB_ID="12"))
    assert replace(MARK, ended=None).owns(process(5, SLURM_JOB_ID="12", HPCRUN_RUN_DIR="/runs/a"))


def test_children_that_say_nothing_are_their_parents_and_others_are_not():
    rank = process(5, HPCRUN_RUN_DIR="/runs/a")
    family = [rank, process(6, 5), process(7, 6), process(8, 5, HPCRUN_RUN_DIR="/runs/b"), process(9, 8)]
    mine = {one.pid: one for one in family}
    assert [one.pid for one in belonging(MARK, mine, ())] == [5, 6, 7]
    assert belonging(MARK, mine, {5}) == []


def test_a_process_that_got_an_old_pid_gets_no_signal(started):
    started.append(subprocess.Popen(["sleep", "600"]))
    now = processes.read(started[0].pid)
    processes.send_to(replace(now, start=now.start - 1), signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        started[0].wait(0.2)
    processes.send_to(now, signal.SIGKILL)
    assert started[0].wait(DEADLINE) == -signal.SIGKILL


@pytest.fixture
def names():
    """Names of files that go with the test."""
    found = [Path(f"{folder}/hpcrun-test-{os.urandom(4).hex()}") for folder in ("/dev/shm", "/dev/shm", "/tmp", "/tmp")]
    yield found
    for file in found:
        file.unlink(missing_ok=True)


def test_segments_that_are_the_jobs_alone_are_removed(leaving, names, started):
    own, shared, ordinary, listening = names
    run, _ = leaving(f"listen={listening}", *(f"open={name}" for name in (own, shared, ordinary)))
    with shared.open() as file:
        started.append(subprocess.Popen(["sleep", "600"], stdin=file))
    code, out, err = cleanup("last", "--yes", "--json")
    told = json.loads(out)["nodes"][0]["jobs"][0]
    assert (code, told["removed"]) == (0, [str(own), str(listening)]), err
    assert [name.exists() for name in names] == [False, True, True, False]
    why = {one["path"]: one["why"] for one in told["left"]}
    assert f"process {started[0].pid} (sleep), which is not the job's" in why[str(shared)]
    assert why[str(ordinary)] == "it is an ordinary file that the job was writing"
    assert (run.directory / "logs/rank-0.log").exists()


def test_a_segment_that_is_older_than_the_job_stays(leaving, names):
    run, pid = leaving(f"open={names[0]}")
    later = {**run.submission, "submitted": time.time() + 60}
    (run.directory / "submitted.json").write_text(json.dumps(later))
    code, _, err = cleanup("last", "--yes")
    assert (code, alive(pid), names[0].exists()) == (0, False, True)
    assert f"{names[0]} is left: it is older than the job" in err


@pytest.mark.parametrize("kind", ["mpich_shm_{}_0", "vader_segment.n1.{}.1", "sm_segment.n1.0.{}.1", "psm2_shm.0.{}"])
def test_segments_of_ranks_that_were_all_killed_are_removed(started, kind):
    left, used, old = (Path("/dev/shm", kind.format(os.urandom(4).hex())) for _ in range(3))
    own = Path(f"/dev/shm/data-{left.name}")
    try:
        job = hpcrun.submit(None, ["sh", "-c", f"touch {left} {used} {own}; touch -d '1 hour ago' {old}"], site="local")
        until(Run(job.directory).ended)
        with used.open() as file:
            started.append(subprocess.Popen(["sleep", "600"], stdin=file))
        code, out, err = cleanup("last", "--yes", "--json")
        assert (code, json.loads(out)["nodes"][0]["jobs"][0]["removed"]) == (0, [str(left)]), err
        assert [file.exists() for file in (left, used, old, own)] == [False, True, True, True]
    finally:
        for file in (left, used, old, own):
            file.unlink(missing_ok=True)


def test_files_of_a_process_that_lives_on_stay(leaving, names):
    leaving("ignoring", f"open={names[0]}")
    code, _, err = cleanup("last", "--yes", "--grace", "0.2")
    assert (code, names[0].exists()) == (1, True)
    assert f"{names[0]} is left: the job's processes live" in err


def test_folders_named_after_the_run_are_removed_but_not_the_run_directory(own_world, leaving, tmp_path):
    site = own_world / "s.toml"
    runs = os.environ["HPCRUN_RUN_ROOT"]
    folders = f'["{tmp_path}/$USER_NOT_SET", "{tmp_path}/scratch", "{runs}"]'
    site.write_text(f'scheduler = "local"\nlocal_scratch = {folders}\n')
    run, _ = leaving(site=str(site))
    mine, other = (tmp_path / f"scratch/cache-{name}" for name in (run.directory.name, run.directory.name + "0"))
    for folder in (mine, other):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep/link").symlink_to(other)
    code, _, err = cleanup("last", "--yes")
    assert (code, mine.exists(), (other / "deep").exists(), (run.directory / "job.json").exists()) == (
        0, False, True, True,
    ), err  # fmt: skip


def test_a_script_names_its_jobs_on_the_hosts_of_a_file(leaving, tmp_path):
    _, first = leaving()
    _, second = leaving()
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=2\n")
    code, _, err = cleanup("--hostfile", hosts, "elsewhere.py", "--yes")
    assert (code, alive(first)) == (2, True)
    assert "no run 'elsewhere.py'" in err
    code, _, err = cleanup("--hostfile", hosts, "orphan.py", "--yes")
    assert (code, alive(first), alive(second)) == (0, False, False), err
    assert cleanup()[0] == 2


def test_a_node_that_is_not_reached_is_named_and_the_others_are_cleaned(leaving, tmp_path, monkeypatch):
    _, pid = leaving()
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text("#!/bin/sh\necho banner; echo 'connect to host: No route to host' >&2; exit 255\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    (tmp_path / "hosts").write_text("nowhere\nlocalhost\n")
    code, out, err = cleanup("last", "--hostfile", tmp_path / "hosts", "--yes")
    assert (code, alive(pid)) == (1, False)
    assert "nowhere was not reached: ssh: connect to host: No route to host" in err
    assert "not reached" in out


def test_the_program_needs_no_hpcrun_where_it_runs(tmp_path):
    request = {"marks": [asdict(MARK)], "act": True, "force": False, "grace": 0, "rooms": []}
    request["bystanders"] = {"boot": "", "processes": []}
    done = subprocess.run(
        ["/usr/bin/python3", "-IS", "-"],
        input=program(request),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert json.loads(done.stdout)["swept"][0]["processes"] == []


def test_a_job_of_which_nobody_knows_anything_is_said_to_be_so(fake_slurm):
    fake_slurm.submit("sleep")
    fake_slurm.answer("squeue", "true")
    code, _, err = cleanup("1", "--yes")
    assert (code, "nothing to clean" in err) == (2, False)
    assert "job 1 (sleep) is UNKNOWN (Slurm does not know this job (any more)), and so is every node" in err


def test_a_job_that_was_started_again_is_cleaned_up_after_on_all_its_nodes_and_as_all_its_jobs(fake_slurm):
    run = fake_slurm.submit(job_id=9)
    starts = [{"job_id": "5", "nodes": "n[1-2]"}, {"job_id": "9", "nodes": "n[2-3]"}]
    (run.directory / "starts.jsonl").write_text("".join(f"{json.dumps(start)}\n" for start in starts))
    fake_slurm.end(run)
    fake_slurm.tells(("9", "COMPLETED", "None", "n[2-3]", "1:00"))
    ((target,), _) = targets.choose(["9"], everything=False, hostfile=None)
    assert set(target.nodes) == {"n1", "n2", "n3"}
    environ = {"HPCRUN_RUN_DIR": str(run.directory)}
    before, after, other = (Process(1, 1, 1, 1, "a", {**environ, "SLURM_JOB_ID": job}, None) for job in ("5", "9", "7"))
    assert [target.mark.owns(process) for process in (before, after, other)] == [True, True, False]


@pytest.fixture
def open_root(monkeypatch):
    """A run root that everybody may enter."""
    folder = tempfile.mkdtemp(dir="/tmp")
    Path(folder).chmod(0o755)
    monkeypatch.setenv("HPCRUN_RUN_ROOT", folder)
    yield
    shutil.rmtree(folder)


@pytest.mark.usefixtures("open_root")
def test_a_program_that_somebody_else_could_name_is_not_started_on_nodes(fake_slurm):
    run = fake_slurm.submit(job_id=9)
    record = run.directory / "job.json"
    record.write_text(json.dumps({**run.spec, "python": "/home/somebody/program"}))
    fake_slurm.end(run)
    fake_slurm.tells(("9", "COMPLETED", "None", "n1", "1:00"))
    for mode, named in ((0o644, True), (0o666, False)):
        record.chmod(mode)
        chosen, _ = targets.choose(["9"], everything=False, hostfile=None)
        (visit,) = cleaning.visits(chosen, act=False, force=False, grace=0)
        assert ("/home/somebody/program" in str(visit)) == named
