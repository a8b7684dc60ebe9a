"""How runs differ, and that runs which do not are said not to."""

import json
import shutil

import pytest

from hpcrun.report.run_facts import parse_arguments
from tests.repository import Repository


def metrics(run, **figures):
    (run.directory / "metrics.jsonl").write_text(json.dumps({"epoch": 1, "epochs": 1, **figures}) + "\n")


def result(run, **figures):
    (run.directory / "result.json").write_text(json.dumps(figures))


def packages(run, *lines):
    (run.directory / "provenance/packages.txt").write_text("\n".join(["# Python 3.12.1, /usr/bin/python", *lines]))


@pytest.fixture
def compared(cli):
    """Compare runs, and return the rows by what they are of."""

    def call(*argv):
        code, out, err = cli("compare", "--json", *argv)
        assert code == 0, err
        return {(row["section"], row["key"]): row["values"] for row in json.loads(out)["rows"]}

    return call


def test_compare_shows_requests_and_results(cli, compared, fake_slurm):
    first = fake_slurm.submit("a", nodes=1, environment={"SEED": "1"})
    second = fake_slurm.submit("a", nodes=2, time="10")
    for run, accuracy in ((first, 0.5), (second, 0.75)):
        fake_slurm.write_exit_record(run)
        result(run, test_accuracy=accuracy, ranks=4, versions={"keras": "3.15"})
        metrics(run, loss=1 - accuracy)
    rows = compared("1", "2")
    assert rows.pop(("script", "job.sh"))[0] != ""
    assert rows == {
        ("result", "test_accuracy"): [0.5, 0.75],
        ("last epoch", "loss"): [0.5, 0.25],
        ("resources", "nodes"): [1, 2],
        ("resources", "time"): [None, "10"],
        ("environment", "SEED"): ["1", None],
    }
    assert [key for key in compared("2", "1") if key[0] == "result"] == [("result", "test_accuracy")]
    assert compared("2", "1")["resources", "nodes"] == [2, 1]
    everything = compared("--all", "1", "2")
    assert everything["outcome", "exit code"] == [0, 0]
    assert everything["versions", "keras"] == ["3.15", "3.15"]
    assert everything["site", "launcher"] == ["srun", "srun"]
    _, out, _ = cli("compare", "1", "2")
    words = [line.split() for line in out.splitlines()]
    assert ["result", "test_accuracy", "0.5", "0.75"] in words
    assert ["resources", "nodes", "1", "2"] in words
    assert ["time", "-", "10"] in words
    assert "launcher" not in out


def test_many_runs_are_rows(cli, fake_slurm):
    for number in range(1, 7):
        run = fake_slurm.submit("sweep")
        result(run, loss=number / 8)
    _, out, err = cli("compare", "sweep*")
    header, _, *lines = [line.split() for line in out.splitlines()]
    assert header == ["run", "loss"]
    assert lines[:2] == [["1", "sweep", "0.125"], ["2", "sweep", "0.25"]]
    assert err == "all recorded inputs are equal; only the results differ\n"


@pytest.mark.parametrize("metrics_count", [4, 9])
def test_runs_and_metrics_that_do_not_fit_a_terminal_are_in_several_tables(cli, fake_slurm, terminal, metrics_count):
    for number in range(8):
        result(
            fake_slurm.submit("net"), **{f"a_metric_with_a_long_name_{i}": number + 0.125 for i in range(metrics_count)}
        )
    screen = terminal(80)
    cli("compare", "net*")
    text = screen.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert [text.count(f"{number}.125") for number in range(8)] == [metrics_count] * 8
    assert text.count("\n\n") >= 1


def test_tasks_of_a_sweep_differ_in_their_values(cli, compared, fake_slurm, tmp_path, monkeypatch):
    code = Repository(tmp_path / "code")
    commit = code.commit(train="")
    monkeypatch.chdir(code.folder)
    fake_slurm.replace_command("sbatch", "echo 7")
    cli("submit", "--site", "slurm", "--sweep", "lr=0.1,0.2,0.3", "--", "a.out")
    assert compared("7") == {("arguments", "--lr"): ["0.1", "0.2", "0.3"]}
    assert compared("7_2", "7_0")["arguments", "--lr"] == ["0.3", "0.1"]
    assert compared("7", "--all")["code", "commit"] == [commit] * 3


def test_equal_runs_have_no_differences(cli, fake_slurm):
    for _ in range(2):
        fake_slurm.submit("same")
    code, out, err = cli("compare", "1-2")
    assert (code, out) == (0, "")
    assert err == "nothing differs between 1 same and 2 same\n"
    assert cli("compare", "1-2", "--script")[1] == ""
    assert json.loads(cli("compare", "1-2", "--json")[1])["rows"] == []


def test_packages_modules_and_code_are_compared(cli, compared, fake_slurm, tmp_path, monkeypatch):
    code = Repository(tmp_path / "code")
    monkeypatch.chdir(code.folder)
    old = code.commit(train="print(1)\n")
    first = fake_slurm.submit()
    new = code.commit(train="print(2)\n")
    code.write("train.py", "print(3)\n")
    second = fake_slurm.submit()
    packages(first, "keras==3.14", "numpy==2.0", "gone==1", "mine @ file:///home/me/mine")
    packages(second, "keras==3.15", "numpy==2.0", "mine @ file:///home/me/mine")
    (first.directory / "provenance/modules.txt").write_text("gcc/12\nopenmpi/5\n")
    (second.directory / "provenance/modules.txt").write_text("gcc/13\nopenmpi/5\n")
    rows = compared("1", "2")
    assert rows["code", "commit"] == [old, new]
    assert rows["code", "changes"][0] == "none"
    assert rows["code", "changes"][1].startswith("1 files, ")
    assert {key: value for key, value in rows.items() if key[0] in {"packages", "modules"}} == {
        ("packages", "keras"): ["3.14", "3.15"],
        ("packages", "gone"): ["1", None],
        ("modules", "gcc/12"): ["loaded", None],
        ("modules", "gcc/13"): [None, "loaded"],
    }


