"""What `hpcrun doctor` makes of what Slurm, a host and nodes tell."""

import json
import os
import shlex
import subprocess
import sys
import threading
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import hpcrun
from hpcrun.doctor import checks, discover_partitions, installed_software, mounts, node_differences
from hpcrun.doctor.context import create_context
from hpcrun.doctor.node_report import NodeReport
from hpcrun.finding import error, ok, warning
from hpcrun.jobs.record_validation import parse_record
from hpcrun.jobs.runs import Run
from hpcrun.schedulers.slurm_partitions import parse_partitions
from tests.unit import slurm_clusters

PARTITIONS = slurm_clusters.format_partition(
    "main", default="YES", max_time="1-00:00:00", nodes=3
) + slurm_clusters.format_partition("old", state="DOWN", max_nodes="2", nodes=4)
NODES = """main|8|4000|gpu:h100:4(S:0-1)|n[1-2]
main|16|8000|gpu:h100:2,lustre:1|n3
old|4|2000|(null)|o[1-4]
"""
MPI = "MPI plugin types are...\n\tpmi2\n\tnone\n\tpmix\nversions available: pmix_v4\n"
ACCOUNTS = "physics|big\nchemistry|big\nphysics|big\nforeign|elsewhere\n"
CONFIG = """SLURM_VERSION           = 23.11.4
MpiDefault              = none
ClusterName             = Big
AccountingStorageEnforce = associations,limits
AccountingStorageType   = accounting_storage/slurmdbd"""
SITE = """
launcher = "srun"
mpi = { library = "openmpi", type = "pmix" }
limits.account_required = true
[defaults]
account = "physics"
[gpu]
type = "h100"
[partitions.main]
max_nodes = 3
max_time = "1-0"
gpus_per_node = 4
mem_per_node = "8000"
"""
WELL = {
    "GPUs": "4 NVIDIA H100", "Python": "3.12.1 (/env/bin/python)", "hpcrun": hpcrun.__version__, "modules": "gcc/13",
    "keras": "3.10", "tensorflow": "2.20", "mpi4py": "4.1", "MPI library": "Open MPI v5.0.3", "MPI failure": "",
    "srun": "/usr/bin/srun", "mpirun": "/opt/ompi/bin/mpirun (Open MPI 5.0.3)", "mpiexec": "", "libdevice": "/l.bc",
    "ptxas": "/cuda/bin/ptxas", "limit of open files": "65536", "limit of locked memory": "8 MiB", "InfiniBand": "",
}  # fmt: skip


def on_login(name):
    """Return the check of the login node with a name."""
    return next(check for check in checks.CHECKS if check.name == name and check.location in {"anywhere", "login"})


@pytest.fixture
def slurm(fake_slurm):
    """A Slurm that answers, and takes jobs."""
    slurm_clusters.Cluster(CONFIG, PARTITIONS, NODES, MPI, ACCOUNTS).install_commands(fake_slurm)
    fake_slurm.replace_command("sbatch", "cat >/dev/null; echo 'sbatch: Job 7 to start at noon on nodes n1' >&2")
    return fake_slurm


@pytest.fixture
def run_site_check(tmp_path):
    """Return a function that runs one check of a site and returns its findings."""

    def make(name, text=SITE, **asked):
        file = tmp_path / "c.toml"
        file.write_text(text)
        return checks.run_check(create_context(str(file), asked), on_login(name))

    return make


@pytest.mark.parametrize("name", ["Slurm", "partitions", "limits", "GPUs", "account", "mpi.type", "a job"])
def test_a_matching_slurm_passes_all_checks(slurm, run_site_check, name):
    assert {row.severity for row in run_site_check(name)} == {"ok"}


def test_version_and_controller_are_reported(slurm, run_site_check):
    assert run_site_check("Slurm") == [ok("Slurm", "23.11.4; the controller on ctl is up")]


