"""`hpcrun site init`: what a cluster's commands say, as a site file."""

import os
import re
from pathlib import Path

import pytest

from hpcrun import gpus
from hpcrun.doctor import discover_commands, discover_mpi, discover_partitions, discover_paths, mounts, mpi_library
from hpcrun.schedulers import command
from hpcrun.schedulers.command import CommandResult
from hpcrun.sites import loader
from tests.unit import slurm_clusters

WHEEL = "MPICH Version: 5.0.2\nwheel: mpich 5.0.2\n"
MOUNTS = """\
22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw - nfs4 server:/home rw
31 22 0:41 / {scratch} rw shared:9 - lustre mgs:/scratch rw
"""


@pytest.fixture
def login_node(fake_slurm, monkeypatch, tmp_path):
    """Return a function that installs the commands of a cluster, as on its login node."""
    for name in [
        *discover_paths.SCRATCH_VARIABLES,
        "LOADEDMODULES",
        "LMOD_VERSION",
        "MODULESHOME",
        "CUDA_HOME",
        "I_MPI_PMI_LIBRARY",
    ]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("hpcrun.doctor.discover_commands.MPI_COMMANDS", {
        "python": ("cat", f"{tmp_path}/mpi"), "mpirun": ("not-there",), "mpiexec": ("not-there",),
    })  # fmt: skip
    (tmp_path / "mpi").write_text(WHEEL)

    def install_cluster(cluster):
        cluster.install_commands(fake_slurm)
        return fake_slurm

    return install_cluster


def test_a_discovered_site_file_loads_and_names_the_origin_of_values(login_node, cli, isolated_home):
    login_node(slurm_clusters.RECORDED)
    code, out, err = cli("site", "init", "bed")
    file = isolated_home / "config/hpcrun/bed.toml"
    assert (code, out) == (0, ""), err
    assert f"wrote {file}. Read it" in err
    steps = ["hpcrun site check bed", "hpcrun doctor bed --in-job", "hpcrun site test bed"]
    assert [step for step in steps if f"  {step}" not in err] == []
    assert "used here: " not in err
    site = loader.load_site("bed").site
    main = site.partitions["main"]
    assert (main.max_nodes, main.gpus_per_node, main.gpu.type, main.cpus_per_node) == (2, 4, "h100", 8)
    assert (main.mem_per_node, main.max_time, site.defaults.partition) == ("4000M", None, "main")
    assert (site.launcher, site.mpi.library, site.mpi.type) == ("srun", "mpich", "pmi2")
    assert site.hosts == (re.sub(r"\d.*", "[0-9]*", os.uname().nodename), "n[0-9]*")
    values = [line for line in file.read_text().splitlines() if re.match(r"\w[\w.]* = ", line)]
    assert [line for line in values if "  # " not in line and not line.startswith(("desc", "sched"))] == []
    assert re.search(r"^max_nodes = 2 +# scontrol: TotalNodes=2$", file.read_text(), re.MULTILINE)
    assert "# without --time: 01:00:00 (DefaultTime)" in file.read_text()
    assert cli("site", "check", "bed") == (0, "", "bed: valid\n")


def test_a_guess_is_marked_in_the_file_and_printed(login_node, cli, isolated_home, monkeypatch, tmp_path):
    login_node(slurm_clusters.RECORDED)
    (tmp_path / "mounts").write_text("22 1 0:21 / / rw - ext4 /dev/sda1 rw\n")
    monkeypatch.setattr(mounts, "MOUNT_TABLE", tmp_path / "mounts")
    _, _, err = cli("site", "init", "bed")
    file = isolated_home / "config/hpcrun/bed.toml"
    ((number, line),) = [(n, line) for n, line in enumerate(file.read_text().splitlines(), 1) if "TODO" in line]
    assert re.match(r'run_root = "~/hpcrun-runs" +# TODO: \$HOME is .*, on ext4: all nodes must see it', line)
    assert f"{file}:{number}: TODO: $HOME is " in err
    _, _, err = cli("site", "init", "here", "--scheduler", "local")
    assert "TODO" not in err
    (tmp_path / "mounts").write_text("22 1 0:21 / / rw - lustre x rw\n")
    assert "TODO" not in cli("site", "init", "bed", "--force")[2]


def test_the_site_file_submits_a_job_unedited(login_node, cli):
    login_node(slurm_clusters.RECORDED)
    cli("site", "init", "bed")
    code, out, err = cli("submit", "--site", "bed", "-N", "2", "--dry-run", "--", "hostname")
    assert code == 0, err
    assert "#SBATCH --partition=main" in out
    assert "srun --ntasks=8 --nodes=2 --ntasks-per-node=4 --mpi=pmi2" in out


