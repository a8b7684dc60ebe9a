"""Two real Slurms that one login host reaches: sites name theirs, and each command asks the right one."""

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]

STATES = "import hpcrun, sys; print(*(hpcrun.attach(f'{run}/').state for run in sys.argv[1:]))"


@pytest.fixture
def labs(lab, lab_without_accounting):
    """One user's view of both: the first lab's folders, with a site for each Slurm and no run root but the sites'."""
    both = [lab, lab_without_accounting]
    for name, one in zip(("one", "two"), both, strict=True):
        text = f'extends = "slurm"\nslurm_conf = "{one.cluster.config.slurm_conf}"\nrun_root = "{one.home}/runs"\n'
        (lab.home / f"config/hpcrun/{name}.toml").write_text(text)
    return both


@pytest.fixture(params=[0, 1])
def environ(request, labs):
    """What somebody has set: SLURM_CONF names one of both, and not always the one that is meant."""
    return {"SLURM_CONF": str(labs[request.param].cluster.config.slurm_conf), "HPCRUN_RUN_ROOT": ""}


def test_jobs_of_both_are_told_and_ended_at_once(labs, environ):
    lab, programs = labs[0], {"one": ("sleep", "300"), "two": ("sleep", "300")}
    runs = {
        name: lab.json("submit", "--site", name, "-J", f"long-{name}", "--", *words, **environ)["run_dir"]
        for name, words in programs.items()
    }
    told: dict[str, Any] = {}
    while {row["state"] for row in told.values()} != {"RUNNING"}:
        told = {row["run_dir"]: row for row in lab.json("status", "long-*", **environ)}
        assert {row["state"] for row in told.values()} <= {"PENDING", "CONFIGURING", "RUNNING"}
    for run, one in zip(runs.values(), labs, strict=True):
        assert told[run]["nodes"] in one.cluster.nodelist
        assert lab.hpcrun("why", f"{run}/", **environ).stdout.startswith(f"job {told[run]['job_id']} ")
    assert lab.call("python", "-c", STATES, *runs.values(), **environ).stdout.split() == ["RUNNING", "RUNNING"]
    later = lab.json("submit", "--site", "two", "-d", "afterany:long-two", "--", "true", **environ)
    assert lab.json("status", f"{later['run_dir']}/", **environ)["state"] == "PENDING"
    refused = lab.hpcrun("submit", "--site", "one", "-d", "afterany:long-two", "--", "true", **environ)
    assert (refused.returncode, "is a job of another Slurm" in refused.stderr) == (2, True)
    cancelled = lab.hpcrun("cancel", "long-*", "--yes", **environ)
    assert (cancelled.returncode, cancelled.stderr.count("is cancelled")) == (0, 2), cancelled.stderr
    for run, one in zip(runs.values(), labs, strict=True):
        one.wait_over(told[run]["job_id"])  # they may be completing
    assert {row["state"] for row in lab.json("status", "long-*", **environ)} == {"CANCELLED"}
    assert lab.json("cleanup", "--yes", *(f"{run}/" for run in runs.values()), **environ)["clean"]
    followed = lab.hpcrun("logs", "-f", f"{later['run_dir']}/", **environ)
    assert followed.returncode == 0, followed.stderr


def test_a_job_has_the_configuration_of_its_node_and_steps_of_srun(labs, environ):
    lab = labs[0]
    for name, one in zip(("one", "two"), labs, strict=True):
        again = ["sh", "-c", "echo conf $SLURM_CONF; scontrol show job $SLURM_JOB_ID | grep -c BatchHost"]
        facts = lab.json("submit", "--site", name, "-N", "1", "--wait", "--", *again, **environ)
        assert (facts["state"], facts["exit_code"]) == ("COMPLETED", 0), lab.log(facts)
        assert f"conf {one.cluster.config.slurm_conf}\n1\n" in lab.log(facts)


def test_doctor_and_the_first_site_file_are_of_the_slurm_that_is_named(labs, environ):
    lab = labs[0]
    for name, one in zip(("one", "two"), labs, strict=True):
        told = json.loads(lab.hpcrun("doctor", name, "--json", **environ).stdout)
        slurm = next(row["found"] for row in told["rows"] if row["check"] == "Slurm")
        assert one.cluster.config.controller in slurm
    assert lab.hpcrun("site", "init", "first", **environ).returncode == 0
    assert f'slurm_conf = "{environ["SLURM_CONF"]}"' in (lab.home / "config/hpcrun/first.toml").read_text()


def submitted_with_one_id(labs):
    """Submit a long job to each Slurm, such that both have the same id; return the id and the run directories."""
    lab = labs[0]
    ids: dict[str, int] = {}
    runs: dict[str, str] = {}
    confs = {name: str(one.cluster.config.slurm_conf) for name, one in zip(("one", "two"), labs, strict=True)}
    while not ids or len(set(ids.values())) > 1:
        for name in [name for name in confs if not ids or ids[name] == min(ids.values())]:
            behind = max(ids.values(), default=0) - ids.get(name, 0) - 1
            for _ in range(behind):
                lab.call("sbatch", "--output=/dev/null", "--wrap=true", SLURM_CONF=confs[name])
            facts = lab.json("submit", "--site", name, "-J", name, "--", "sleep", "300", HPCRUN_RUN_ROOT="")
            ids[name], runs[name] = int(facts["job_id"]), facts["run_dir"]
    return str(ids["one"]), runs, confs


@pytest.mark.parametrize("said", ["HPCRUN_SITE", "SLURM_CONF", "word"])
def test_of_two_jobs_with_one_id_the_one_that_is_named_is_cancelled(labs, said):
    lab = labs[0]
    job_id, runs, confs = submitted_with_one_id(labs)
    nothing = {"HPCRUN_RUN_ROOT": "", "SLURM_CONF": "", "HPCRUN_SITE": ""}
    for command in ("cancel", "cleanup", "prune"):
        refused = lab.hpcrun(command, job_id, "--yes", **nothing)
        assert refused.returncode == 2
        assert f"one:{job_id}" in refused.stderr
        assert f"two:{job_id}" in refused.stderr
    for meant, other in (("one", "two"), ("two", "one")):
        before = lab.json("status", f"{runs[other]}/", **nothing)["state"]
        own = {"HPCRUN_SITE": meant} if said == "HPCRUN_SITE" else {"SLURM_CONF": confs[meant]}
        word = f"{meant}:{job_id}" if said == "word" else job_id
        cancelled = lab.hpcrun("cancel", word, **{**nothing, **(own if said != "word" else {})})
        assert cancelled.returncode == 0, cancelled.stderr
        labs[meant == "two"].wait_over(job_id)  # it may be completing
        assert lab.json("status", f"{runs[meant]}/", **nothing)["state"] == "CANCELLED"
        after = lab.json("status", f"{runs[other]}/", **nothing)["state"]
        assert after == before or {before, after} <= {"PENDING", "CONFIGURING", "RUNNING"}