@pytest.mark.parametrize(("name", "old", "new", "words"), [
    ("partitions", "partitions.main", "partitions.mian", "c.toml:9: Slurm has no partition mian; did you mean main?"),
    ("GPUs", '"h100"', '"a100"', "Slurm has no GPUs of type a100: jobs that request it are refused; Slurm has h100"),
    ("account", "physics", "phisics", "you have no account phisics; did you mean physics? You have physics, chemistry"),
    ("mpi.type", '"pmix"', '"pmix_v5"', "c.toml:3: this Slurm has no pmix_v5; choose among pmi2, none, pmix, pmix_v4"),
    ("mpi.type", ', type = "pmix"', "", "not set, and Slurm's MpiDefault is none"),
    ("a job", "max_nodes = 3", "max_nodes = 3\ndefaults.nodes = 4", "hpcrun refuses it"),
])  # fmt: skip
def test_settings_that_prevent_jobs_are_errors(slurm, run_site_check, name, old, new, words):
    requested = {"partition": "main"} if name == "a job" else {}
    (row,) = [row for row in run_site_check(name, SITE.replace(old, new), **requested) if row.severity != "ok"]
    assert row.severity == "error"
    assert words in f"{row}; {row.fix}"


def test_a_partition_may_have_another_mpi(slurm, run_site_check):
    text = SITE + 'mpi.type = "pmix_v5"\n[partitions.other]\n'
    assert [row.severity for row in run_site_check("mpi.type", text, partition="other")] == ["ok"]
    (row,) = run_site_check("mpi.type", text, partition="main")
    line = text[: text.index("pmix_v5")].count(chr(10)) + 1
    assert (row.severity, f"c.toml:{line}: this Slurm has no pmix_v5" in str(row)) == ("error", True)


@pytest.mark.parametrize(("key", "said", "there"), [
    ("max_nodes = 3", "max_nodes = 4", "3"),
    ('max_time = "1-0"', 'max_time = "2-0"', '"1-00:00:00"'),
    ("gpus_per_node = 4", "gpus_per_node = 2", "4"),
    ('mem_per_node = "8000"', 'mem_per_node = "16G"', '"8000M"'),
    ("max_nodes = 3", "cpus_per_node = 32", "16"),
])  # fmt: skip
def test_a_limit_that_differs_from_slurms_is_reported_with_line_and_fix(slurm, run_site_check, key, said, there):
    (row,) = run_site_check("limits", SITE.replace(key, said))
    name = said.split(" ")[0]
    assert row.severity == "warning"
    assert f"/c.toml:{SITE[: SITE.index(key)].count(chr(10)) + 1}: {name} = " in str(row)
    assert row.fix == f"set partitions.main.{name} = {there}"


@pytest.mark.parametrize(("lines", "gpus"), [
    (["gpu:a100:4(S:0-1)", "gpu:h100:4"], 4),  # nodes of two kinds
    (["gpu:a100:2,gpu:h100:1,lustre:1", "gpu:h100:2"], 3),  # both in one node
    (["gpu:3090:8"], 8),
])  # fmt: skip
def test_site_init_and_the_doctor_count_the_same_gpus(slurm, run_site_check, lines, gpus):
    nodes = "\n".join(f"main|8|8000|{one}|n1" for one in lines)
    slurm.replace_command("sinfo", f"echo '{nodes}'")
    ((_, _, main),) = discover_partitions.partition_tables(parse_partitions("PartitionName=main", nodes))
    assert main["gpus_per_node"].value == gpus
    assert run_site_check("limits", SITE.replace("gpus_per_node = 4", f"gpus_per_node = {gpus}"))[0].severity == "ok"
    (row,) = run_site_check("limits", SITE.replace("gpus_per_node = 4", f"gpus_per_node = {gpus + 1}"))
    assert row.fix == f"set partitions.main.gpus_per_node = {gpus}"


def test_the_memory_limit_is_that_of_the_partition_and_its_nodes(slurm, run_site_check):
    (slurm.folder / "partitions.txt").write_text(slurm_clusters.format_partition("main", max_mem="6000"))
    (row,) = run_site_check("limits", SITE.replace("max_nodes = 3\n", ""))
    assert row.fix == 'set partitions.main.mem_per_node = "6000M"'


def test_mpi_types_of_an_older_srun_are_parsed(slurm, run_site_check):
    slurm.replace_command("srun", "printf 'srun: MPI types are...\nsrun: pmi2\nsrun: none\nsrun: pmix\n' >&2")
    assert run_site_check("mpi.type") == [ok("mpi.type", "pmix (also here: pmi2)")]
    (row,) = run_site_check("mpi.type", SITE.replace('"pmix"', '"pmix_v5"'))
    assert "choose among pmi2, none, pmix, or" in row.fix


