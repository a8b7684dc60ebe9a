"""One login host with two real Slurms: each site names its Slurm, and each command queries the right one."""

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]

STATES = "import hpcrun, sys; print(*(hpcrun.attach(f'{run}/').state for run in sys.argv[1:]))"


@pytest.fixture
def users(user, user_without_accounting):
    """Return the users of both clusters; the first one's folders have a site for each Slurm, with its own run root."""
    cluster_users = [user, user_without_accounting]
    for name, one in zip(("one", "two"), cluster_users, strict=True):
        text = f'extends = "slurm"\nslurm_conf = "{one.cluster.config.slurm_conf}"\nrun_root = "{one.home}/runs"\n'
        (user.home / f"config/hpcrun/{name}.toml").write_text(text)
    return cluster_users


@pytest.fixture(params=[0, 1])
def environ(request, users):
    """Return an environment whose SLURM_CONF names either of the two Slurms, also the wrong one."""
    return {"SLURM_CONF": str(users[request.param].cluster.config.slurm_conf), "HPCRUN_RUN_ROOT": ""}


def test_status_and_cancel_work_on_jobs_of_both_slurms(users, environ):
    user, programs = users[0], {"one": ("sleep", "300"), "two": ("sleep", "300")}
    runs = {
        name: user.json("submit", "--site", name, "-J", f"long-{name}", "--", *words, **environ)["run_dir"]
        for name, words in programs.items()
    }
    output: dict[str, Any] = {}
    while {row["state"] for row in output.values()} != {"RUNNING"}:
        output = {row["run_dir"]: row for row in user.json("status", "long-*", **environ)}
        assert {row["state"] for row in output.values()} <= {"PENDING", "CONFIGURING", "RUNNING"}
    for run, one in zip(runs.values(), users, strict=True):
        assert output[run]["nodes"] in one.cluster.nodelist
        assert user.hpcrun("why", f"{run}/", **environ).stdout.startswith(f"job {output[run]['job_id']} ")
    assert user.call("python", "-c", STATES, *runs.values(), **environ).stdout.split() == ["RUNNING", "RUNNING"]
    dependent_job = user.json("submit", "--site", "two", "-d", "afterany:long-two", "--", "true", **environ)
    assert user.json("status", f"{dependent_job['run_dir']}/", **environ)["state"] == "PENDING"
    rejected = user.hpcrun("submit", "--site", "one", "-d", "afterany:long-two", "--", "true", **environ)
    assert (rejected.returncode, "is a job of another cluster" in rejected.stderr) == (2, True)
    cancel_result = user.hpcrun("cancel", "long-*", "--yes", **environ)
    assert (cancel_result.returncode, cancel_result.stderr.count("is cancelled")) == (0, 2), cancel_result.stderr
    for run, one in zip(runs.values(), users, strict=True):
        one.wait_for_end(output[run]["job_id"])  # the jobs may be COMPLETING
    assert {row["state"] for row in user.json("status", "long-*", **environ)} == {"CANCELLED"}
    assert user.json("cleanup", "--yes", *(f"{run}/" for run in runs.values()), **environ)["clean"]
    logs_result = user.hpcrun("logs", "-f", f"{dependent_job['run_dir']}/", **environ)
    assert logs_result.returncode == 0, logs_result.stderr


def test_a_job_has_the_slurm_conf_of_its_own_slurm(users, environ):
    user = users[0]
    for name, one in zip(("one", "two"), users, strict=True):
        program = ["sh", "-c", "echo conf $SLURM_CONF; scontrol show job $SLURM_JOB_ID | grep -c BatchHost"]
        submission = user.json("submit", "--site", name, "-N", "1", "--wait", "--", *program, **environ)
        assert (submission["state"], submission["exit_code"]) == ("COMPLETED", 0), user.log(submission)
        assert f"conf {one.cluster.config.slurm_conf}\n1\n" in user.log(submission)


def test_doctor_and_site_init_use_the_selected_slurm(users, environ):
    user = users[0]
    for name, one in zip(("one", "two"), users, strict=True):
        output = json.loads(user.hpcrun("doctor", name, "--json", **environ).stdout)
        slurm = next(row["found"] for row in output["rows"] if row["check"] == "Slurm")
        assert one.cluster.config.controller in slurm
    assert user.hpcrun("site", "init", "first", **environ).returncode == 0
    assert f'slurm_conf = "{environ["SLURM_CONF"]}"' in (user.home / "config/hpcrun/first.toml").read_text()


def submit_with_equal_ids(users):
    """Submit a long job with the same id to each Slurm; return the id, the run directories and the slurm.conf files."""
    user = users[0]
    ids: dict[str, int] = {}
    runs: dict[str, str] = {}
    confs = {name: str(one.cluster.config.slurm_conf) for name, one in zip(("one", "two"), users, strict=True)}
    while not ids or len(set(ids.values())) > 1:
        for name in [name for name in confs if not ids or ids[name] == min(ids.values())]:
            missing_jobs = max(ids.values(), default=0) - ids.get(name, 0) - 1
            for _ in range(missing_jobs):
                user.call("sbatch", "--output=/dev/null", "--wrap=true", SLURM_CONF=confs[name])
            submission = user.json("submit", "--site", name, "-J", name, "--", "sleep", "300", HPCRUN_RUN_ROOT="")
            ids[name], runs[name] = int(submission["job_id"]), submission["run_dir"]
    return str(ids["one"]), runs, confs


@pytest.mark.parametrize("selected_by", ["HPCRUN_SITE", "SLURM_CONF", "word"])
def test_cancel_selects_one_of_two_jobs_with_equal_ids(users, selected_by):
    user = users[0]
    job_id, runs, confs = submit_with_equal_ids(users)
    no_selection = {"HPCRUN_RUN_ROOT": "", "SLURM_CONF": "", "HPCRUN_SITE": ""}
    for command in ("cancel", "cleanup", "prune"):
        rejected = user.hpcrun(command, job_id, "--yes", **no_selection)
        assert rejected.returncode == 2
        assert f"one:{job_id}" in rejected.stderr
        assert f"two:{job_id}" in rejected.stderr
    for selected, other in (("one", "two"), ("two", "one")):
        before = user.json("status", f"{runs[other]}/", **no_selection)["state"]
        selection = {"HPCRUN_SITE": selected} if selected_by == "HPCRUN_SITE" else {"SLURM_CONF": confs[selected]}
        job_word = f"{selected}:{job_id}" if selected_by == "word" else job_id
        cancel_result = user.hpcrun(
            "cancel", job_word, **{**no_selection, **(selection if selected_by != "word" else {})}
        )
        assert cancel_result.returncode == 0, cancel_result.stderr
        users[selected == "two"].wait_for_end(job_id)  # the job may be COMPLETING
        assert user.json("status", f"{runs[selected]}/", **no_selection)["state"] == "CANCELLED"
        after = user.json("status", f"{runs[other]}/", **no_selection)["state"]
        assert after == before or {before, after} <= {"PENDING", "CONFIGURING", "RUNNING"}
