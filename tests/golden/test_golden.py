"""The complete job script of every shipped site and launcher, compared with golden files.

After an intended change, run ``HPCRUN_UPDATE_GOLDEN=1 python -m pytest tests/golden`` and review the diff.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcrun import __version__, paths, submission
from hpcrun.request import Request

HERE = Path(__file__).parent
SITES = sorted(file.stem for file in paths.shipped_folder("site-configs").glob("*.toml"))
README_EXAMPLE = {"nodes": 2, "gpus_per_node": "4"}
ACCOUNTS = {  # on sites that require an account
    "anvil": "abc123",
    "archer2-gpu": "t01",
    "bridges-2": "abc123p",
    "bunya": "a_lab",
    "delta": "abcd-delta-gpu",
    "deucalion": "f20240001g",
    "expanse": "abc123",
    "fir": "def-someprof",
    "frontier": "stf007",
    "hortense": "2026_001",
    "jean-zay": "abc@h100",
    "jupiter": "training2600",
    "juwels-booster": "training2600",
    "karolina": "open-30-19",
    "kempner": "kempner_grads",
    "kestrel": "lab",
    "leonardo": "EUHPC_D00_000",
    "lumi": "project_465000000",
    "mahuika": "nesi99991",
    "marenostrum5": "ehpc000",
    "meluxina": "p200000",
    "narval": "rrg-someprof",
    "olivia": "nn9999k",
    "roihu": "project_2001234",
    "saga": "nn9999k",
    "setonix": "pawsey0001-gpu",
    "sofia": "2026_001",
    "tursa": "t01",
}
GPUS = {  # on sites where a job cannot have two nodes with four
    "alpine": "3",
    "bridges-2": "8",
    "bunya": "2",
    "lonestar6": "3",
    "roihu": "2",
    "vista": "1",
}
OPENMPI = 'extends = "slurm"\nlauncher = "mpirun"\nmpi.library = "openmpi"\n'
EVERYTHING = """
extends = "slurm"
python = "/apps/hpcrun/bin/python"
setup = ["ulimit -s unlimited"]
teardown = ["rm -rf /scratch/$USER/tmp"]
sbatch = ["--hint=nomultithread"]
[modules]
purge = true
use = ["/apps/modules"]
load = ["gcc/12", "openmpi/5"]
[environment]
NCCL_DEBUG = "WARN"
TMPDIR = "${SCRATCH}/tmp"
[prepend_path]
LD_LIBRARY_PATH = ["/opt/a/lib", "${HOME}/b lib"]
[gpu]
request = "gres"
type = "a100"
[cuda]
data_dir = "${CUDA_HOME}"
xla_flags = ["--xla_gpu_enable_triton_gemm=false"]
[data]
imagenet = "/data/imagenet"
"""
PARTITION = """
extends = "slurm"
launcher_args = ["--cpu-bind=cores"]
[partitions.gpu]
gpus_per_node = 4
launcher_args = ["--cpu-bind=map_cpu:48,32,16,0"]
modules.load = ["rocm/6.2"]
gpu.vendor = "amd"
gpu.order = [3, 2, 1, 0]
gpu.cpus = 16
"""
APPTAINER = """
extends = "slurm"
[gpu]
vendor = "amd"
[modules]
load = ["apptainer"]
[environment]
NCCL_DEBUG = "WARN"
[data]
imagenet = "${SCRATCH}/imagenet"
[container]
image = "${PROJECT}/images/tf.sif"
binds = ["~/keys:/keys:ro", "/opt/slurm"]
environment.PYTHONPATH = "/keys/packages"
home = false
"""
PODMAN = """
extends = "slurm"
mpi.type = "pmix"
[container]
runtime = "podman-hpc"
image = "nvcr.io/nvidia/tensorflow:24.03-tf2-py3"
environment.TF_ENABLE_ONEDNN_OPTS = "0"
"""
PYXIS = """
extends = "slurm"
[data]
imagenet = "/data/imagenet"
[container]
runtime = "pyxis"
image = "nvcr.io#nvidia/tensorflow:24.03-tf2-py3"
binds = ["${SCRATCH}:/scratch"]
args = ["--no-container-entrypoint"]
home = false
"""
SOFTWARE = """
extends = "slurm"
[modules]
load = ["gcc/13"]
[spack]
root = "/apps/spack"
env = "${WORK}/spack/ml"
load = ["openmpi@5", "py-mpi4py"]
[conda]
root = "/apps/miniforge3"
env = "tf 2.17"
"""
STAGE = """
extends = "slurm"
local_scratch = ["$NVME/${USER}"]
[container]
image = "/images/tf.sif"
"""
CASES: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    **{
        site: (site, "resnet50", {"nodes": 2, "gpus_per_node": GPUS.get(site, "4"), "account": ACCOUNTS.get(site)})
        for site in SITES
    },
    "local": ("local", "resnet50", {"ntasks": 2, "time": "30"}),
    "mpirun": (OPENMPI, None, {"nodes": 2, "ntasks": 3}),
    "sweep": ("slurm", None, {"nodes": 2, "ntasks_per_node": 4}),
    "sweep-local": ("local", None, {"ntasks": 2}),
    "requeue": ("slurm", None, {"nodes": 2, "time": "8:00:00"}),
    "chain": ('extends = "styx"\nrestart.requeue = false\nrestart.signal_seconds = 60\n', None, {"time": "3"}),
    "partition": (PARTITION, None, {"nodes": 2}),
    "lumi-whole-nodes": ("lumi", None, {"nodes": 2, "partition": "standard-g", "account": ACCOUNTS["lumi"]}),
    "apptainer": (APPTAINER, "resnet50", README_EXAMPLE),
    "podman-hpc": (PODMAN, None, README_EXAMPLE),
    "pyxis": (PYXIS, "resnet50", README_EXAMPLE),
    "software": (SOFTWARE, None, {"nodes": 2}),
    "stage": (STAGE, None, {"nodes": 2}),
    "everything": (
        EVERYTHING,
        None,
        {**README_EXAMPLE, "time": "1-0", "partition": "gpu", "account": "lab", "mem": "64G"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_script_equals_its_golden_file(case, tmp_path, monkeypatch):
    site, target, resources = CASES[case]
    monkeypatch.setattr(sys, "executable", "/venv/bin/python")
    monkeypatch.setenv("HPCRUN_RUN_ROOT", "/runs")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    if "\n" in site:
        (tmp_path / "own.toml").write_text(site)
        site = str(tmp_path / "own.toml")
    args = ("--synthetic-data",) if target else ("./a.out", "two words")
    axes = (("lr", ("0.1", "0.01")), ("seed", ("1", "2")))
    sweep = {"sweep": axes, "max_parallel": 3} if case.startswith("sweep") else {}
    more: dict[str, Any] = {**sweep, "max_requeue": 3 if case in {"requeue", "chain"} else None}
    if case == "stage":
        args = ("./a.out", "--in={staged}/two words")
        more = {"stage_in": ("/data/two words", "/data/labels.csv"), "unpack": ("/data/images.tar.gz",)}
    plan = submission.prepare(Request(target, args, resources, site, environment=(("KEY", "it's"),), **more))
    text = plan.script.replace(plan.spec.run_dir.name, "RUN").replace(str(tmp_path), "/submitted/from")
    text = text.replace(str(paths.shipped_folder("workloads")), "/hpcrun/workloads").replace(__version__, "VERSION")
    text = text.replace(str(paths.shell_library()), "/hpcrun/shell")
    golden = HERE / f"{case}.sh"
    if os.environ.get("HPCRUN_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert subprocess.run(["bash", "-n", golden], capture_output=True, check=True).stderr == b""


def test_the_readme_contains_the_script_of_its_example(tmp_path, monkeypatch):
    page = HERE.parents[1] / "README.md"
    installed = "/opt/hpcrun/lib/python3.12/site-packages/hpcrun"
    monkeypatch.setattr(sys, "executable", "/opt/hpcrun/bin/python")
    monkeypatch.setenv("HPCRUN_RUN_ROOT", "/scratch/u123/hpcrun-runs")
    monkeypatch.chdir(tmp_path)
    plan = submission.prepare(Request("resnet50", (), README_EXAMPLE, "styx"))
    text = plan.script.replace(plan.spec.run_dir.name, "resnet50-20261122-170311-a4a2f852")
    text = text.replace(str(tmp_path), "/home/u123/project").replace(str(paths.shell_library()), f"{installed}/shell")
    text = text.replace(str(paths.shipped_folder("workloads")), f"{installed}/_data/workloads")
    script_block = re.compile(
        r"(?<=resnet50 --site styx --nodes 2 --gpus-per-node 4 --dry-run\n```\n\n```bash\n).*?(?=^```$)",
        re.DOTALL | re.MULTILINE,
    )
    if os.environ.get("HPCRUN_UPDATE_GOLDEN"):
        page.write_text(script_block.sub(lambda _: text, page.read_text()))
    assert script_block.findall(page.read_text()) == [text]
    assert text.count("\n") <= 45


def test_the_script_of_a_small_local_job_is_short(monkeypatch, tmp_path):
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(tmp_path))
    assert submission.prepare(Request("lenet5", site="local")).script.count("\n") <= 35