def test_facts_missing_from_one_record_are_not_compared(cli, compared, fake_slurm):
    packages(fake_slurm.submit("started"), "keras==3.15")
    fake_slurm.submit("waits")
    assert [key for key in compared("1", "2") if key[0] == "packages"] == []
    assert "2 waits: no packages recorded, and none compared\n" in cli("compare", "1", "2")[2]


def test_a_job_without_modules_is_compared_with_one_that_has_some(cli, compared, fake_slurm):
    for text in ("\n", "gcc/13\n"):
        (fake_slurm.submit().directory / "provenance/modules.txt").write_text(text)
    assert compared("1", "2")["modules", "gcc/13"] == [None, "loaded"]
    assert "modules recorded" not in cli("compare", "1", "2")[2]


@pytest.mark.parametrize("order", [("1", "2"), ("2", "1")])
def test_versions_missing_from_a_failed_job_are_not_compared(cli, compared, fake_slurm, order):
    result(fake_slurm.submit("ended"), versions={"keras": "3.15"})
    fake_slurm.write_exit_record(fake_slurm.submit("failed"), 1)
    assert [key for key in compared(*order) if key[0] == "versions"] == []
    assert "2 failed: no versions recorded, and none compared\n" in cli("compare", *order)[2]


@pytest.mark.parametrize("lost", ["status", "diff"])
def test_code_with_unknown_changes_does_not_count_as_equal(cli, compared, fake_slurm, tmp_path, monkeypatch, lost):
    code = Repository(tmp_path / "code")
    monkeypatch.chdir(code.folder)
    code.commit(train="print(1)\n")
    code.write("train.py", "print(2)\n")
    git = shutil.which("git")
    fake_slurm.replace_command("git", f'case $* in *" {lost} "*) exit 1;; *) exec {git} "$@";; esac')
    for _ in range(2):
        fake_slurm.submit()
    rows = compared("1", "2")
    assert rows == {("code", "changes"): ["not recorded", "not recorded"]}
    _, _, err = cli("compare", "1", "2")
    assert "nothing differs" not in err
    assert "inputs are equal" not in err


def test_a_requeued_job_is_not_shown_as_cancelled(compared, fake_slurm):
    for requeued in (True, False):
        run = fake_slurm.submit()
        fake_slurm.write_exit_record(run)
        record = json.loads((run.directory / "exit.json").read_text()) | {
            "reason": "stopped by SIGUSR2",
            "exit_code": 140,
        }
        (run.directory / "exit.json").write_text(json.dumps(record | {"requeued": requeued}))
    assert compared("1", "2")["outcome", "state"] == ["back in the queue", "CANCELLED"]


def test_scripts_differ_by_more_than_their_run_directories(cli, fake_slurm):
    fake_slurm.submit("a", time="10")
    fake_slurm.submit("a", time="20")
    _, out, _ = cli("compare", "1", "2", "--script")
    assert "--- 1/job.sh\n+++ 2/job.sh\n" in out
    changed = [line for line in out.splitlines() if line[:1] in {"-", "+"} and line[:3] not in {"---", "+++"}]
    assert changed == ["-#SBATCH --time=10", "+#SBATCH --time=20"]


@pytest.mark.parametrize(("words", "reason"), [
    (["1"], "only one was named"),
    (["1", "one"], "only one was named"),
    ([], "no run was named"),
])  # fmt: skip
def test_one_run_cannot_be_compared(cli, fake_slurm, words, reason):
    fake_slurm.submit("one")
    code, out, err = cli("compare", *words)
    assert (code, out) == (2, "")
    assert f"compare needs at least two runs: {reason}" in err


def test_a_run_with_missing_files_is_compared(cli, compared, fake_slurm):
    fake_slurm.submit("whole")
    lost = fake_slurm.submit("lost")
    (lost.directory / "provenance/site.json").write_text("[")
    (lost.directory / "provenance/git.json").write_text("[]")
    (lost.directory / "job.sh").unlink()
    (lost.directory / "metrics.jsonl").write_text("nonsense")
    assert ("script", "job.sh") in compared("1", "2")


@pytest.mark.parametrize(("argv", "known"), [
    (("py", "t.py", "--a", "1", "--b_c=2", "-v", "--lr", "-0.5"),
     {"program": "t.py", "--a": "1", "--b-c": "2", "-v": "given", "--lr": "-0.5"}),
    (("a.out", "in", "--x", "out", "two"),
     {"program": "a.out", "argument 1": "in", "--x": "out", "argument 2": "two"}),
    (("py", "t.py", "--seed", "1", "--seed", "2"), {"program": "t.py", "--seed": "1 2"}),
    ((), {"program": ""}),
])  # fmt: skip
def test_arguments_are_compared_by_name(argv, known):
    assert parse_arguments(argv, "py") == known
