"""What `hpcrun site check` warns of in a site file that is valid, and what it leaves alone."""

import json

import pytest

from hpcrun.sites import loader
from hpcrun.sites.lint.rules import RULES, lint_site

MPI = 'mpi = { library = "%s", type = "%s" }\n'
DOUBTFUL = {
    "mpirun-mpich": ('launcher = "mpirun"\nmpi.library = "mpich"', 'set launcher = "mpiexec"'),
    "mpirun-intel": ('launcher = "mpirun"\nmpi.library = "intel"', 'set launcher = "mpiexec"'),
    "mpiexec-openmpi": ('launcher = "mpiexec"\nmpi.library = "openmpi"', 'set launcher = "mpirun"'),
    "openmpi-pmi2": (MPI % ("openmpi", "pmi2"), 'set mpi.type = "pmix"'),
    "openmpi4-pmi2": (MPI % ("openmpi4", "pmi2"), 'set mpi.type = "pmix"'),
    "mpich-pmix": (MPI % ("mpich", "pmix_v4"), 'set mpi.type = "pmi2"'),
    "mpiexec-cray": ('launcher = "mpiexec"\nmpi.library = "cray-mpich"', 'set launcher = "srun"'),
    "none-cray": (MPI % ("cray-mpich", "none"), 'set mpi.type = "cray_shasta"'),
    "none": (MPI % ("mpich", "none"), 'set mpi.type = "pmi2"'),
    "mpi-among-arguments": ('launcher_args = ["--mpi=pmix"]', 'set mpi.type = "pmix"'),
    "time-beyond": ('defaults.time = "3-0"\nlimits.max_time = "2-0"', "--time=3-0 is more than the site allows"),
    "nodes-beyond-partition": (
        'defaults.nodes = 4\ndefaults.partition = "p"\n[partitions.p]\nmax_nodes = 2',
        "--nodes=4 is more than partition p allows",
    ),
    "partition-own-beyond": ("[partitions.p]\ngpus_per_node = 4\ndefaults.gpus_per_node = 8", "4 GPUs a node"),
    "nodes-of-a-partition": (
        "[partitions.p]\nmin_nodes = 8\nmax_nodes = 4",
        "p: min_nodes = 8 is more than max_nodes = 4",
    ),
    "nodes-merged": ("limits.min_nodes = 8\n[partitions.p]\nmax_nodes = 4", "min_nodes = 8 is more than max_nodes = 4"),
    "gpus-allowed": ("[partitions.p]\ngpus_per_node = 4\ngpus_allowed = [2, 4, 8]", "gpus_allowed has 8, but gpus_per"),
    "gpus-allowed-everywhere": (
        "limits = { gpus_per_node = 4, gpus_allowed = [8] }\n[partitions.p]\nmax_nodes = 2\n[qos.q]\nmax_nodes = 1",
        "gpus_allowed has 8",
    ),
    "nodes-of-a-qos": ("limits.max_nodes = 4\n[partitions.p]\n[qos.big]\nmin_nodes = 8", "QoS big: min_nodes = 8"),
    "partition-elsewhere": ('[partitions.p]\ndefaults.partition = "q"\n[partitions.q]', "name partition q"),
    "sbatch-time": ('sbatch = ["--time=60"]', "set defaults.time"),
    "sbatch-gres": ('sbatch = ["--gres=gpu:4"]', 'gpu.request = "gres"'),
    "sbatch-output": ('sbatch = ["--output=x"]', "hpcrun sets it"),
    "sbatch-of-defaults": ('defaults.sbatch = ["--signal=B:USR1@60"]', "restart.signal_seconds"),
    "sbatch-forbidden": (
        'sbatch = ["--hint=nomultithread"]\nsbatch_forbidden = ["--hint"]',
        "--hint=nomultithread is also in",
    ),
    "gpus-forbidden": (
        'gpu.request = "gpus"\nsbatch_forbidden = ["--gpus", "--gpus-per-node"]',
        'set gpu.request = "gres"',
    ),
    "gres-forbidden": ('gpu.request = "gres"\nsbatch_forbidden = ["--gres"]', 'set gpu.request = "gpus-per-node"'),
    "memory-in-mib": ("limits.mem_per_node = 512", 'is 512 MiB; for GiB: mem_per_node = "512G"'),
    "memory-of-jobs-in-mib": ('[partitions.p]\ndefaults.mem = "64"', 'for GiB: mem = "64G"'),
    "hours-as-minutes": ('[qos.q]\nmax_time = "24"', 'for hours: max_time = "24:00:00"'),
    "any-host": ('hosts = ["*"]', "matches any host"),
    "any-host-with-letters": ('hosts = ["?*"]', "matches any host"),
    "run-root-tmp": ('run_root = "/tmp/runs"', "local to each node"),
    "run-root-of-a-job": ('run_root = "/scratch/${SLURM_JOB_ID}"', "before the job starts"),
    "run-root-relative": ('run_root = "runs"', "relative to the current directory"),
    "scratch-tmp": ('local_scratch = ["/local", "/tmp/${USER}"]', "searches by default"),
    "scratch-relative": ('local_scratch = ["local"]', "a job that stages data there would fail"),
    "scratch-shared": ('run_root = "/work/runs"\nlocal_scratch = ["/work/runs"]', "all nodes share it"),
    "library-path": ('environment.LD_LIBRARY_PATH = "/opt/lib"', "use prepend_path.LD_LIBRARY_PATH"),
    "path": ('environment.PATH = "/opt/bin:${PATH}"', "use prepend_path.PATH"),
    "xla-flags": ('environment.XLA_FLAGS = "--xla_x"', "use cuda.xla_flags"),
    "visible-devices": ('environment.CUDA_VISIBLE_DEVICES = "0"', "overrides the GPUs"),
    "sbatch-variable": ('environment.SBATCH_ACCOUNT = "a"', "has no effect"),
    "own-variable": ('environment.HPCRUN_NTASKS = "4"', "a variable of hpcrun"),
    "dollar": ('environment.A = "$HOME/x"', "write ${NAME}"),
    "command": ('prepend_path.PATH = ["$(pwd)/bin"]', "take literally"),
    "secret-name": ('environment.WANDB_API_KEY = "0123456789abcdef"', "looks like a secret"),
    "secret-value": ('environment.LOGIN = "ghp_0123456789abcdef"', "looks like a secret"),
    "secret-in-setup": ('setup = ["export HF_TOKEN=0123456789abcdef"]', "line 1 of setup seems to contain a secret"),
    "dollar-in-a-folder": ('venv = "$WORK/env"', "write ${NAME}"),
    "dollar-in-cuda": ('cuda.data_dir = "$CUDA_HOME"', "write ${NAME}"),
    "dollar-in-cuda-of-a-partition": ('[partitions.p]\ncuda.ptxas = ["$HOME/ptxas"]', "write ${NAME}"),
    "dollar-in-libdevice": ('cuda.libdevice = ["/a/libdevice.10.bc", "$CUDA_HOME/l.bc"]', "write ${NAME}"),
    "dollar-in-ptxas": ('cuda.ptxas = ["$CUDA_HOME/bin/ptxas"]', "write ${NAME}"),
    "dollar-in-a-bind": ('container.binds = ["/$USER"]', "write ${NAME}"),
    "python-beside-venv": ('venv = "/v"\npython = "/p/bin/python"', "remove python, or venv"),
    "no-conda": ('conda.env = "tf"', "set conda.root, or modules.load"),
    "no-spack": ('spack.load = ["a"]', "nothing provides the command spack"),
    "pyxis-mpirun": (
        'launcher = "mpirun"\nmpi.library = "openmpi"\ncontainer.runtime = "pyxis"',
        'set launcher = "srun"',
    ),
    "image-fetched": ('container.image = "docker://tf"', "apptainer pull it once"),
    "two-modules": ('modules.load = ["gcc/13 cuda/12"]', 'write "gcc/13", "cuda/12"'),
    "library-path-lost": ('setup = ["export LD_LIBRARY_PATH=/opt/lib"]', "overwrites the value from modules and users"),
    "library-path-colon": ('setup = ["true", "LD_LIBRARY_PATH=/opt:$LD_LIBRARY_PATH"]', "line 2 of setup: LD_LIBRARY"),
    "set-e": ('setup = ["set -eu"]', "remove it, and write COMMAND || hpcrun_fail"),
    "unparsable": ('setup = ["true", "if [ -d /x ]; then echo"]', "bash cannot parse line 2 of setup"),
    "launcher-of-a-partition": ('[partitions.p]\nlauncher = "mpirun"', 'set launcher = "mpiexec", or mpi.library'),
    "of-a-partition": ('[partitions.p]\nenvironment.PATH = "/opt/bin"', "use prepend_path.PATH"),
    "setup-of-a-partition": ('[partitions.p]\nsetup = ["fi"]', "bash cannot parse line 1 of partitions.p.setup"),
    "sbatch-of-a-qos": ('[qos.long]\nsbatch = ["--nodes=2"]', "set defaults.nodes"),
    "teardown-of-a-partition": ('[partitions.p]\nteardown = ["fi"]', "line 1 of partitions.p.teardown, 'fi'"),
    "unended": ('setup = ["cat <<X", "a"]', "line 2 of setup, 'a': warning: here-document at line 1"),
    "unparsable-teardown": ('teardown = ["echo \'x"]', "bash cannot parse line 1 of teardown"),
}
FINE = {
    "openmpi4-built-with-pmi2": MPI % ("openmpi4", "pmi2") + 'modules.load = ["openmpi/4.1"]',
    "openmpi-pmix": MPI % ("openmpi", "pmix_v4"),
    "intel-pmi2": MPI % ("intel", "pmi2"),
    "mpich-of-the-vendor": MPI % ("cray-mpich", "cray_shasta"),
    "mpich-of-a-module": MPI % ("mpich", "pmix") + 'modules.load = ["mpich/4.2"]',
    "parastation": MPI % ("parastation", "pspmix"),
    "type-that-mpiexec-does-not-use": 'launcher = "mpiexec"\n' + MPI % ("mpich", "none"),
    "account-that-people-give": 'limits.account_required = true\ndefaults.time = "1:00:00"',
    "partition-to-be-chosen": "defaults.nodes = 4\n[partitions.a]\nmax_nodes = 2\n[partitions.b]\nmax_nodes = 8",
    "default-of-the-partition": 'defaults.partition = "a"\n[partitions.a]\nmin_nodes = 4\ndefaults.nodes = 4',
    "other-gres": 'sbatch = ["--gres=lustre:1", "--hint=nomultithread", "--constraint"]'.replace(
        ', "--constraint"', ""
    ),
    "python-of-the-venv": 'venv = "/v"\npython = "python3.12"',
    "conda-of-a-module": 'conda.env = "tf"\nmodules.load = ["miniforge3"]',
    "image": 'container = { image = "${WORK}/tf.sif", binds = ["${SCRATCH}:/s:ro"] }',
    "hosts": 'hosts = ["login*", "*.cluster.org", "n??"]',
    "run-root": 'run_root = "${SCRATCH}/hpcrun-runs"',
    "run-root-of-an-account": 'run_root = "/scratch/${SLURM_JOB_ACCOUNT}/runs"',
    "whole-nodes": '[qos.q]\nsbatch = ["--exclusive"]',
    "local-scratch": 'local_scratch = ["/local/${USER}"]',
    "local-scratch-of-staged-data": 'local_scratch = ["/tmp", "/local"]',
    "no-secret": 'environment = { TOKENIZERS_PARALLELISM = "false", HF_TOKEN = "${HF_TOKEN}", API_KEY = "/a/file" }',
    "kept": 'setup = ["export LD_LIBRARY_PATH=/x${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}", "XLA_FLAGS=$XLA_FLAGS"]',
    "over-lines": 'setup = ["if [ -d /x ]; then", "  ulimit -s unlimited", "fi"]',
    "patterns": 'setup = ["shopt -s extglob", "rm -f /local/!(keep)"]',
    "limits-of-two-partitions": "[partitions.p]\nmin_nodes = 8\n[partitions.q]\nmax_nodes = 4\ngpus_allowed = [2]",
    "settings": 'environment = { HPCRUN_STALL_SECONDS = "60", NCCL_SOCKET_IFNAME = "ib0" }',
}


