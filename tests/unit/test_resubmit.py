"""Resubmission of recorded runs."""

import json

import pytest

import hpcrun
from hpcrun.jobs import run_selection
from tests.repository import Repository


@pytest.fixture
def site(isolated_home):
    """A site file in the user's configuration folder."""
    file = isolated_home / "config/hpcrun/lab.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        'extends = "slurm"\nsbatch = ["--hint=nomultithread"]\n'
        "[defaults]\ntime = 60\nsbatch = ['--comment=all']\n[environment]\nOF_THE_SITE = 'then'\n"
    )
    return file


def record(word="last"):
    """Return the record of a run, without its run directory."""
    spec = json.loads((run_selection.select_one(word).directory / "job.json").read_text())
    return {name: value for name, value in spec.items() if name != "run_dir"}


def changed(err):
    return [line.split(maxsplit=1)[1] for line in err.splitlines() if line.startswith("changed")]


def test_a_run_is_resubmitted_unchanged_from_any_directory(cli, fake_slurm, site, tmp_path, monkeypatch):
    first = fake_slurm.submit(
        nodes=2,
        ntasks_per_node=4,
        environment={"KEY": "it's"},
        max_requeue=3,
        sbatch=["--comment=mine"],
        exclusive=True,
    )
    before = record()
    monkeypatch.chdir(tmp_path)
    (fake_slurm.folder / "id").write_text("2")
    code, _, err = cli("resubmit", "1")
    assert (code, changed(err)) == (0, ["nothing"])
    assert record() == before
    assert run_selection.select_one("last").directory != first.directory
    assert [run.job_id for run in run_selection.select_runs(["all"])] == ["2", "1"]


def test_options_override_the_record_and_are_reported(cli, fake_slurm):
    fake_slurm.submit(nodes=2, ntasks_per_node=4, time="30", mem="8G", dependency="afterok:77", environment={"A": "1"})
    argv = ["1", "--nodes", "4", "-t", "2:00:00", "--mem-per-cpu", "2G", "-x", "A=2", "--max-requeue", "1", "--no-gpu"]
    code, script, err = cli("resubmit", *argv, "--dry-run", "--", "b.out", "more")
    assert code == 0
    assert sorted(changed(err)) == sorted([
        "nodes: 4, was 2",
        "time: 2:00:00, was 30",
        "mem: nothing, was 8G",
        "dependency: nothing, was afterok:77",
        "argv: a.out b.out more, was a.out",
        "environment: A 1 A 2, was A 1",
        "no_gpu: True, was False",
        "max_requeue: 1, was 0",
        "mem_per_cpu: 2G, was nothing",
    ])  # fmt: skip
    for line in ("--nodes=4", "--ntasks-per-node=4", "--mem-per-cpu=2G", "--signal=B:USR2@120"):
        assert f"#SBATCH {line}\n" in script
    assert "--dependency" not in script
    assert len(run_selection.select_runs(["all"])) == 1


@pytest.mark.parametrize(("options", "resources"), [
    (["-n", "6"], {"nodes": 2, "ntasks": 6}),
    (["--ntasks-per-node", "1"], {"nodes": 2, "ntasks_per_node": 1, "gpus_per_node": "4"}),
    (["--gpus-per-node", "2"], {"nodes": 2, "ntasks_per_node": 2, "gpus_per_node": "2"}),
    (["-N", "3"], {"nodes": 3, "ntasks_per_node": 4, "gpus_per_node": "4"}),
])  # fmt: skip
def test_ranks_follow_the_requested_resources(cli, fake_slurm, options, resources):
    fake_slurm.submit(nodes=2, gpus_per_node="4")
    code, out, err = cli("resubmit", "1", *options, "--dry-run", "--json")
    assert code == 0, err
    recorded = json.loads(out)["spec"]["resources"]
    assert {name: recorded.get(name) for name in resources} == resources


