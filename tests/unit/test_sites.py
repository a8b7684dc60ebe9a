"""Site files: layers, extends, detection, and errors that name file, line and the nearest valid name."""

import json
import os
import pwd
import re

import pytest

from hpcrun import submission
from hpcrun.errors import HpcrunError
from hpcrun.request import Request
from hpcrun.resources import Resources
from hpcrun.sites import layer_files, loader, trust
from hpcrun.sites.line_numbers import find_line
from hpcrun.sites.refusals import require_allowed


@pytest.mark.parametrize("name", ["local", "slurm", "styx"])
def test_shipped_sites_are_valid(name):
    assert loader.load_site(name).site.description


def test_styx_sets_the_workarounds_of_the_tutorials():
    site = loader.load_site("styx").site
    assert "/opt/GPI/lib64" in site.prepend_path["LD_LIBRARY_PATH"]
    assert "${CONDA_PREFIX}/lib/libdevice.10.bc" in site.cuda.libdevice
    assert site.data["imagenet"] == "/home/DATA/PUBLIC_DATA/ImageNet"


def test_higher_layers_win_key_by_key(layers):
    (layers["lab"] / "c.toml").write_text('description = "lab"\nlauncher = "mpirun"\n[mpi]\nlibrary = "openmpi"\n')
    (layers["user"] / "c.toml").write_text('[mpi]\ntype = "pmix"\n')
    (layers["project"] / "c.toml").write_text('description = "project"\n')
    trust.allow_files(layer_files.read_sources(layers["project"]).values())
    found = loader.load_site("c")
    assert (found.site.description, found.site.launcher) == ("project", "mpirun")
    assert (found.site.mpi.library, found.site.mpi.type) == ("openmpi", "pmix")
    assert found.find_origin(("mpi", "type")) == f"{layers['user']}/c.toml:2"
    assert found.find_origin(("launcher",)) == f"{layers['lab']}/c.toml:2"


def test_extends_starts_from_another_site(layers):
    (layers["user"] / "mine.toml").write_text('extends = "slurm"\nlauncher = "mpiexec"\n')
    site = loader.load_site("mine").site
    assert (site.name, site.launcher, site.mpi.type) == ("mine", "mpiexec", "pmi2")


def test_a_cycle_of_extends_is_an_error(layers):
    (layers["user"] / "a.toml").write_text('extends = "b"\n')
    (layers["user"] / "b.toml").write_text('extends = "a"\n')
    with pytest.raises(HpcrunError, match="a > b > a"):
        loader.load_site("a")


@pytest.mark.parametrize("name", ["slrum", "./slurm.toml"])
def test_an_unknown_extended_site_is_reported_with_its_line(layers, name):
    (layers["lab"] / "a.toml").write_text(f'description = "a"\nextends = "{name}"\n')
    with pytest.raises(HpcrunError, match=rf"lab/a.toml:2: there is no site '{name}'") as error:
        loader.load_site("a")
    assert "did you mean slurm?" in str(error.value)


def test_a_folder_or_a_missing_file_given_by_path_gets_the_files_there(tmp_path):
    (tmp_path / "ours.toml").write_text('extends = "slurm"')
    for path, message, hint in [
        ("", "is a folder", f"site files there: {tmp_path}/ours.toml"),
        ("nothing.toml", "there is no site file", f"site files there: {tmp_path}/ours.toml"),
        ("our.toml", "there is no site file", f"did you mean {tmp_path}/ours.toml?"),
    ]:
        with pytest.raises(HpcrunError, match=message) as error:
            loader.load_site(f"{tmp_path}/{path}")
        assert error.value.hint == hint


def test_a_file_given_by_path_replaces_installed_files(layers, tmp_path):
    (layers["lab"] / "c.toml").write_text('launcher = "mpirun"\nbroken = 1\n')
    file = tmp_path / "c.toml"
    file.write_text('description = "mine"\n')
    site = loader.load_site(str(file)).site
    assert (site.description, site.launcher) == ("mine", "srun")
    assert "c" in loader.list_site_files()