def test_mixed_nodes_and_restricted_partitions(login_node, cli, isolated_home, monkeypatch, tmp_path):
    fake = login_node(slurm_clusters.MIXED)
    fake.replace_command("sacctmgr", f"echo 'sacctmgr: an old client' >&2\n{(fake.folder / 'sacctmgr').read_text()}")
    (tmp_path / "mpi").write_text("Open MPI v5.0.3, package: Open MPI root@c Distribution\n")
    monkeypatch.setenv("LOADEDMODULES", "gcc/13:openmpi/5.0")
    assert cli("site", "init", "mixed")[0] == 0
    text = (isolated_home / "config/hpcrun/mixed.toml").read_text()
    site = loader.load_site("mixed").site
    cpu, gpu, amd = (site.partitions[name] for name in ("cpu", "gpu", "amd"))
    assert "admin" not in site.partitions
    assert (cpu.max_nodes, cpu.max_time, cpu.cpus_per_node, cpu.mem_per_node) == (16, "2-00:00:00", 256, "507904M")
    assert (cpu.gpus_per_node, gpu.gpus_per_node, gpu.gpu.type, amd.gpu.type) == (0, 8, None, "mi250x")
    assert gpu.defaults.gpus_per_node == 4, "what each of its nodes has"
    assert (gpu.min_nodes, gpu.exclusive, site.limits.account_required) == (2, True, True)
    assert (site.mpi.library, site.mpi.type, site.launcher) == ("openmpi", "pmix_v4", "srun")
    assert (site.modules.load, site.local_scratch) == (("gcc/13", "openmpi/5.0"), ("/local",))
    assert site.hosts[1:] == ("c[0-9]*", "fat[0-9]*", "g[0-9]*", "login-amd", "t[0-9]*")
    notes = [
        "AllowAccounts=p1,p2",
        "GPU types: a100, h100; gpu.type selects one",
        "State=DOWN",
        "nodes with 128 to 256",
    ]
    assert [note for note in (*notes, '# account = "p1"', "yours are p1, p2") if note not in text] == []
    assert (gpu.gpu.vendor, amd.gpu.vendor) == (None, "amd")


def test_a_partition_without_nodes_is_in_the_file(login_node, cli, isolated_home):
    bed, empty = slurm_clusters.RECORDED, slurm_clusters.format_partition("empty", nodes=0)
    login_node(slurm_clusters.Cluster(bed.config, bed.partitions + empty, f"{bed.nodes}empty|0|0|(null)|\n", bed.mpi))
    code, _, err = cli("site", "init", "bed")
    assert code == 0, err
    empty = loader.load_site("bed").site.partitions["empty"]
    assert (empty.max_nodes, empty.cpus_per_node, empty.mem_per_node, empty.gpus_per_node) == (None, None, None, 0)


def test_an_old_slurm_gets_gres_and_the_launcher_that_it_has(login_node, cli, isolated_home, tmp_path, monkeypatch):
    login_node(slurm_clusters.OLD)
    (tmp_path / "mpi").write_text("Open MPI v4.1.4, package: Debian OpenMPI\n")
    monkeypatch.setenv("HPCRUN_SITE", "styx")
    code, _, err = cli("site", "init", "old")
    assert (code, "used here: styx ($HPCRUN_SITE); --site old or" in err) == (0, True)
    site = loader.load_site("old").site
    assert (site.gpu.request, site.launcher, site.mpi.library, site.mpi.type) == ("gres", "mpirun", "openmpi4", None)
    assert site.defaults.partition is None
    assert "SelectType=select/cons_res" in (isolated_home / "config/hpcrun/old.toml").read_text()


@pytest.mark.parametrize(("python", "mpirun", "types", "environ", "expected"), [
    (WHEEL, "mpirun (Open MPI) 5.0.1", "pmix pmi2", {}, ("mpich", "srun", "pmi2", True)),
    ("MPICH Version: 4.0", "", "pmi2", {}, ("mpich", "srun", "pmi2", False)),
    ("MPICH Version: 4.0", "", "none", {}, ("mpich", "mpiexec", None, False)),
    ("", "mpirun (Open MPI) 5.0.1", "pmix_v3 pmi2", {}, ("openmpi", "srun", "pmix_v3", False)),
    ("", "mpirun (Open MPI) 4.1.4", "pmi2", {}, ("openmpi4", "mpirun", None, False)),
    ("", "mpiexec (OpenRTE) 4.1.4", "pmi2", {}, ("openmpi4", "mpirun", None, False)),
    ("", "HYDRA build details:\n Version: 4.2", "pmi2", {}, ("mpich", "srun", "pmi2", False)),
    ("", "Intel(R) MPI Library for Linux* OS, Version 2021.9", "pmi2", {}, ("intel", "mpiexec", None, False)),
    ("", "Intel(R) MPI Library for Linux* OS", "pmi2", {"I_MPI_PMI_LIBRARY": "/x"}, ("intel", "srun", "pmi2", False)),
    ("CRAY MPICH version 8.1", "", "cray_shasta pmi2", {}, ("cray-mpich", "srun", "cray_shasta", False)),
    ("ParaStation MPI 5.9 MPICH Version: 4.1", "", "pspmix", {}, ("parastation", "srun", None, False)),
    ("", "", "pmix", {}, ("mpich", "mpiexec", None, True)),
])  # fmt: skip
def test_launcher_and_type_fit_the_mpi(python, mpirun, types, environ, expected):
    listed = "".join(f"\n\t{one}" for one in types.split())
    said = {"python": python, "mpirun": mpirun, "mpiexec": "", "mpi types": f"MPI plugin types are...{listed}"}
    found = discover_mpi.choose_mpi({name: CommandResult(0, text, "") for name, text in said.items()}, environ)
    assert (found.library, found.launcher, found.type, found.wheel) == expected


