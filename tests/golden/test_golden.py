"""The whole script of every shipped site and launcher, as a person would read it.

After a change that is meant: ``HPCRUN_UPDATE_GOLDEN=1 python -m pytest tests/golden``, and read the diff.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun import __version__, paths, pipeline
from hpcrun.request import Request

HERE = Path(__file__).parent
SITES = sorted(file.stem for file in paths.data("site-configs").glob("*.toml"))
THE_LINE = {"nodes": 2, "gpus_per_node": "4"}
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
CASES = {
    **{site: (site, "resnet50", THE_LINE if site != "local" else {"ntasks": 2, "time": "30"}) for site in SITES},
    "mpirun": (OPENMPI, None, {"nodes": 2, "ntasks": 3}),
    "everything": (EVERYTHING, None, {**THE_LINE, "time": "1-0", "partition": "gpu", "account": "lab", "mem": "64G"}),
}


@pytest.mark.parametrize("case", CASES)
def test_golden_script(case, tmp_path, monkeypatch):
    site, target, resources = CASES[case]
    monkeypatch.setattr(sys, "executable", "/venv/bin/python")
    monkeypatch.setenv("HPCRUN_RUN_ROOT", "/runs")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    if "\n" in site:
        (tmp_path / "own.toml").write_text(site)
        site = str(tmp_path / "own.toml")
    args = ("--synthetic-data",) if target else ("./a.out", "two words")
    plan = pipeline.prepare(Request(target, args, resources, site, environment=(("KEY", "it's"),)))
    text = plan.script.replace(plan.spec.run_dir.name, "RUN").replace(str(tmp_path), "/submitted/from")
    text = text.replace(str(paths.data("workloads")), "/hpcrun/workloads").replace(
        f"hpcrun {__version__}", "hpcrun VERSION"
    )
    golden = HERE / f"{case}.sh"
    if os.environ.get("HPCRUN_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert subprocess.run(["bash", "-n", golden], capture_output=True, check=True).stderr == b""