def test_a_file_given_by_path_extends_files_in_its_folder_first(layers, tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    (layers["lab"] / "base.toml").write_text("broken = 1\n")
    (folder / "base.toml").write_text('extends = "slurm"\nlauncher = "mpiexec"\n')
    (folder / "c.toml").write_text('extends = "base"\n')
    found = loader.load_site(str(folder / "c.toml"))
    assert found.site.launcher == "mpiexec"
    assert found.find_origin(("launcher",)) == f"{folder}/base.toml:2"


def test_a_file_of_an_installed_layer_extends_the_merged_site(layers):
    (layers["lab"] / "base.toml").write_text('launcher = "mpiexec"\n')
    (layers["user"] / "base.toml").write_text('description = "all layers"\n')
    (layers["user"] / "c.toml").write_text('extends = "base"\n')
    site = loader.load_site(str(layers["user"] / "c.toml")).site
    assert (site.launcher, site.description) == ("mpiexec", "all layers")


def refused(layers, text, name="c"):
    file = layers["user"] / f"{name}.toml"
    file.write_text(text)
    with pytest.raises(HpcrunError) as error:
        loader.load_site(name)
    return str(error.value).replace(str(file), "FILE")


def test_a_text_without_its_last_quote_is_explained(layers):
    text = refused(layers, 'run_root = "~/runs\n')
    assert "(at line 1, column 19)\nHINT: a string ends with the quote that it begins with; lines are KEY" in text


def test_an_unknown_key_names_the_line_and_the_nearest_key(layers):
    text = refused(layers, 'scheduler = "slurm"\n\n[partitions.gpu]\nmax_ndoes = 4\n')
    assert text.startswith("FILE:4: unknown key partitions.gpu.max_ndoes; did you mean max_nodes?")


@pytest.mark.parametrize(
    ("line", "suggestion"),
    [
        # misspelled
        *[("lancher = 1", "launcher"), ("run_rot = 1", "run_root"), ("mdoules = 1", "modules"), ("hots = 1", "hosts")],
        *[("module = 1", "modules"), ("slurm = 1", "slurm_conf"), ("[partition.gpu]", "partitions")],
        # in the wrong table
        ('partition = "gpu"', "defaults.partition or choose_partition"),
        ('account = "lab"', "defaults.account, limits.account_required or limits.account_pattern"),
        ('max_time = "2-0"', "limits.max_time or defaults.time"),
        ('[partitions.gpu]\nqos = "gpu"', "defaults.qos"),
        ('[partitions.gpu]\ntime = "2-0"', "defaults.time, min_time, max_time or time_required"),
        # in other words
        ('[partitions.gpu]\nmax_walltime = "2-0"', "max_time"),
        ("[partitions.gpu]\ngpus = 4", "gpus_per_node"),
        ("[qos.gpu]\nmax_gpus_per_user = 4", "max_gpus"),
        ('module_load = ["gcc"]', "modules.load"),
        ('scratch = "/scratch"', "run_root"),
        # neither
        ("tmie = 1", "defaults.time"),
        *[("warp = 1", None), ("[qos.gpu]\nmax_jobs = 4", None)],
    ],
)
def test_an_unknown_key_names_the_keys_that_were_meant(layers, line, suggestion):
    text = refused(layers, f"{line}\n")
    message, hint = text.splitlines()
    assert message.endswith(f"did you mean {suggestion}?" if suggestion else line.split("\n")[-1].split(" ")[0])
    assert hint == "HINT: hpcrun site schema --markdown lists all keys, as docs/site-keys.md does"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ('max_time = "48h"', "2-00:00:00"),
        ('max_time_by_nodes = {"4" = "90m"}', "1:30:00"),
        ('mem_per_node = "512 GB"', "512G"),
        ('defaults.mail_type = "always"', "ALL"),
        ('sbatch = ["--account lab"]', "--account=lab"),
    ],
)
def test_an_invalid_value_names_the_one_that_was_meant(layers, line, meant):
    assert refused(layers, f"[partitions.gpu]\n{line}").endswith(f'; did you mean "{meant}"?')