def test_the_recorded_site_is_used_unless_site_is_given(cli, fake_slurm, site):
    (fake_slurm.folder / "id").write_text("1")
    hpcrun.submit(None, ["a.out"], site="lab")
    site.write_text(site.read_text().replace("then", "now"))
    code, script, err = cli("resubmit", "1", "--dry-run")
    assert (code, changed(err)) == (0, ["nothing"])
    assert "OF_THE_SITE=then" in script
    assert script.count("--comment=all") == script.count("--hint=nomultithread") == 1
    code, script, err = cli("resubmit", "1", "--dry-run", "--site", "lab")
    assert changed(err) == ["site.environment.OF_THE_SITE: now, was then"]
    assert "OF_THE_SITE=now" in script
    site.unlink()
    assert cli("resubmit", "1", "--dry-run")[0] == 0


def test_new_arguments_of_a_workload_are_checked(cli, fake_slurm):
    (fake_slurm.folder / "id").write_text("1")
    hpcrun.submit("lenet5", ["--epochs", "3"], site="slurm", no_gpu=True, job_name="net")
    code, _, err = cli("resubmit", "1", "--dry-run", "--", "--epohcs", "4")
    assert (code, "--epochs" in err) == (2, True)
    code, _, err = cli("resubmit", "1", "--dry-run", "--", "--epochs=0")
    assert (code, "HINT: hpcrun workload show lenet5 lists its options\n" in err) == (2, True)
    code, script, _ = cli("resubmit", "1", "--dry-run", "--", "--epochs", "4")
    assert (code, "train.py --epochs 4\n" in script) == (0, True)


