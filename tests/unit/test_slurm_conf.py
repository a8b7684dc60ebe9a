"""Several Slurms on one host: each command queries the Slurm of the site or run."""

import json
import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

import hpcrun
from hpcrun import paths
from hpcrun.jobs import run_selection
from hpcrun.jobs.runs import Run
from hpcrun.schedulers import recovery
from tests.unit import slurm_clusters
from tests.waiting import DEADLINE

pytestmark = pytest.mark.slow


class Slurm:
    """A fake Slurm: its slurm.conf is the output of squeue, and a file next to it has the next job id."""

    def __init__(self, conf):
        self.conf = conf
        self.set_queue()

    def set_queue(self, *rows):
        self.conf.write_text("".join(f"{'|'.join(map(str, row))}\n" for row in rows))

    def set_next_id(self, job_id):
        self.conf.with_suffix(".id").write_text(str(job_id))

    def calls(self, command):
        """Return the arguments of each call of a command."""
        calls = self.conf.with_suffix(f".{command}")
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def slurms(fake_slurm, tmp_path, monkeypatch, isolated_home):
    """Two Slurms with a site each; one site file uses a variable."""
    for name in ("sbatch", "squeue", "sacct", "scancel", "srun", "scontrol", "sinfo"):
        commands = {"sbatch": 'cat "${SLURM_CONF%.conf}.id"', "squeue": 'cat "$SLURM_CONF"', "scancel": "true"}
        default = f': "${{SLURM_CONF:={tmp_path}/default.conf}}"'
        fake_slurm.replace_command(
            name, f'{default}\necho "$*" >>"${{SLURM_CONF%.conf}}.{name}"\n{commands.get(name, "exit 1")}'
        )
    monkeypatch.setenv("CONF", str(tmp_path))
    sites = isolated_home / "config/hpcrun"
    sites.mkdir(parents=True)
    (sites / "one.toml").write_text(f'extends = "slurm"\nslurm_conf = "{tmp_path}/one.conf"\n')
    (sites / "two.toml").write_text('extends = "slurm"\nslurm_conf = "${CONF}/two.conf"\n')
    return [Slurm(tmp_path / f"{name}.conf") for name in ("one", "two")]


def submit(slurm, job_id, site, **more):
    slurm.set_next_id(job_id)
    return Run(hpcrun.submit(None, ["a.out"], site=site, **more).directory)


@pytest.fixture
def jobs_with_equal_ids(slurms, monkeypatch):
    """A job of each Slurm with the same id; the variable is unset, and SLURM_CONF is that of the first Slurm."""
    runs = [submit(slurm, 7, site) for slurm, site in zip(slurms, ("one", "two"), strict=True)]
    monkeypatch.delenv("CONF")
    monkeypatch.setenv("SLURM_CONF", str(slurms[0].conf))
    slurms[0].set_queue((7, "RUNNING", "None", "n1", "0:01", "1:00", f"{runs[0].directory}/job.sh"))
    slurms[1].set_queue((7, "PENDING", "Priority", "", "0:00", "1:00", f"{runs[1].directory}/job.sh"))
    return runs


def test_status_queries_each_slurm_once(slurms, jobs_with_equal_ids, cli):
    before = [len(slurm.calls("squeue")) for slurm in slurms]
    states = {row["run_dir"]: (row["job_id"], row["state"]) for row in json.loads(cli("status", "--json")[1])}
    assert states == {
        str(jobs_with_equal_ids[0].directory): ("7", "RUNNING"),
        str(jobs_with_equal_ids[1].directory): ("7", "PENDING"),
    }
    assert [len(slurm.calls("squeue")) for slurm in slurms] == [count + 1 for count in before]


def test_cancel_calls_the_slurm_of_each_job(slurms, jobs_with_equal_ids, cli):
    slurms[0].set_queue((7, "PENDING", "Priority", "", "0:00", "1:00", f"{jobs_with_equal_ids[0].directory}/job.sh"))
    assert cli("cancel", "a*", "--yes")[0] == 0
    assert [slurm.calls("scancel") for slurm in slurms] == [["7"], ["7"]]


