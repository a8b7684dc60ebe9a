"""The job of `hpcrun doctor --in-job`, with a Slurm that is pretended: what nodes tell is made up; and being ended."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

import hpcrun
from hpcrun.doctor import checks, site_job
from hpcrun.doctor.context import create_context
from hpcrun.doctor.node_report import read_report
from hpcrun.jobs import run_index
from tests.waiting import DEADLINE

CONFIG = "MpiDefault = pmi2\nAccountingStorageType = accounting_storage/none"
UP = f'[ "$1" = ping ] && echo "Slurmctld(primary) at ctl is UP" || echo "{CONFIG}"'
FACTS = {
    "GPUs": "none", "Python": "3.12.1 (/env/bin/python)", "hpcrun": hpcrun.__version__, "MPI library": "MPICH 5.0",
    "MPI failure": "", "mpi4py": "4.1", "keras": "3.10", "tensorflow": "2.20", "srun": "/usr/bin/srun",
    "limit of open files": "65536", "limit of locked memory": "8 MiB", "InfiniBand": "",
}  # fmt: skip


def node(host, size=2):
    ranks = {"expected": 2, "size": size, "failure": ""}
    return {"host": host, "facts": FACTS, "measured": {"skew": 0.0}, "sees_rank_0": True, "ranks": ranks}


@pytest.fixture(autouse=True)
def handlers():
    """Put back what the commands do with signals."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def slurm(fake_slurm, monkeypatch):
    """A Slurm that answers; of the login node, only that is looked at and the site file."""
    fake_slurm.replace_command("scontrol", UP)
    fake_slurm.replace_command("sinfo", "true")
    fake_slurm.replace_command("sbatch", "echo 7")
    few = [check for check in checks.CHECKS if check.name in {"site file", "Slurm"}]
    monkeypatch.setattr(checks, "login_checks", lambda _case: few)
    return fake_slurm


@pytest.fixture
def job_with_reports(slurm, tmp_path):
    """Return a function that makes sbatch write node reports, as if the job had run at once."""

    def write_reports(*nodes, code=0):
        folder = tmp_path / "job"
        (folder / "doctor").mkdir(parents=True)
        record = {"exit_code": code, "reason": f"the ranks ended with exit code {code}", "host": "n1"}
        start = {"job_id": "7", "nodes": "n[1-2]"}
        content = {"starts.jsonl": start, "exit.json": {**record, "started": 10, "ended": 12}, "7_0_result.pkl": ""}
        content |= {f"doctor/{one['host']}.json": one for one in nodes}
        for name, value in content.items():
            (folder / name).write_text(json.dumps(value))
        slurm.replace_command("sbatch", f'cp -r {folder}/. "$(dirname "${{!#}}")"; echo 7')

    return write_reports