def test_several_unknown_names_are_one_row(slurm, run_site_check):
    (row,) = run_site_check("partitions", f"{SITE}\n[partitions.fat]\n[partitions.thin]")
    assert str(row).endswith("c.toml:15: Slurm has no partitions fat, thin")


def test_stricter_limits_are_accepted(slurm, run_site_check):
    text = SITE.replace('max_time = "1-0"', 'max_time = "1:00:00"').replace("max_nodes = 3", "max_nodes = 1")
    assert [row.severity for row in run_site_check("limits", text)] == ["ok"]


def test_a_partition_that_is_down_is_reported(slurm, run_site_check):
    down, _ = run_site_check("partitions", f"{SITE}\n[partitions.old]")
    assert (down.severity, down.what) == ("warning", "partition old is down")


def test_the_answer_of_sbatch_test_only_is_reported(slurm, run_site_check):
    slurm.replace_command("sbatch", "cat >/dev/null; echo 'allocation failure: Invalid account' >&2; exit 1")
    whole, of_main = run_site_check("a job")
    assert (whole.severity, whole.what) == ("error", "Slurm would reject it: Invalid account")
    assert of_main.what == "refused in partition main: Invalid account"


def test_nothing_is_submitted(slurm, run_site_check):
    for check in checks.CHECKS:
        if check.location == "login" and check.name != "job script":
            run_site_check(check.name)
    assert all("--test-only" in call for call in slurm.calls("sbatch"))


def test_a_missing_account_is_a_warning_that_lists_the_users_accounts(slurm, run_site_check):
    (row,) = run_site_check("account", SITE.replace('account = "physics"', ""))
    assert (row.severity, row.fix) == ("warning", "give --account, one of physics, chemistry")
    assert run_site_check("account", SITE.replace('account = "physics"', ""), account="chemistry")[0].severity == "ok"


@pytest.mark.parametrize(("enforce", "accounts", "level", "words"), [
    ("associations", "physics", "ok", "physics (of physics)"),
    ("associations", "chemistry", "error", "you have no account physics; You have chemistry"),
    ("none", "chemistry", "warning", "and Slurm does not require one (AccountingStorageEnforce is none)"),
    ("associations,limits", "", "error", "you have none on cluster Big, but Slurm requires one"),
    ("none", "", "ok", "not required on this cluster (AccountingStorageEnforce is none)"),
])  # fmt: skip
def test_an_account_is_required_where_slurm_enforces_accounts(slurm, run_site_check, enforce, accounts, level, words):
    config = CONFIG.replace("associations,limits", enforce)
    slurm.replace_command("scontrol", f'[ "$1" = ping ] && echo "at ctl is UP" || echo "{config}"')
    slurm.replace_command(
        "sacctmgr", f"echo 'sacctmgr: an old client' >&2; echo 'foreign|elsewhere'; echo '{accounts}|big'"
    )
    (row,) = run_site_check("account", SITE.replace("limits.account_required = true", ""))
    assert row.severity == level
    assert words in f"{row}; {row.fix}"


def test_an_unknown_qos_is_an_error(slurm, run_site_check):
    slurm.replace_command("sacctmgr", "printf 'Welcome\nnormal|0\nlong|0\n'")
    (row,) = run_site_check("QoS", f"{SITE}\n[qos.lang]\nmax_nodes = 9")
    assert (row.severity, row.fix) == ("error", "did you mean long? It has normal, long")
    assert run_site_check("QoS", qos="long") == [ok("QoS", "long")]
    assert run_site_check("QoS") == []


def test_accounts_are_not_checked_without_accounting(slurm, run_site_check):
    slurm.replace_command(
        "scontrol", '[ "$1" = ping ] && echo "at ctl is UP" || echo "AccountingStorageType = accounting_storage/none"'
    )
    assert [row.severity for row in run_site_check("account")] == ["ok"]
    assert not slurm.calls("sacctmgr")


def test_a_controller_that_is_down_is_reported_once(slurm, run_site_check):
    lines = ["Slurmctld(primary) at ctl is DOWN", "*" * 35, "** RESTORE SLURMCTLD TO SERVICE **", "*" * 35]
    slurm.replace_command("scontrol", f"printf '%s\\n' {shlex.join(lines)}; exit 1")
    row, rest = run_site_check("Slurm")
    assert row == error("Slurm", "the controller does not respond: Slurmctld(primary) at ctl is DOWN", row.fix)
    assert rest.what == "skipped: partitions, limits, GPUs, account, QoS, mpi.type, a job"
    assert run_site_check("partitions") == run_site_check("a job") == []


