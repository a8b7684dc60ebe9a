"""Site files: layers, extends, detection, and errors that name file, line and the nearest valid name."""

import json

import pytest

from hpcrun.errors import HpcrunError
from hpcrun.resources import Resources
from hpcrun.sites import find
from hpcrun.sites.lines import line_of
from hpcrun.sites.schema import file_schema


@pytest.fixture
def layers(tmp_path, monkeypatch):
    """Empty lab, user and project layers above the shipped one."""
    folders = {"lab": tmp_path / "lab", "user": tmp_path / "config" / "hpcrun", "project": tmp_path / "p" / ".hpcrun"}
    for folder in folders.values():
        folder.mkdir(parents=True)
    monkeypatch.setenv("HPCRUN_SITE_PATH", str(folders["lab"]))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("HPCRUN_SITE", raising=False)
    monkeypatch.chdir(tmp_path / "p")
    return folders


@pytest.mark.parametrize("name", ["local", "slurm", "styx"])
def test_shipped_sites_are_valid(name):
    assert find.load(name).site.description


def test_styx_carries_what_the_tutorials_warn_of():
    site = find.load("styx").site
    assert "/opt/GPI/lib64" in site.prepend_path["LD_LIBRARY_PATH"]
    assert "${CONDA_PREFIX}/lib/libdevice.10.bc" in site.cuda.libdevice
    assert site.data["imagenet"] == "/home/DATA/PUBLIC_DATA/ImageNet"


def test_higher_layers_win_key_by_key(layers):
    (layers["lab"] / "c.toml").write_text('description = "lab"\nlauncher = "mpirun"\n[mpi]\nlibrary = "openmpi"\n')
    (layers["user"] / "c.toml").write_text('[mpi]\ntype = "pmix"\n')
    (layers["project"] / "c.toml").write_text('description = "project"\n')
    found = find.load("c")
    assert (found.site.description, found.site.launcher) == ("project", "mpirun")
    assert (found.site.mpi.library, found.site.mpi.type) == ("openmpi", "pmix")
    assert found.origin(("mpi", "type")) == f"{layers['user']}/c.toml:2"
    assert found.origin(("launcher",)) == f"{layers['lab']}/c.toml:2"


def test_extends_starts_from_another_site(layers):
    (layers["user"] / "mine.toml").write_text('extends = "slurm"\nlauncher = "mpiexec"\n')
    site = find.load("mine").site
    assert (site.name, site.launcher, site.mpi.type) == ("mine", "mpiexec", "pmi2")


def test_extends_in_a_circle_is_told(layers):
    (layers["user"] / "a.toml").write_text('extends = "b"\n')
    (layers["user"] / "b.toml").write_text('extends = "a"\n')
    with pytest.raises(HpcrunError, match="a > b > a"):
        find.load("a")


def refused(layers, text, name="c"):
    file = layers["user"] / f"{name}.toml"
    file.write_text(text)
    with pytest.raises(HpcrunError) as error:
        find.load(name)
    return str(error.value).replace(str(file), "FILE")


def test_an_unknown_key_names_the_line_and_the_nearest_key(layers):
    text = refused(layers, 'scheduler = "slurm"\n\n[partitions.gpu]\nmax_ndoes = 4\n')
    assert text.startswith("FILE:4: unknown key partitions.gpu.max_ndoes; did you mean max_nodes?")


def test_a_wrong_value_names_line_value_and_what_is_allowed(layers):
    text = refused(layers, 'launcher = "mpirum"\nhosts = ["a"]\n[limits]\nmax_time = "soon"\n')
    assert "FILE:1: launcher = 'mpirum': Input should be 'srun', 'mpirun', 'mpiexec' or 'none'" in text
    assert "FILE:4: limits.max_time = 'soon': a time is minutes" in text


