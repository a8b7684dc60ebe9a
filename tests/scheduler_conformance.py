"""What every scheduler does for the commands of hpcrun; each scheduler's test class inherits these tests."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.user import User
from tests.waiting import wait_until

SECONDS = 120
"""How long a job may take to reach a state; each look starts a process."""

WAIT_FOR_FILE = 'until [ -e "$1" ]; do sleep 0.1; done'
CLEAN_EXIT = 'trap "touch saved; exit 0" TERM; touch started; while :; do sleep 0.1; done'
IGNORES_TERM = 'trap "" TERM; touch started; while :; do sleep 0.1; done'


class SchedulerConformance:
    """The life of a job on one scheduler.

    Attributes:
        scheduler: Its name.
        site: Further lines of the site file.
        capabilities: What it can do besides.
        resumes: Whether ``hpcrun resume`` starts its jobs again.
    """

    scheduler: str
    site = ""
    capabilities: frozenset[str] = frozenset()
    resumes = True

    @pytest.fixture
    def user(self, request: pytest.FixtureRequest) -> Iterator[User]:
        """Yield a user of a site of this scheduler, whose site file is in the user's home folder; end their jobs."""
        user = self.make_user(request)
        keys = f'scheduler = "{self.scheduler}"\nlauncher = "none"\nrestart.cancel_seconds = 2\n{self.site}'
        (user.home / "site.toml").write_text(keys)
        yield user
        (user.home / "go").touch()
        user.hpcrun("cancel", "--yes", "all")

    def make_user(self, request: pytest.FixtureRequest) -> User:
        """Return a user who can reach the scheduler."""
        raise NotImplementedError

    def submit(self, user, *argv, options=()):
        """Submit a program, and return the facts that `submit --json` prints."""
        return user.json("submit", "--site", "site.toml", *options, "--", *argv)

    def status(self, user, submission):
        """Return the row of a job in `status --json`."""
        return user.json("status", submission["run_dir"])

    def wait_for_state(self, user, submission, state):
        """Wait until a job is in a state, and return its row."""
        return wait_until(lambda: (row := self.status(user, submission))["state"] == state and row, SECONDS)

    def test_a_job_completes(self, user):
        program = 'echo out; echo err >&2; echo \'{"loss": 1}\' >"$HPCRUN_RUN_DIR/result.json"'
        submission = self.submit(user, "sh", "-c", program)
        assert self.wait_for_state(user, submission, "COMPLETED")["exit_code"] == 0
        assert user.log(submission).split()[-2:] == ["out", "err"]
        record = json.loads((Path(submission["run_dir"]) / "exit.json").read_text())
        assert (record["job_id"], record["reason"]) == (submission["job_id"], "completed")
        assert user.json("result", submission["run_dir"])["loss"] == 1

    def test_a_failed_job_is_explained(self, user):
        completed = user.hpcrun("submit", "--site", "site.toml", "--wait", "--", "sh", "-c", "echo lost it >&2; exit 7")
        assert completed.returncode == 7
        assert "exit code 7" in user.hpcrun("why", "last").stdout

    def test_a_running_job_stops_gracefully(self, user):
        submission = self.submit(user, "sh", "-c", CLEAN_EXIT)
        wait_until((user.home / "started").exists)
        assert self.status(user, submission)["state"] == "RUNNING"
        cancelled = user.hpcrun("cancel", submission["run_dir"])
        assert cancelled.returncode == 0, cancelled.stderr
        assert (user.home / "saved").exists()
        self.wait_for_state(user, submission, "CANCELLED")

    def test_ranks_that_ignore_the_request_are_killed(self, user):
        submission = self.submit(user, "sh", "-c", IGNORES_TERM)
        wait_until((user.home / "started").exists)
        cancelled = user.hpcrun("cancel", submission["run_dir"])
        assert "were killed" in cancelled.stdout + cancelled.stderr
        self.wait_for_state(user, submission, "CANCELLED")

    def test_a_pending_job_is_cancelled(self, user):
        if not (pending := self.submit_pending(user)):
            return  # jobs start at once here
        row = self.wait_for_state(user, pending, "PENDING")
        assert row["reason"]
        assert user.hpcrun("cancel", pending["run_dir"]).returncode == 0
        self.wait_for_state(user, pending, "CANCELLED")
        assert not (Path(pending["run_dir"]) / "starts.jsonl").exists()

    def submit_pending(self, user):
        """Submit a job that stays pending; return None where jobs start at once."""
        raise NotImplementedError

    def test_a_submission_that_was_not_recorded_is_found(self, user):
        submission = self.submit(user, "sh", "-c", WAIT_FOR_FILE, "-", "go")
        directory = Path(submission["run_dir"])
        self.wait_for_state(user, submission, "RUNNING")
        (directory / "submitted.json").unlink()
        (link,) = [link for link in (user.home / "state/hpcrun/runs").iterdir() if link.is_symlink()]
        link.rename(link.with_name(link.name.replace(f".{submission['job_id']}-", "-")))
        row = user.json("status", "last")
        assert (row["job_id"], row["state"]) == (submission["job_id"], "RUNNING")
        (user.home / "go").touch()
        self.wait_for_state(user, submission, "COMPLETED")

    def test_a_sweep_runs_all_tasks_or_is_refused(self, user):
        argv = ("submit", "--site", "site.toml", "--wait", "--sweep", "lr=1,2", "--", "sh", "-c", 'echo "$@" >>lr', "-")
        completed = user.hpcrun(*argv)
        if "sweep" in self.capabilities:
            assert completed.returncode == 0, completed.stderr
            assert sorted((user.home / "lr").read_text().split()) == ["--lr=1", "--lr=2"]
        else:
            assert (completed.returncode, (user.home / "runs").exists()) == (2, False)
            assert f"--sweep: the scheduler {self.scheduler} has no sweeps" in completed.stderr

    def test_a_dependency_is_kept_refused_or_ignored_with_a_warning(self, user):
        first = self.submit(user, "sh", "-c", WAIT_FOR_FILE + "; touch first", "-", "go")
        options = ("submit", "--site", "site.toml", f"--dependency=afterok:{first['job_id']}", "--json", "--")
        completed = user.hpcrun(*options, "sh", "-c", "test -e first")
        (user.home / "go").touch()
        if "dependency" in self.capabilities:
            self.wait_for_state(user, json.loads(completed.stdout), "COMPLETED")
        else:
            assert "--dependency" in completed.stderr
        self.wait_for_state(user, first, "COMPLETED")

    def test_the_script_runs_again_by_the_command_of_why(self, user):
        submission = self.submit(user, "sh", "-c", "echo once >>times; exit 3")
        self.wait_for_state(user, submission, "FAILED")
        print_command = (
            "import sys; from hpcrun.jobs.runs import Run; from pathlib import Path; "
            "run = Run(Path(sys.argv[1])); print(run.scheduler.rerun_command(run))"
        )
        command = user.call("python", "-c", print_command, submission["run_dir"]).stdout
        user.call("sh", "-c", command)
        wait_until(lambda: (user.home / "times").read_text().split() == ["once"] * 2)
        self.wait_for_state(user, submission, "FAILED")

    def test_a_stopped_job_resumes_with_its_run_directory_and_log(self, user):
        program = "echo start; [ ! -e saved ] || exit 0; " + CLEAN_EXIT.replace("exit 0", "exit 3")
        submission = self.submit(user, "sh", "-c", program)
        wait_until((user.home / "started").exists, SECONDS)
        early = user.hpcrun("resume", submission["run_dir"])
        assert (early.returncode, "only a job that has ended can be resumed" in early.stderr) == (2, True)
        assert user.hpcrun("cancel", submission["run_dir"]).returncode == 0
        self.wait_for_state(user, submission, "CANCELLED")
        self.submit(user, "true")
        resumed = user.hpcrun("resume", submission["run_dir"], "--json")
        if not self.resumes:
            assert (resumed.returncode, "HINT: type " in resumed.stderr) == (2, True)
            return
        assert resumed.returncode == 0, resumed.stderr
        assert user.json("status", "last")["run_dir"] == submission["run_dir"]
        row = self.wait_for_state(user, submission, "COMPLETED")
        assert row["job_id"] == json.loads(resumed.stdout)["job_id"] != submission["job_id"]
        for job_id in (row["job_id"], submission["job_id"]):
            assert user.hpcrun("logs", job_id).stdout.count("start\n") == 2
        again = user.hpcrun("resume", submission["run_dir"])
        assert (again.returncode, "has completed" in again.stderr) == (2, True)

    def test_failed_tasks_of_a_sweep_resume(self, user):
        if not self.resumes or "sweep" not in self.capabilities:
            return  # other tests show what hpcrun says then
        program = ["sh", "-c", 'echo "start of $1"; [ -e "./$1" ] || { touch "./$1"; exit "${1#--v=}"; }', "-"]
        sweep = user.json("submit", "--site", "site.toml", "--sweep", "v=0,1,2", "--", *program)
        wait_until(lambda: self.task_states(user, sweep) == ["COMPLETED", "FAILED", "FAILED"], SECONDS)
        resumed = user.json("resume", sweep["run_dir"])
        assert len(resumed) == 2
        wait_until(lambda: self.task_states(user, sweep) == ["COMPLETED"] * 3, SECONDS)
        for number, count in enumerate([1, 2, 2]):
            log = user.hpcrun("logs", f"{sweep['run_dir']}/{Path(sweep['run_dir']).name}.{number}").stdout
            assert log.count(f"start of --v={number}\n") == count

    def task_states(self, user, sweep):
        """Return the states of the tasks of a sweep, in their order."""
        rows = user.json("status", sweep["run_dir"])
        return [row["state"] for row in sorted(rows, key=lambda row: row["run_dir"])]

    def test_the_python_interface_waits_for_the_result(self, user):
        code = (
            "import hpcrun, sys\n"
            "program = ['sh', '-c', 'echo \\'{\"loss\": 1}\\' >\"$HPCRUN_RUN_DIR/result.json\"']\n"
            "job = hpcrun.submit(None, program, site='site.toml')\n"
            "print(job.result(), job.state, (job.directory / 'job.sh').exists())\n"
        )
        completed = user.call("python", "-c", code)
        assert completed.stdout.splitlines() == ["{'loss': 1} COMPLETED True"], completed.stderr
