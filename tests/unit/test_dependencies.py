"""``--dependency`` with names and patterns of jobs."""

import pytest

import hpcrun


@pytest.fixture
def jobs(fake_slurm):
    """Job 5 (lenet5), sweep 7 (lenet5), job 9 (resnet50), and a local job."""
    hpcrun.submit(None, ["true"], site="local", job_name="here")
    fake_slurm.submit("first", 5)
    (fake_slurm.folder / "id").write_text("7")
    hpcrun.submit(None, ["a.out"], site="slurm", job_name="lenet5", sweep={"lr": [1, 2]})
    fake_slurm.submit("resnet50", 9)


RESOLVED = [
    ("afterok:1234", "afterok:1234"),
    ("afterany:1234_5:1234_*,after:12+10", "afterany:1234_5:1234_*,after:12+10"),
    ("singleton", "singleton"),
    ("afterok:resnet50", "afterok:9"),
    ("afterok:last:first", "afterok:9:5"),
    ("after:last+5?afternotok:first", "after:9+5?afternotok:5"),
    ("aftercorr:lenet5", "aftercorr:7"),
    ("afterOK:res*", "afterOK:9"),
]


def test_names_are_replaced_by_job_ids(jobs, cli):
    for given, expected in RESOLVED:
        code, script, err = cli("submit", "--site", "slurm", "-d", given, "--dry-run", "--", "true")
        assert code == 0, err
        (line,) = [line for line in script.splitlines() if "--dependency" in line]
        assert line.replace("'", "") == f"#SBATCH --dependency={expected}"


def test_a_dependency_on_a_resumed_sweep_names_its_tasks(fake_slurm, cli):
    (fake_slurm.folder / "id").write_text("7")
    tasks = hpcrun.submit(None, ["a.out"], site="slurm", sweep={"lr": [1, 2]})
    fake_slurm.write_exit_record(tasks[1], code=1)
    fake_slurm.set_queue()
    (fake_slurm.folder / "id").write_text("9")
    assert cli("resume", "7_1")[0] == 0
    script = cli("submit", "--site", "slurm", "-d", "after:last+5", "--dry-run", "--", "true")[1]
    assert "--dependency=after:7_0+5:9_1+5" in script


INVALID = [
    ("lenet5", "--dependency=lenet5: expected TYPE:JOB"),
    ("aftrok:5", "did you mean afterok?"),
    ("afterok:", "--dependency=afterok:: expected TYPE:JOB"),
    ("singleton:5", "expected TYPE:JOB"),
    ("afterok:lenet6", "there is no run 'lenet6'"),
    ("afterok:here", "is not a Slurm job"),
    ("afterok:all", "all matches 5 jobs"),
]


def test_invalid_dependency_is_an_error(jobs, fake_slurm, cli):
    before = fake_slurm.calls("sbatch")
    for given, message in INVALID:
        code, _, err = cli("submit", "--site", "slurm", "-d", given, "--", "true")
        assert (code, message in err, "HINT: " in err) == (2, True, True), err
    assert fake_slurm.calls("sbatch") == before


def test_warning_about_dependencies_that_are_never_satisfied(jobs, fake_slurm, cli):
    fake_slurm.set_queue(("5", "FAILED", "None", "n1", "0:01"), ("7_0", "RUNNING", "None", "n1", "0:01"))
    fake_slurm.replace_command("sacct", "true")
    (fake_slurm.folder / "id").write_text("20")
    code, _, err = cli("submit", "--site", "slurm", "-d", "afterok:5:999,afterany:5,afterok:7", "--", "true")
    assert code == 0
    assert [line for line in err.splitlines() if line.startswith("WARNING")] == [
        "WARNING: job 5 ended FAILED: afterok:5 can never be satisfied",
        "WARNING: Slurm does not list job 999: if it does not exist, afterok:999 does not wait",
    ]


def test_dependency_on_a_job_that_resubmits_itself_is_an_error(fake_slurm, isolated_home, cli):
    (isolated_home / "s.toml").write_text('extends = "slurm"\nrestart.requeue = false\n')
    fake_slurm.replace_command("sbatch", "echo 9")
    assert (
        cli("submit", "--site", str(isolated_home / "s.toml"), "-J", "long", "--max-requeue", "3", "--", "true")[0] == 0
    )
    code, _, err = cli("submit", "--site", "slurm", "-d", "afterok:long", "--", "true")
    assert (code, "long resubmits itself under another id" in err) == (2, True)