@pytest.mark.parametrize("refusing", [0, 1])
def test_failed_scancel_does_not_keep_jobs_of_another_slurm_running(
    slurms, jobs_with_equal_ids, cli, fake_slurm, refusing
):
    slurms[0].set_queue((7, "PENDING", "Priority", "", "0:00", "1:00", f"{jobs_with_equal_ids[0].directory}/job.sh"))
    refuses = f'[ "$SLURM_CONF" != {slurms[refusing].conf} ] || exit 1'
    fake_slurm.replace_command("scancel", f'{refuses}; echo "$*" >>"${{SLURM_CONF%.conf}}.scancel"')
    assert cli("cancel", "a*", "--yes")[0] == 1
    assert [bool(slurm.calls("scancel")) for slurm in slurms] == [refusing == 1, refusing == 0]


def test_submitit_jobs_with_the_same_id_are_distinct(jobs_with_equal_ids):
    jobs = [hpcrun.attach(f"{run.directory}/") for run in jobs_with_equal_ids]
    assert [job.state for job in jobs] == ["RUNNING", "PENDING"]


def test_why_queries_the_slurm_of_the_job(slurms, jobs_with_equal_ids, cli):
    assert cli("why", f"{jobs_with_equal_ids[1].directory}/")[0] == 0
    assert [["--jobs=7" in call for call in slurm.calls("squeue")].count(True) for slurm in slurms] == [0, 1]


def test_suggested_commands_set_slurm_conf(slurms, fake_slurm, cli):
    fake_slurm.replace_command("sbatch", "echo 'sbatch: error: invalid account' >&2; exit 1")
    _, _, err = cli("submit", "--site", "one", "-J", "refused", "--", "a.out")
    assert f"SLURM_CONF={slurms[0].conf} sacctmgr show associations " in err
    fake_slurm.replace_command("sbatch", "echo 'sbatch: error: an unknown message' >&2; exit 1")
    _, _, err = cli("submit", "--site", "one", "-J", "refused", "--", "a.out")
    assert f"SLURM_CONF={slurms[0].conf} sinfo -s " in err
    run = run_selection.select_one("refused")
    assert f"SLURM_CONF={slurms[0].conf} sbatch {run.directory}/job.sh" in cli("why", "refused")[1]


def test_unrecorded_job_is_searched_in_its_slurm(slurms, fake_slurm, cli, monkeypatch):
    fake_slurm.replace_command("sbatch", "kill -KILL $$")
    assert cli("submit", "--site", "two", "-J", "lost", "--", "a.out")[0] == 1
    run = run_selection.select_one("lost")
    monkeypatch.delenv("CONF")
    slurms[1].set_queue((9, "PENDING", "Priority", "", "0:00", "1:00", f"{run.directory}/job.sh"))
    recovery.recover_jobs()
    assert Run(run.directory).job_id == "9"


def test_dry_run_prints_the_slurm_conf(slurms, cli):
    code, _, err = cli("submit", "--site", "two", "--dry-run", "--", "a.out")
    assert (code, f"Slurm      {slurms[1].conf} (site key slurm_conf)" in err) == (0, True), err


def test_resubmit_uses_the_same_slurm(slurms, jobs_with_equal_ids, cli):
    slurms[1].set_next_id(8)
    assert cli("resubmit", f"{jobs_with_equal_ids[1].directory}/")[0] == 0
    assert len(slurms[1].calls("sbatch")) == 2


