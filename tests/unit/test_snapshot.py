"""A job runs its code as it was when it was submitted, wherever that code is."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from hpcrun.jobs import run_selection
from hpcrun.provenance import snapshot
from tests.repository import Repository


@pytest.fixture
def code(tmp_path, monkeypatch):
    repository = Repository(tmp_path / "my code")
    monkeypatch.chdir(repository.folder)
    return repository


@pytest.fixture
def held_job(cli, fake_slurm):
    """Submit a job to a fake Slurm, and return a function that runs its ranks."""

    def call(*argv, option="--snapshot"):
        code, _, err = cli("submit", "--site", "slurm", *filter(None, [option]), *map(str, argv))
        assert code == 0, err
        spec = json.loads((run_selection.select_one("last").directory / "job.json").read_text())

        def start():
            return subprocess.check_output(spec["argv"], cwd=spec["directory"], text=True, stderr=subprocess.STDOUT)

        return start

    fake_slurm.replace_command("sbatch", "echo 1")
    return call


def copied():
    """Return the names of all files in the last run's copy."""
    copy = run_selection.select_one("last").directory / "code"
    return sorted(str(file.relative_to(copy)) for file in copy.rglob("*") if file.is_symlink() or file.is_file())


TELL = "import os, pathlib; print(pathlib.Path('data.txt').read_text(), __import__('helper').WORD)"


def test_edits_after_submission_have_no_effect(code, held_job):
    code.write("sub dir/data.txt", "old data")
    code.commit(**{"sub dir/train": TELL, "sub dir/helper": "WORD = 'committed'"})
    code.write("sub dir/helper.py", "WORD = 'not committed'")
    os.chdir("sub dir")
    start = held_job("train.py")
    for file in ("train.py", "helper.py", "data.txt"):
        Path(file).write_text("raise SystemExit('new')")
    assert start() == "old data not committed\n"
    assert json.loads((run_selection.select_one("last").directory / "job.json").read_text())["snapshot"] == str(
        code.folder
    )


@pytest.mark.parametrize("option", [None, "--no-snapshot"])
def test_without_a_snapshot_the_original_code_runs(code, held_job, option):
    code.commit(train="print('old')")
    start = held_job("train.py", option=option)
    code.write("train.py", "print('new')")
    assert start() == "new\n"
    assert not (run_selection.select_one("last").directory / "code").exists()


def test_new_python_files_are_copied_and_ignored_files_are_not(code, held_job):
    """New Python files and the script itself are copied; data and what is ignored are not."""
    code.write(".gitignore", "ignored*\n")
    code.commit(old="", removed="")
    (code.folder / "removed.py").unlink()
    for name in ("new.py", "ignored.py", "ignored_run.sh", "data.bin"):
        code.write(name, "#!/bin/sh\necho runs\n").chmod(0o755)
    start = held_job("--", "./ignored_run.sh")
    assert copied() == [".gitignore", "ignored_run.sh", "new.py", "old.py"]
    assert start() == "runs\n"


def test_copies_of_earlier_runs_are_not_copied(code, held_job, monkeypatch):
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(code.folder / "runs"))
    code.commit(train="")
    for _ in range(2):
        held_job("train.py")
        assert copied() == ["train.py"]


def test_code_below_the_folder_of_runs_is_copied(code, held_job, monkeypatch, tmp_path):
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(tmp_path))
    code.commit(train="")
    held_job("train.py")
    assert copied() == ["train.py"]


def test_an_untracked_workload_folder_in_a_repository(code, held_job):
    code.commit(old="")
    code.write("net/workload.toml", '[options.word]\ndefault = "x"\n')
    code.write("net/train.py", "print('net')")
    assert held_job("net")() == "net\n"
    assert copied() == ["net/train.py", "net/workload.toml", "old.py"]