@pytest.mark.parametrize(
    "text",
    [
        "extends = 5",
        'name = "x"',
        'defaults.partition = "a"\npartitions.b.max_nodes = 1',
        "limits.gpus_per_node = -2",
        "a = [",
        "\x00",
        'environment = {"A B" = "x"}',
        'sbatch = ["no dash"]',
    ],
)
def test_nonsense_is_an_error_and_no_traceback(layers, text):
    assert "FILE" in refused(layers, text)


def test_an_unknown_site_names_the_nearest(layers):
    with pytest.raises(HpcrunError, match="did you mean styx"):
        find.load("stix")


def test_detection_goes_by_option_variable_host_then_sbatch(layers, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find.detect().site.name == "local"
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\n")
    sbatch.chmod(0o755)
    assert find.detect().site.name == "slurm"
    host = find.os.uname().nodename
    (layers["lab"] / "here.toml").write_text(f'hosts = ["nowhere", "{host[:1]}*"]\n')
    found = find.detect()
    assert (found.site.name, found.chosen_by) == ("here", f"host {host} matches {host[:1]}*")
    monkeypatch.setenv("HPCRUN_SITE", "styx")
    assert find.detect().site.name == "styx"
    assert find.detect("slurm").site.name == "slurm"


@pytest.fixture
def limited(layers):
    (layers["user"] / "limited.toml").write_text(
        """
        sbatch_forbidden = ["--gres", "--exclusive"]
        [limits]
        max_time = "2-0"
        account_required = true
        [partitions.cpu]
        max_nodes = 8
        [partitions.gpu]
        max_nodes = 2
        gpus_per_node = 4
        cpus_per_node = 64
        mem_per_node = "512G"
        """
    )
    return find.load("limited").site


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"nodes": 3}, "--nodes=3 is more than partition gpu allows: 2 nodes"),
        ({"time": "3-0"}, "--time=3-0 is more than partition gpu allows: a time limit of 2-0"),
        ({"gpus_per_node": "8"}, "--gpus-per-node=8 is more than partition gpu allows: 4 GPUs a node"),
        ({"mem": "1T"}, "--mem=1T is more than partition gpu allows: 512G a node"),
        (
            {"ntasks_per_node": 4, "cpus_per_task": 32},
            "4 ranks a node with 32 cores each is more than partition gpu allows",
        ),
        ({"ntasks_per_node": 100}, "100 ranks a node with 1 cores each"),
        ({"ntasks": 1000}, "--nodes=16 is more"),
        ({"ntasks_per_node": 2, "mem_per_cpu": "300G"}, "--mem-per-cpu=300G is more"),
        ({"account": None}, "wants an account"),
        ({"partition": "gpus"}, "has no partition 'gpus'; it has cpu, gpu"),
        ({"sbatch": ("--gres=gpu:1",)}, "--gres=gpu:1 is not allowed"),
        ({"exclusive": True}, "--exclusive is not allowed"),
    ],
)
def test_what_the_site_cannot_run_is_refused(limited, asked, words):
    asked = {"partition": "gpu", "account": "a", **asked}
    with pytest.raises(HpcrunError) as error:
        limited.check(Resources(**asked))
    assert words in str(error.value)
    assert "HINT" in str(error.value)


def test_what_fits_is_let_through(limited):
    limited.check(Resources(partition="gpu", account="a", nodes=2, gpus_per_node="4", time="2-0", mem="512G"))


def test_lines_are_found_in_any_toml_spelling():
    text = 'a = 1\nb.c = 2\n\n[d."e f"]\ng = [\n  1,\n]\n[[h]]\ni = 3\n'
    keys = [("a",), ("b", "c"), ("d", "e f", "g"), ("h", "i"), ("d", "e f", "missing")]
    assert [line_of(text, key) for key in keys] == [1, 2, 5, 9, 4]


def test_the_schema_describes_every_key():
    schema = json.loads(json.dumps(file_schema()))
    assert "name" not in schema["properties"]
    tables = {"Site": schema, **schema["$defs"]}
    properties = [(table, key, facts) for table in tables for key, facts in tables[table]["properties"].items()]
    assert [(table, key) for table, key, facts in properties if not facts.get("description")] == []