@pytest.mark.parametrize("line", ['defaults.sbatch = ["time=10"]', 'defaults.gpus_per_node = "none"'])
def test_a_value_that_would_be_refused_is_not_proposed(layers, line):
    assert "did you mean" not in refused(layers, line)


def test_all_invalid_values_of_a_table_are_reported(layers):
    text = refused(layers, '[partitions.gpu]\nmax_time = "48h"\nmem_per_node = "512 GB"\nmax_nodes = 0\n')
    assert [f"FILE:{line}: partitions.gpu." in text for line in (2, 3, 4)] == [True] * 3


def test_an_invalid_value_is_an_error_with_line_value_and_allowed_values(layers):
    text = refused(layers, 'launcher = "mpirum"\nhosts = ["a"]\n[limits]\nmax_time = "soon"\n')
    assert (
        "FILE:1: launcher = 'mpirum': unknown launcher; did you mean mpirun? known here: srun, mpirun, mpiexec, "
        in text
    )
    assert "FILE:4: limits.max_time = 'soon': a time is minutes" in text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('modules.load = "gcc/13 mpi"', 'modules.load = \'gcc/13 mpi\': expected a list: ["gcc/13", "mpi"]'),
        ('modules.load = "gcc/13"', "modules.load = 'gcc/13': expected a list: [\"gcc/13\"]"),
        ('container = "tf.sif"', """container = 'tf.sif': expected a table: container.image = "tf.sif\""""),
        ('modules = ["gcc/13"]', 'expected a table: modules.load = ["gcc/13"]'),
        ('modules = "gcc/13"', 'expected a table: modules.load = ["gcc/13"]'),
        ("container = 1", "container = 1: expected a table: [container], with keys of runtime, image, "),
        (
            'partitions = ["gpu", "cpu"]',
            "expected a table for each: [partitions.gpu] [partitions.cpu], with lines such as",
        ),
        ('environment = ["A"]', 'expected a table: [environment], with lines NAME = "value"'),
        ('launcher.command = ["run", "{ranks}"]', 'expected a string: "run {ranks}"'),
        ("hosts = [1]", 'hosts = 1: expected a string, in quotes: "1"'),
        ('gpu.type = "a100:4"', "gpu.type = 'a100:4': a type has no number, such as a100"),
        ('gpu.cpus = "four"', "gpu.cpus = 'four': expected a whole number"),
        ("defaults.nodes = 1.5", "defaults.nodes = 1.5: expected a whole number"),
        ('snapshot = "maybe"', "snapshot = 'maybe': expected true or false"),
        ("defaults.time = 1.5", 'defaults.time = 1.5: expected a string, in quotes: "1.5"'),
        ('[partitions.p]\nrun_root = "x"', "run_root is a top-level key: put it above the first [table]\n"),
        ('[partitions.p]\ndata = {a = "x"}', "data is a top-level table: [data]\n"),
        ('[slurm]\npartion = "gpu"\ntime = "1"', "unknown key slurm; its keys belong to [defaults]\n"),
        ('[sbatch]\npartition = "gpu"', "expected a list: [...]; the keys of this table belong to [defaults]"),
        ('[site]\nname = "x"', "unknown key site; its keys belong to the top level: leave out [site]\n"),
        (
            '[settings]\nrun_root = "/x"',
            "unknown key settings; its keys belong to the top level: leave out [settings]\n",
        ),
        (
            "[gpus]\nper_node = 4",
            "unknown key gpus; [gpu] says how GPUs are requested, and limits.gpus_per_node",
        ),
        ('[python]\nvenv = "/x"', "venv, uv and conda.env belong to the top level: leave out [python]"),
        ('launcher = "torchrun"', "no launcher of a site: hpcrun submit --launch torchrun starts the ranks of a job"),
        ('partion = "gpu"', "unknown key partion; did you mean defaults.partition?\n"),
        ('acount = "lab"', "unknown key acount; did you mean defaults.account?\n"),
        ('mpi.library = "OpenMPI"', "'parastation' or 'mvapich'; did you mean \"openmpi\"?"),
        ("[partition.gpu]", "unknown key partition; did you mean partitions?\n"),
        ('[partitions.p]\ndata = "x"', "unknown key partitions.p.data; did you mean cuda.data_dir?\n"),
    ],
)
def test_a_common_mistake_is_reported_with_the_expected_type(layers, line, words):
    text = refused(layers, line)
    assert words in text
    assert text.count("FILE:") == 1