@pytest.fixture
def written(tmp_path):
    """Write a site file above `slurm`, for its path."""

    def write(text):
        file = tmp_path / "c.toml"
        file.write_text(f"{text}\n")
        return file

    return write


@pytest.mark.parametrize("name", sorted(loader.list_site_files()))
def test_shipped_sites_cause_no_warning(name):
    assert lint_site(loader.load_site(name)) == []


@pytest.mark.parametrize(("text", "words"), DOUBTFUL.values(), ids=DOUBTFUL)
def test_a_probable_mistake_is_reported_with_its_line_and_a_fix(written, text, words):
    file = written(text)
    (finding,) = lint_site(loader.load_site(str(file)))
    assert words in f"{finding.what}; {finding.fix}"
    path, _, line = finding.where.rpartition(":")
    assert path == str(file)
    assert finding.key[-1] in file.read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_valid_settings_cause_no_warning(written, text):
    assert lint_site(loader.load_site(str(written(text)))) == []


def test_each_rule_has_an_example_that_only_it_reports(written):
    sites = [loader.load_site(str(written(text))).site for text, _ in DOUBTFUL.values()]
    assert [check.__name__ for check in RULES if not any(list(check(site)) for site in sites)] == []


def test_a_secret_is_not_printed(written):
    (finding,) = lint_site(loader.load_site(str(written('environment.X_TOKEN = "swordfish-42"'))))
    assert "swordfish" not in json.dumps(finding.as_json())


