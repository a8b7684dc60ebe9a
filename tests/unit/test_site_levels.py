"""Settings for some jobs only: partitions, QoS, constraints, accounts; and inherited settings that are dropped."""

import pytest

from hpcrun.errors import HpcrunError
from hpcrun.resources import Resources
from hpcrun.sites import loader
from hpcrun.sites.lint import rules

CLUSTER = """

hosts = ["login*"]
[limits]
max_gpus = 16
[partitions.short]
max_time = "2:00:00"
max_nodes = 8
gpus_per_node = 0
[partitions.long]
min_time = "1:00:00"
max_time = "7-0"
max_nodes = 4
gpus_per_node = 0
[partitions.gpu]
max_time = "1-0"
gpus_per_node = 4
gpu.type = "a100"
modules.load = ["cuda"]
[constraints.v100]
defaults.account = "lab@v100"
gpu.type = "v100"
[constraints.a100]
account_pattern = "*@a100"
[accounts."*@v100"]
max_gpus = 8
max_cpus = 40
environment.BILLING = "old"
"""


@pytest.fixture
def cluster(layers):
    def write(more=""):
        (layers["user"] / "cluster.toml").write_text(more + CLUSTER)
        return loader.load_site("cluster").site

    return write


def dry_run(cli, *words):
    code, out, err = cli("submit", "--site", "cluster", "--dry-run", *words, "--", "hostname")
    return (out if code == 0 else err), code


def test_an_empty_name_in_a_list_of_partitions_is_ignored(cluster, cli):
    cluster()
    out, code = dry_run(cli, "-p", "gpu,")
    assert (code, "module load cuda" in out) == (0, True)


def test_options_for_gpus_count_as_the_script_has_them(cluster, cli):
    cluster('gpu.request = "gres"\nsbatch_forbidden = ["--gpus-per-node", "--gpus"]\n')
    out, code = dry_run(cli, "-p", "gpu", "--gpus-per-node", "4")
    assert (code, "#SBATCH --gres=gpu:a100:4\n" in out) == (0, True), out
    cluster('gpu.request = "gres"\nsbatch_forbidden = ["--gres"]\n')
    err, code = dry_run(cli, "-p", "gpu", "--gpus-per-node", "4")
    assert (code, "sbatch option --gres is not allowed here" in err) == (2, True)


def test_a_partition_without_gpus_is_named_where_a_training_uses_cpus(cluster, cli):
    cluster()
    _, _, err = cli("submit", "lenet5", "--site", "cluster", "-p", "short", "--dry-run")
    assert "WARNING: partition short of site cluster has no GPUs: lenet5 runs on CPU cores" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-p", "short,long", "-N", "5"], "--nodes=5 is more than partition long allows: 4 nodes"),
        (["-p", "short,long", "-t", "3:00:00"], "--time=3:00:00 is more than partition short allows"),
        (["-p", "short,long", "-t", "30"], "--time=30 is less than partition long allows: a time limit of 1:00:00"),
        (
            ["-p", "short,lang"],
            "has no partition 'lang'; it has short, long, gpu\nHINT: did you mean --partition=short,long?",
        ),
        (["-p", "short,gpu"], "these partitions of site cluster differ in modules.load, gpu.type, but"),
        (["-p", "GPU"], "HINT: did you mean --partition=gpu?"),
        (["-p", "short", "-t", "7:00:00"], "allows: a time limit of 2:00:00"),
        (["-p", "gpu", "-N", "5", "--gpus-per-node", "4"], "20 GPUs in all is more than partition gpu allows: 16 GPUs"),
        (["-p", "gpu", "-C", "a100", "-A", "lab@v100"], "requires an account like *@a100, not lab@v100"),
        (["-p", "gpu", "-C", "v100", "-N", "3"], "12 GPUs in all is more than account *@v100 allows: 8 GPUs a job"),
        (["-p", "gpu", "-C", "v100", "-t", "2-0"], "--time=2-0 is more than partition gpu allows"),
        (["-p", "short", "-A", "x@v100", "-n", "41"], "41 ranks with 1 core each is more than account *@v100 allows"),
    ],
)
def test_limits_of_each_level_are_checked(cluster, cli, words, expected):
    cluster()
    err, code = dry_run(cli, *words)
    assert (code, expected in err) == (2, True), err
    assert "HINT: " in err