@pytest.mark.parametrize(("resources", "found"), [
    ("(null)", {}), ("gpu:4", {"": 4}), ("gpu:a100:4(S:0-1)", {"a100": 4}), ("nvme:1,gpu:2(S:0,1)", {"": 2}),
    ("gpu:a100:2,gpu:h100:2", {"a100": 2, "h100": 2}), ("gpu:a100_1g.5gb:7", {"a100_1g.5gb": 7}), ("gpumem:80G", {}),
    ("gpu:3090:8,gpu:3090:1", {"3090": 9}),
])  # fmt: skip
def test_gpus_of_a_node(resources, found):
    assert gpus.parse_gres(resources) == found


def test_amd_gpus_are_identified_by_type():
    assert [discover_partitions.gpu_vendor(types) for types in ({"mi250x"}, {"mi300", "a100"}, {"a100"}, set())] == [
        "amd",
        None,
        None,
        None,
    ]


@pytest.mark.parametrize(("host", "nodes", "patterns"), [
    ("login3.c.org", ["n[1-4],gpu-a[01-02]"], ["login[0-9]*.c.org", "gpu-a[0-9]*", "n[0-9]*"]),
    ("frontend", ["node1"], ["frontend", "node[0-9]*"]),
    ("n1", ["n[1-2]"], ["n[0-9]*"]),
    ("l1", [f"{letter}{letter}1" for letter in "abcdefghijklmnop"], ["l[0-9]*"]),
    ("l1", [], ["l[0-9]*"]),
])  # fmt: skip
def test_host_patterns_match_any_number(host, nodes, patterns):
    assert discover_paths.discover_hosts(host, nodes) == patterns


def test_a_folder_is_on_the_innermost_of_the_mounts_that_it_is_below(tmp_path, monkeypatch):
    inner = str(tmp_path / "a b")
    lines = [
        f"31 22 0:41 / {inner.replace(' ', chr(92) + '040')} rw shared:9 - lustre mgs:/scratch rw",
        "cut short",
        "22 1 0:21 / / rw - ext4 /dev/sda1 rw",
        "23 1 0:22 /root / rw - xfs /dev/sdb1 rw",
    ]
    (tmp_path / "mounts").write_text("\n".join(lines))
    monkeypatch.setattr(mounts, "MOUNT_TABLE", tmp_path / "mounts")
    assert mounts.find_mount(Path(inner, "c")) == ("lustre", "mgs:/scratch")
    assert mounts.find_mount(tmp_path) == ("xfs", "/dev/sdb1/root"), "of two at one place, the last covers the first"
    monkeypatch.setattr(mounts, "MOUNT_TABLE", tmp_path / "none")
    assert mounts.find_mount(tmp_path) == ("", "")


def test_the_run_root_is_on_a_network_file_system(tmp_path, monkeypatch):
    scratch = tmp_path / "s"
    scratch.mkdir()
    (tmp_path / "mounts").write_text(MOUNTS.format(scratch=scratch))
    monkeypatch.setattr(mounts, "MOUNT_TABLE", tmp_path / "mounts")
    here = {"WORK": str(tmp_path), "SCRATCH": str(scratch), "HOME": str(tmp_path)}
    found = discover_paths.discover_run_root(here)
    assert (found.value, found.source) == ("${SCRATCH}/hpcrun-runs", f"$SCRATCH is {scratch}, on lustre")
    assert discover_paths.discover_run_root({**here, "SCRATCH": "/not/there"}).value == "${WORK}/hpcrun-runs"
    assert "could not be checked" in discover_paths.discover_run_root({"HOME": str(tmp_path)}).source
    assert discover_paths.discover_run_root({}).value == "~/hpcrun-runs"