def test_warnings_do_not_change_the_exit_code(cli, written, tmp_path):
    doubtful = written('hosts = ["*"]')
    code, out, err = cli("site", "check", str(doubtful))
    assert (code, out) == (0, "")
    assert f'WARNING: {doubtful}:1: hosts has "*"' in err
    assert "HINT: name this cluster's hosts" in err
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('launcher = "none"\nlauncer = "srun"\n')
    code, _, err = cli("site", "check", str(doubtful), str(wrong))
    assert code == 1
    assert "WARNING: " in err
    assert f"ERROR: {wrong}:2: unknown key launcer" in err


BROKEN = 'extends = "local"\nsetup = ["true", "if true; then"]\n'


def test_bash_that_cannot_be_parsed_is_an_error(cli, written):
    file = written(BROKEN)
    code, out, err = cli("site", "check", str(file))
    assert (code, out) == (1, "")
    assert f"ERROR: {file}:2: bash cannot parse line 2 of setup, 'if true; then': " in err
    assert "valid" not in err
    (report,) = json.loads(cli("site", "check", "--json", str(file))[1])
    assert (f"{file}:2: bash cannot parse" in report["error"], report["warnings"]) == (True, [])


@pytest.mark.parametrize("text", [BROKEN, 'extends = "local"\nteardown = ["if true; then"]\n'])
def test_a_job_with_a_bash_syntax_error_is_refused(cli, written, isolated_home, text):
    file = written(text)
    code, out, err = cli("submit", "--site", str(file), "--", "true")
    assert (code, out) == (2, "")
    assert f"ERROR: {file}:2: bash cannot parse line " in err
    assert not (isolated_home / "runs").exists()