@pytest.mark.parametrize(
    ("words", "alternatives"),
    [
        (
            ["-p", "short", "-t", "3:00:00"],
            "or --qos=many or --partition=long or --partition=gpu, which allows this job",
        ),
        (["-p", "long", "-N", "5", "-t", "4:00:00"], "; or --qos=many or --partition=gpu, which allows this job"),
        (["-p", "long", "-N", "500", "-t", "2-0"], None),
    ],
)
def test_qos_and_partitions_that_allow_a_refused_job_are_named(cluster, cli, words, alternatives):
    cluster('qos.many.max_nodes = 64\nqos.many.max_time = "5:00:00"\n')
    err, code = dry_run(cli, *words)
    assert code == 2
    assert (alternatives in err) if alternatives else ("which allows" not in err), err


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["-p", "short,long", "-t", "90"], ["#SBATCH --partition=short,long", "#SBATCH --time=90"]),
        (
            ["-p", "gpu", "-C", "v100&ib"],
            ["#SBATCH --account=lab@v100", "--gpus-per-node=v100:4", "export BILLING=old"],
        ),
        (["-p", "gpu", "-C", "[v100|a100]", "-A", "b@a100"], ["#SBATCH --account=b@a100", "--gpus-per-node=v100:4"]),
        (["-p", "gpu", "-C", "v1000"], ["--gpus-per-node=a100:4"]),
    ],
)
def test_jobs_get_the_settings_of_their_partition_constraint_and_account(cluster, cli, words, lines):
    cluster()
    script, code = dry_run(cli, *words)
    assert (code, [line for line in lines if line not in script]) == (0, [])


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["-A", "course"], ["--partition=gpu", "--qos=normal"]),
        (["-A", "course", "-p", "long"], ["--partition=long", "--qos=normal"]),
        (["-C", "big"], ["--partition=long", "--qos=many", "--constraint=big"]),
        (["-A", "course", "-C", "big", "--qos", "own"], ["--partition=gpu", "--qos=own"]),
        (["--qos", "quick"], ["--partition=short", "--qos=quick"]),
        ([], ["--qos=standby"]),
    ],
)
def test_an_account_constraint_or_qos_that_is_requested_chooses_the_queue(cluster, cli, words, lines):
    queues = """
    defaults.qos = "standby"
    constraints.big.defaults = {partition = "long", qos = "many"}
    accounts.course.defaults = {partition = "gpu", qos = "normal"}
    qos.quick.defaults.partition = "short"
    """
    cluster(queues)
    script, code = dry_run(cli, *words)
    assert (code, [line for line in lines if f"#SBATCH {line}\n" not in script]) == (0, [])


def test_the_constraint_for_an_account_is_named(cluster, cli):
    cluster('constraints.old.account_pattern = "*@v100"\n')
    err, code = dry_run(cli, "-p", "gpu", "-C", "a100", "-A", "lab@v100")
    assert (code, "; or --constraint=old, for which lab@v100 is an account; see" in err) == (2, True), err
    err, code = dry_run(cli, "-p", "gpu", "-C", "a100", "-A", "lab@a100", "-N", "99")
    assert (code, "is an account" in err) == (2, False), err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--ntasks-per-node", "4", "-c", "40"], "give --cpus-per-task=8 or less, or fewer ranks a node"),
        (["-c", "40"], "give --cpus-per-task=32 or less;"),
        (["--ntasks-per-node", "40"], "give a smaller --ntasks-per-node, or more --nodes"),
    ],
)
def test_too_many_cores_are_answered_with_a_number_that_fits(cluster, cli, words, hint):
    cluster("partitions.small.cpus_per_node = 32\n")
    err, code = dry_run(cli, "-p", "small", *words)
    assert (code, hint in err) == (2, True), err


@pytest.mark.parametrize(
    ("words", "partition"),
    [
        ([], "short"),
        (["-t", "3:00:00"], "long"),
        (["--gpus-per-node", "2", "-t", "1:00:00"], "gpu"),
        (["-p", "long", "-t", "1:00:00"], "long"),
    ],
)
def test_the_first_partition_whose_limits_allow_the_job_is_chosen(cluster, cli, words, partition):
    cluster("choose_partition = true")
    script, code = dry_run(cli, *words)
    assert (code, f"#SBATCH --partition={partition}\n" in script) == (0, True), script


def test_a_job_that_no_partition_allows_is_refused_with_each_limit(cluster, cli):
    cluster("choose_partition = true")
    err, code = dry_run(cli, "-N", "9", "-t", "8-0")
    assert code == 2
    assert "no partition allows this job: --nodes=9 is more than partition short allows: 8 nodes; " in err
    assert "--time=8-0 is more than partition gpu allows: a time limit of 1-0" in err