def test_runs_that_cannot_be_resubmitted_are_refused(cli, fake_slurm, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    (fake_slurm.folder / "id").write_text("1")
    run = hpcrun.submit(str(script), site="slurm", no_gpu=True).directory
    script.unlink()
    code, _, err = cli("resubmit", "1")
    assert (code, f"{script} does not exist any more" in err) == (2, True)
    spec = json.loads((run / "job.json").read_text())
    spec["site"]["of_tomorrow"] = 1
    (run / "job.json").write_text(json.dumps(spec))
    code, _, err = cli("resubmit", "1")
    assert (code, "--site slurm uses today's site file" in err) == (2, True)
    script.write_text("")
    for name, value, words in (("of_tomorrow", 1, "unknown option 'of_tomorrow'"), ("nodes", 0, "nodes = 0: must be")):
        resources = {**spec["resources"], name: value}
        (run / "job.json").write_text(json.dumps({**spec, "site": {"name": "slurm"}, "resources": resources}))
        code, _, err = cli("resubmit", "1", "--site", "slurm")
        assert (code, f"{run}/job.json: resources: {words}" in err) == (2, True), err
    assert cli("resubmit", "7")[0] == 2
    assert cli("resubmit")[0] == 2


@pytest.fixture
def sweep(fake_slurm):
    """A sweep of six tasks, job 7."""
    (fake_slurm.folder / "id").write_text("7")
    axes = {"lr": [0.1, 0.01], "n": range(3)}
    jobs = hpcrun.submit(None, ["a.out", "{n}"], site="slurm", nodes=2, sweep=axes, max_parallel=4)
    (fake_slurm.folder / "id").write_text("8")
    return jobs


def tasks(word="last"):
    """Return the values and command lines of a sweep's tasks, and the value of --array."""
    found = run_selection.select_runs([word])
    lines = (found[0].directory / "job.sh").read_text().splitlines()
    (array,) = (line.removeprefix("#SBATCH --array=") for line in lines if line.startswith("#SBATCH --array="))
    return [(*task.values.values(), " ".join(task.spec.argv)) for task in found], array


def test_a_whole_sweep_is_resubmitted(cli, sweep):
    before = tasks("7")
    assert before[0][-1] == ("0.01", "2", "a.out 2 --lr=0.01")
    code, _, err = cli("resubmit", "7")
    assert (code, changed(err)) == (0, ["nothing"])
    assert tasks() == before == (before[0], "0-5%4")
    assert [run.job_id for run in run_selection.select_runs(["last"])] == [f"8_{number}" for number in range(6)]
    assert "resubmits  all 6 tasks of a.out (7), " in err


@pytest.mark.parametrize(
    ("words", "kept", "name"),
    [
        (["7_1-2"], [1, 2], "7_1-2"),
        (["7_0,7_3-9"], [0, 3, 4, 5], "7_0,7_3-5"),
        (["7", "--state", "failed,oom"], [1, 4], "7_1,7_4"),
        (["a.out", "--state", "cd"], [0], "7_0"),
        (["7_2-4", "--state", "F"], [4], "7_4"),
    ],
)
def test_selected_tasks_of_a_sweep_keep_their_values(cli, fake_slurm, sweep, words, kept, name):
    script = sweep[0].directory.parent / "job.sh"
    states = ["COMPLETED", "OUT_OF_MEMORY", "RUNNING", "TIMEOUT", "FAILED", "PENDING"]
    fake_slurm.set_queue(*((f"7_{n}", state, "None", "n1", "0:05", "1:00", script) for n, state in enumerate(states)))
    before, _ = tasks("7")
    code, _, err = cli("resubmit", *words)
    assert (code, changed(err)) == (0, ["nothing"])
    assert tasks() == ([before[number] for number in kept], f"0-{len(kept) - 1}%4")
    assert f"resubmits  {len(kept)} of the 6 tasks of a.out ({name}), " in err


def test_options_apply_to_all_tasks_of_a_sweep(cli, sweep):
    code, script, err = cli(
        "resubmit", "7", "-N", "4", "--max-parallel", "2", "-x", "A=1", "--dry-run", "--", "--size", "{n}"
    )
    assert code == 0
    assert sorted(changed(err)) == [
        "argv of the first task: a.out --size 0 --lr=0.1, was a.out 0 --lr=0.1",
        "environment: A 1, was nothing",
        "max_parallel: 2, was 4",
        "nodes: 4, was 2",
    ]
    assert "#SBATCH --array=0-5%2\n" in script
    assert "  5) hpcrun_program=(a.out --size 2 --lr=0.01) ;;\n" in script
    assert len(run_selection.select_runs(["all"])) == 6


def test_one_task_of_a_sweep_becomes_an_ordinary_job(cli, sweep):
    code, _, err = cli("resubmit", "7_4")
    assert (code, changed(err)) == (0, ["nothing"])
    again = run_selection.select_one("last")
    assert (again.job_id, again.values, again.spec.argv) == ("8", {}, ["a.out", "1", "--lr=0.01"])


def test_a_sweep_is_resubmitted_without_its_removed_tasks(cli, fake_slurm, sweep):
    fake_slurm.set_queue()
    fake_slurm.write_exit_record(sweep[1])
    assert cli("prune", "7_1", "--yes")[0] == 0
    for word in ("7", str(sweep[0].directory.parent)):
        _, script, err = cli("resubmit", word, "--dry-run")
        assert "resubmits  5 of the 6 tasks of a.out (7_0,7_2-5), " in err
        assert "  1) hpcrun_program=(a.out 2 --lr=0.1) ;;\n" in script


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["7", "--state", "failed"], "no task of 7 matches --state failed: 6 pending"),
        (["6", "--state", "failed"], "6 does not match --state failed: it is pending"),
        (["6", "--max-parallel", "2"], "limits the tasks of a sweep, and this job is not a sweep"),
        (["7_2", "--max-parallel", "2"], "limits the tasks of a sweep, and this job is not a sweep"),
        (["6-7"], "6-7 matches 7 jobs"),
        (["7_7-9"], "there is no job 7_7-9"),
        (["7", "--state", "faild"], "did you mean"),
    ],
)
def test_an_invalid_selection_of_tasks_is_refused(cli, fake_slurm, sweep, words, message):
    other = fake_slurm.submit(job_id=6)
    scripts = {job.job_id: job.directory.parent / "job.sh" for job in sweep} | {"6": other.directory / "job.sh"}
    fake_slurm.set_queue(*((job, "PENDING", "Priority", "", "0:00", "1:00", script) for job, script in scripts.items()))
    code, _, err = cli("resubmit", *words)
    assert code in {1, 2}
    assert message in err
    assert "HINT: " in err
    assert len(run_selection.select_runs(["all"])) == 7


