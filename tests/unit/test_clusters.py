"""Shipped files of public clusters: how each is recognised, what it refuses first, and that facts have sources."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpcrun import paths, submission
from hpcrun.errors import HpcrunError
from hpcrun.request import Request
from hpcrun.schedulers.slurm_directives import sbatch_options
from hpcrun.sites import loader

FILES = {file.stem: file.read_text() for file in paths.shipped_folder("site-configs").glob("*.toml")}
CLUSTERS = sorted(name for name, text in FILES.items() if "\n# Sources:\n" in text)
PAGE = Path(__file__).parents[2] / "docs" / "clusters.md"
RECOGNISED = [
    ("dt-login03.delta.ncsa.illinois.edu", {}, "delta"),
    ("gpub045.delta.internal.ncsa.edu", {}, "delta"),
    ("eu-login-11", {}, "euler"),
    ("login1", {"CC_CLUSTER": "fir"}, "fir"),
    ("login12", {"LMOD_SYSTEM_NAME": "frontier"}, "frontier"),
    ("login57.dodrio.os", {}, "hortense"),
    ("narval2.narval.calcul.quebec", {"CC_CLUSTER": "narval"}, "narval"),
    ("l1", {"CC_CLUSTER": "nibi"}, "nibi"),
    ("login34", {"NERSC_HOST": "perlmutter"}, "perlmutter"),
    ("rorqual1.rorqual.calcul.quebec", {"CC_CLUSTER": "rorqual"}, "rorqual"),
    ("trig-login01", {"CC_CLUSTER": "trillium"}, "trillium"),
    ("daint-ln002", {}, "daint"),
    ("gnx501", {}, "deucalion"),
    ("jpbl-s01-02", {}, "jupiter"),
    ("jpbo-024-02.jupiter.internal", {}, "jupiter"),
    ("jwlogin21.juwels", {}, "juwels-booster"),
    ("jwb0001.juwels", {}, "juwels-booster"),
    ("login2.karolina.it4i.cz", {}, "karolina"),
    ("acn49.karolina.it4i.cz", {}, "karolina"),
    ("login07.leonardo.local", {}, "leonardo"),
    ("lrdn0042.leonardo.local", {}, "leonardo"),
    ("uan03", {"LMOD_PACKAGE_PATH": "/appl/lumi/LUMI-SoftwareStack/LMOD"}, "lumi"),
    ("nid005021", {"LMOD_PACKAGE_PATH": "/appl/lumi/LUMI-SoftwareStack/LMOD"}, "lumi"),
    ("lumi-uan03.csc.fi", {}, "lumi"),
    ("uan02.olivia.sigma2.no", {}, "olivia"),
    ("alogin1.bsc.es", {}, "marenostrum5"),
    ("as03r1b14", {}, "marenostrum5"),
    ("login01.lxp.lu", {}, "meluxina"),
    ("mel2001", {}, "meluxina"),
    ("gcn3.local.snellius.surf.nl", {}, "snellius"),
    ("vglogin0004", {}, "vega"),
    ("login1.vista.tacc.utexas.edu", {}, "vista"),
    ("c401-064.frontera.tacc.utexas.edu", {}, "frontera"),
    ("login2.stampede3.tacc.utexas.edu", {}, "stampede3"),
    ("login2.ls6.tacc.utexas.edu", {}, "lonestar6"),
    ("kl5", {"NREL_CLUSTER": "kestrel"}, "kestrel"),
    ("login-3.saga.sigma2.no", {}, "saga"),
    ("roihu-gpu-login2", {}, "roihu"),
    ("jean-zay3", {}, "jean-zay"),
    ("jean-zay3.idris.fr", {}, "jean-zay"),
    ("uan01", {"PDC_TMP": "/cfs/klemming/scratch/u/user"}, "dardel"),
    ("setonix-05", {}, "setonix"),
    ("hkn0401", {}, "horeka"),
    ("hkn1990.localdomain", {}, "horeka"),
    ("login02.expanse.sdsc.edu", {}, "expanse"),
    ("br012.ib.bridges2.psc.edu", {}, "bridges-2"),
    ("v001.ib.bridges2.psc.edu", {}, "bridges-2"),
    ("login02.anvil.rcac.purdue.edu", {}, "anvil"),
    ("a221.anvil.rcac.purdue.edu", {}, "anvil"),
    ("nid005000", {"CLUSTER_NAME": "clariden"}, "clariden"),
    ("nid005000", {"CLUSTER_NAME": "daint"}, "daint"),
    ("tursa-login2", {}, "tursa"),
    ("bunya2.rcc.uq.edu.au", {}, "bunya"),
    ("bun003", {}, "bunya"),
    ("access1.iris-cluster.uni.lux", {}, "iris"),
    ("iris-169", {}, "iris"),
    ("sh03-ln01", {}, "sherlock"),
    ("sh02-14n13.int", {}, "sherlock"),
    ("c3gpu-c2-u13", {}, "alpine"),
    # names that other clusters have, too
    ("uan02", {}, None),
    ("uan02", {"LMOD_PACKAGE_PATH": "/opt/cray/pe/lmod"}, None),
    ("login01", {}, None),
    ("login1.cluster.example.org", {}, None),
    ("ln01", {}, None),
    ("nid001234", {}, None),
    ("gn01", {}, None),
    ("cn12", {}, None),
    ("node1", {}, None),
    ("gh151.hsn.cm.delta.internal.ncsa.edu", {}, None),
    ("eu-west-1", {}, None),
    ("frontier-laptop", {}, None),
    ("tri-login01", {}, None),
    ("login1", {}, None),
    ("login-1", {}, None),
    ("login02", {}, None),
    ("login11", {}, None),
    ("c401-064", {}, None),
    ("gpu-1-43", {}, None),
    ("access1", {}, None),
    ("v001", {}, None),
    ("a221", {}, None),
    ("w001", {}, None),
    ("bunsen", {}, None),
    ("nid002792", {}, None),
    ("x3100c0s21b0n0", {}, None),
    ("roihu-cpu-login1", {}, None),
    ("iris", {}, None),
    ("stampede3.tacc.utexas.edu", {}, None),
    ("santis-ln001", {}, None),
]
REFUSED = {  # what the centre's own Slurm, or its support, would refuse
    "archer2-gpu: three nodes": ("archer2-gpu", {"nodes": 3, "account": "t01"}, "2 nodes"),
    "delta: a CPU account": ("delta", {"account": "abcd-delta-cpu"}, "account like *-delta-gpu"),
    "delta: H200 on two nodes": (
        "delta",
        {"nodes": 2, "partition": "gpuH200x8", "account": "abcd-delta-gpu"},
        "allows: 1 node",
    ),
    "frontier: no account": ("frontier", {}, "requires an account"),
    "frontier: a small job for long": ("frontier", {"nodes": 2, "time": "3:00:00", "account": "stf007"}, "2:00:00"),
    "frontier: debug for long": ("frontier", {"qos": "debug", "time": "3:00:00", "account": "stf007"}, "QoS debug"),
    "hortense: four days": ("hortense", {"time": "4-0", "account": "2026_001"}, "3-0"),
    "isambard-ai: two days": ("isambard-ai", {"time": "2-0"}, "24:00:00"),
    "narval: eight days": ("narval", {"time": "8-0"}, "7-0"),
    "perlmutter: debug on nine nodes": ("perlmutter", {"nodes": 9, "qos": "debug"}, "8 nodes"),
    "sofia: memory": ("sofia", {"mem": "100G", "account": "2026_001"}, "--mem is not allowed"),
    "trillium: half a node": ("trillium", {"gpus_per_node": "2"}, "1 or 4"),
    "lumi: no account": ("lumi", {}, "small-g requires an account"),
    "lumi: another account": ("lumi", {"account": "lab"}, "an account like project_"),
    "lumi: five nodes": ("lumi", {"account": "project_465000000", "nodes": 5}, "allows: 4 nodes"),
    "leonardo: too few nodes": (
        "leonardo",
        {"account": "a", "qos": "boost_qos_bprod", "nodes": 64},
        "boost_qos_bprod allows: 65",
    ),
    "leonardo: debug for long": (
        "leonardo",
        {"account": "a", "qos": "boost_qos_dbg", "time": "45"},
        "QoS boost_qos_dbg allows",
    ),
    "marenostrum5: memory": ("marenostrum5", {"account": "a", "mem": "64G"}, "--mem is not allowed here"),
    "deucalion: another account": ("deucalion", {"account": "f20240001x"}, "an account like"),
    "karolina: express for long": (
        "karolina",
        {"account": "open-30-19", "partition": "qgpu_exp", "time": "2:00:00"},
        "a time limit of 1:00:00",
    ),
    "vista: a GPU option": ("vista", {"sbatch": ["--gres=gpu:1"]}, "--gres"),
    "vista: gh-dev for long": ("vista", {"partition": "gh-dev", "time": "3:00:00"}, "2:00:00"),
    "frontera: memory": ("frontera", {"mem": "64G"}, "--mem is not allowed here"),
    "frontera: two nodes of the queue normal": (
        "frontera",
        {"partition": "normal", "nodes": 2, "gpus_per_node": "0"},
        "3 nodes",
    ),
    "stampede3: five nodes": ("stampede3", {"nodes": 5}, "4 nodes"),
    "lonestar6: four GPUs": ("lonestar6", {"gpus_per_node": "4"}, "3 GPUs"),
    "kestrel: no account": ("kestrel", {}, "requires an account"),
    "kestrel: three days": ("kestrel", {"account": "a", "time": "3-0"}, "2-0"),
    "olivia: another account": ("olivia", {"account": "lab"}, "an account like nn*"),
    "saga: fifteen days": ("saga", {"account": "nn1234k", "time": "15-0"}, "14-0"),
    "roihu: two GPUs of the largest partition": (
        "roihu",
        {"account": "project_2001234", "partition": "gpularge", "gpus_per_node": "2"},
        "4",
    ),
    "jean-zay: hours of another GPU": ("jean-zay", {"account": "abc@v100"}, "an account like *@h100"),
    "jean-zay: an A100 with hours of H100": ("jean-zay", {"account": "a@h100", "constraint": "a100"}, "like *@a100"),
    "jean-zay: eight V100": ("jean-zay", {"account": "a@v100", "constraint": "v100-32g", "gpus_per_node": "8"}, "4"),
    "jean-zay: a day of the default QoS": (
        "jean-zay",
        {"account": "abc@h100", "qos": "qos_gpu_h100-t3", "time": "24:00:00"},
        "20:00:00",
    ),
    "dardel: two days": ("dardel", {"time": "2-0"}, "24:00:00"),
    "setonix: the project without -gpu": ("setonix", {"account": "pawsey0001"}, "an account like *-gpu"),
    "setonix: memory": ("setonix", {"account": "pawsey0001-gpu", "mem": "100G"}, "--mem is not allowed here"),
    "horeka: three days": ("horeka", {"time": "3-0"}, "48:00:00"),
    "expanse: five nodes": ("expanse", {"account": "a", "nodes": 5}, "4 nodes"),
    "bridges-2: half a node": ("bridges-2", {"account": "a", "gpus_per_node": "4"}, "8"),
    "anvil: no account": ("anvil", {}, "requires an account"),
    "clariden: a day": ("clariden", {"time": "1-0"}, "12:00:00"),
    "tursa: dev for long": ("tursa", {"account": "t01", "qos": "dev", "time": "5:00:00"}, "4:00:00"),
    "lonestar6: memory": ("lonestar6", {"mem": "64G"}, "--mem is not allowed here"),
    "bunya: another account": ("bunya", {"account": "rcc"}, "an account like a_*"),
    "mahuika: four nodes for a week": ("mahuika", {"account": "nesi99991", "nodes": 4, "time": "7-0"}, "5-6"),
    "iris: five nodes": ("iris", {"nodes": 5}, "4 nodes"),
    "sherlock: three days": ("sherlock", {"time": "3-0"}, "2-0"),
    "kempner: no account": ("kempner", {}, "requires an account"),
    "alpine: two days": ("alpine", {"time": "2-0"}, "24:00:00"),
}
GRANTED = {
    "frontier: a large job for long": ("frontier", {"nodes": 184, "time": "12:00:00", "account": "stf007"}),
    "perlmutter: regular on nine nodes": ("perlmutter", {"nodes": 9, "time": "1-0"}),
    "trillium: one GPU": ("trillium", {"gpus_per_node": "1"}),
    "mahuika: four nodes for five days": ("mahuika", {"account": "nesi99991", "nodes": 4, "time": "5-0"}),
    "alpine: two days of gpu-long": ("alpine", {"qos": "gpu-long", "time": "2-0"}),
    "bridges-2: half a shared node": (
        "bridges-2",
        {"account": "a", "partition": "GPU-shared", "gpus_per_node": "4"},
    ),
}


@pytest.fixture
def pretend_host(monkeypatch):
    """Return a function that pretends a host, with only the variables that its cluster sets."""
    for name in {"HPCRUN_SITE", *(name for site in FILES for name in loader.load_site(site).site.detect)}:
        monkeypatch.delenv(name, raising=False)

    def set_host(host, environment):
        monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=host))
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return set_host


def plan(site, resources):
    return submission.prepare(Request("resnet50", ("--synthetic-data", "--batch-size=65536"), resources, site))


@pytest.mark.parametrize(("host", "environment", "site"), RECOGNISED)
def test_a_host_is_recognised_as_its_own_cluster_alone(host, environment, site, pretend_host):
    pretend_host(host, environment)
    assert loader.load_selected_site().site.name in ({site} if site else {"local", "slurm"})


@pytest.mark.parametrize("case", REFUSED)
def test_requests_that_the_centre_refuses_are_refused_before_submission(case, monkeypatch, tmp_path):
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(tmp_path))
    site, resources, says = REFUSED[case]
    with pytest.raises(HpcrunError) as refused:
        plan(site, resources)
    assert says in refused.value.message


@pytest.mark.parametrize("case", GRANTED)
def test_requests_that_the_centre_grants_are_accepted(case, monkeypatch, tmp_path):
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(tmp_path))
    plan(*GRANTED[case])


def test_the_constraint_of_jean_zay_chooses_nodes_and_modules(monkeypatch, tmp_path):
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(tmp_path))
    found = {}
    for kind in ("h100", "a100", "v100-16g"):
        spec = plan("jean-zay", {"account": f"a@{kind.split('-')[0]}", "constraint": kind}).spec
        found[kind] = spec.resources.gpus_per_node, spec.resources.cpus_per_task, spec.site.modules.load
    assert found == {"h100": ("4", 24, ("arch/h100",)), "a100": ("8", 8, ("arch/a100",)), "v100-16g": ("4", 10, ())}


def test_scratch_by_project_follows_the_account(monkeypatch):
    monkeypatch.delenv("HPCRUN_RUN_ROOT", raising=False)
    monkeypatch.setenv("USER", "auser")
    run_dir = plan("frontier", {"account": "stf007"}).spec.run_dir
    assert str(run_dir).startswith("/lustre/orion/stf007/scratch/auser/hpcrun-runs/")


@pytest.mark.parametrize(
    ("site", "resources", "memory"),
    [
        ("narval", {}, ["--mem-per-gpu=124G"]),
        ("narval", {"mem": "64G"}, ["--mem=64G"]),
        ("narval", {"gpus_per_node": "0"}, []),
        ("delta", {"account": "abcd-delta-gpu"}, ["--mem-per-gpu=52G"]),
        ("delta", {"account": "abcd-delta-cpu", "partition": "cpu", "gpus_per_node": "0"}, []),
    ],
)
def test_a_gpus_share_of_memory_is_for_jobs_with_gpus(site, resources, memory, monkeypatch, tmp_path):
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(tmp_path))
    options = sbatch_options(plan(site, resources).spec)
    assert [option for option in options if option.startswith("--mem")] == memory


@pytest.mark.parametrize("site", CLUSTERS)
def test_every_fact_can_be_traced_and_the_page_tells_of_the_cluster(site):
    text = FILES[site]
    sources = re.findall(r"^# \[(\d+)\] ", text, re.MULTILINE)
    cited = re.findall(r"\[(\d+)\b", "\n".join(re.findall(r"# (?!\[\d+\] )(.*)", text)))
    assert set(sources) == set(cited), "a source that nothing cites, or a citation of none"
    assert "docs/clusters.md" in text
    assert f"| `{site}` |" in PAGE.read_text()