def test_a_controller_that_is_down_is_queried_once(slurm, tmp_path):
    slurm.replace_command("scontrol", "exit 1")
    (tmp_path / "c.toml").write_text(SITE)
    looked = create_context(str(tmp_path / "c.toml"), {})
    for check in checks.login_checks(looked):
        if check.name != "job script":
            checks.run_check(looked, check)
    assert slurm.calls("scontrol") == ["ping"]
    assert [slurm.calls(command) for command in ("sinfo", "sacctmgr", "srun", "sbatch")] == [[]] * 4


def test_a_missing_slurm_conf_is_reported_without_calling_slurm(slurm, run_site_check, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", "/nowhere/slurm.conf")
    assert run_site_check("Slurm")[0].what == "SLURM_CONF=/nowhere/slurm.conf does not exist"
    assert not slurm.calls("scontrol")


def test_a_check_that_crashes_is_one_row():
    def fails(_case):
        raise KeyError(0)

    (row,) = checks.run_check(create_context("local", {}), checks.Check("locale", "login", fails))
    assert (row.check, row.severity) == ("locale", "error")
    assert "this check failed: KeyError" in row.what


def test_a_check_that_hangs_is_one_row():
    hung = threading.Event()

    def hangs(_case):
        hung.wait()
        yield from ()

    (row,) = checks.run_check(create_context("local", {}), checks.Check("run root", "login", hangs), seconds=0.05)
    hung.set()
    assert (row.severity, row.what) == ("error", "no answer in 0 s")


@pytest.mark.parametrize(("site", "facts", "level", "words"), [
    ({}, {"MPI library": "MPICH 4.2"}, "error", 'set mpi.library = "mpich"'),
    ({}, {"MPI library": "Open MPI v4.1.6"}, "error", 'set mpi.library = "openmpi4"'),
    ({}, {"MPI library": "Open MPI v3.1.6"}, "error", 'set mpi.library = "openmpi4"'),
    ({}, {"MPI library": "", "MPI failure": "libmpi.so.40: cannot open"}, "error", "cannot load it: libmpi.so.40"),
    ({}, {"MPI library": "CRAY MPICH 8.1"}, "error", 'set mpi.library = "cray-mpich"'),
    ({}, {"srun": ""}, "error", "srun is not on the job's PATH"),
    ({"launcher": "mpirun"}, {"mpirun": "/x/mpirun (MPICH 4.2)"}, "error", "the first on PATH must be Open MPI's"),
    ({}, {"hpcrun": "0.0.1"}, "warning", "0.0.1 in the jobs' Python"),
    ({}, {"keras": None, "mpi4py": None}, "warning", "not in the jobs' Python: keras, mpi4py"),
    ({}, {"tensorflow": None}, "warning", "tensorflow (or jax, or torch)"),
    ({}, {"ptxas": ""}, "error", "ptxas: not in any of the usual places"),
    ({}, {"ptxas": "", "XLA_FLAGS": '--xla_gpu_cuda_data_dir="/a b"'}, "error", "ptxas: not in /a b, set in XLA"),
    ({}, {"limit of open files": "256"}, "warning", "ulimit -n 1024"),
    ({}, {"InfiniBand": "mlx5_0"}, "warning", "locked memory: 8 MiB, but InfiniBand (mlx5_0)"),
])  # fmt: skip
def test_missing_software_is_reported(tmp_path, site, facts, level, words):
    text = SITE.replace('"srun"', f'"{site.get("launcher", "srun")}"')
    (tmp_path / "c.toml").write_text(text)
    known = {name: value for name, value in {**WELL, **facts}.items() if value is not None}
    (row,) = [
        row
        for row in checks.check_host(create_context(str(tmp_path / "c.toml"), {}).site, known)
        if row.severity != "ok"
    ]
    assert row.severity == level
    assert words in f"{row}; {row.fix}"


def test_a_host_without_gpus_is_accepted(tmp_path):
    known = {**WELL, "GPUs": "none", "ptxas": "", "libdevice": "", "MPI library": "MPICH 4.2", "mpiexec": "/x ()"}
    assert {row.severity for row in checks.check_host(create_context("local", {}).site, known)} == {"ok"}


def test_a_missing_launcher_is_accepted_inside_a_container(tmp_path):
    known = {**WELL, "mpiexec": "", "MPI library": "MPICH 4.2"}
    site = create_context("local", {}).site
    assert [row.check for row in checks.check_host(site, known) if row.severity == "error"] == ["launcher"]
    assert [row.severity for row in checks.check_host(site, known, in_container=True) if row.severity != "ok"] == []


def test_an_image_that_srun_opens_is_not_opened_on_the_login_node(slurm, run_site_check):
    (row,) = run_site_check(
        "job script", f'{SITE}\n[container]\nruntime = "pyxis"\nimage = "nvcr.io#nvidia/tensorflow:25.01"'
    )
    assert (row.severity, row.what.split(",")[0]) == ("ok", "srun starts nvcr.io#nvidia/tensorflow:25.01")


def test_an_image_is_opened_on_the_login_node_without_gpus(fake_slurm, run_site_check, tmp_path):
    (tmp_path / "a.sif").touch()
    fake_slurm.replace_command("apptainer", "exit 1")
    keys = f'container = {{ runtime = "apptainer", image = "{tmp_path}/a.sif" }}\nsbatch = ["--gres=gpu:1"]'
    assert [row.severity for row in run_site_check("job script", keys)] == ["error"]
    assert [call for call in fake_slurm.calls("apptainer") if "--nv" in call] == []
    assert fake_slurm.calls("apptainer")


def test_a_report_of_another_version_of_hpcrun_may_be_incomplete():
    rows = checks.check_host(create_context("local", {}).site, {"hpcrun": "0.0.1", "GPUs": "none"})
    assert "0.0.1 in the jobs' Python" in "; ".join(row.what for row in rows)


def node(host, **more):
    measured = {"skew": 0.0, "/tmp": 8.0 + len(host), **more.pop("measured", {})}
    report = {"host": host, "facts": {**WELL, **more.pop("facts", {})}, "measured": measured, **more}
    return parse_record(NodeReport, report)


def test_common_values_have_one_line_and_others_their_nodes():
    nodes = [node(f"n{number}", facts={"kernel": "6.1" if number == 7 else "6.2"}) for number in range(1, 9)]
    here = node("login", facts={"kernel": "6.1", "Python": "3.11"})
    compared = {fact.name: fact for fact in node_differences.compare_hosts(nodes, here)}
    assert compared["keras"].hosts_by_value() == [("3.10", "everywhere")]
    assert compared["kernel"].hosts_by_value() == [("6.2", "n[1-6,8]"), ("6.1", "n7 and here")]
    assert compared["Python"].hosts_by_value() == [("3.12.1 (/env/bin/python)", "n[1-8]"), ("3.11", "here")]
    assert [fact.name for fact in compared.values() if fact.differs == "nodes"] == ["kernel"]
    assert [fact.name for fact in compared.values() if fact.differs == "here"] == ["Python"]
    assert "MPI failure" not in compared


def test_a_difference_between_nodes_is_a_warning_with_the_fewest_nodes_to_leave_out():
    nodes = [node("n1"), node("n2", facts={"CPUs": "8"}), node("n3")]
    (row,) = node_differences.warn_of_differences(node_differences.compare_hosts(nodes, None))
    assert (row.severity, row.what) == ("warning", "CPUs: (none) on n[1,3]; 8 on n2")
    assert "--exclude=n2" in row.fix


def test_the_login_node_may_differ_in_hardware_but_not_in_python():
    here = node("login", facts={"CPUs": "4", "GPUs": "none", "Python": "3.9"})
    (row,) = node_differences.warn_of_differences(node_differences.compare_hosts([node("n1")], here))
    assert row.what == "Python: 3.12.1 (/env/bin/python) on n1; 3.9 here"


def test_measurements_are_printed_as_ranges():
    nodes = [node("n1"), node("n10", measured={"skew": 3.0})]
    clock, space = node_differences.summarize_measurements(nodes, None)
    assert clock == ("clock behind file server", "0.0 to 3.0 s", "")
    assert space == ("free in /tmp", "10.0 to 11.0 GiB", "")


WORLD: dict[str, Any] = {"ranks": {"expected": 2, "size": 2, "failure": ""}, "sees_rank_0": True}


@pytest.fixture
def ended(fake_slurm):
    """A job on n[1-2] that ended well."""
    run = fake_slurm.submit(nodes=2, ntasks=2)
    (run.directory / "starts.jsonl").write_text('{"job_id": "1", "nodes": "n[1-2]"}\n')
    fake_slurm.write_exit_record(run)
    return Run(run.directory)


def job_findings(ended, *nodes):
    made = create_context("slurm", {})
    reports = [replace(one, facts={**one.facts, "MPI library": "MPICH 4.2"}) for one in nodes]
    return checks.check_job(made, ended, reports)


def test_healthy_nodes_have_no_findings(ended):
    rows = job_findings(ended, node("n1", **WORLD), node("n2", **WORLD))
    assert [row.severity for row in rows] == ["ok"] * 3
    assert [row.what for row in rows] == ["1 on n[1-2], 65 s", "shared by n[1-2]", "2 ranks in one world"]


@pytest.mark.parametrize(("second", "expected"), [
    ({**WORLD, "sees_rank_0": False}, "n2 does not see the file that rank 0 wrote"),
    ({**WORLD, "ranks": {"expected": 2, "size": 1, "failure": ""}}, "2 ranks is in an MPI world of one rank, on n2"),
    ({**WORLD, "ranks": {"expected": 2, "size": None, "failure": "MPI_Init hangs"}}, "MPI_Init hangs on n2"),
])  # fmt: skip
def test_a_problem_of_one_node_names_the_node(ended, second, expected):
    first = {**WORLD, "ranks": {**WORLD["ranks"], "size": 2}}
    (row,) = [row for row in job_findings(ended, node("n1", **first), node("n2", **second)) if row.severity == "error"]
    assert expected in row.what


def test_a_node_without_report_is_named(ended):
    assert error("nodes", "n2 did not report", "") in [
        error(row.check, row.what, "") for row in job_findings(ended, node("n1", **WORLD)) if row.severity == "error"
    ]


def test_a_job_without_reports_means_a_run_root_that_nodes_do_not_share(fake_slurm):
    (row,) = job_findings(fake_slurm.submit(nodes=2))
    assert (row.check, row.severity) == ("run root", "error")
    assert node_differences.compare_hosts([], node("login")) == []


def test_a_node_with_failing_gpus_is_named(fake_slurm):
    run = fake_slurm.submit(nodes=2, gpus_per_node="h100:4")
    (run.directory / "starts.jsonl").write_text('{"job_id": "1", "nodes": "n[1-2]"}\n')
    fake_slurm.write_exit_record(run)
    rows = job_findings(Run(run.directory), *(node(f"n{count}", **WORLD, gpus=count) for count in (0, 1, 2, 4, 8)))
    assert [row.what for row in rows if row.severity == "warning"] == [
        "Slurm allocated --gpus-per-node=h100:4, but nvidia-smi shows none on n0",
        "Slurm allocated --gpus-per-node=h100:4, but nvidia-smi shows 1 on n1",
        "Slurm allocated --gpus-per-node=h100:4, but nvidia-smi shows 2 on n2",
    ]


def test_a_common_problem_of_several_nodes_is_reported_once(ended):
    low = {"facts": {"limit of open files": "256"}}
    rows = job_findings(ended, node("n1", **WORLD, **low), node("n2", **WORLD, **low))
    assert [row.what for row in rows if row.severity == "warning"] == ["open files: 256 (on n[1-2])"]


def test_a_wrong_clock_is_reported(ended):
    rows = job_findings(ended, node("n1", **WORLD), node("n2", **WORLD, measured={"skew": -90.0}))
    (row,) = [row for row in rows if row.severity == "warning"]
    assert row == warning("clock", "the file server's is 90 s behind n2's (on n2)", row.fix)


@pytest.mark.parametrize(("said", "found"), [
    ("mpirun (Open MPI) 5.0.3", "(Open MPI 5.0.3)"),
    ("mpirun (OpenRTE) 4.1.4", "(Open MPI 4.1.4)"),
    ("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307", "(Intel(R) MPI 2021.9)"),
    ("HYDRA build details:\n    Version:                                 4.2.0", "(MPICH 4.2.0)"),
    ("something else", "()"),
])  # fmt: skip
def test_the_implementation_of_a_launcher_is_reported(fake_slurm, said, found):
    fake_slurm.replace_command("mpirun", f"echo {shlex.quote(said)}")
    assert installed_software.find_launchers()["mpirun"] == f"{fake_slurm.folder}/mpirun {found}"


def test_the_versions_of_packages_that_nodes_must_share_are_reported(tmp_path, monkeypatch):
    for name, version in (("nvidia-cudnn-cu12", "9.1.0"), ("torch", "2.1.0+rocm"), ("sphinx", "8.0")):
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    # as in Debian's folder of packages
    (tmp_path / "horovod-0.28.1-py3.11.egg-info").write_text("Name: horovod\nVersion: 0.28.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = installed_software.find_package_versions()
    assert (found["nvidia-cudnn-cu12"], found["torch"], found["horovod"]) == ("9.1.0", "2.1.0+rocm", "0.28.1")
    assert found == {name: metadata.version(name) for name in found}
    assert "sphinx" not in found
    assert list(found) == sorted(found)


def test_the_node_check_needs_only_the_standard_library():
    modules = "from hpcrun.doctor import host_facts, installed_software as _"
    program = f"import sys; sys.path.insert(0, sys.argv[1]); {modules}; host_facts.describe_host([], '')"
    subprocess.run([sys.executable, "-IS", "-c", program, Path(hpcrun.__file__).parents[1]], check=True)


def test_file_systems_are_recognised_by_mount_type():
    assert mounts.find_mount(Path("/proc/self"))[0] == "proc"


@pytest.fixture
def local(tmp_path):
    """Write a site file of this machine, for its path."""

    def write(text=""):
        file = tmp_path / "here.toml"
        file.write_text(f'extends = "local"\n{text}\n')
        return str(file)

    return write


def test_this_host_is_checked_with_the_jobs_script(cli, local, isolated_home):
    text = 'launcher = "none"\nsetup = ["ulimit -n 300"]'
    code, out, _ = cli("doctor", local(text), "--json")
    output = json.loads(out)
    assert (code, output["ok"], output["site"]) == (0, True, "here"), out
    assert {"Python", "hpcrun", "run root"} <= {row["check"] for row in output["rows"]}
    assert "open files: 300" in {row["found"] for row in output["rows"]}
    assert list(isolated_home.iterdir()) == [], "nothing is left, not even the run root"


def test_cuda_keys_are_checked_for_jobs_that_request_gpus(cli, local, tmp_path, monkeypatch):
    for name in ("nvvm/libdevice/libdevice.10.bc", "bin/ptxas"):
        (tmp_path / "cuda 12" / name).parent.mkdir(parents=True)
        (tmp_path / "cuda 12" / name).touch(0o755)
    site = local('launcher = "none"\ncuda.data_dir = "${MY_CUDA}"')
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert "MY_CUDA: site key cuda.data_dir names it, and it is not set" in cli("doctor", site)[1]
    monkeypatch.setenv("MY_CUDA", f"{tmp_path}/cuda 12")
    rows = json.loads(cli("doctor", site, "--json")[1])["rows"]
    found = f"{tmp_path}/cuda 12/nvvm/libdevice/libdevice.10.bc, {tmp_path}/cuda 12/bin/ptxas"
    assert {"check": "XLA", "level": "ok", "found": found, "fix": None, "where": None, "key": None} in rows


def test_a_site_that_cannot_render_a_script_is_an_error_with_a_fix(cli, local):
    code, out, _ = cli("doctor", local('defaults = { mem = "1G", mem_per_cpu = "1G" }'), "--json")
    (row,) = [row for row in json.loads(out)["rows"] if row["level"] == "error"]
    assert (code, row["check"]) == (1, "job script")
    assert row["found"].endswith("--mem=1G and --mem-per-cpu=1G exclude each other")
    assert row["fix"].startswith("give the memory of a node")


def test_a_failing_script_is_reported_with_its_output(cli, local):
    code, out, err = cli("doctor", local("setup = [\"hpcrun_fail 'no licence for this'\"]"))
    assert code == 1
    assert "the job's script fails here: hpcrun: no licence for this" in out
    assert "1 error" in err


@pytest.fixture
def module_system(tmp_path, monkeypatch):
    """A command `module` of every bash, which knows gcc and cuda."""
    text = """module() {
        case $1/$2 in
            load/gcc*|load/cuda*) export LOADEDMODULES=${LOADEDMODULES:+$LOADEDMODULES:}$2 ;;
            load/*) echo "Unable to locate a modulefile for '$2'" >&2; return 1 ;;
        esac
    }"""
    (tmp_path / "modules.sh").write_text(text)
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "modules.sh"))
    monkeypatch.delenv("LOADEDMODULES", raising=False)