def test_partitions_in_one_job_share_equal_defaults_only(layers):
    text = 'defaults.nodes = 2\n[partitions.a]\ndefaults.time = "1"\nmem_per_node = "1G"\n[partitions.b]\n'
    (layers["user"] / "c.toml").write_text(text + 'defaults.time = "2"\nmem_per_node = "2G"\n')
    resolved = loader.load_site("c").site.resolve(Resources(partition="a,b"))
    assert (resolved.defaults.nodes, resolved.defaults.time, resolved.limits.mem_per_node) == (2, None, None)


def test_another_mpi_library_inherits_no_setting_of_the_old_one(layers):
    (layers["user"] / "c.toml").write_text('extends = "slurm"\n[mpi]\nlibrary = "cray-mpich"\n')
    mpi = loader.load_site("c").site.mpi
    assert (mpi.library, mpi.type, mpi.environment) == ("cray-mpich", None, {})
    (layers["user"] / "d.toml").write_text('extends = "slurm"\n[partitions.x]\nmpi.library = "openmpi"\n')
    site = loader.load_site("d").site
    assert (site.mpi.type, site.resolve(Resources(partition="x")).mpi.type) == ("pmi2", None)
    assert site.mpi.environment == {"MPIR_CVAR_CH4_NETMOD": "ofi"}


def test_unset_removes_inherited_keys(layers):
    (layers["lab"] / "c.toml").write_text('setup = ["a"]\n[modules]\npurge = true\n[partitions."a b"]\nmax_nodes = 1\n')
    (layers["user"] / "c.toml").write_text(
        """unset = ["setup", "modules", 'partitions."a b".max_nodes', "qos.x"]\nmodules.load = ["gcc"]\n"""
    )
    found = loader.load_site("c")
    site = found.site
    assert (site.setup, site.modules.purge, site.modules.load) == ((), False, ("gcc",))
    assert (site.partitions["a b"].max_nodes, found.find_origin(("setup",))) == (None, None)
    (finding,) = (one for one in rules.lint_site(found) if one.key == ("unset",))
    assert finding.what == "unset names qos.x, which no lower file sets"
    assert finding.where == f"{layers['user']}/c.toml:1"


@pytest.mark.parametrize("keys", ['"setup"', "[1]", '["a = 1"]', '[""]', '["a]"]', '["a.b = 3\\nc"]'])
def test_an_invalid_unset_is_an_error_with_its_line(layers, keys):
    (layers["user"] / "c.toml").write_text(f"unset = {keys}\n")
    with pytest.raises(HpcrunError, match=r"c.toml:1: unset = "):
        loader.load_site("c")


def test_force_purge_unloads_sticky_modules(layers, cli):
    (layers["user"] / "cluster.toml").write_text("[modules]\nforce_purge = true\n")
    script, _ = dry_run(cli)
    assert "hpcrun_module force-purge" in script


NAMES = """
defaults.constraint = "gpu"
[qos.regular]
[qos.debug]
[qos.gpu_h100-t3]
[constraints.a100]
defaults.account = "physics"
[accounts."*_g"]
"""


@pytest.mark.parametrize(("options", "warning"), [
    (["-q", "debg"], "lists no QoS debg; did you mean --qos=debug?"),
    (["-q", "regualr"], "did you mean --qos=regular?"),
    (["-q", "regulax"], "did you mean --qos=regular?"),
    (["-C", "gpus&hbm80g"], "lists no constraint gpus; did you mean --constraint=gpu&hbm80g?"),
    (["-A", "phisics"], "lists no account phisics; did you mean --account=physics?"),
    # names that may well exist
    *[([option, name], "") for option, name in [
        ("-q", "debug"), ("-q", "premium"), ("-q", "gpu_a100-t3"), ("-q", "gpu_h100-t4"), ("-C", "cpu"), ("-C", "v100"),
        ("-C", "a100*2"), ("-C", "a100_80"), ("-A", "m1_g"),
    ]],
])  # fmt: skip
def test_submit_warns_of_a_name_that_is_nearly_one_of_the_site_file(cli, layers, options, warning):
    (layers["user"] / "alps.toml").write_text(NAMES)
    code, _, err = cli("submit", "--site", "alps", *options, "--dry-run", "--", "true")
    assert code == 0, err
    assert warning in err if warning else "lists no" not in err