def test_links_keep_their_targets(code, held_job, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/big.bin").write_text("big")
    code.write("real/file.txt", "real")
    code.write("untracked/data.txt", "data")
    links = {
        "inside": "real/file.txt", "folder": "real", "absolute": str(code.folder / "real/file.txt"),
        "outside": "../outside", "data": "untracked/data.txt", "nowhere": "not-there",
    }  # fmt: skip
    for name, target in links.items():
        (code.folder / name).symlink_to(target)
    code.git("add", "real", *links)
    code.write("train.py", "")
    held_job("train.py")
    copy = run_selection.select_one("last").directory / "code"
    for name in ("inside", "absolute"):
        assert (copy / name).resolve() == copy / "real/file.txt"
    assert (copy / "folder").resolve() == copy / "real"
    assert (copy / "outside/big.bin").read_text() == "big"
    assert (copy / "data").resolve() == code.folder / "untracked/data.txt"
    assert (copy / "nowhere").is_symlink()


def test_submodules_are_copied(code, held_job, tmp_path):
    other = Repository(tmp_path / "other")
    other.commit(part="WORD = 'of the submodule'")
    code.git("submodule", "--quiet", "add", str(other.folder), "lib")
    code.git("submodule", "--quiet", "add", str(other.folder), "left out")
    code.commit(train="import lib.part; print(lib.part.WORD)")
    code.git("submodule", "--quiet", "deinit", "--force", "left out")
    start = held_job("train.py")
    code.write("lib/part.py", "WORD = 'new'")
    assert start() == "of the submodule\n"
    assert (run_selection.select_one("last").directory / "code/left out").is_dir()


def test_a_script_without_a_repository_is_copied_with_its_modules(held_job, tmp_path, monkeypatch):
    folder = tmp_path / "scripts"
    (folder / "package/__pycache__").mkdir(parents=True)
    (folder / "data").mkdir()
    for name in ("package/__init__.py", "package/__pycache__/x.pyc", "helper.py", "data/big.bin"):
        (folder / name).write_text("WORD = 'old'")
    (folder / "data.txt").write_text("data")
    (folder / "train.py").write_text(TELL)
    monkeypatch.chdir(folder)
    start = held_job("train.py")
    assert copied() == ["helper.py", "package/__init__.py", "train.py"]
    (folder / "helper.py").write_text("WORD = 'new'")
    assert start() == "data old\n"


def test_a_workload_folder_without_a_repository_is_copied_whole(held_job, tmp_path, monkeypatch):
    folder = tmp_path / "net"
    for name in ("workload.toml", "train.py", "data/x.bin", "__pycache__/x.pyc", "venv/pyvenv.cfg", "runs/r/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(folder / "runs"))
    held_job(folder)
    assert copied() == ["data/x.bin", "train.py", "workload.toml"]


def test_a_bundled_workload_is_its_folder(held_job):
    held_job("lenet5")
    assert copied() == ["train.py", "workload.toml"]


def test_too_large_code_is_refused_before_anything_is_created(cli, isolated_home, tmp_path, monkeypatch):
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "workload.toml").write_text("")
    (folder / "train.py").write_text("")
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(3_000_000_000)
    code, _, err = cli("submit", "--site", "slurm", "--snapshot", str(folder))
    assert code == 2
    assert "3 files of 3,000 MB, and the limit is 20,000 files of 200 MB; weights.bin has 3,000 MB" in err
    assert "HINT: keep data out of the folder" in err
    assert not (isolated_home / "runs").exists()
    monkeypatch.setattr(snapshot, "MAX_FILES", 1)
    (folder / "weights.bin").unlink()
    assert "more than 1 files of 0 KB" in cli("submit", "--site", "slurm", "--snapshot", str(folder))[2]


def test_a_program_with_unknown_files_is_refused(cli, isolated_home, tmp_path, monkeypatch, held_job):
    monkeypatch.chdir(tmp_path)
    code, _, err = cli("submit", "--site", "slurm", "--snapshot", "--", "a.out")
    assert code == 2
    assert f"--snapshot: {tmp_path} is in no git repository" in err
    assert "HINT: git init" in err
    assert not (isolated_home / "runs").exists()
    site(isolated_home, "snapshot = true")
    held_job("--", "a.out", option=None)
    _, _, err = cli("submit", "--site", "slurm", "--dry-run", "--", "a.out")
    assert f"WARNING: no snapshot (site key snapshot): {tmp_path} is in no git repository" in err


def site(isolated_home, text):
    file = isolated_home / "config/hpcrun/slurm.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)


def test_a_site_may_enable_snapshots(code, held_job, isolated_home):
    site(isolated_home, "snapshot = true")
    code.commit(train="print('old')")
    start = held_job("train.py", option=None)
    code.write("train.py", "print('new')")
    assert start() == "old\n"
    assert held_job("train.py", option="--no-snapshot")() == "new\n"


def test_a_failing_git_is_an_error(code, cli, fake_slurm):
    code.commit(train="")
    fake_slurm.replace_command("git", "echo broken >&2; exit 128")
    code, _, err = cli("submit", "--site", "slurm", "--snapshot", "train.py")
    assert (code, "git does not list the files of" in err, "broken" in err) == (2, True, True)


def test_a_dry_run_shows_the_copy_and_makes_none(code, cli, isolated_home):
    code.commit(train="")
    _, out, _ = cli("submit", "--site", "slurm", "--snapshot", "--dry-run", "train.py")
    assert f"#SBATCH --chdir={isolated_home}/runs/train-" in out
    assert "/code/train.py" in out
    assert not (isolated_home / "runs").exists()


def test_all_tasks_of_a_sweep_share_one_copy(code, cli, fake_slurm):
    code.commit(train="")
    fake_slurm.replace_command("sbatch", "echo 1")
    assert cli("submit", "--site", "slurm", "--snapshot", "train.py", "--sweep", "lr=1,2")[0] == 0
    tasks = run_selection.select_runs(["1"])
    copies = {json.loads((task.directory / "job.json").read_text())["argv"][1] for task in tasks}
    assert copies == {str(tasks[0].directory.parent / "code/train.py")}
    assert Path(copies.pop()).is_file()