def test_modules_are_loaded_as_in_a_job(module_system, local, cli):
    _, out, _ = cli("doctor", local('launcher = "none"\nmodules.load = ["gcc/13", "cuda/12"]'), "--json")
    (row,) = [row for row in json.loads(out)["rows"] if row["check"] == "modules"]
    assert (row["level"], row["found"], row["fix"]) == ("ok", "gcc/13, cuda/12", None)


def test_a_module_that_fails_to_load_is_reported_with_its_message(module_system, local, cli):
    code, out, _ = cli("doctor", local('modules.load = ["gcc/13", "cvda/12"]'), "--json")
    (row,) = [row for row in json.loads(out)["rows"] if row["level"] == "error"]
    assert code == 1
    assert "Unable to locate a modulefile for 'cvda/12'" in row["found"]
    assert "module cvda/12 cannot be loaded (site key modules.load)" in row["found"]


@pytest.mark.parametrize(("check", "text"), [
    ("run root", SITE),
    ("mpi.type", 'launcher = "srun"\nmodules.load = ["openmpi"]'),
])  # fmt: skip
def test_in_a_job_no_fix_suggests_starting_a_job(slurm, tmp_path, monkeypatch, check, text):
    (tmp_path / "mounts").write_text("22 1 0:21 / / rw - ext4 /dev/sda1 rw\n")
    monkeypatch.setattr(mounts, "MOUNT_TABLE", tmp_path / "mounts")
    (tmp_path / "c.toml").write_text(text)
    made = create_context(str(tmp_path / "c.toml"), {"account": "physics"})
    here = checks.run_check(made, on_login(check))[0]
    made.in_job = True
    there = checks.run_check(made, on_login(check))[0]
    assert (here.severity, there.severity) == ("warning", "warning")
    assert ("--in-job" in here.fix, "--in-job" in there.fix) == (True, False)