def test_an_unknown_partition_is_reported_with_its_line(layers):
    own = "[partitions.a]\n[partitions.b]\ndefaults.partition = 'c'\n"
    assert refused(layers, own) == "FILE:3: partitions.b.defaults.partition = 'c': no such partition; here: a, b"
    (layers["lab"] / "base.toml").write_text("[defaults]\nnodes = 1\npartition = 'd'\n")
    text = refused(layers, 'extends = "base"\n[partitions.a]\n')
    assert text == f"{layers['lab']}/base.toml:3: defaults.partition = 'd': no such partition; here: a"


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
        '[partitions.","]',
        '[qos.""]',
    ],
)
def test_invalid_files_cause_an_error_without_traceback(layers, text):
    assert "FILE" in refused(layers, text)


def test_an_unknown_site_names_the_nearest(layers):
    with pytest.raises(HpcrunError, match="did you mean styx"):
        loader.load_site("stix")


def test_a_site_is_selected_by_option_variable_host_and_sbatch(layers, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert loader.load_selected_site().site.name == "local"
    sbatch = tmp_path / "sbatch"
    sbatch.write_text("#!/bin/sh\n")
    sbatch.chmod(0o755)
    assert loader.load_selected_site().site.name == "slurm"
    host = os.uname().nodename
    (layers["lab"] / "here.toml").write_text(f'hosts = ["nowhere", "{host[:1]}*"]\n')
    found = loader.load_selected_site()
    assert (found.site.name, found.chosen_by) == ("here", f"host {host} matches {host[:1]}*")
    monkeypatch.setenv("HPCRUN_SITE", "styx")
    assert loader.load_selected_site().site.name == "styx"
    assert loader.load_selected_site("slurm").site.name == "slurm"


def test_detection_prefers_environment_variables_to_host_names(layers, monkeypatch):
    monkeypatch.delenv("HPCRUN_SITE", raising=False)
    (layers["lab"] / "a.toml").write_text('hosts = ["*"]\n')
    (layers["lab"] / "b.toml").write_text('[detect]\nLAB_CLUSTER = "nar*"\nSCHEDULER = "slurm"\n')
    monkeypatch.setenv("LAB_CLUSTER", "nardus")
    assert loader.load_selected_site().site.name == "a"
    monkeypatch.setenv("SCHEDULER", "slurm")
    found = loader.load_selected_site()
    assert (found.site.name, found.chosen_by) == ("b", "$LAB_CLUSTER is nardus, $SCHEDULER is slurm")
    monkeypatch.setenv("LAB_CLUSTER", "cedar")
    assert loader.load_selected_site().site.name == "a"


def test_detection_rereads_a_changed_file(layers, monkeypatch):
    monkeypatch.setenv("A_CLUSTER", "one")
    file = layers["lab"] / "own.toml"
    for pattern, name in (("two", False), ("one", True), ("t*", False)):
        file.write_text(f'detect.A_CLUSTER = "{pattern}"\n')
        assert (loader.load_selected_site().site.name == "own") is name
        assert (loader.load_selected_site().site.name == "own") is name
    file.unlink()
    assert loader.load_selected_site().site.name != "own"


def test_detection_skips_a_broken_file_without_cached_keys(layers):
    (layers["lab"] / "half.toml").write_text("hosts = [")
    with pytest.warns(FutureWarning, match=r"half.toml: not a TOML file: .*; it is skipped"):
        found = loader.load_selected_site()
    assert found.site.name in {"slurm", "local"}
    assert loader.load_selected_site("slurm").site.name == "slurm"


def test_detection_uses_the_cached_keys_of_a_broken_file(layers, monkeypatch):
    monkeypatch.setenv("A_CLUSTER", "one")
    for name, pattern in (("a", "two"), ("b", "one")):
        (layers["lab"] / f"{name}.toml").write_text(f'detect.A_CLUSTER = "{pattern}"\n')
    assert loader.load_selected_site().site.name == "b"
    (layers["lab"] / "a.toml").write_text("another cluster's = [")
    assert loader.load_selected_site().site.name == "b"
    (layers["lab"] / "b.toml").write_text("hosts = [")
    for _ in range(2):  # what it last said is not forgotten
        with pytest.raises(HpcrunError, match=r"the selected site, b .*, is not valid:\n.*b.toml: not a TOML") as error:
            loader.load_selected_site()
        assert "HPCRUN_SITE=NAME" in str(error.value)
    (layers["lab"] / "b.toml").write_text('detect.A_CLUSTER = "two"\n')
    assert loader.load_selected_site().site.name not in {"a", "b"}


def test_cached_keys_are_kept_in_another_project(layers, tmp_path, monkeypatch):
    monkeypatch.setenv("A_CLUSTER", "one")
    (layers["lab"] / "b.toml").write_text('detect.A_CLUSTER = "one"\n')
    assert loader.load_selected_site().site.name == "b"
    other = tmp_path / "other"
    other.mkdir()
    (other / "c.toml").write_text('detect.A_CLUSTER = "two"\n')
    monkeypatch.setenv("HPCRUN_SITE_PATH", str(other))
    assert loader.load_selected_site().site.name != "b"
    monkeypatch.setenv("HPCRUN_SITE_PATH", str(layers["lab"]))
    (layers["lab"] / "b.toml").write_text("hosts = [")
    with pytest.raises(HpcrunError, match=r"the selected site, b .*, is not valid"):
        loader.load_selected_site()


@pytest.mark.parametrize("notes", ["[1]", '{"FILE": 5}', '{"FILE": [1]}', '{"FILE": [1, [2]]}', "[" * 100_000])
def test_an_invalid_detection_cache_is_rewritten(layers, shared_cache, notes):
    file = layers["lab"] / "b.toml"
    file.write_text('detect.A_CLUSTER = "one"\n')
    loader.load_selected_site()
    (shared_cache / "hpcrun/sites/detection.json").write_text(notes.replace("FILE", str(file)))
    assert loader.load_selected_site().site.name in {"slurm", "local"}


def test_detection_ignores_an_unreadable_file(layers):
    file = layers["lab"] / "theirs.toml"
    file.write_text('hosts = ["nowhere"]\n')
    loader.load_selected_site()
    file.unlink()
    file.symlink_to("/nowhere/theirs.toml")
    assert loader.load_selected_site().site.name in {"slurm", "local"}


def test_an_unreadable_folder_is_ignored(layers, cli, monkeypatch):
    monkeypatch.setenv("HPCRUN_SITE_PATH", f"/{'x' * 300}:{layers['lab']}")  # an error, as of a closed folder
    (layers["lab"] / "c.toml").write_text('extends = "slurm"\n')
    assert cli("submit", "--site", "c", "--dry-run", "--", "x")[0] == 0
    assert f"/{'x' * 300} (does not exist)" in cli("config")[1]


def test_list_and_config_work_with_an_invalid_selected_site(layers, cli, monkeypatch):
    monkeypatch.setenv("A_CLUSTER", "one")
    (layers["lab"] / "b.toml").write_text('detect.A_CLUSTER = "one"\nlauncer = "srun"\n')
    code, out, err = cli("site", "list")
    assert (code, "styx" in out) == (2, True)
    assert re.search(r"^b +\* +INVALID: .*b.toml:2: unknown key launcer", out, re.MULTILINE)
    assert "used here: b ($A_CLUSTER is one)" in err
    assert "--site NAME, or HPCRUN_SITE=NAME" in err
    code, out, err = cli("config")
    assert (code, f"site used here: INVALID: b ($A_CLUSTER is one)\n  {layers['lab']}/b.toml\n" in out) == (2, True)
    assert "b.toml:2: unknown key launcer" in err
    assert json.loads(cli("config", "--json")[1])["site"]["valid"] is False


def test_the_hint_names_the_command_that_removes_an_invalid_layer(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("A_CLUSTER", "one")
    (tmp_path / "b.toml").write_text('detect.A_CLUSTER = "one"\n')
    cli("site", "add", str(tmp_path), "--name", "ours", "--yes")
    (tmp_path / "b.toml").write_text('detect.A_CLUSTER = "one"\nlauncer = "srun"\n')
    code, _, err = cli("submit", "--dry-run", "--", "x")
    assert (code, "hpcrun site remove ours removes that layer" in err) == (2, True)


@pytest.fixture
def site_with_limits(layers):
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
        [partitions.large]
        min_nodes = 4
        account_pattern = "*_g"
        [qos.short]
        max_nodes = 1
        max_time = "30"
        [qos.long]
        max_time = "7-0"
        max_time_by_nodes = {"1" = "12:00:00", "4" = "1-0"}
        [qos.quarters]
        gpus_allowed = [1, 4]
        time_required = true
        """
    )
    return loader.load_site("limited").site


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
        ({"ntasks_per_node": 100}, "100 ranks a node with 1 core each"),
        ({"ntasks": 1000}, "1000 ranks on 16 nodes is more than partition gpu allows: 2 nodes"),
        ({"ntasks_per_node": 2, "mem_per_cpu": "300G"}, "--mem-per-cpu=300G is more"),
        ({"gpus_per_node": "4", "mem_per_gpu": "200G"}, "--mem-per-gpu=200G is more"),
        ({"account": None}, "requires an account"),
        ({"partition": "gpus"}, "has no partition 'gpus'; it has cpu, gpu"),
        ({"partition": "gpu cpu"}, "did you mean --partition=gpu,cpu?"),
        ({"partition": "gpu,cpuu"}, "did you mean --partition=gpu,cpu?"),
        ({"sbatch": ("--gres=gpu:1",)}, "--gres=gpu:1 is not allowed"),
        ({"exclusive": True}, "--exclusive is not allowed"),
        ({"qos": "short", "nodes": 2}, "--nodes=2 is more than QoS short allows: 1 node"),
        ({"qos": "short", "time": "31"}, "--time=31 is more than QoS short allows: a time limit of 30 minutes"),
        ({"qos": "short", "gpus_per_node": "5"}, "--gpus-per-node=5 is more than partition gpu allows: 4 GPUs a node"),
        ({"partition": "large", "account": "a_g"}, "--nodes=1 is less than partition large allows: 4 nodes"),
        ({"qos": "long", "time": "13:00:00"}, "QoS long allows: a time limit of 12:00:00 for 1 node"),
        ({"qos": "long", "time": "2-0", "nodes": 2}, "QoS long allows: a time limit of 1-0 for 2 nodes"),
        ({"qos": "long", "time": "8-0", "nodes": 8, "partition": "cpu"}, "allows: a time limit of 7-0"),
        ({"qos": "quarters", "gpus_per_node": "2", "time": "1"}, "--gpus-per-node=2: QoS quarters allows 1 or 4"),
        ({"qos": "quarters"}, "QoS quarters requires a time limit, but none was given"),
        ({"partition": "large", "nodes": 4}, "requires an account like *_g, not a"),
    ],
)
def test_resources_beyond_the_limits_are_refused(site_with_limits, asked, words):
    asked = {"partition": "gpu", "account": "a", **asked}
    with pytest.raises(HpcrunError) as error:
        require_allowed(site_with_limits, Resources(**asked))
    assert words in str(error.value)
    assert "HINT" in str(error.value)


def test_resources_within_the_limits_are_accepted(site_with_limits):
    require_allowed(
        site_with_limits, Resources(partition="gpu", account="a", nodes=2, gpus_per_node="4", time="2-0", mem="512G")
    )
    require_allowed(site_with_limits, Resources(partition="large", account="A_g", nodes=4))
    require_allowed(site_with_limits, Resources(partition="cpu", account="a", qos="long", time="7-0", nodes=5))
    require_allowed(
        site_with_limits, Resources(partition="cpu", account="a", qos="quarters", time="1", gpus_per_node="a100:4")
    )
    require_allowed(site_with_limits, Resources(partition="cpu", account="a", qos="unlisted"))


def test_idle_gpus_of_whole_nodes_cause_a_warning(layers):
    (layers["user"] / "whole.toml").write_text(
        'extends = "slurm"\nlimits.exclusive = true\npartitions.gpu.gpus_per_node = 4\n'
    )
    request = Request(None, ("a.out",), {"gpus_per_node": "1"}, "whole")
    assert "3 GPUs of each node stay idle (--gpus-per-node=4 uses all)" in "".join(submission.prepare(request).warnings)
    assert not submission.prepare(Request(None, ("true",), {}, "whole")).warnings


def test_user_is_set_without_an_environment_variable(layers, tmp_path, monkeypatch):
    monkeypatch.delenv("HPCRUN_RUN_ROOT")
    monkeypatch.delenv("USER", raising=False)
    (layers["user"] / "own.toml").write_text(f'extends = "slurm"\nrun_root = "{tmp_path}/${{USER}}/runs"\n')
    plan = submission.prepare(Request(None, ("a.out",), {}, "own"))
    assert plan.spec.run_dir.parent == tmp_path / pwd.getpwuid(os.getuid()).pw_name / "runs"


def test_the_run_root_may_contain_the_account(layers, tmp_path, monkeypatch):
    monkeypatch.delenv("HPCRUN_RUN_ROOT")
    (layers["user"] / "projects.toml").write_text(
        f'extends = "slurm"\nrun_root = "{tmp_path}/scratch/${{SLURM_JOB_ACCOUNT}}/runs"\n'
    )
    plan = submission.prepare(Request(None, ("a.out",), {"account": "P1"}, "projects"))
    assert plan.spec.run_dir.parent == tmp_path / "scratch/p1/runs"
    with pytest.raises(HpcrunError, match="give --account=NAME"):
        submission.prepare(Request(None, ("a.out",), {}, "projects"))


def test_a_dry_run_elsewhere_suggests_another_run_root(layers, cli, monkeypatch):
    monkeypatch.delenv("HPCRUN_RUN_ROOT")
    (layers["user"] / "c.toml").write_text('run_root = "${NOT_HERE}/runs"\n')
    code, _, err = cli("submit", "--site", "c", "--dry-run", "--", "x")
    assert (code, "run_root = '${NOT_HERE}/runs' names a variable that is not set" in err) == (2, True)
    hint = re.search(r"(HPCRUN_RUN_ROOT)=(\S+)", err)
    assert hint is not None
    monkeypatch.setenv(*hint.groups())
    assert cli("submit", "--site", "c", "--dry-run", "--", "x")[0] == 0


def test_lines_are_found_in_any_toml_spelling():
    text = 'a = 1\nb.c = 2\n\n[d."e f"]\ng = [\n  1,\n]\n[[h]]\ni = 3\n'
    keys = [("a",), ("b", "c"), ("b",), ("d", "e f", "g"), ("h", "i"), ("d", "e f", "missing")]
    assert [find_line(text, key) for key in keys] == [1, 2, 2, 5, 9, 4]
