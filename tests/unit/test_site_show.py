"""What hpcrun shows of sites: their values, where these come from, how two differ, and where it looked."""

import json
import tomllib

import pytest

from hpcrun import paths
from hpcrun.sites import loader, toml

MINE = """\
extends = "slurm"
description = 'say "hi"'
setup = ["a", "b"]
prepend_path.PATH = ["${HOME}/a/long/folder/name/of/its/own", "/another/long/folder"]
[partitions."big mem"]
defaults.time = "1:00"
max_nodes = 3
[partitions.cpu]
"""


@pytest.fixture
def user_site_file(isolated_home):
    file = isolated_home / "config/hpcrun/mine.toml"
    file.parent.mkdir(parents=True)
    file.write_text(MINE)
    return file


def test_show_prints_an_equivalent_site_file(user_site_file, cli, tmp_path):
    before = loader.load_site("mine").site
    code, out, _ = cli("site", "show", "mine")
    user_site_file.unlink()
    (tmp_path / "mine.toml").write_text(out)
    assert (code, loader.load_site(str(tmp_path / "mine.toml")).site) == (0, before)
    assert str(paths.shipped_folder("site-configs")) not in out


def test_show_origin_tells_file_and_line_of_every_value(user_site_file, cli):
    _, out, _ = cli("site", "show", "mine", "--origin")
    lines = [line for line in out.splitlines() if " = " in line]
    assert all(".toml:" in line for line in lines), out
    assert f'"say \\"hi\\""  # {user_site_file}:2' in out.replace("description = ", "")
    assert f"max_nodes = 3           # {user_site_file}:7" in out
    assert "slurm.toml:" in next(line for line in lines if line.startswith("type = "))
    output = json.loads(cli("site", "show", "mine", "--json", "--origin")[1])
    assert output["site"]["setup"] == ["a", "b"]
    assert output["origin"]['partitions."big mem".max_nodes'] == f"{user_site_file}:7"
    assert json.loads(cli("site", "show", "mine", "--json")[1]) == output["site"]


@pytest.mark.parametrize("value", ['a"b\\c\n\x7f\u00e9', True, 3, ["a", "b'"], {"a b": {"c": [1]}, "d": "e"}, {}, []])
def test_any_value_is_written_as_toml(value):
    assert tomllib.loads(f"x = {toml.literal(value)}") == {"x": value}


def test_diff_prints_differences_with_file_and_line(user_site_file, cli):
    (user_site_file.parent / "other.toml").write_text(
        'extends = "mine"\nsnapshot = true\nmpi.type = "pmix"\npartitions.gpu = {}\n'
    )
    code, out, _ = cli("site", "diff", "mine", "other")
    other = user_site_file.parent / "other.toml"
    assert code == 1
    lines = out.splitlines()
    assert lines[:2] == ["--- mine", "+++ other"]
    assert [line.partition("  # ")[0] for line in lines[2:]] == [
        '-mpi.type = "pmi2"', '+mpi.type = "pmix"', "+partitions.gpu = {}", "-snapshot = false", "+snapshot = true",
    ]  # fmt: skip
    assert lines[3].endswith(f"# {other}:3")
    assert lines[5].endswith("# default")
    code, out, _ = cli("site", "diff", "mine", "other", "--json")
    assert (code, json.loads(out)[0]["b"]) == (1, {"value": "pmix", "origin": f"{other}:3"})


def test_diff_of_equal_sites_exits_with_0(user_site_file, cli):
    (user_site_file.parent / "same.toml").write_text('extends = "mine"\nsnapshot = false\nscheduler = "slurm"\n')
    assert cli("site", "diff", "mine", "same") == (0, "", "mine and same are alike\n")
    assert json.loads(cli("site", "diff", "mine", str(user_site_file), "--json")[1]) == []
    assert cli("site", "diff", "mine", "nobodys")[0] == 2


def test_config_lists_layers_variables_and_how_the_site_was_selected(user_site_file, cli, monkeypatch, tmp_path):
    lab = tmp_path / "lab"
    (lab / "templates").mkdir(parents=True)
    (lab / "templates/slurm.sh.j2").write_text("")
    (lab / "mine.toml").write_text("snapshot = true\n")
    monkeypatch.setenv("HPCRUN_SITE_PATH", f"{lab}:/not/there")
    monkeypatch.setenv("HPCRUN_SITE", "mine")
    code, out, _ = cli("config")
    rows = [line.split() for line in out.splitlines() if line]
    assert code == 0
    assert [row[0] for row in rows[2:7]] == ["user", "lab", "lab", "system", "shipped"]
    assert ["lab", str(lab), "mine", "slurm.sh.j2"] in rows
    assert ["lab", "/not/there", "(does", "not", "exist)"] in rows
    assert out.splitlines()[-4] == "site used here: mine ($HPCRUN_SITE)"
    assert out.splitlines()[-3:] == [
        f"  {user_site_file}",
        f"  {lab}/mine.toml",
        f"  {paths.shipped_folder('site-configs')}/slurm.toml",
    ]
    assert any(row[0] == "XDG_DATA_HOME" for row in rows)
    output = json.loads(cli("config", "--json")[1])
    assert (output["environment"]["HPCRUN_SITE"], output["site"]["chosen_by"]) == ("mine", "$HPCRUN_SITE")
    assert output["layers"][1] == {
        "layer": "lab", "folder": str(lab), "exists": True, "sites": ["mine"], "templates": ["slurm.sh.j2"],
    }  # fmt: skip


def test_variables_that_name_no_site_are_named(cli, monkeypatch):
    monkeypatch.setenv("HPCRUN_SITE", "cluster-of-ours")
    monkeypatch.setenv("HPCRUN_SITE_PATH", "/not/there")
    for command in (("submit", "--dry-run", "--", "true"), ("site", "show")):
        code, _, err = cli(*command)
        assert code == 2
        assert "HPCRUN_SITE=cluster-of-ours: there is no site 'cluster-of-ours'" in err
        assert "HPCRUN_SITE_PATH names /not/there, which does not exist" in err


def test_config_helps_where_no_site_can_be_chosen(cli, monkeypatch):
    monkeypatch.setenv("HPCRUN_SITE", "nobodys")
    code, out, err = cli("config")
    assert (code, "shipped" in out) == (2, True)
    assert "there is no site 'nobodys'" in err
    assert json.loads(cli("config", "--json")[1])["site"] is None


def test_nothing_that_a_terminal_obeys_is_shown(cli, tmp_path):
    odd = "x\x1b[2J\u202e"
    folder = tmp_path / f"wl{odd}"
    folder.mkdir()
    (folder / "train.py").touch()
    option = 'options.lr = { default = 1, help = "\\u001b[2Jx" }\n'
    (folder / "workload.toml").write_text(f'description = "a\\u001b[2J\\u202eb"\nentry = "train.py"\n{option}')
    (folder / "odd.toml").write_text(
        'extends = "local"\ndescription = "a\\u001b[2Jb\\u202e"\nenvironment.A = "\\u001b[2J\\rx"\n'
    )
    site = str(folder / "odd.toml")
    for argv in (
        ("workload", "show", str(folder)),
        ("site", "show", site, "--origin"),
        ("site", "diff", site, "local"),
        ("submit", "--site", site, "--dry-run", "--", "true", odd),
    ):
        code, out, err = cli(*argv)
        assert code == (1 if argv[1] == "diff" else 0), err
        assert not set("\x1b\r\u202e") & set(out + err), (argv, out)