def test_doctor_accepts_a_site_as_submit_does(cli, local):
    file = local('launcher = "none"')
    assert json.loads(cli("doctor", "--site", file, "--json")[1])["site"] == "here"
    code, out, err = cli("doctor", file, "--site", "slurm")
    assert (code, out) == (2, "")
    assert f"two sites were given: {file} and --site=slurm" in err


def test_an_impossible_run_root_is_an_error(run_site_check, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(tmp_path / "file/runs"))
    (row,) = run_site_check("run root", 'extends = "local"')
    assert (row.severity, row.what) == ("error", f"{tmp_path}/file/runs: Not a directory")


def test_a_run_root_with_an_account_is_not_created_without_account(run_site_check, tmp_path, monkeypatch, slurm):
    monkeypatch.delenv("HPCRUN_RUN_ROOT")
    text = f'run_root = "{tmp_path}/${{SLURM_JOB_ACCOUNT}}"\nlimits.account_required = true'
    (row,) = run_site_check("run root", text)
    assert (row.severity, row.fix) == ("warning", "give --account")
    assert run_site_check("run root", text, account="physics")[-1].check == "clock"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["slurm-bin"], "nothing is left"


def test_variables_that_override_scripts_are_reported(run_site_check, monkeypatch):
    monkeypatch.setenv("SBATCH_PARTITION", "debug")
    (row,) = run_site_check("environment", 'extends = "local"')
    assert row.what == "SBATCH_PARTITION: set, and would override job scripts"


def test_an_invalid_request_is_refused_before_any_check(cli, tmp_path, slurm):
    (tmp_path / "c.toml").write_text(SITE)
    code, out, err = cli("doctor", str(tmp_path / "c.toml"), "--in-job", "-N", "9", "-p", "main")
    assert (code, out) == (2, "")
    assert "--nodes=9 is more than partition main allows" in err
    assert slurm.calls("sbatch") == []


def test_another_program_named_hpcrun_is_reported(run_site_check, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / "hpcrun"
    program.write_bytes(b"\x7fELF HPCToolkit")
    program.chmod(0o755)
    (row,) = run_site_check("command", 'extends = "local"')
    assert (row.severity, row.what.startswith(f"{program} is another program")) == ("warning", True)
    assert f"alias hpcrun='{sys.executable} -m hpcrun'" in row.fix
    program.write_text("#!/env/bin/python\nimport sys\nfrom hpcrun.cli.main import main\n")
    assert run_site_check("command", 'extends = "local"')[0].severity == "ok"
