"""What jobs of this machine leave is ended and removed; what is not theirs, or not beyond doubt, is left."""

import base64
import io
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from unittest import mock

import pytest

import hpcrun
from hpcrun.cleanup import remote_command
from hpcrun.cleanup.job_identity import JobIdentity, find_processes
from hpcrun.cleanup.node_program import build_program
from hpcrun.cleanup.node_reply import NodeReply, parse_replies
from hpcrun.cleanup.selection import select_targets
from hpcrun.cli.main import main
from hpcrun.jobs.runs import Run
from hpcrun.removal import Leftover, remove_leftover
from hpcrun.schedulers import processes
from hpcrun.schedulers.processes import Process
from tests.waiting import DEADLINE, wait_until

pytestmark = pytest.mark.usefixtures("shared_memory")
ORPHAN = Path(__file__).parents[1] / "orphan.py"


def alive(pid):
    return processes.start_time(pid) is not None


def cleanup(*argv, stdin=None):
    """Run hpcrun cleanup, without a terminal unless `stdin` is one; return its exit code, output and messages."""
    if stdin is not None:
        command = [sys.executable, "-m", "hpcrun", "cleanup", *argv]
        done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False, timeout=DEADLINE)
        return done.returncode, done.stdout, done.stderr
    with (
        Path(os.devnull).open() as null,
        mock.patch.multiple(sys, argv=["hpcrun", "cleanup", *map(str, argv)], stdin=null),
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
        pytest.raises(SystemExit) as exit_info,
    ):
        main()
    return exit_info.value.code or 0, out.getvalue(), err.getvalue()