def test_other_partitions_do_not_affect_a_job(cli, written):
    file = written('extends = "slurm"\n[partitions.p]\nsetup = ["fi"]\n[partitions.q]')
    assert cli("submit", "--site", str(file), "-p", "q", "--dry-run", "--", "true")[0] == 0
    code, _, err = cli("submit", "--site", str(file), "-p", "p", "--dry-run", "--", "true")
    assert (code, f"{file}:3: bash cannot parse line 1 of partitions.p.setup, 'fi'" in err) == (2, True)


def test_json_contains_errors_and_warnings(cli, written, tmp_path):
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("a = [")
    code, out, _ = cli("site", "check", "--json", str(written('hosts = ["*"]')), str(wrong))
    first, second = json.loads(out)
    assert code == 1
    (warning,) = first["warnings"]
    assert (first["error"], warning["key"], warning["level"]) == (None, "hosts", "warning")
    assert warning["found"].startswith(f'{warning["where"]}: hosts has "*"')
    assert str(wrong) in second["error"]


@pytest.mark.parametrize("argv", [["config"], ["site", "list", "--layers"], ["site", "check"]])
def test_many_sites_do_not_fill_a_line(cli, argv):
    code, out, err = cli(*argv)
    assert code == 0
    assert " sites (hpcrun site list)" in out + err
    assert max(map(len, (out + err).splitlines())) < 300


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("launcher = “srun”\n", 'use straight quotes (") in place of “'),
        ("limits.exclusive = True\n", "True is no value in TOML: true and false have lower case"),
        ('\ufeffextends = "slurm"\n', "save it as UTF-8 without BOM"),
        ('gpu.request = "gres"\n[gpu]\ntype = "a100"\n', "put all keys of a table below one [TABLE]"),
        ("[partitions.gpu]\n[partitions.gpu]\n", "put all keys of a table below one [TABLE]"),
        ("launcher = srun\n", 'lines are KEY = "VALUE"'),
        ("[queues.gpu]\nlimits.max_nodes = 3\n", "did you mean [partitions.gpu]?"),
    ],
)
def test_habits_of_other_formats_are_answered(cli, tmp_path, text, hint):
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    code, out, err = cli("site", "check", str(tmp_path / "s.toml"))
    assert (code != 0, hint in out + err) == (True, True), out + err
