"""What `hpcrun site test` tells, and what it leaves, with a Slurm that is pretended: the job's files are made up."""

import json
from pathlib import Path
from typing import Any

import pytest

from hpcrun.doctor import site_job
from hpcrun.jobs import run_index, runs
from hpcrun.version import __version__

RANKS = [
    {"host": host, "mpi": "MPICH 5.0.2", "python": "3.11.7", "kernel": "6.1", "network": "mlx5_0 100 Gb/sec"}
    for host in ("n1", "n2")
]
ALLREDUCE = {"sizes": [{"median_us": 20.0, "busbw_GBps": 0.1}, {"median_us": 400.0, "busbw_GBps": 2.0}]}
NODES: dict[str, Any] = {
    "nodes": {name: {"ranks": 1, "compute_GFLOPS": 50.0, "memory_GBps": 10.0} for name in ("n1", "n2")},
    "pairs": [{"nodes": ["n1", "n2"], "latency_us": 15.0, "bandwidth_GBps": 1.5}],
}
FILES = {"ranks.json": RANKS, "allreduce.json": ALLREDUCE, "nodes.json": NODES}
START = {"job_id": "7", "nodes": "n[1-2]"}


@pytest.fixture
def job(fake_slurm, tmp_path):
    """Return what makes sbatch leave such files in the run directory, as if the job had run at once."""

    def leaves(files, code=0, log=""):
        folder = tmp_path / "job"
        folder.mkdir(exist_ok=True)
        record = {"exit_code": code, "reason": f"the ranks ended with exit code {code}", "started": 10, "ended": 20}
        content = {"starts.jsonl": START, "exit.json": record, "7_0_result.pkl": "", **files}
        for name, value in content.items():
            (folder / name).write_text(json.dumps(value))
        (folder / "7_0_log.out").write_text(log)
        fake_slurm.replace_command("scontrol", "echo 'SLURM_VERSION           = 23.11.4'")
        fake_slurm.replace_command("sbatch", f'cp -r {folder}/. "$(dirname "${{!#}}")"; rm -r {folder}; echo 7')

    return leaves


def rows(out):
    """Return the first table's lines, each as its words."""
    return [line.split(maxsplit=2) for line in out.partition("\n\n")[0].splitlines()[2:]]


def test_a_healthy_site_passes(cli, job, isolated_home):
    job(FILES)
    code, out, err = cli("site", "test", "slurm")
    assert (code, rows(out)[0][:5]) == (0, ["job", "ok", rows(out)[0][2]])
    assert rows(out)[1:] == [
        ["ranks", "ok", "2 ranks on 2 nodes, MPICH 5.0.2"],
        ["allreduce", "ok", "latency 20 us, bandwidth 2 GB/s"],
        ["nodes", "ok", "compute 50 GFLOPS, memory 10 GB/s, between nodes 1.5 GB/s"],
        ["end", "ok", "exit code 0"],
    ]
    assert out.splitlines()[-1].split() == ["n2", "15", "1.5", "50", "10"]
    assert "job 7 tests site slurm: 2 nodes, 2 ranks, started by srun\n" in err
    assert "allreduce: latency 20 us, bandwidth 2 GB/s\n" in err
    assert (list(isolated_home.joinpath("runs").iterdir()), run_index.list_entries()) == ([], []), "the run is removed"

    assert f"recorded in {isolated_home}/state/hpcrun/tested/slurm.tested.jsonl\n" in err
    (kept,) = json.loads(cli("site", "test", "slurm", "--history", "--json")[1])
    assert (kept["nodes"], kept["ranks"], kept["failed"]) == (2, 2, "")
    assert kept["figures"] == {"latency_us": 20.0, "bandwidth_GBps": 2.0}
    assert kept["versions"].keys() == {"hpcrun", "slurm", "mpi", "python", "kernel", "network"}
    assert kept["versions"]["slurm"] == "23.11.4"
    (row,) = rows(cli("site", "test", "slurm", "--history")[1])
    assert " ".join(row).split()[2:] == ["ok", "n[1-2]", "2", "20", "2", "hpcrun", f"{__version__},", "MPICH", "5.0.2"]
    sites = {site["name"]: site["tested"] for site in json.loads(cli("site", "list", "--json")[1])}
    assert (sites["slurm"].endswith(": ok"), sites["styx"]) == (True, "")
    assert sites["slurm"] in cli("site", "show", "slurm")[2]


def test_a_failing_step_is_reported(cli, job):
    says = "error: MPI started 1 rank where the job has 2: site slurm, launcher srun --mpi=none, MPI library MPICH 5"
    job({}, code=2, log=f"hello\n{says}\n")
    code, out, err = cli("site", "test", "slurm")
    assert code == 1
    assert [row[:2] for row in rows(out)] == [["job", "ok"], ["ranks", "FAILED"], ["allreduce"], ["nodes"], ["end"]]
    assert "srun's --mpi=pmi2 does not fit the MPI library" in rows(out)[1][2]
    assert f"\nthe log ends:\n  hello\n  {says}\n" in out
    assert 'What to do: in the file of site slurm, set mpi.type = "pmi2"' in out
    (run,) = runs.list_runs()
    assert f"run directory: {run.directory}\n" in err
    assert cli("site", "list")[1].count("FAILED (ranks)") == 1