@pytest.fixture
def started():
    """Processes that a test starts, and that end with it."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def test_a_node_is_cleaned_when_all_disks_are_full(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/proc")  # no file can be created there
    program = 'import sys; print(\'{"jobs": [], "unattributed": []}\')'
    replies = remote_command.run_on_nodes([sys.executable, "-"], program, dict(os.environ), 1, 60)
    assert (replies.by_node, replies.stderr_lines) == ({"": NodeReply([], [])}, [])


@pytest.fixture
def leaving(tmp_path):
    """Jobs that end and leave an orphan; the orphans end with the test."""
    pids: list[int] = []

    def leave(*words, site="local"):
        file = tmp_path / f"orphan{len(pids)}"
        job = hpcrun.submit(None, [sys.executable, str(ORPHAN), str(file), *words], site=site)
        wait_until(Run(job.directory).end_record)
        found = [int(pid) for pid in wait_until(lambda: file.exists() and file.read_text()).split()]
        pids.extend(found)
        assert all(map(alive, found))
        return (Run(job.directory), *found)

    yield leave
    for pid in filter(alive, pids):
        os.kill(pid, signal.SIGKILL)


def test_cleanup_ends_an_orphan_and_finds_nothing_the_second_time(leaving, started):
    run, pid = leaving()
    bystander = subprocess.Popen(["bash", "-c", f"exec -a '{sys.executable} {ORPHAN}' sleep 600"])
    started.append(bystander)
    code, out, err = cleanup(run.job_id, "--yes")
    assert (code, alive(pid), alive(bystander.pid)) == (0, False, True), err
    node, ended, _, left = out.split()[-4:]  # the ranks of other tests may leave segments of /dev/shm meanwhile
    assert (node, ended, left) == (os.uname().nodename, "1", "0"), out
    assert not (run.directory / "hostfile").exists()
    assert (run.directory / "job.sh").exists()
    for words in (("--yes",), ()):  # tests beside this one may have processes and segments of /dev/shm
        report = json.loads(cleanup(run.job_id, "--json", *words)[1])["nodes"][0]["jobs"][0]
        assert report["processes"] == []
        assert [file for file in report["files"] if not file.startswith("/dev/shm/")] == []
        code, out, err = cleanup(run.job_id, *words)
        nothing = (code, out, err) == (0, "", "there is nothing to clean up on 1 node\n")
        only_files = out.split()[-4:][:2] == [os.uname().nodename, "0"]
        assert nothing or only_files or "of yours that started during the job" in err, (out, err)
    assert cleanup("--all") == (0, "", "there is nothing to clean up\n")


def test_a_process_that_ignores_sigterm_survives_without_force(leaving):
    run, pid, child = leaving("ignoring", "bare-child")
    code, out, err = cleanup("last", "--yes", "--grace", "0.2", "--json")
    report = json.loads(out)["nodes"][0]["jobs"][0]
    assert (code, alive(pid), alive(child), (run.directory / "hostfile").exists()) == (1, True, True, True)
    assert [one["pid"] for one in report["survivors"]] == [pid, child]
    assert f"process {pid} (innocent) ignored SIGTERM; --force sends SIGKILL" in err
    code, _, err = cleanup("last", "--force", "--grace", "0.2")
    assert (code, alive(pid), alive(child)) == (0, False, False), err


def test_a_child_without_environment_is_attributed_by_its_ended_parent(leaving, tmp_path):
    run, pid = leaving()
    os.kill(pid, signal.SIGKILL)
    code = "import signal, subprocess, time; signal.signal(15, signal.SIG_IGN); "
    code += "subprocess.Popen(['sleep', '600'], env={}); signal.signal(15, signal.SIG_DFL); "
    code += "print(flush=True); time.sleep(600)"
    environment = {"HPCRUN_RUN_DIR": str(run.directory)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=-1, start_new_session=True) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        code, out, _ = cleanup("last", "--force", "--grace", "0.5", "--json")
    report = json.loads(out)["nodes"][0]["jobs"][0]
    assert (code, len(report["processes"]), report["survivors"]) == (0, 2, [])
    assert not any(alive(one["pid"]) for one in report["processes"])


def test_without_terminal_and_yes_nothing_is_changed(leaving):
    _, pid = leaving()
    code, out, err = cleanup("last")
    assert (code, alive(pid)) == (1, True)
    assert "no terminal to ask on" in err
    assert f"process {pid} (innocent)" in err
    code, out, _ = cleanup("last", "--dry-run", "--json")
    assert (code, alive(pid)) == (0, True)
    assert json.loads(out)["nodes"][0]["jobs"][0]["processes"] == [{"pid": pid, "name": "innocent"}]


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_cleanup_lists_leftovers_and_asks_once(leaving, answer, code):
    _, pid = leaving()
    keyboard, terminal = pty.openpty()
    os.write(keyboard, f"{answer}\n".encode())
    done, _, err = cleanup("last", "--force", stdin=terminal)
    os.close(terminal)
    os.close(keyboard)
    assert (done, alive(pid)) == (code, answer == "n"), err
    assert err.index(f"process {pid} (innocent)") < err.index("End these processes and remove these files?")
    assert err.count("?") == 1


def test_a_running_job_is_ended_only_by_name_and_with_yes(leaving):
    _, orphan = leaving()
    job = hpcrun.submit(None, ["sleep", "600"], site="local")
    wait_until((job.directory / "logs/rank-0.log").exists)
    code, _, err = cleanup("--all", "--yes")
    assert (code, alive(orphan), alive(int(job.job_id))) == (0, False, True), err
    assert f"job {job.job_id} (sleep) is RUNNING and left alone" in err
    code, _, err = cleanup(job.job_id, "--force")
    assert (code, alive(int(job.job_id))) == (1, True)
    assert f"job {job.job_id} (sleep) is RUNNING: cleanup ends it" in err
    code, _, err = cleanup(job.job_id, "--yes")
    assert (code, alive(int(job.job_id)), processes.find_run_pids(job.directory)) == (0, False, []), err
    assert Run(job.directory).exit_record().reason == "stopped by SIGTERM"


def test_force_cleans_all_ended_jobs_and_lists_running_ones(leaving):
    (_, first), (_, second) = leaving("ignoring"), leaving()
    job = hpcrun.submit(None, ["sleep", "600"], site="local")
    wait_until((job.directory / "logs/rank-0.log").exists)
    code, _, err = cleanup()
    assert (code, alive(first), alive(second)) == (1, True, True)
    assert "no terminal to ask on" in err
    assert err.count("(innocent)") == 2
    code, _, err = cleanup("--force", "--grace", "0.2")
    assert (code, alive(first), alive(second), alive(int(job.job_id))) == (0, False, False, True), err
    assert f"job {job.job_id} (sleep) is RUNNING and left alone: hpcrun cleanup {job.job_id} ends it" in err
    assert cleanup(job.job_id, "--yes")[0] == 0
    assert cleanup("--force") == (0, "", "there is nothing to clean up\n")
    assert cleanup("--force", "--all", "last")[0] == 2


def test_a_shell_with_the_jobs_environment_is_not_ended(leaving):
    run, pid = leaving()
    environment = {**os.environ, "HPCRUN_RUN_DIR": str(run.directory)}
    line = f"sleep 600 & {sys.executable} -m hpcrun cleanup last --yes 2>&1 | cat; echo survived; kill -9 $!"
    done = subprocess.run(
        ["bash", "-c", line], env=environment, capture_output=True, text=True, check=False, start_new_session=True
    )
    assert done.stdout.endswith("survived\n"), done.stdout
    assert "(bash) is left: it is a parent of this command" in done.stdout
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


JOB = JobIdentity("/runs/a", "12", 1000.0, 2000.0)


def process(pid, parent=1, started=1500.0, cgroup=None, **environ):
    ticks = int((started - processes._boot_time()) * os.sysconf("SC_CLK_TCK"))
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
def test_owns_process(own, other):
    assert JOB.owns_process(other) is own


def test_an_allocation_id_identifies_no_process():
    assert not replace(JOB, slurm_ended=None).owns_process(process(5, SLURM_JOB_ID="12"))
    assert replace(JOB, slurm_ended=None).owns_process(process(5, SLURM_JOB_ID="12", HPCRUN_RUN_DIR="/runs/a"))


def test_children_without_environment_belong_to_their_parents_job():
    rank = process(5, HPCRUN_RUN_DIR="/runs/a")
    family = [rank, process(6, 5), process(7, 6), process(8, 5, HPCRUN_RUN_DIR="/runs/b"), process(9, 8)]
    mine = {one.pid: one for one in family}
    assert [one.pid for one in find_processes(JOB, mine, ())] == [5, 6, 7]
    assert find_processes(JOB, mine, {5}) == []


def test_a_process_that_got_an_old_pid_gets_no_signal(started):
    started.append(subprocess.Popen(["sleep", "600"]))
    now = processes.read_process(started[0].pid)
    assert now is not None
    processes.signal_process(replace(now, start=now.start - 1), signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        started[0].wait(0.2)
    processes.signal_process(now, signal.SIGKILL)
    assert started[0].wait(DEADLINE) == -signal.SIGKILL


@pytest.fixture
def names():
    """Names of files that go with the test."""
    found = [Path(f"{folder}/hpcrun-test-{os.urandom(4).hex()}") for folder in ("/dev/shm", "/dev/shm", "/tmp", "/tmp")]
    yield found
    for file in found:
        file.unlink(missing_ok=True)


def removed_names(names, report):
    """Return those of some files that a cleanup has removed; killed ranks of other tests leave segments, too."""
    assert set(report["removed"]) >= {str(name) for name in names if not name.exists()}
    return [name for name in names if str(name) in report["removed"]]


def test_segments_that_only_the_job_has_open_are_removed(leaving, names, started):
    own, shared, ordinary, listening = names
    run, _ = leaving(f"listen={listening}", *(f"open={name}" for name in (own, shared, ordinary)))
    with shared.open() as file:
        started.append(subprocess.Popen(["sleep", "600"], stdin=file))
    code, out, err = cleanup("last", "--yes", "--json")
    report = json.loads(out)["nodes"][0]["jobs"][0]
    assert (code, removed_names(names, report)) == (0, [own, listening]), err
    assert [name.exists() for name in names] == [False, True, True, False]
    why = {one["path"]: one["why"] for one in report["left"]}
    assert f"process {started[0].pid} (sleep), which is not the job's" in why[str(shared)]
    assert why[str(ordinary)] == "it is an ordinary file that the job was writing"
    assert (run.directory / "logs/rank-0.log").exists()


def test_a_segment_that_is_older_than_the_job_stays(leaving, names):
    run, pid = leaving(f"open={names[0]}")
    record = run.directory / "submitted.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "submitted": time.time() + 60}))
    code, _, err = cleanup("last", "--yes")
    assert (code, alive(pid), names[0].exists()) == (0, False, True)
    assert f"{names[0]} is left: it is older than the job" in err


def test_segments_of_ranks_that_were_all_killed_are_removed(started):
    kinds = "mpich_shm_{}_0", "vader_segment.n1.{}.1", "sm_segment.n1.0.{}.1", "psm2_shm.0.{}"
    left = [Path("/dev/shm", kind.format(os.urandom(4).hex())) for kind in kinds]
    used, old = (Path("/dev/shm", kinds[0].format(os.urandom(4).hex())) for _ in range(2))
    own = Path(f"/dev/shm/data-{left[0].name}")
    files = [*left, used, old, own]
    try:
        program = f"touch {' '.join(map(str, left))} {used} {own}; touch -d '1 hour ago' {old}"
        job = hpcrun.submit(None, ["sh", "-c", program], site="local")
        wait_until(Run(job.directory).end_record)
        with used.open() as stream:
            started.append(subprocess.Popen(["sleep", "600"], stdin=stream))
        code, out, err = cleanup("last", "--yes", "--json")
        report = json.loads(out)["nodes"][0]["jobs"][0]
        assert (code, removed_names(files, report)) == (0, left), err
        assert [file for file in files if file.exists()] == [used, old, own]
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def test_files_of_a_surviving_process_are_kept(leaving, names):
    leaving("ignoring", f"open={names[0]}")
    code, _, err = cleanup("last", "--yes", "--grace", "0.2")
    assert (code, names[0].exists()) == (1, True)
    assert f"{names[0]} is left: processes of the job still run" in err


def test_a_folder_of_the_runs_name_is_removed_but_not_the_run_directory(isolated_home, tmp_path):
    site = isolated_home / "s.toml"
    runs = os.environ["HPCRUN_RUN_ROOT"]
    folders = f'["{tmp_path}/$USER_NOT_SET", "{tmp_path}/scratch", "{runs}"]'
    site.write_text(f'scheduler = "local"\nlocal_scratch = {folders}\n')
    other = tmp_path / "other"
    make = f"mkdir -p {other}/deep {tmp_path}/scratch/$(basename $HPCRUN_RUN_DIR)/deep; "
    make += f"ln -s {other} {tmp_path}/scratch/$(basename $HPCRUN_RUN_DIR)/deep/link"
    run = Run(hpcrun.submit(None, ["sh", "-c", make], site=str(site)).directory)
    wait_until(run.end_record)
    mine = tmp_path / "scratch" / run.directory.name
    assert (mine / "deep/link").is_symlink()
    code, _, err = cleanup("last", "--yes")
    assert (code, mine.exists(), (other / "deep").exists(), (run.directory / "job.json").exists()) == (
        0, False, True, True,
    ), err  # fmt: skip


@pytest.fixture
def scratch(isolated_home, tmp_path):
    """A site whose jobs work in folders of their own, which each leaves, and the folder with these."""
    site = isolated_home / "s.toml"
    folder = tmp_path / "scratch"
    folder.mkdir()
    site.write_text(f'scheduler = "local"\nlocal_scratch = ["{folder}"]\n')

    def leave(more="true"):
        line = f"cd {folder}; mkdir $(basename $HPCRUN_RUN_DIR); {more.format(name='$(basename $HPCRUN_RUN_DIR)')}"
        run = Run(hpcrun.submit(None, ["sh", "-c", line], site=str(site)).directory)
        wait_until(run.end_record)
        return run, folder / run.directory.name

    return leave


def test_files_derived_from_a_runs_folder_are_kept_and_listed(scratch):
    _, folder = scratch()
    archive, analysis = folder.with_name(f"{folder.name}.tar.gz"), folder.with_name(f"analysis-of-{folder.name}")
    archive.touch()
    analysis.mkdir()
    code, _, err = cleanup("last", "--force")
    assert (code, folder.exists(), archive.exists(), analysis.exists()) == (0, False, True, True), err
    for one in (archive, analysis):
        assert f"{one} is left: the run's name is only a part of its name; to remove it: rm -r -- {one}\n" in err


@pytest.mark.parametrize(("change", "why"), [
    (lambda folder: (folder / "plot.png").touch(), "plot.png was changed after the job ended"),
    (lambda folder: folder.with_name("thesis").rename(folder / "thesis"), "thesis was changed after the job ended"),
    (lambda folder: (folder / "job.json").touch(), "job.json is the record of a run"),
    (lambda folder: (folder.rename(f"{folder}x"), folder.mkdir()), "it was made after the job ended"),
])  # fmt: skip
def test_a_folder_with_the_runs_name_is_kept_if_changed_later(scratch, change, why):
    run, folder = scratch()
    thesis = folder.with_name("thesis")
    thesis.mkdir()
    (thesis / "text").touch()
    over = json.loads((run.directory / "exit.json").read_text())
    (run.directory / "exit.json").write_text(json.dumps({**over, "ended": over["ended"] - 60}))
    if "made after" not in why:  # as if the job had been a minute ago
        (run.directory / "exit.json").write_text(json.dumps({**over, "ended": int(time.time())}))
        wait_until(lambda: time.time() > json.loads((run.directory / "exit.json").read_text())["ended"] + 2.5)
    change(folder)
    code, _, err = cleanup("last", "--force")
    assert (code, folder.exists()) == (0, True)
    assert why in err
    assert f"to remove it: rm -r -- {folder}\n" in err


def test_a_folder_that_another_process_works_in_stays(scratch, started):
    _, folder = scratch()
    started.append(subprocess.Popen(["sleep", "600"], cwd=folder))
    code, _, err = cleanup("last", "--force")
    assert (code, folder.exists()) == (0, True)
    assert f"process {started[0].pid} (sleep), which is not the job's, uses it" in err


def test_a_copy_of_a_run_directory_is_rejected(leaving, tmp_path, cli):
    run, pid = leaving()
    copy = tmp_path / run.directory.name
    shutil.copytree(run.directory, copy)
    code, _, err = cleanup(copy, "--force")
    assert (code, alive(pid), (run.directory / "job.sh").exists()) == (2, True, True)
    assert f"{copy} is a copy of the run {run.directory}, which the job belongs to" in err
    assert f"HINT: use the original: {run.directory}" in err


def test_the_original_run_is_kept_when_its_copy_is_cleaned(leaving, tmp_path, monkeypatch):
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setenv("HPCRUN_RUN_ROOT", "/tmp")
    try:
        job = hpcrun.submit(None, ["true"], site="local")
        run = Run(job.directory)
        wait_until(run.end_record)
        copy = folder / run.directory.name
        shutil.copytree(run.directory, copy)
        (copy / "job.json").unlink()
        code, _, err = cleanup(copy, "--force")
        assert (code, (run.directory / "job.json").exists()) == (0, True), err
        assert f"{run.directory} is left: {run.directory}/job.json is the record of a run" in err
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(job.directory)


@pytest.fixture
def linked_root(tmp_path, monkeypatch):
    """A run root on whose way there is a link, as $SCRATCH often is one, and where that leads."""
    real, link = tmp_path / "lustre/u1", tmp_path / "scratch"
    real.mkdir(parents=True)
    link.symlink_to(real)
    monkeypatch.setenv("HPCRUN_RUN_ROOT", f"{link}/runs")
    return real / "runs"


def test_a_run_root_behind_a_link_is_the_same_by_both_its_paths(leaving, linked_root):
    run, pid = leaving()
    real = linked_root / run.directory.name
    assert run.directory != real
    code, out, err = cleanup(real, "--force")
    assert (code, alive(pid)) == (0, False), err
    node, ended, _, left = out.split()[-4:]  # as above
    assert (node, ended, left) == (os.uname().nodename, "1", "0"), out


def test_old_clean_records_behind_a_link_do_not_count(leaving, linked_root):
    run, pid = leaving()
    (run.directory / "cleaned.json").write_text(json.dumps({"time": time.time(), "nodes": []}))
    code, _, err = cleanup("--all", "--force")
    assert (code, alive(pid)) == (0, False), err
    assert cleanup("--all", "--force") == (0, "", "there is nothing to clean up\n")


def test_processes_with_another_path_of_the_run_directory_are_ended(leaving, tmp_path, started):
    run, _ = leaving()
    (tmp_path / "again").symlink_to(run.directory.parent)
    environment = {"HPCRUN_RUN_DIR": f"{tmp_path}/again/{run.directory.name}"}
    started.append(subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True))
    environ = Path("/proc", str(started[0].pid), "environ")
    wait_until(lambda: b"HPCRUN_RUN_DIR" in environ.read_bytes())  # empty while the kernel starts the program
    assert cleanup("last", "--force")[0] == 0
    assert started[0].wait(DEADLINE) == -signal.SIGTERM


def test_a_job_behind_a_link_is_cancelled_and_pruned_by_both_paths(linked_root, cli):
    job = hpcrun.submit(None, ["sleep", "600"], site="local")
    wait_until((job.directory / "logs/rank-0.log").exists)
    real = linked_root / job.directory.name
    assert cli("cancel", str(real))[0] == 0
    assert processes.find_run_pids(job.directory) == []
    assert cli("prune", str(real), "--yes")[0] == 0
    assert not real.exists()
    assert list(Path(os.environ["XDG_STATE_HOME"], "hpcrun/runs").glob("*-*-*")) == []


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


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ('{"jobs": [], "unattributed": "nobody"}', "its reply is invalid: unattributed is"),
        ('{"jobs": [{}], "unattributed": []}', "its reply is invalid: jobs is"),
        ('{"jobs": [', "its reply is invalid: "),
        ('{"jobs": [], "unattributed": []}', "its reply is about 0 of 1 jobs"),
        ("hpcrun-cleanup localhost2 0 1 %%%", "its reply is invalid: "),
        ("hpcrun-cleanup localhost2 5 1 e30=", "its reply is invalid: it has no jobs"),
    ],
)
def test_an_invalid_reply_is_named_and_other_nodes_are_cleaned(leaving, tmp_path, monkeypatch, reply, reason):
    _, pid = leaving()
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(f"#!/bin/sh\necho banner; echo '{reply}'\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    (tmp_path / "hosts").write_text("localhost2\nlocalhost\n")
    code, _, err = cleanup("last", "--hostfile", tmp_path / "hosts", "--yes")
    assert (code, alive(pid)) == (1, False)
    assert f"localhost2 was not reached: ssh: {reason}" in err


def test_the_lines_of_replies_may_be_interleaved():
    text = base64.b64encode(b'{"jobs": [], "unattributed": []}').decode()
    lines = [f"hpcrun-cleanup {node} {index} 2 {text[start:end]}" for index, start, end in ((1, 20, None), (0, 0, 20))
             for node in ("n1", "n2")]  # fmt: skip
    assert parse_replies("\n".join(lines)) == (dict.fromkeys(["n1", "n2"], NodeReply([], [])), {})
    assert parse_replies("\n".join(lines[:3])) == ({"n1": NodeReply([], [])}, {})


def test_the_program_needs_no_hpcrun_where_it_runs(tmp_path):
    request = {"jobs": [asdict(JOB)], "dry_run": False, "force": False, "grace": 0, "folders": []}
    request["caller"] = {"boot": "", "processes": []}
    done = subprocess.run(
        ["/usr/bin/python3", "-IS", "-"],
        input=build_program(request),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert json.loads(done.stdout)["jobs"][0]["processes"] == []


def test_a_job_of_unknown_state_and_nodes_is_an_error(fake_slurm):
    fake_slurm.submit("sleep")
    fake_slurm.replace_command("squeue", "true")
    code, _, err = cleanup("1", "--yes")
    assert (code, "nothing to clean up" in err) == (2, False)
    assert "job 1 (sleep) is UNKNOWN (Slurm does not know this job (any more)), and its nodes are not known" in err


def test_a_restarted_job_is_cleaned_on_the_nodes_of_all_its_starts(fake_slurm):
    run = fake_slurm.submit(job_id=9)
    starts = [{"job_id": "5", "nodes": "n[1-2]"}, {"job_id": "9", "nodes": "n[2-3]"}]
    (run.directory / "starts.jsonl").write_text("".join(f"{json.dumps(start)}\n" for start in starts))
    fake_slurm.write_exit_record(run)
    fake_slurm.set_queue(("9", "COMPLETED", "None", "n[2-3]", "1:00"))
    ((target,), _) = select_targets(["9"], all_jobs=False, hostfile=None)
    assert set(target.nodes) == {"n1", "n2", "n3"}
    environ = {"HPCRUN_RUN_DIR": str(run.directory)}
    before, after, other = (Process(1, 1, 1, 1, "a", {**environ, "SLURM_JOB_ID": job}, None) for job in ("5", "9", "7"))
    assert [target.identity.owns_process(process) for process in (before, after, other)] == [True, True, False]


@pytest.fixture
def open_root(monkeypatch):
    """A run root that everybody may enter."""
    folder = tempfile.mkdtemp(dir="/tmp")
    Path(folder).chmod(0o755)
    monkeypatch.setenv("HPCRUN_RUN_ROOT", folder)
    yield
    shutil.rmtree(folder)


def end(fake_slurm, run, **more):
    fake_slurm.write_exit_record(run)
    record = json.loads((run.directory / "exit.json").read_text())
    (run.directory / "exit.json").write_text(json.dumps({**record, **more}))
    fake_slurm.set_queue((run.job_id, "COMPLETED", "None", "n1", "1:00"))


@pytest.mark.usefixtures("open_root")
@pytest.mark.parametrize("name", ["job.json", "submitted.json", "exit.json", "starts.jsonl", "hostfile"])
def test_records_that_somebody_else_can_write_are_not_acted_on(fake_slurm, cli, name):
    run = fake_slurm.submit(job_id=9)
    run.directory.chmod(0o755)  # as earlier versions made them
    (run.directory / "starts.jsonl").write_text("")
    (run.directory / "hostfile").write_text("n1\n")
    end(fake_slurm, run)
    file = run.directory / name
    file.chmod(0o666)
    code, _, err = cli("cleanup", "9", "--force")
    assert code == 2
    assert f"{file} is not used: everybody may write {file}, and you have not allowed it" in err
    assert f"HINT: hpcrun site allow {file}" in err
    code, _, err = cli("cleanup", "--force")
    assert (code, f"{file} is not used: everybody" in err, "nothing to clean up" in err) == (0, True, True)
    assert cli("site", "allow", str(file), "--yes")[0] == 0
    assert select_targets(["9"], all_jobs=False, hostfile=None)[0][0].nodes == ("n1",)


@pytest.mark.usefixtures("open_root")
def test_a_job_whose_records_somebody_else_can_write_is_not_cancelled(fake_slurm, cli):
    run = fake_slurm.submit(job_id=9)
    run.directory.chmod(0o755)  # as earlier versions made them
    fake_slurm.set_queue(("9", "RUNNING", "None", "n1", "1:00"))
    (run.directory / "submitted.json").chmod(0o666)
    code, _, err = cli("cancel", "9")
    assert (code, fake_slurm.calls("scancel")) == (2, [])
    assert "submitted.json is not used: everybody may write" in err


@pytest.mark.usefixtures("open_root")
@pytest.mark.parametrize("name", ["job.sh", "shell/launch.bash", "secrets.env"])
def test_a_script_that_somebody_else_can_change_is_not_resumed(fake_slurm, cli, name):
    run = fake_slurm.submit(job_id=9)
    fake_slurm.write_exit_record(run, code=1)
    run.directory.chmod(0o755)
    (run.directory / "shell").chmod(0o755)
    before = fake_slurm.calls("sbatch")
    (run.directory / name).touch()
    (run.directory / name).chmod(0o666)
    code, _, err = cli("resume", "9")
    assert (code, fake_slurm.calls("sbatch")) == (2, before)
    assert f"{name} is not used: everybody may write" in err


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's files")
@pytest.mark.usefixtures("open_root")
@pytest.mark.parametrize("whole", [True, False])
def test_another_users_run_is_not_acted_on(fake_slurm, cli, started, whole):
    run = fake_slurm.submit(job_id=9)
    started.append(subprocess.Popen(["sleep", "600"], env={"HPCRUN_RUN_DIR": str(run.directory)}))
    end(fake_slurm, run, host="localhost")
    os.chown(run.directory if whole else run.directory / "submitted.json", 65534, 65534)
    for command in (["cleanup", str(run.directory), "--force"], ["cancel", str(run.directory)]):
        assert (cli(*command)[0] != 0, started[0].poll()) == (True, None)
    assert "is not used: " in cli("cleanup", str(run.directory), "--force")[2]


@pytest.mark.parametrize("host", ["-oProxyCommand=touch /tmp/pwned", "n1;reboot", "$(reboot)", "n1\nn2"])
def test_a_host_that_is_no_host_name_reaches_no_command(fake_slurm, cli, host):
    run = fake_slurm.submit(job_id=9)
    end(fake_slurm, run, host=host)
    fake_slurm.replace_command("ssh", "exit 255")
    fake_slurm.replace_command("srun", "exit 1")
    code, _, err = cli("cleanup", "9", "--force")
    assert (code, fake_slurm.calls("ssh"), fake_slurm.calls("srun")) == (2, [], [])
    assert "exit.json is not used:" in err
    assert "is not a host name" in err


@pytest.mark.parametrize("job_id", ["9 10", "--user=root", "-1", ".*"])
def test_an_id_that_is_no_job_id_reaches_no_command(fake_slurm, cli, job_id):
    run = fake_slurm.submit(job_id=9)
    record = run.directory / "submitted.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "job_id": job_id}))
    for command in ("cancel", "cleanup"):
        code, _, err = cli(command, str(run.directory))
        assert (code, fake_slurm.calls("scancel")) == (2, [])
        assert f"job_id is {json.dumps(job_id)}, not a job id" in err


def test_a_record_that_is_a_pipe_or_a_link_is_not_read(fake_slurm, cli):
    run = fake_slurm.submit(job_id=9)
    end(fake_slurm, run)
    os.mkfifo(run.directory / "cleaned.json.new")
    (run.directory / "hostfile").symlink_to("/dev/zero")
    code, _, err = cli("cleanup", str(run.directory), "--force")
    assert code == 2
    assert "hostfile is not used: it is not a regular file" in err


def test_a_folder_that_has_been_swapped_for_a_link_is_not_followed(tmp_path):
    folder, victim = tmp_path / "room/a", tmp_path / "victim"
    for one in (folder, victim):
        one.mkdir(parents=True)
        (one / "file").touch()
    status = folder.lstat()
    leftover = Leftover(str(folder), (status.st_dev, status.st_ino))
    inner = Leftover(str(folder / "file"), (status.st_dev, (victim / "file").stat().st_ino))
    folder.rename(tmp_path / "room/b")
    folder.symlink_to(victim)
    assert remove_leftover(leftover) == "another file has replaced it"
    assert remove_leftover(inner) == "Not a directory"
    assert (victim / "file").exists()
    assert (tmp_path / "room/b/file").exists()


SRUN = """
for word; do case $word in --nodelist=*) nodes=${word#*=} ;; esac; done
program=$(cat)
for node in ${nodes//,/ }; do
  case " $BROKEN " in
    *" $node "*) echo "srun: error: Task launch for StepId=7.0 failed on node $node: No route" >&2; exit 1 ;;
  esac
done
for node in ${nodes//,/ }; do SLURMD_NODENAME=$node /usr/bin/python3 -IS - <<<"$program"; done
"""


def nodes_of(calls):
    return [word.partition("=")[2] for call in calls for word in call.split() if word.startswith("--nodelist=")]


def test_one_command_reaches_many_nodes_and_errors_are_reported_per_node(fake_slurm, cli, monkeypatch):
    run = fake_slurm.submit(job_id=9)
    end(fake_slurm, run, host="n1")
    (run.directory / "starts.jsonl").write_text(json.dumps({"job_id": "9", "nodes": "n[1-7]"}))
    states = ("idle|none", "mixed|none", "drained*|bad disk", "allocated|none", "idle|none", "down*|Not responding")
    rows = "\\n".join(f"n{number}|{state}" for number, state in enumerate(states, 1))
    fake_slurm.replace_command("sinfo", f"printf '{rows}\\n'")
    fake_slurm.replace_command("srun", SRUN)
    fake_slurm.replace_command("ssh", "echo 'Permission denied (publickey).' >&2; exit 255")
    monkeypatch.setenv("BROKEN", "n5")
    code, out, err = cli("cleanup", "9", "--force")
    assert (code, nodes_of(fake_slurm.calls("srun"))) == (1, ["n1,n2,n5", "n1,n2"])
    assert all("--all" in call.split() for call in fake_slurm.calls("sinfo"))  # nodes of hidden partitions, too
    assert all("--immediate=" in call and "--ntasks-per-node=1" in call for call in fake_slurm.calls("srun"))
    denied = "; ssh: Permission denied (publickey).\n"
    for node, why in {
        "n3": "Slurm reports it as not responding, drained (bad disk)",
        "n4": "other jobs use all of it",
        "n5": "Slurm cannot launch a task on it",
        "n7": "Slurm lists no node of this name",
    }.items():
        assert f"{node} was not reached: srun: {why}{denied}" in err
    assert "HINT: when these nodes can be reached again: hpcrun cleanup 9\n" in err
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["n3", "n4", "n5", "n6", "n7"]


def test_nodes_that_cannot_be_allocated_together_are_tried_separately(fake_slurm, cli):
    run = fake_slurm.submit(job_id=9)
    end(fake_slurm, run, host="n1")
    (run.directory / "starts.jsonl").write_text(json.dumps({"job_id": "9", "nodes": "n[1-3]"}))
    fake_slurm.replace_command("sinfo", "printf 'n1|idle|none\\nn2|mixed|none\\nn3|idle|none\\n'")
    full = "srun: error: Unable to allocate resources: Requested nodes are busy"
    full = f'case "$*" in *n2*) echo "{full}" >&2; exit 1 ;; esac'
    fake_slurm.replace_command("srun", full + SRUN)
    fake_slurm.replace_command("ssh", "exit 255")
    code, _, err = cli("cleanup", "9", "--force")
    assert (code, nodes_of(fake_slurm.calls("srun"))) == (1, ["n1,n2,n3", "n1,n3", "n2"])
    assert "n2 was not reached: srun: Unable to allocate resources: Requested nodes are busy; ssh: exit code 255" in err
    assert not any(f"n{number} was not reached" in err for number in (1, 3))


@pytest.fixture
def hidden_processes(tmp_path):
    """Jobs that leave a process without parent, terminal and environment; these end with the test."""
    pids: list[int] = []

    def start_hidden_process(redirection):
        file = tmp_path / f"hidden{len(pids)}"
        program = 'exec -a "sleep 600 --api-key=abcdef12" sleep 600'
        line = f"env -i setsid bash -c 'echo $$ >{file}; {program}' {redirection} & "
        line += f"until test -s {file}; do sleep 0.05; done"
        run = Run(hpcrun.submit(None, ["sh", "-c", line], site="local").directory)
        wait_until(run.end_record)
        pids.append(int(file.read_text()))
        return run, pids[-1]

    yield start_hidden_process
    for pid in filter(alive, pids):
        os.kill(pid, signal.SIGKILL)


def test_an_unattributed_process_is_listed_and_not_ended(hidden_processes):
    _, pid = hidden_processes("</dev/null >/dev/null 2>&1")
    code, out, err = cleanup("last", "--force", "--json")
    assert (code, alive(pid)) == (0, True)
    assert "of yours that started during the job" in err
    assert f"process {pid}, " in err
    assert "s old: sleep 600 --api-key=*** 600" in err
    assert "abcdef12" not in out + err
    assert pid in [one["pid"] for one in json.loads(out)["nodes"][0]["unclaimed"]]
    # other tests' MPI segments of this time are removed first
    code, _, err = wait_until(lambda: (result := cleanup("last", "--force"))[1] == "" and result)
    assert (code, alive(pid)) == (0, True)
    *_, hint, nothing = err.splitlines()
    assert hint == "HINT: if a process listed above belongs to a job, end it yourself: kill PID on its node"
    assert nothing == "nothing that certainly belongs to a job is left on 1 node"


def test_a_process_without_environment_is_the_jobs_where_it_writes_its_log(hidden_processes):
    _, pid = hidden_processes('</dev/null >>"$HPCRUN_RUN_DIR/logs/rank-0.log" 2>&1')
    code, _, err = cleanup("last", "--force")
    assert (code, alive(pid)) == (0, False), err


def test_log_readers_and_later_processes_are_not_ended(leaving, started):
    run, pid = leaving()
    log = run.directory / "logs/rank-0.log"
    wait_until(lambda: time.time() > run.end_record().ended + 2.5)
    with log.open() as reading, log.open("a") as writing:
        for stream in ({"stdin": reading}, {"stdout": writing}):
            started.append(subprocess.Popen(["sleep", "600"], env={}, start_new_session=True, **stream))
    code, _, err = cleanup("last", "--force")
    assert (code, alive(pid), [one.poll() for one in started]) == (0, False, [None, None]), err


def test_processes_in_a_session_led_by_the_job_belong_to_it():
    leader, own, other = process(5, HPCRUN_RUN_DIR="/runs/a"), process(6), process(7)
    leader, own, other = replace(leader, session=5), replace(own, session=5), replace(other, session=3)
    assert [one.pid for one in find_processes(JOB, {5: leader, 6: own, 7: other}, ())] == [5, 6]
