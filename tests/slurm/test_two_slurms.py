"""One login host with two real Slurms: each site names its Slurm, and each command queries the right one."""

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]

STATES = "import hpcrun, sys; print(*(hpcrun.attach(f'{run}/').state for run in sys.argv[1:]))"


@pytest.fixture
def users(user, user_without_accounting):
    """Return the users of both clusters; the first one's folders have a site for each Slurm, with its own run root."""
    both = [user, user_without_accounting]
    for name, one in zip(("one", "two"), both, strict=True):
        text = f'extends = "slurm"\nslurm_conf = "{one.cluster.config.slurm_conf}"\nrun_root = "{one.home}/runs"\n'
        (user.home / f"config/hpcrun/{name}.toml").write_text(text)
    return both


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
    later = user.json("submit", "--site", "two", "-d", "afterany:long-two", "--", "true", **environ)
    assert user.json("status", f"{later['run_dir']}/", **environ)["state"] == "PENDING"
    refused = user.hpcrun("submit", "--site", "one", "-d", "afterany:long-two", "--", "true", **environ)
    assert (refused.returncode, "is a job of another Slurm" in refused.stderr) == (2, True)
    cancelled = user.hpcrun("cancel", "long-*", "--yes", **environ)
    assert (cancelled.returncode, cancelled.stderr.count("is cancelled")) == (0, 2), cancelled.stderr
    for run, one in zip(runs.values(), users, strict=True):
        one.wait_for_end(output[run]["job_id"])  # the jobs may be COMPLETING
    assert {row["state"] for row in user.json("status", "long-*", **environ)} == {"CANCELLED"}
    assert user.json("cleanup", "--yes", *(f"{run}/" for run in runs.values()), **environ)["clean"]
    followed = user.hpcrun("logs", "-f", f"{later['run_dir']}/", **environ)
    assert followed.returncode == 0, followed.stderr


def test_a_job_has_the_slurm_conf_of_its_own_slurm(users, environ):
    user = users[0]
    for name, one in zip(("one", "two"), users, strict=True):
        again = ["sh", "-c", "echo conf $SLURM_CONF; scontrol show job $SLURM_JOB_ID | grep -c BatchHost"]
        facts = user.json("submit", "--site", name, "-N", "1", "--wait", "--", *again, **environ)
        assert (facts["state"], facts["exit_code"]) == ("COMPLETED", 0), user.log(facts)
        assert f"conf {one.cluster.config.slurm_conf}\n1\n" in user.log(facts)


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
            behind = max(ids.values(), default=0) - ids.get(name, 0) - 1
            for _ in range(behind):
                user.call("sbatch", "--output=/dev/null", "--wrap=true", SLURM_CONF=confs[name])
            facts = user.json("submit", "--site", name, "-J", name, "--", "sleep", "300", HPCRUN_RUN_ROOT="")
            ids[name], runs[name] = int(facts["job_id"]), facts["run_dir"]
    return str(ids["one"]), runs, confs


@pytest.mark.parametrize("selected_by", ["HPCRUN_SITE", "SLURM_CONF", "word"])
def test_cancel_selects_one_of_two_jobs_with_equal_ids(users, selected_by):
    user = users[0]
    job_id, runs, confs = submit_with_equal_ids(users)
    nothing = {"HPCRUN_RUN_ROOT": "", "SLURM_CONF": "", "HPCRUN_SITE": ""}
    for command in ("cancel", "cleanup", "prune"):
        refused = user.hpcrun(command, job_id, "--yes", **nothing)
        assert refused.returncode == 2
        assert f"one:{job_id}" in refused.stderr
        assert f"two:{job_id}" in refused.stderr
    for selected, other in (("one", "two"), ("two", "one")):
        before = user.json("status", f"{runs[other]}/", **nothing)["state"]
        own = {"HPCRUN_SITE": selected} if selected_by == "HPCRUN_SITE" else {"SLURM_CONF": confs[selected]}
        word = f"{selected}:{job_id}" if selected_by == "word" else job_id
        cancelled = user.hpcrun("cancel", word, **{**nothing, **(own if selected_by != "word" else {})})
        assert cancelled.returncode == 0, cancelled.stderr
        users[selected == "two"].wait_for_end(job_id)  # the job may be COMPLETING
        assert user.json("status", f"{runs[selected]}/", **nothing)["state"] == "CANCELLED"
        after = user.json("status", f"{runs[other]}/", **nothing)["state"]
        assert after == before or {before, after} <= {"PENDING", "CONFIGURING", "RUNNING"}