def test_warnings_of_the_site_file_are_shown_before_the_job_and_after_a_failure(cli, job, tmp_path):
    (tmp_path / "c.toml").write_text('mpi = { library = "mpich", type = "none" }')
    site, says = str(tmp_path / "c.toml"), 'c.toml:1: mpi.type = "none" does not fit mpi.library = "mpich"'
    job({}, code=2)
    code, out, err = cli("site", "test", site)
    assert (code, err.startswith(f"WARNING: {tmp_path}/{says}")) == (1, True), err
    assert f"perhaps the cause:\n  {tmp_path}/{says}" in out
    job(FILES)
    code, out, err = cli("site", "test", site)
    assert (code, says in out, says in err) == (0, False, True)
    job(FILES)
    assert says.partition(": ")[2] in json.loads(cli("site", "test", site, "--json")[1])["warnings"][0]["found"]


def test_the_job_fails_after_all_steps(cli, job):
    job(FILES, code=3)
    code, out, _ = cli("site", "test", "slurm")
    assert (code, rows(out)[-1][:2]) == (1, ["end", "FAILED"])


def test_missing_result_files_are_a_failure(cli, job, monkeypatch):
    monkeypatch.setattr(site_job, "FILE_SYSTEM_DELAY_SECONDS", 0.1)
    job({"ranks.json": RANKS})
    code, out, _ = cli("site", "test", "slurm")
    assert (code, rows(out)[2][:2]) == (1, ["allreduce", "FAILED"])
    assert "do the nodes see the same run_root as this host?" in rows(out)[2][2]


@pytest.mark.parametrize("content", [{}, [], None, {"nodes": {"n1": {}}, "pairs": []}, {"nodes": [], "pairs": 1}])
def test_a_result_file_with_other_content_counts_as_missing(cli, job, monkeypatch, content):
    monkeypatch.setattr(site_job, "FILE_SYSTEM_DELAY_SECONDS", 0.1)
    job({**FILES, "nodes.json": content})
    code, out, _ = cli("site", "test", "slurm")
    assert (code, rows(out)[3][:2]) == (1, ["nodes", "FAILED"])


def test_a_regression_is_reported_without_failure(cli, job):
    job(FILES)
    assert cli("site", "test", "slurm")[0] == 0
    slow = {**NODES, "pairs": [{**NODES["pairs"][0], "bandwidth_GBps": 0.5}]}
    newer = [{**rank, "kernel": "6.2"} for rank in RANKS]
    job({**FILES, "ranks.json": newer, "nodes.json": slow})
    code, out, _ = cli("site", "test", "slurm")
    assert (code, rows(out)[3][:2]) == (0, ["nodes", "slow"])
    assert "the network between n1 and n2 is slow: its bandwidth is 0.5 GB/s, 67 % less" in out
    assert out.endswith("is slow, if only one is.\nSince the last such test: kernel was 6.1, now 6.2.\n")
    assert "A test of three nodes (-N 3) shows which of the two is slow" in out
    assert [row[2].split()[0] for row in rows(cli("site", "test", "slurm", "--history")[1])] == ["ok", "slow"]


def test_json_is_one_value(cli, job):
    job(FILES)
    output = json.loads(cli("site", "test", "slurm", "--json", "--keep")[1])
    assert (output["ok"], output["failed"], output["slow"], output["why"]) == (True, "", [], None)
    assert [step["name"] for step in output["steps"]] == ["job", "ranks", "allreduce", "nodes", "end"]
    assert output["pairs"] == NODES["pairs"]
    assert Path(output["run_dir"], "job.sh").exists()


def test_a_job_that_waits_too_long_is_cancelled(cli, fake_slurm):
    fake_slurm.replace_command("sbatch", "echo 7")
    fake_slurm.set_queue((7, "PENDING", "AssocMaxJobsLimit", "", "0:00", "10:00", ""))
    code, out, err = cli("site", "test", "slurm", "--timeout", "0:00")
    assert (code, rows(out)[0][:2]) == (1, ["job", "FAILED"])
    assert rows(out)[0][2].startswith("not started after 0 s in the queue, and cancelled: ")
    assert "What to do: " in out
    assert "job 7 is pending: AssocMaxJobsLimit (the limit of your running jobs is reached)\n" in err
    assert fake_slurm.calls("scancel") == ["7"]
    assert cli("site", "test", "slurm", "--history")[2].startswith("site slurm was never tested"), (
        "nothing was found out"
    )


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["slurn"], "there is no site 'slurn'\nHINT: did you mean slurm"),
        (["slurm", "--timeout", "soon"], "--timeout=soon: a time is minutes"),
        (["slurm", "-t", "soon"], "--time=soon: a time is minutes"),
        (["slurm", "-N", "0"], "--nodes=0: must be a whole number"),
    ],
)
def test_a_usage_error_is_reported_before_submission(cli, fake_slurm, argv, says):
    code, out, err = cli("site", "test", *argv)
    assert (code, out, err.startswith(f"ERROR: {says}")) == (2, "", True), err
    assert (fake_slurm.calls("sbatch"), list(runs.list_runs())) == ([], [])


def test_a_dry_run_is_the_script(cli, fake_slurm):
    code, out, _ = cli("site", "test", "slurm", "--dry-run", "-p", "gpu")
    assert (code, out.splitlines()[0], fake_slurm.calls("sbatch")) == (0, "#!/bin/bash", [])
    assert "#SBATCH --partition=gpu" in out