def test_without_slurm_the_hint_is_a_local_site(login_node, cli, monkeypatch, isolated_home, tmp_path):
    monkeypatch.setenv("PATH", "/usr/lib/empty")
    code, _, err = cli("site", "init", "here")
    assert (code, "this host has no Slurm (scontrol is not installed)" in err) == (2, True)
    assert "HINT: run it on a login node, or hpcrun site init NAME --scheduler local" in err
    assert not (isolated_home / "config").exists()
    assert cli("site", "init", "here", "--scheduler", "local")[0] == 0
    site = loader.load_site("here").site
    assert (site.scheduler, site.launcher, site.partitions) == ("local", "mpiexec", {})


def test_an_unresponsive_slurm_causes_a_timeout(login_node, cli, monkeypatch, isolated_home):
    fake = login_node(slurm_clusters.RECORDED)
    monkeypatch.setattr("hpcrun.schedulers.command.TIMEOUT_SECONDS", 0.3)
    fake.replace_command("sinfo", "exec sleep 100")
    fake.replace_command("sacctmgr", "echo 'sacctmgr: error: no slurmdbd' >&2; exit 1")
    code, _, err = cli("site", "init", "bed")
    assert (code, "nodes: sinfo did not answer within 0.3 s; the file omits what depends on it" in err) == (0, True)
    assert "accounts: sacctmgr: error: no slurmdbd" in err
    assert loader.load_site("bed").site.partitions["main"].max_nodes == 2
    fake.replace_command("scontrol", "exec sleep 100")
    code, _, err = cli("site", "init", "other")
    assert (code, "Slurm does not list its partitions" in err) == (1, True)
    assert not (isolated_home / "config/hpcrun/other.toml").exists()


def test_init_overwrites_nothing_and_hides_no_other_site(login_node, cli, isolated_home, tmp_path):
    login_node(slurm_clusters.RECORDED)
    (tmp_path / "sites").mkdir()
    assert cli("site", "init", "bed", "-o", str(tmp_path / "sites"))[0] == 0
    file = tmp_path / "sites/bed.toml"
    file.write_text("mine")
    code, _, err = cli("site", "init", "bed", "--output", str(file))
    assert (code, file.read_text(), f"{file} already exists" in err) == (2, "mine", True)
    assert cli("site", "init", "bed", "--output", str(file), "--force")[0] == 0
    assert "partitions.main" in file.read_text()
    assert "would be merged" in cli("site", "init", "styx")[2]
    assert "not a valid site name" in cli("site", "init", "a/b")[2]
    assert "the file name must be bed.toml" in cli("site", "init", "bed", "-o", str(tmp_path / "x.toml"))[2]
    assert "knows slurm and local" in cli("site", "init", "bed", "--scheduler", "pbs")[2]
    code, out, _ = cli("site", "init", "bed", "--output", "-")
    assert Path(out.splitlines()[0].removeprefix("#:schema file://")).is_file()
    assert (code, "[partitions.main]" in out) == (0, True)


def test_command_output_cannot_break_the_file(login_node, cli, monkeypatch, tmp_path):
    odd = 'x"] \t # ${A} \\'
    bed = slurm_clusters.RECORDED
    login_node(slurm_clusters.Cluster(
        slurm_clusters.format_config(odd),
        slurm_clusters.format_partition('a"b.c') + bed.partitions, bed.nodes, bed.mpi,
        f"{odd}|\n", "x\n",
    ))  # fmt: skip
    monkeypatch.setenv("LOADEDMODULES", 'a"b:c\\d')
    code, _, err = cli("site", "init", "odd", "-o", str(tmp_path))
    assert code == 0, err
    site = loader.load_site(str(tmp_path / "odd.toml")).site
    assert 'a"b.c' in site.partitions
    assert site.modules.load == ('a"b', "c\\d")


def test_a_file_that_would_not_be_valid_is_not_written(login_node, cli, tmp_path):
    bed = slurm_clusters.RECORDED
    login_node(slurm_clusters.Cluster(bed.config, slurm_clusters.format_partition("main", max_time="soon"), bed.nodes))
    code, _, err = cli("site", "init", "odd", "-o", str(tmp_path))
    assert (code, (tmp_path / "odd.toml").exists()) == (1, False)
    assert "the discovered values are not a valid site file" in err
    assert "partitions.main.max_time = 'soon': a time is minutes" in err


def test_the_mpi_library_is_identified_without_mpi_init():
    answer = discover_commands.run_commands({"python": mpi_library.PRINT_MPI_WHEEL}, command.run)["python"]
    pytest.importorskip("mpi4py")
    assert discover_mpi._identify_library(
        {**dict.fromkeys(("mpirun", "mpiexec"), CommandResult(0, "", "")), "python": answer}
    )[0] in {library for library, _ in mpi_library._LIBRARIES}