def test_status_uses_the_slurm_conf_of_the_submission(slurms, cli, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", str(slurms[1].conf))
    run = submit(slurms[1], 5, "slurm")
    slurms[1].set_queue((5, "RUNNING", "None", "n1", "0:01", "1:00", f"{run.directory}/job.sh"))
    monkeypatch.setenv("SLURM_CONF", str(slurms[0].conf))
    assert json.loads(cli("status", "5", "--json")[1])["state"] == "RUNNING"
    slurms[0].set_queue((5, "PENDING", "None", "", "0:00", "1:00", f"{run.directory}/job.sh"))
    slurms[1].conf.unlink()  # as on another host
    assert json.loads(cli("status", "5", "--json")[1])["state"] == "PENDING"


def test_missing_slurm_conf_is_an_error_and_no_other_slurm_is_used(slurms, fake_slurm, cli):
    slurms[1].conf.unlink()
    code, _, err = cli("submit", "--site", "two", "--", "a.out")
    assert (code, f"SLURM_CONF={slurms[1].conf} does not exist" in err, "site key slurm_conf" in err) == (1, True, True)
    assert fake_slurm.calls("sbatch") == []


@pytest.fixture
def open_root(monkeypatch):
    """A run root that all users can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv("HPCRUN_RUN_ROOT", folder)
        yield


@pytest.mark.usefixtures("open_root")
@pytest.mark.parametrize(("file", "site"), [("job.json", "two"), ("submitted.json", "slurm")])
def test_slurm_conf_of_world_writable_records_is_ignored(slurms, cli, monkeypatch, file, site):
    monkeypatch.setenv("SLURM_CONF", str(slurms[1].conf))
    run = submit(slurms[1], 5, site)
    run.directory.chmod(0o755)
    monkeypatch.setenv("SLURM_CONF", str(slurms[0].conf))
    for mode, slurm in ((0o644, slurms[1]), (0o666, slurms[0])):
        (run.directory / file).chmod(mode)
        before = len(slurm.calls("squeue"))
        assert cli("status", "5")[0] == 0
        assert len(slurm.calls("squeue")) == before + 1


def test_cleanup_visits_nodes_of_the_same_name_in_each_slurm(slurms, jobs_with_equal_ids, fake_slurm, cli):
    fake_slurm.replace_command("ssh", "exit 1")
    for slurm, run in zip(slurms, jobs_with_equal_ids, strict=True):
        fake_slurm.write_exit_record(run)
        slurm.set_queue((7, "COMPLETED", "None", "n1", "0:01", "1:00", f"{run.directory}/job.sh"))
    code, out, _ = cli("cleanup", "--all", "--dry-run", "--json")
    assert (code, [node["node"] for node in json.loads(out)["nodes"]]) == (1, ["n1", "n1"])
    assert [len(slurm.calls("srun")) for slurm in slurms] == [1, 1]


def test_dependency_on_a_job_of_another_slurm_is_an_error(slurms, jobs_with_equal_ids, fake_slurm, cli):
    before = fake_slurm.calls("sbatch")
    code, _, err = cli("submit", "--site", "one", "-d", "afterok:last", "--", "true")
    assert (code, f"is a job of another cluster ({slurms[1].conf})" in err) == (2, True), err
    assert fake_slurm.calls("sbatch") == before
    slurms[0].set_next_id(8)
    assert cli("submit", "--site", "one", "-d", "afterok:7", "--", "true")[0] == 0  # a job id is not checked


def test_relative_slurm_conf_is_an_error(slurms, isolated_home, cli):
    (isolated_home / "config/hpcrun/three.toml").write_text('slurm_conf = "etc/slurm.conf"\n')
    code, _, err = cli("site", "check", "three")
    assert (code, "a path begins with /, ~ or a variable" in err) == (1, True), err


def test_missing_slurm_conf_is_unset_in_ranks(slurms, tmp_path):
    (tmp_path / "site.toml").write_text(f'launcher = "none"\nslurm_conf = "{tmp_path}/one.conf"\n')
    slurms[0].set_next_id(5)
    run = Run(hpcrun.submit(None, ["sh", "-c", "echo ${SLURM_CONF-unset}"], site=str(tmp_path / "site.toml")).directory)
    for conf, given in (("/etc/hostname", "/etc/hostname"), ("/gone/slurm.conf", "unset")):
        environment = os.environ | {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "n1", "SLURM_CONF": conf}
        environment |= {"SLURM_TASKS_PER_NODE": "1", "SLURM_NNODES": "1"}
        subprocess.run(
            ["bash", run.directory / "job.sh"], env=environment, capture_output=True, check=True, timeout=DEADLINE
        )
        assert (run.directory / "logs/rank-0.log").read_text().splitlines()[-1] == given


def test_site_init_writes_the_slurm_conf(fake_slurm, cli, isolated_home, tmp_path, monkeypatch):
    slurm_clusters.RECORDED.install_commands(fake_slurm)
    conf = tmp_path / "slurm.conf"
    conf.touch()
    monkeypatch.setenv("SLURM_CONF", str(conf))
    for name in ("here", "in_a_job"):
        assert cli("site", "init", name)[0] == 0
        monkeypatch.setenv("SLURM_JOB_ID", "5")  # in a job, the node sets SLURM_CONF
    texts = [(isolated_home / f"config/hpcrun/{name}.toml").read_text() for name in ("here", "in_a_job")]
    assert [f'slurm_conf = "{conf}"' in text for text in texts] == [True, False]


def test_doctor_queries_only_the_slurm_of_the_site(slurms, fake_slurm, cli, monkeypatch, isolated_home):
    accounting = "AccountingStorageType = accounting_storage/slurmdbd\n"
    replace(slurm_clusters.RECORDED, config=accounting + slurm_clusters.RECORDED.config).install_commands(fake_slurm)
    for command in ("scontrol", "sinfo", "srun", "sacctmgr", "sbatch"):
        file = fake_slurm.folder / command
        body = file.read_text() if file.exists() else "#!/bin/bash\n"
        up = '[ "$1" != ping ] || echo "Slurmctld(primary) at ctl is UP"'
        log = f'echo "{command} $SLURM_CONF" >>{fake_slurm.folder}/asked\n{up}\n'
        file.write_text(body.replace("#!/bin/bash\n", f"#!/bin/bash\n{log}"))
        file.chmod(0o755)
    site = isolated_home / "config/hpcrun/two.toml"
    site.write_text(f"{site.read_text()}[partitions.main]\n[qos.long]\nmax_nodes = 2\n")
    monkeypatch.setenv("SLURM_CONF", str(slurms[0].conf))
    cli("doctor", "two")
    queries = set((fake_slurm.folder / "asked").read_text().splitlines())
    assert queries == {f"{name} {slurms[1].conf}" for name in ("scontrol", "sinfo", "srun", "sacctmgr", "sbatch")}


@pytest.mark.usefixtures("open_root")
def test_doctor_ignores_the_slurm_conf_of_a_world_writable_site_file(slurms, cli):
    site = Path(os.environ["HPCRUN_RUN_ROOT"], "theirs.toml")
    site.write_text(f'slurm_conf = "{slurms[0].conf}"\n')
    site.chmod(0o666)
    code, out, _ = cli("doctor", str(site), "--json")
    assert (code, "everybody may write" in out) == (1, True)
    assert slurms[0].calls("scontrol") == []


@pytest.fixture
def waiting(slurms, jobs_with_equal_ids):
    """Two pending jobs with the same id."""
    slurms[0].set_queue((7, "PENDING", "Priority", "", "0:00", "1:00", f"{jobs_with_equal_ids[0].directory}/job.sh"))
    return jobs_with_equal_ids


CHANGING_COMMANDS = [("cancel",), ("cleanup", "--yes"), ("prune", "--yes"), ("resubmit",)]


@pytest.mark.parametrize("command", CHANGING_COMMANDS)
@pytest.mark.parametrize("word", ["7", "6-8"])
def test_ambiguous_job_id_is_an_error_that_lists_the_sites(slurms, waiting, cli, monkeypatch, command, word):
    monkeypatch.delenv("SLURM_CONF")
    before = [slurm.calls("sbatch") for slurm in slurms]
    code, _, err = cli(command[0], word, *command[1:])
    assert code == 2
    for name, slurm in zip(("one", "two"), slurms, strict=True):
        assert f"{name}:7 (a.out, site {name}, {slurm.conf}, submitted " in err
    assert "HINT: name one of them: two:7; or set HPCRUN_SITE or SLURM_CONF" in err
    assert [slurm.calls("scancel") for slurm in slurms] == [[], []]
    assert [slurm.calls("sbatch") for slurm in slurms] == before
    assert all(run.directory.exists() for run in waiting)


@pytest.mark.parametrize("selector", ["word", "HPCRUN_SITE", "SLURM_CONF", "range"])
@pytest.mark.parametrize("selected", [0, 1])
def test_only_the_job_of_the_selected_cluster_is_cancelled(slurms, waiting, cli, monkeypatch, selector, selected):
    name, other = ("one", "two")[selected], ("two", "one")[selected]
    monkeypatch.setenv("SLURM_CONF", str(slurms[selected if selector == "SLURM_CONF" else 1 - selected].conf))
    if selector == "HPCRUN_SITE":
        monkeypatch.setenv("HPCRUN_SITE", name)
    elif selector != "SLURM_CONF":
        monkeypatch.setenv("HPCRUN_SITE", other)
    code, _, err = cli("cancel", {"word": f"{name}:7", "range": f"{name}:5-9"}.get(selector, "7"))
    assert (code, err.count("is cancelled")) == (0, 1), err
    assert [bool(slurm.calls("scancel")) for slurm in slurms] == [selected == 0, selected == 1]


@pytest.mark.parametrize("selected", [0, 1])
@pytest.mark.parametrize("word", ["one:7", "7"])
def test_slurm_conf_selects_among_jobs_of_sites_with_one_name(slurms, waiting, cli, monkeypatch, word, selected):
    for run, slurm in zip(waiting, slurms, strict=True):
        record = json.loads((run.directory / "job.json").read_text())
        record["site"] |= {"name": "one", "slurm_conf": str(slurm.conf)}
        (run.directory / "job.json").write_text(json.dumps(record))
    monkeypatch.setenv("HPCRUN_SITE", "one")
    monkeypatch.setenv("SLURM_CONF", str(slurms[selected].conf))
    code, _, err = cli("cancel", word)
    assert (code, err.count("is cancelled")) == (0, 1), err
    assert [bool(slurm.calls("scancel")) for slurm in slurms] == [selected == 0, selected == 1]


@pytest.mark.parametrize("selector", ["HPCRUN_SITE", "SLURM_CONF"])
@pytest.mark.parametrize("command", CHANGING_COMMANDS[:3])
def test_a_job_of_another_cluster_than_the_selected_one_is_refused(
    slurms, waiting, cli, monkeypatch, selector, command
):
    only = waiting[0]
    other = next(link for link in paths.run_index_folder().iterdir() if link.readlink() == waiting[1].directory)
    other.unlink()  # job 7 of the other Slurm was submitted without hpcrun
    monkeypatch.setenv("SLURM_CONF", str(slurms[1].conf))
    if selector == "HPCRUN_SITE":
        monkeypatch.setenv("HPCRUN_SITE", "two")
    for word in ("7", "6-8"):
        code, _, err = cli(command[0], word, *command[1:])
        assert (code, "job 7 (a.out) is of site one, but" in err, "name it one:7" in err) == (2, True, True), err
    assert (slurms[0].calls("scancel"), only.directory.exists()) == ([], True)
    assert cli("logs", "7")[0] == 0
    assert cli("cancel", "one:7")[0] == 0
    assert slurms[0].calls("scancel")


def test_status_lists_all_jobs_of_an_ambiguous_id(waiting, cli, monkeypatch):
    monkeypatch.delenv("SLURM_CONF")
    rows = json.loads(cli("status", "7", "--json")[1])
    assert {row["site"] for row in rows} == {"one", "two"}
    code, _, err = cli("logs", "7")
    assert (code, "one:7" in err, "two:7" in err) == (2, True, True)
    assert json.loads(cli("status", "two:7", "--json")[1])["site"] == "two"
    assert "there is no job three:7" in cli("status", "three:7")[2]


def test_earlier_job_id_selects_the_job_of_the_selected_cluster(slurms, waiting, cli, monkeypatch):
    waiting[0].directory.joinpath("starts.jsonl").write_text('{"job_id": "7"}\n{"job_id": "9"}\n')
    submission = waiting[0].directory / "submitted.json"
    submission.write_text(submission.read_text().replace('"job_id": "7"', '"job_id": "9"'))
    link = next(link for link in paths.run_index_folder().iterdir() if link.readlink() == waiting[0].directory)
    link.rename(link.with_name(link.name.replace(".7-", ".9-")))
    monkeypatch.setenv("HPCRUN_SITE", "one")
    assert json.loads(cli("status", "7", "--json")[1])["job_id"] == "9"