@pytest.fixture
def signalled(tmp_path):
    """Return a bash line at which SIGTERM is sent to this process, once it is run."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def send():
        fifo.read_text()
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=send)
    thread.start()
    yield f"echo now >{fifo}"
    os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))
    thread.join(10)


def test_a_successful_job_leaves_nothing(cli, job_with_reports, isolated_home):
    job_with_reports(node("n1"), node("n2"))
    code, out, err = cli("doctor", "slurm", "--in-job", "--json")
    output = json.loads(out)
    assert (code, output["ok"], [one["host"] for one in output["nodes"]]) == (0, True, ["n1", "n2"]), out
    assert "job 7 checks 2 nodes of site slurm (Ctrl+C cancels it)\n" in err
    assert output["job"]["run_dir"] is None
    assert (list((isolated_home / "runs").iterdir()), run_index.list_entries()) == ([], [])


def test_a_failed_job_is_kept_and_the_site_file_is_named_again(cli, job_with_reports, tmp_path):
    job_with_reports(node("n1", size=1), node("n2", size=1))
    (tmp_path / "c.toml").write_text('mpi = { library = "mpich", type = "none" }')
    code, out, err = cli("doctor", str(tmp_path / "c.toml"), "--in-job", "--json")
    output = json.loads(out)
    before, found, after = output["rows"][0], output["job_rows"][-2], output["job_rows"][-1]
    assert (code, found["check"], found["level"]) == (1, "MPI", "error")
    assert before == after
    assert 'mpi.type = "none" does not fit mpi.library = "mpich"' in after["found"]
    assert f"run directory: {output['job']['run_dir']}\n" in err


def test_a_job_that_waits_too_long_is_cancelled(cli, slurm):
    slurm.set_queue((7, "PENDING", "AssocMaxJobsLimit", "", "0:00", "10:00", ""))
    code, out, err = cli("doctor", "slurm", "--in-job", "--json", "--timeout", "0:00")
    (row,) = json.loads(out)["job_rows"]
    assert (code, row["check"], row["level"]) == (1, "job", "error")
    assert row["found"].startswith("not started after 0 s in the queue, and cancelled: ")
    assert row["fix"]
    assert slurm.calls("scancel") == ["7"]
    assert "job 7 is pending: AssocMaxJobsLimit (the limit of your running jobs is reached)\n" in err


def test_sigterm_cancels_the_job(cli, slurm, signalled, isolated_home):
    pending = "7|PENDING|Priority||0:00|10:00|"
    slurm.replace_command(
        "squeue", f"[ -e {slurm.folder}/asked ] || {signalled}; touch {slurm.folder}/asked; echo '{pending}'"
    )
    code, _, err = cli("doctor", "slurm", "--in-job")
    assert (code, slurm.calls("scancel")) == (143, ["7"])
    assert "job 7 (doctor) is cancelled: it did not run\n" in err
    assert (list((isolated_home / "runs").iterdir()), run_index.list_entries()) == ([], [])


def test_sigterm_ends_a_local_script_and_leaves_nothing(cli, tmp_path, isolated_home, signalled):
    (tmp_path / "c.toml").write_text(f'extends = "local"\nsetup = ["{signalled}; sleep 600"]')
    code, out, _ = cli("doctor", str(tmp_path / "c.toml"), "--json")
    assert (code, out, list(isolated_home.iterdir())) == (143, "", [])


def test_nothing_is_submitted_to_a_slurm_that_is_down(cli, slurm):
    slurm.replace_command("scontrol", "exit 1")
    code, out, _ = cli("doctor", "slurm", "--in-job", "--json")
    output = json.loads(out)
    (row,) = output["job_rows"]
    assert (code, output["job"], row["found"]) == (1, None, "not submitted: Slurm does not answer")
    assert slurm.calls("sbatch") == []


def test_a_job_that_sbatch_refuses_is_a_row(cli, slurm):
    slurm.replace_command("sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1")
    code, out, _ = cli("doctor", "slurm", "--in-job", "--json")
    (row,) = json.loads(out)["job_rows"]
    assert (code, row["level"]) == (1, "error")
    assert "Invalid account" in row["found"]


def test_a_job_that_the_site_file_alone_refuses_is_a_row(cli, slurm, tmp_path):
    (tmp_path / "c.toml").write_text("limits.account_required = true")
    code, out, _ = cli("doctor", str(tmp_path / "c.toml"), "--in-job", "--json")
    (row,) = json.loads(out)["job_rows"]
    assert (code, row["level"], row["fix"].split(";")[0]) == (1, "error", "give --account=NAME")
    assert row["found"].startswith("not submitted: site c: the site requires an account")


@pytest.mark.parametrize(("said", "asked", "gpus"), [
    ("gpus_per_node = 4", {}, 4),
    ("gpus_per_node = 4", {"gpus_per_node": "1"}, 1),
    ("gpus_per_node = 8\ngpus_allowed = [1, 4]", {}, 4),
    ("gpus_per_node = 8\ndefaults.gpus_per_node = 2", {}, 2),
    ("gpus_per_node = 8\ndefaults.qos = 'debug'\n[qos.debug]\ngpus_per_node = 1", {}, 1),
    ("gpus_per_node = 0", {}, 0),
    ("", {}, 0),
])  # fmt: skip
def test_all_gpus_of_a_node_are_requested(tmp_path, said, asked, gpus):
    (tmp_path / "c.toml").write_text(f"[partitions.gpu]\n{said}")
    resources = site_job.plan_node_checks(create_context(str(tmp_path / "c.toml"), asked)).spec.resources
    assert (resources.gpus, resources.ntasks_per_node, resources.nodes) == (gpus, 1, 2)


@pytest.mark.parametrize(("said", "asked", "nodes", "time"), [
    ("max_nodes = 1\nmax_time = 3", {}, 1, "3"),
    ("min_nodes = 4", {}, 4, "5"),
    ("max_nodes = 8", {"nodes": 3, "time": "20"}, 3, "20"),
])  # fmt: skip
def test_the_job_is_within_the_limits_of_the_site(tmp_path, said, asked, nodes, time):
    (tmp_path / "c.toml").write_text(f"[partitions.gpu]\n{said}")
    resources = site_job.plan_node_checks(create_context(str(tmp_path / "c.toml"), asked)).spec.resources
    assert (resources.nodes, resources.ntasks, str(resources.time)) == (nodes, nodes, time)


def test_a_local_script_runs_no_slurm_command(fake_slurm, tmp_path):
    fake_slurm.replace_command("scontrol", "exit 1")
    for setup in ("true", "hpcrun_ranks_ended=yes hpcrun_reason='the ranks ended'; exit 3"):
        (tmp_path / "c.toml").write_text(f'setup = ["{setup}"]')
        looked = create_context(str(tmp_path / "c.toml"), {})
        (check,) = [check for check in checks.login_checks(looked) if check.name == "job script"]
        checks.run_check(looked, check)
    assert fake_slurm.calls("scontrol") == []


@pytest.mark.parametrize("text", ["nodes = 2", "mpi.type = 3", "= ="])
def test_a_site_file_that_is_not_valid_is_a_row(cli, tmp_path, text):
    (tmp_path / "bad.toml").write_text(text)
    code, out, _ = cli("doctor", str(tmp_path / "bad.toml"), "--json")
    output = json.loads(out)
    (row,) = output["rows"]
    assert (code, output["ok"], row["check"], row["level"]) == (1, False, "site file", "error")
    assert str(tmp_path / "bad.toml") in row["found"]
    assert cli("doctor", str(tmp_path / "bad.toml"))[0] == 1


def test_a_missing_site_is_a_usage_error(cli):
    code, out, err = cli("doctor", "slurn", "--json")
    assert (code, out) == (2, "")
    assert "did you mean slurm?" in err


@pytest.mark.parametrize(("library", "facts", "size"), [
    ("raise RuntimeError('cannot load MPI library')", ("", "RuntimeError: cannot load MPI library"), None),
    ("from . import MPI", ("MPICH 5.0.2", ""), 1),
    ("import os; os._exit(9)", ("", "the rank ended in loading MPI, or was in it for 60 s"), None),
])  # fmt: skip
def test_a_rank_reports_its_mpi_library(tmp_path, library, facts, size):
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py/__init__.py").write_text(f"class rc: pass\n{library}\n")
    version, world = r"MPICH Version:      5.0.2\nMPICH Release date: ...", "class COMM_WORLD:\n  Get_size = lambda: 1"
    mpi = f"Get_library_version = lambda: '{version}'\nInit_thread = print\n{world}"
    (tmp_path / "mpi4py/MPI.py").write_text(mpi)
    variables = {"HPCRUN_RUN_DIR": str(tmp_path), "HPCRUN_RANK": "0", "HPCRUN_NTASKS": "1"}
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    subprocess.run([sys.executable, "-m", "hpcrun.doctor.node_probe", "--mpi", "srun"], env=environment, check=False)
    (file,) = (tmp_path / "doctor").glob("*.json")
    report = read_report(file)
    assert (report.facts["MPI library"], report.facts["MPI failure"]) == facts
    assert (report.ranks and report.ranks.size) == size


def test_a_rank_ends_if_mpi_does_not_start(tmp_path):
    (tmp_path / "mpi4py").mkdir()
    blocks = "import ctypes; ctypes.PyDLL(None).sleep(60)"  # as in MPI_Init, no other thread of Python runs meanwhile
    (tmp_path / "mpi4py/__init__.py").write_text(blocks)
    program = "from hpcrun.doctor import node_probe; node_probe.TIMEOUT_SECONDS = 0.5; node_probe._start_mpi()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, timeout=DEADLINE, capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stderr.startswith("Timeout (0:00:00")) == (1, True)