def test_the_snapshot_of_a_sweep_is_copied(cli, fake_slurm, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    script = folder / "train.py"
    script.write_text("then")
    (fake_slurm.folder / "id").write_text("1")
    hpcrun.submit(str(script), site="slurm", no_gpu=True, snapshot=True, sweep={"n": [1, 2]})
    script.write_text("now")
    (fake_slurm.folder / "id").write_text("2")
    code, _, err = cli("resubmit", "1")
    assert (code, changed(err)) == (0, ["nothing"])
    (copy,) = {task.spec.argv[1] for task in run_selection.select_runs(["2"])}
    assert copy == str(run_selection.select_one("2_0").directory.parent / "code/train.py")
    assert (run_selection.select_one("2_0").directory.parent / "code/train.py").read_text() == "then"
    _, _, err = cli("resubmit", "1_1", "--dry-run")
    assert changed(err) == ["nothing"]


def test_a_snapshot_is_copied(cli, fake_slurm, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    script = folder / "train.py"
    script.write_text("then")
    (fake_slurm.folder / "id").write_text("1")
    old = hpcrun.submit(str(script), site="slurm", no_gpu=True, snapshot=True).directory
    script.write_text("now")
    (fake_slurm.folder / "id").write_text("2")
    code, _, err = cli("resubmit", "1")
    assert (code, changed(err)) == (0, ["nothing"])
    new = run_selection.select_one("2")
    (old / "code/train.py").unlink()
    assert new.spec.argv[1] == str(new.directory / "code/train.py")
    assert (new.directory / "code/train.py").read_text() == "then"
    code, out, _ = cli("resubmit", "2", "--dry-run", "--json", "--no-snapshot")
    assert (code, json.loads(out)["spec"]["argv"][1]) == (0, str(script))


def git_record(run):
    return json.loads((run / "provenance/git.json").read_text())


def test_a_copied_snapshot_keeps_its_provenance(cli, fake_slurm, tmp_path, monkeypatch):
    """The run directories are in another repository than the code."""
    code = Repository(tmp_path / "mine")
    code.commit(train="then")
    script = code.write("train.py", "not committed")
    Repository(tmp_path / "home").commit(other="")
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(tmp_path / "home/runs"))
    (fake_slurm.folder / "id").write_text("1")
    old = hpcrun.submit(str(script), site="slurm", no_gpu=True, snapshot=True).directory
    code.commit(train="now")
    (fake_slurm.folder / "id").write_text("2")
    assert cli("resubmit", "1")[0] == 0
    new = run_selection.select_one("2").directory
    assert git_record(new) == git_record(old)
    assert (new / "provenance/code.diff").read_text() == (old / "provenance/code.diff").read_text()


@pytest.mark.parametrize("snapshot", [False, True])
def test_the_code_of_a_program_is_in_its_original_directory(cli, fake_slurm, tmp_path, monkeypatch, snapshot):
    code, other = Repository(tmp_path / "mine"), Repository(tmp_path / "other")
    commit = code.commit(of_mine="")
    other.commit(of_another="")
    (code.folder / "empty").mkdir()
    monkeypatch.chdir(code.folder / "empty")
    fake_slurm.submit()
    monkeypatch.chdir(other.folder)
    (fake_slurm.folder / "id").write_text("2")
    assert cli("resubmit", "1", *["--snapshot"] * snapshot)[0] == 0
    new = run_selection.select_one("2")
    assert git_record(new.directory)["commit"] == commit
    if snapshot:
        assert new.spec.directory == str(new.directory / "code/empty")
        assert {file.name for file in (new.directory / "code").iterdir()} == {"empty", "of_mine.py"}
