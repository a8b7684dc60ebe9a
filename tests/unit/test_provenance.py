"""What a run was made of is kept with it, and is never in the way."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from hpcrun.git import TIMEOUT_SECONDS
from hpcrun.jobs import run_selection
from hpcrun.provenance import git_state
from hpcrun.provenance.record import write_provenance
from hpcrun.sites import loader
from tests.repository import Repository


@pytest.fixture
def code(tmp_path):
    return Repository(tmp_path / "my code")


@pytest.fixture
def submitted(cli, fake_slurm):
    """Submit a target to a Slurm that is pretended, and return what is kept with the run."""

    def call(*argv):
        status, _, err = cli("submit", "--site", "slurm", *map(str, argv))
        assert status == 0, err
        return run_selection.select_one("last").directory / "provenance"

    fake_slurm.replace_command("sbatch", "echo 1")
    return call


def read_git_record(folder):
    return json.loads((folder / "git.json").read_text())


def test_commit_branch_and_uncommitted_changes_are_recorded(code, submitted, tmp_path):
    commit = code.commit(train="print(1)\n", gone="", old="one\ntwo\nthree\n")
    code.git("checkout", "--quiet", "-b", "idea")
    script = code.write("train.py", "print(2)\n")
    code.write("new one.py", "")
    (code.folder / "gone.py").unlink()
    code.git("mv", "old.py", "name with spaces.py")
    kept = submitted(script)
    facts = read_git_record(kept)
    assert (facts["repository"], facts["commit"], facts["branch"]) == (str(code.folder), commit, "idea")
    assert sorted(facts["changed"]) == ["gone.py", "name with spaces.py", "train.py"]
    assert (facts["untracked"], facts["notes"]) == (["new one.py"], [])
    again = tmp_path / "again"
    subprocess.run(["git", "clone", "--quiet", code.folder, again], check=True)
    subprocess.run(["git", "-C", again, "apply", kept / "code.diff"], check=True)
    assert sorted(file.name for file in again.glob("*.py")) == ["name with spaces.py", "train.py"]
    assert (again / "train.py").read_text() == "print(2)\n"


def test_committed_code_has_no_diff(code, submitted):
    commit = code.commit(train="")
    code.git("checkout", "--quiet", "--detach")
    kept = submitted(code.folder / "train.py")
    assert (read_git_record(kept)["commit"], read_git_record(kept)["branch"], read_git_record(kept)["changed"]) == (
        commit,
        None,
        [],
    )
    assert not (kept / "code.diff").exists()


def test_a_repository_without_a_commit(code, submitted):
    script = code.write("train.py", "print(1)\n")
    code.git("add", "train.py")
    kept = submitted(script)
    assert (read_git_record(kept)["commit"], read_git_record(kept)["branch"], read_git_record(kept)["changed"]) == (
        None,
        "main",
        ["train.py"],
    )
    assert "+print(1)" in (kept / "code.diff").read_text()


def test_a_program_outside_any_repository_uses_that_of_the_current_folder(code, submitted, monkeypatch):
    commit = code.commit(train="")
    (code.folder / "sub").mkdir()
    monkeypatch.chdir(code.folder / "sub")
    assert read_git_record(submitted("--", "a.out"))["commit"] == commit


def test_no_program_of_the_repositorys_configuration_runs(code, submitted, tmp_path):
    canary, program = tmp_path / "canary", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {canary}\n")
    program.chmod(0o755)
    code.commit(train="print(1)\n")
    code.git("config", "core.fsmonitor", str(program))
    code.git("config", "diff.external", str(program))
    script = code.write("train.py", "print(2)\n")
    for words in ([script], ["--snapshot", script]):
        assert read_git_record(submitted(*words))["changed"] == ["train.py"]
    assert not canary.exists()
    code.git("status")
    assert canary.exists()  # git itself would have run it


@pytest.mark.parametrize("kind", ["clean", "process"])
def test_no_filter_of_the_repositorys_configuration_runs(code, submitted, tmp_path, kind):
    canary, program = tmp_path / "canary", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {canary}\ncat\n")
    program.chmod(0o755)
    inner = tmp_path / "inner"
    inner.mkdir()
    for folder in (code.folder, inner):
        (folder / ".gitattributes").write_text("* filter=x\n")
    code.commit(train="print(1)\n")
    code.git("init", "--quiet", str(inner))
    code.git("-C", str(inner), "add", ".")
    code.git("-C", str(inner), "commit", "--quiet", "--message=inner")
    code.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "lib")
    code.git("commit", "--quiet", "--all", "--message=lib")
    for folder in (".", "lib"):
        code.git("-C", folder, "config", f"filter.x.{kind}", str(program))
        code.git("-C", folder, "config", "filter.x.required", "true")
    script = code.write("train.py", "print(2)\n")
    (code.folder / "lib" / ".gitattributes").write_text("* filter=x\n\n")
    for words in ([script], ["--snapshot", script]):
        kept = submitted(*words)
        assert read_git_record(kept)["changed"] == ["train.py"]
        assert "+print(2)" in (kept / "code.diff").read_text()
    assert not canary.exists()


def test_a_partial_clone_fetches_nothing(code, submitted, tmp_path):
    code.commit(train="print(1)\n")
    program = tmp_path / "upload-pack"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'canary'}\nexit 1\n")
    program.chmod(0o755)
    settings = {"url": str(code.folder), "promisor": "true", "uploadpack": str(program)}
    for name, value in settings.items():
        code.git("config", f"remote.origin.{name}", value)
    code.git("config", "core.repositoryFormatVersion", "1")
    code.git("config", "extensions.partialClone", "origin")
    blob = code.git("rev-parse", "HEAD:train.py").strip()
    (code.folder / ".git/objects" / blob[:2] / blob[2:]).unlink()
    kept = submitted(code.write("train.py", "print(2)\n"))
    assert read_git_record(kept)["notes"] != []
    assert not (tmp_path / "canary").exists()


def test_an_own_filter_runs(code, submitted, tmp_path, monkeypatch):
    (tmp_path / "own").write_text('[filter "x"]\nclean = sed s/2/3/\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "own"))
    (code.folder / ".gitattributes").write_text("* filter=x\n")
    code.commit(train="print(1)\n")
    kept = submitted(code.write("train.py", "print(2)\n"))
    assert "+print(3)" in (kept / "code.diff").read_text()


def test_a_filter_that_cannot_be_disabled_is_refused(code, submitted, tmp_path):
    (code.folder / ".gitattributes").write_text("* filter=a=b\n")
    code.commit(train="print(1)\n")
    code.git("config", "filter.a=b.clean", f"touch {tmp_path / 'canary'}")
    state = read_git_record(submitted(code.write("train.py", "print(2)\n")))
    assert state["changed"] is None
    assert any("cannot be disabled" in note for note in state["notes"])
    assert not (tmp_path / "canary").exists()


def test_a_long_diff_is_truncated_and_binary_files_are_named(code, submitted):
    script = code.commit(train="") and code.folder / "train.py"
    (code.folder / "weights").write_bytes(bytes(10))
    code.git("add", "weights")
    code.write("zzz.py", "x" * git_state.MAX_DIFF_BYTES)
    code.git("add", "zzz.py")
    kept = submitted(script)
    assert (kept / "code.diff").stat().st_size == git_state.MAX_DIFF_BYTES
    assert read_git_record(kept)["notes"] == [
        "the diff is longer than 5 MB; code.diff has its beginning",
        "code.diff names changed binary files, but not their content",
    ]


@pytest.mark.parametrize(("body", "note"), [
    ("sleep 60 & wait", "git config took longer than"),
    ("echo broken >&2; exit 128", "broken"),
    ("echo nonsense", None),
])  # fmt: skip
def test_a_hanging_git_does_not_prevent_submission(code, submitted, fake_slurm, body, note):
    code.commit(train="")
    fake_slurm.replace_command("git", body)
    begin = time.monotonic()
    facts = read_git_record(submitted(code.folder / "train.py"))
    assert time.monotonic() - begin < TIMEOUT_SECONDS + 10  # a busy machine's, not a minute
    assert facts["commit"] is None
    assert note is None or (note in facts["notes"][0] and facts["changed"] is facts["untracked"] is None)


def test_nothing_is_recorded_without_git_or_repository(submitted, fake_slurm, tmp_path, monkeypatch):
    fake_slurm.replace_command("git", "")
    script = tmp_path / "train.py"
    script.write_text("")
    kept = submitted(script)
    assert not (kept / "git.json").exists()
    assert fake_slurm.calls("git") == []
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", str(fake_slurm.folder))
    (fake_slurm.folder / "git").unlink()
    assert read_git_record(submitted(script))["notes"] == ["git: No such file or directory"]


def test_site_values_are_recorded_with_their_origin(submitted, isolated_home):
    file = isolated_home / "config/hpcrun/slurm.toml"
    file.parent.mkdir(parents=True)
    file.write_text('description = "ours"\n\n[limits]\nmax_nodes = 3\n')
    kept = json.loads((submitted("--", "true") / "site.json").read_text())
    assert (kept["name"], kept["chosen_by"]) == ("slurm", "--site")
    assert kept["values"]["limits.max_nodes"] == {"value": 3, "from": f"{file}:4"}
    assert kept["values"]["launcher"]["from"].endswith("site-configs/slurm.toml:9")


def test_an_unwritable_run_directory_does_not_fail_the_job(tmp_path):
    write_provenance(tmp_path / "not-there", loader.load_site("local"), None)


def test_the_job_records_modules_and_packages(cli, monkeypatch):
    monkeypatch.setenv("LOADEDMODULES", "gcc/13:openmpi/5.0")
    assert cli("run", "--site", "local", "--", "true")[0] == 0
    kept = run_selection.select_one("last").directory / "provenance"
    assert (kept / "modules.txt").read_text() == "gcc/13\nopenmpi/5.0\n"
    first, *lines = (kept / "packages.txt").read_text().splitlines()
    assert first == f"# Python {sys.version.split()[0]}, {sys.executable}"
    assert f"pytest=={pytest.__version__}" in lines
    names = [re.split(r"==| @ ", line)[0].lower() for line in lines]
    assert names == sorted(names)


def test_packages_are_recorded_with_their_repository_or_folder(tmp_path):
    for name, origin in {
        "plain": "",
        "edited": '{"url": "file:///home/me/edited", "dir_info": {"editable": true}}',
        "cloned": '{"url": "https://x.org/c.git", "vcs_info": {"vcs": "git", "commit_id": "12ab"}}',
        "odd": "[1]",
    }.items():
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        (folder / "direct_url.json").write_text(origin)
    command = [sys.executable, "-m", "hpcrun.provenance.packages"]
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    ours = [line for line in done.stdout.splitlines() if line.split("==")[0].split(" @ ")[0] in {"plain", "odd"}]
    assert ours == ["odd==1.0", "plain==1.0"]
    assert "\nedited @ file:///home/me/edited\n" in done.stdout
    assert "\ncloned @ git+https://x.org/c.git@12ab\n" in done.stdout
