"""The schedulers of this host pass the same tests as Slurm: hpcrun's own, and one of an installed package."""

from pathlib import Path

import pytest

from tests.scheduler_conformance import WAIT_FOR_FILE, SchedulerConformance
from tests.user import User
from tests.waiting import wait_until

PLUGINS = Path(__file__).parents[1] / "plugins"


class TestLocal(SchedulerConformance):
    scheduler = "local"
    capabilities = frozenset({"sweep"})

    def make_user(self, request):
        return User(request.getfixturevalue("tmp_path"))

    def submit_pending(self, user):
        return None


def spool_user(home):
    return User(home, PYTHONPATH=str(PLUGINS), SPOOL_FOLDER=str(home / "spool"))


def test_the_template_and_bash_functions_of_a_package_are_in_the_script(tmp_path):
    (tmp_path / "site.toml").write_text('scheduler = "spool"\nlauncher = "none"\n')
    script = spool_user(tmp_path).hpcrun("submit", "--site", "site.toml", "--dry-run", "--", "true").stdout
    assert script.startswith("#!/bin/bash\n#SPOOL --name=true\n")
    assert f" {PLUGINS}/hpcrun_spool/spool.bash " in script


def test_the_nodes_of_an_allocation_come_from_the_variables_of_a_package(tmp_path):
    user = spool_user(tmp_path)
    user.variables["SPOOL_HOSTS"] = "n1,n2"
    completed = user.hpcrun("hostfile", "-o", "-", "--format", "openmpi")
    assert (completed.stdout, completed.returncode) == ("n1 slots=1\nn2 slots=1\n", 0), completed.stderr


def test_the_bash_functions_of_a_package_get_its_options(tmp_path):
    (tmp_path / "site.toml").write_text('scheduler = "spool"\nlauncher = "none"\n')
    user = spool_user(tmp_path)
    run = Path(user.json("submit", "--site", "site.toml", "--wait", "--", "true")["run_dir"])
    assert (run / "provenance/spool.txt").read_text() == "the main one\n"
    script = (run / "job.sh").read_text().replace(" --queue ", " --quote ")
    (tmp_path / "unknown.sh").write_text(script)
    job = user.call("bash", "unknown.sh", SPOOL_JOB_ID="2")
    assert (job.returncode, job.stdout, job.stderr) == (1, "", "hpcrun: job.bash has no option --quote\n")


@pytest.mark.thorough  # the local scheduler passes most of these tests in make test
class TestSpool(SchedulerConformance):
    scheduler = "spool"
    resumes = False

    def make_user(self, request):
        return spool_user(request.getfixturevalue("tmp_path"))

    def submit_pending(self, user):
        first = self.submit(user, "sh", "-c", WAIT_FOR_FILE, "-", "go")
        self.wait_for_state(user, first, "RUNNING")
        return self.submit(user, "true")

    def test_a_job_keeps_its_copy_of_the_functions(self, user):
        submission = self.submit(user, "true")
        copy = Path(submission["run_dir"], "shell/spool.bash")
        assert copy.read_bytes() == (PLUGINS / "hpcrun_spool/spool.bash").read_bytes()

    def test_jobs_of_an_uninstalled_scheduler_are_listed(self, user):
        submission = self.submit(user, "sh", "-c", WAIT_FOR_FILE, "-", "go")
        self.wait_for_state(user, submission, "RUNNING")
        user.variables["PYTHONPATH"] = ""
        row = self.status(user, submission)
        assert (row["reason"], row["as_of"] is None) == (
            "unknown scheduler 'spool'",
            False,
        )  # with its last known state
        assert "unknown scheduler 'spool'" in user.hpcrun("cancel", submission["run_dir"]).stderr
        (user.home / "go").touch()
        refused = user.hpcrun("submit", "--site", "site.toml", "--", "true")
        assert "unknown scheduler 'spool'\nHINT: one of slurm, local" in refused.stderr

    def test_orphans_are_cleaned_up(self, user):
        submission = self.submit(user, "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $! >pid")
        self.wait_for_state(user, submission, "COMPLETED")
        pid = (user.home / "pid").read_text().strip()
        assert Path("/proc", pid).exists()
        cleaned = user.hpcrun("cleanup", "--force", submission["run_dir"])
        assert cleaned.returncode == 0, cleaned.stderr
        wait_until(lambda: not Path("/proc", pid).exists())
