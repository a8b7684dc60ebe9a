"""Site files that were written for another hpcrun."""

import pytest

from hpcrun.cli.main import main
from hpcrun.errors import HpcrunError
from hpcrun.sites import find, versions
from hpcrun.sites.upgrade import upgraded
from hpcrun.sites.versions import Deprecation

RENAMED = [
    Deprecation(("mpi", "flavour"), ("mpi", "library"), "0.2", "nobody else calls it so"),
    Deprecation(("partitions", "*", "nodes"), ("partitions", "*", "max_nodes"), "0.2", "it is a limit"),
    Deprecation(("queue",), ("defaults", "partition"), "0.2", "Slurm has partitions"),
    Deprecation(("colour",), None, "0.2", "scripts have none"),
]


@pytest.fixture
def old(monkeypatch, tmp_path):
    """Write a site file in a world with other keys of old."""
    monkeypatch.setattr(versions, "DEPRECATIONS", RENAMED)

    def write(text, name="old"):
        file = tmp_path / f"{name}.toml"
        file.write_text(text)
        return file

    return write


def test_a_renamed_key_keeps_its_meaning_and_its_line(old):
    file = old('queue = "a b"\ncolour = "red"\n\n[mpi]\nflavour = "openmpi"\n[partitions."a b"]\nnodes = 3\n')
    with pytest.warns(FutureWarning) as told:
        found = find.load(str(file))
    site = found.site
    assert (site.defaults.partition, site.mpi.library, site.partitions["a b"].max_nodes) == ("a b", "openmpi", 3)
    assert found.origin(("mpi", "library")) == f"{file}:5"
    assert found.origin(("partitions", "a b", "max_nodes")) == f"{file}:7"
    assert [str(one.message).removeprefix(f"{file}:").partition(" (since hpcrun 0.2: ")[0] for one in told] == [
        "5: mpi.flavour is now mpi.library", "7: partitions.a b.nodes is now partitions.a b.max_nodes",
        "1: queue is now defaults.partition", "2: colour has no effect any more",
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_wrong_value_of_a_renamed_key_names_the_line_where_it_is(old):
    with pytest.raises(HpcrunError, match=r"old.toml:2: mpi.library = 'openmp1': Input should be"):
        find.load(str(old('[mpi]\nflavour = "openmp1"\n')))


def test_both_names_at_once_are_refused(old):
    with pytest.raises(HpcrunError, match=r"old.toml:2: mpi.flavour is the old name of mpi.library, and both are set"):
        find.load(str(old('[mpi]\nflavour = "mpich"\nlibrary = "mpich"\n')))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_table_that_is_none_is_refused_as_ever(old):
    with pytest.raises(HpcrunError, match=r"old.toml:1: defaults = 5"):
        find.load(str(old('defaults = 5\nqueue = "a"\n')))


@pytest.mark.filterwarnings("default::FutureWarning")
def test_a_person_is_warned_once_in_a_command(old, monkeypatch, capsys):
    file = old('colour = "red"\n')
    monkeypatch.setattr("sys.argv", ["hpcrun", "submit", "--site", str(file), "--dry-run", "--", "x"])
    with pytest.raises(SystemExit):
        main()
    lines = [line for line in capsys.readouterr().err.splitlines() if "colour" in line]
    why = "colour has no effect any more (since hpcrun 0.2: scripts have none)"
    assert lines == [f"WARNING: {file}:1: {why}; hpcrun site upgrade {file}"]


def test_a_job_recorded_with_old_keys_is_read_without_a_word(old):
    assert find.recorded({"name": "x", "queue": "a"}).site.defaults.partition == "a"


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_keys_of_the_first_site_files_are_read_and_rewritten(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text('scratch = ["/local"]\n[partitions.gpu]\ngpu_type = "a100"\n')
    site = find.load(str(file)).site
    assert (site.local_scratch, site.partitions["gpu"].gpu.type) == (("/local",), "a100")
    assert upgraded(file) == 'local_scratch = ["/local"]\n[partitions.gpu]\ngpu.type = "a100"\n'


@pytest.mark.parametrize(("schema", "words"), [
    ("2", "c.toml:2: schema = 2: the file is written for a newer hpcrun; {version} reads schema 1"),
    ("true", "schema = True: must be a whole number"), ("0", "schema = 0: must be"), ("'1'", "schema = '1': must be"),
])  # fmt: skip
def test_a_schema_that_this_hpcrun_does_not_know_is_refused(tmp_path, schema, words):
    (tmp_path / "c.toml").write_text(f'description = "c"\nschema = {schema}\nkey_of_tomorrow = 1\n')
    with pytest.raises(HpcrunError) as refused:
        find.load(str(tmp_path / "c.toml"))
    assert words.format(version=versions.__version__) in str(refused.value)
    assert "unknown key" not in str(refused.value)


def test_the_schema_of_today_may_be_said(tmp_path):
    (tmp_path / "c.toml").write_text("schema = 1\n")
    assert find.load(str(tmp_path / "c.toml")).site.name == "c"
    assert find.load(str(tmp_path / "c.toml")).told() == []


BEFORE = """\
# my cluster
queue = "a b"  # the big one
colour = "red"
mpi = { type = "pmix", flavour = "openmpi" }  # ours

[partitions."a b"]
# the limit
  nodes = 3
max_time = "1:00"
"""
AFTER = """\
# my cluster
defaults.partition = "a b"  # the big one
mpi = { type = "pmix", library = "openmpi" }  # ours

[partitions."a b"]
# the limit
  max_nodes = 3
max_time = "1:00"
"""


def test_upgrade_rewrites_old_keys_and_nothing_else(old, cli):
    file = old(BEFORE)
    file.chmod(0o640)
    code, out, err = cli("site", "upgrade", str(file), "--yes")
    assert (code, file.read_text(), file.stat().st_mode & 0o777) == (0, AFTER, 0o640), err
    assert '-queue = "a b"  # the big one\n' in out
    assert '+defaults.partition = "a b"  # the big one\n' in out
    assert file.with_name("old.toml.bak").read_text() == BEFORE
    code, out, err = cli("site", "upgrade", str(file))
    assert (code, out, err) == (0, "", f"{file} has no keys of older versions\n")


@pytest.mark.parametrize(("before", "after"), [
    ("mpi.flavour = 'mpich'\n", "mpi.library = 'mpich'\n"),
    ("[mpi]\nflavour='mpich' # a=b\n", "[mpi]\nlibrary ='mpich' # a=b\n"),
    ("queue = 'a'\n[defaults] # d\ntime = 1\n", "[defaults] # d\npartition = 'a'\ntime = 1\n"),
    ("partitions.'x y'.nodes = 1\n", 'partitions."x y".max_nodes = 1\n'),
    ("colour = [\n 'red', # 1\n]\n\n# end\n", "\n# end\n"),
    ("[partitions.a]\nnodes = 1\n[partitions.b]\nnodes = 2",
     "[partitions.a]\nmax_nodes = 1\n[partitions.b]\nmax_nodes = 2"),
    ("[room.deep] # x\na = 1\n[room]\nb = 2\n", "[data.deep] # x\na = 1\n[data]\nb = 2\n"),
    ("[mpi]\ntype = 'a'\npurge = true\n[gpu]\n", "modules.purge = true\n[mpi]\ntype = 'a'\n[gpu]\n"),
])  # fmt: skip
def test_upgrade_knows_toml_in_its_spellings(old, before, after):
    versions.DEPRECATIONS.extend([
        Deprecation(("room",), ("data",), "0.2", ""), Deprecation(("mpi", "purge"), ("modules", "purge"), "0.2", ""),
    ])  # fmt: skip
    try:
        assert upgraded(old(before)) == after
    finally:
        del versions.DEPRECATIONS[-2:]


@pytest.mark.parametrize("text", ["mpi = { colours = { a = 1 }, queue = 1 }\n", "x = 1\n"])
def test_upgrade_leaves_what_only_looks_old(old, text):
    assert upgraded(old(text)) == text


def test_upgrade_leaves_to_a_person_what_it_cannot_do(old, cli):
    text = "queue = 'a'\ndefaults = { time = 1 }\n"
    file = old(text)
    code, out, err = cli("site", "upgrade", str(file), "--yes")
    assert (code, out, file.read_text(), list(file.parent.glob("*.bak*"))) == (2, "", text, [])
    assert f"{file}:1: queue cannot be changed without changing more" in err
    assert "HINT: write defaults.partition there by hand" in err


def test_upgrade_asks_and_changes_no_file_of_others(old, cli, monkeypatch):
    file = old(BEFORE)
    assert "+  max_nodes = 3" in cli("site", "upgrade", str(file), "--dry-run")[1]
    code, _, err = cli("site", "upgrade", str(file))
    assert (code, file.read_text()) == (2, BEFORE)
    assert "--yes writes it" in err
    code, _, err = cli("site", "upgrade", "styx", "--yes")
    assert (code, "styx.toml: not yours to change" in err) == (2, True)
    monkeypatch.setattr("os.getuid", lambda: 12345)
    assert "not yours to change" in cli("site", "upgrade", str(file), "--yes")[2]


def test_upgrade_keeps_a_link_and_older_copies(old, cli, tmp_path):
    file = old(BEFORE)
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    (tmp_path / "link.toml.bak").write_text("older")
    assert cli("site", "upgrade", str(link), "--yes")[0] == 0
    assert (link.is_symlink(), file.read_text()) == (True, AFTER)
    assert [(tmp_path / f"link.toml.{end}").read_text() for end in ("bak", "bak1")] == ["older", BEFORE]
