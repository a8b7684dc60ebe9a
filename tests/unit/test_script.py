"""The rendered script, with bash itself as the judge of quoting."""

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpcrun import submission
from hpcrun.errors import HpcrunError
from hpcrun.gpus import requests_gpus
from hpcrun.request import Request
from hpcrun.script import templates
from hpcrun.script.quoting import expand, quote
from hpcrun.sites import layer_files, loader, trust
from tests import bash_library

text = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=40)


def bash(script, **environment):
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, check=True, env={"PATH": "/usr/bin:/bin", **environment}
    )
    return done.stdout.decode()


@given(st.lists(text, min_size=1, max_size=8))
@example(["~/", "~/$x", "~root/", "a~/"])
def test_no_value_breaks_out_of_its_quotes(values):
    script = "".join(f"printf '%s\\0' {quote(value)} {expand(value.replace('{', ''))};" for value in values)
    printed = bash(script, HOME="/home/a b").split("\0")[:-1]
    assert printed == [part for value in values for part in (value, in_home(value.replace("{", "")))]


def in_home(value):
    return value.replace("~", "/home/a b", 1) if value.startswith("~/") else value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${A}/lib", "a b/lib"),
        ("--flag=${A} $A `id` $(id)", "--flag=a b $A `id` $(id)"),
        ('"${A}"', '"a b"'),
        ("${A}${A}", "a ba b"),
        ("", ""),
    ],
)
def test_only_braced_variables_are_expanded(value, expected):
    assert bash(f"printf %s {expand(value)}", A="a b") == expected


def script(*args, target=None, **more):
    return submission.prepare(Request(target, args, **more)).script


def directives(text):
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]


def test_only_explicit_values_are_rendered():
    lines = directives(script("./a.out", site="slurm", resources={"nodes": 2, "time": "1-0", "exclusive": True}))
    assert [line for line in lines if not line.startswith("--chdir=")] == [
        "--job-name=a.out",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--time=1-0",
        "--exclusive",
    ]


@pytest.mark.parametrize(("keys", "time", "expected"), [
    ("", "8:00:00", ["--signal=B:USR2@120", "--requeue"]),
    ("", "4", ["--signal=B:USR2@60", "--requeue"]),  # of a short limit a quarter
    ("restart.signal_seconds = 300", None, ["--signal=B:USR2@300", "--requeue"]),
    ("restart.requeue = false", "1-0", ["--signal=B:USR2@120", "--no-requeue"]),
])  # fmt: skip
def test_a_requeuable_job_gets_a_signal_before_its_time_limit(tmp_path, keys, time, expected):
    (tmp_path / "s.toml").write_text(f'extends = "slurm"\n{keys}\n')
    resources = {"time": time} if time else {}
    lines = directives(script("a", site=str(tmp_path / "s.toml"), resources=resources, max_requeue=2))
    assert [line for line in lines if line.startswith(("--signal", "--requeue", "--no-requeue"))] == expected


def test_the_site_sets_the_default_number_of_requeues(tmp_path):
    (tmp_path / "s.toml").write_text('extends = "slurm"\nrestart.max_requeue = 4\n')
    site = str(tmp_path / "s.toml")
    assert "--max-requeue 4" in script("a", site=site)
    assert "#SBATCH --signal" not in script("a", site=site, max_requeue=0)
    for wrong in (-1, 1.5):
        with pytest.raises(HpcrunError, match="not a number of times"):
            script("a", site=site, max_requeue=wrong)


def test_tasks_of_a_sweep_do_not_submit_the_sweep_again(tmp_path):
    (tmp_path / "s.toml").write_text('extends = "slurm"\nrestart = { requeue = false, max_requeue = 1 }\n')
    sweep = {"site": str(tmp_path / "s.toml"), "sweep": (("lr", ("1", "2")),)}
    assert "#SBATCH --signal" not in script("a", **sweep)
    with pytest.raises(HpcrunError, match="which tasks of a sweep need to continue"):
        script("a", max_requeue=1, **sweep)


def test_other_sbatch_options_pass_through_and_spaces_are_quoted():
    options = ["--reservation=maint", "--comment=two words"]
    lines = directives(script("a", site="slurm", resources={"sbatch": options}))
    assert lines[-2:] == ["--reservation=maint", "--comment='two words'"]


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("", "--gpus-per-node=4"),
        ('gpu.type = "a100"', "--gpus-per-node=a100:4"),
        ('gpu.type = "a100"\ngpu.request = "none"', ""),
        ('gpu.request = "gres"', "--gres=gpu:4"),
        ('gpu.request = "gres"\ngpu.type = "v100"', "--gres=gpu:v100:4"),
        ('gpu.request = "gpus"', "--gpus=4"),
        ('gpu.request = "gpus"\ndefaults.nodes = 2\ngpu.type = "a100"', "--gpus=a100:8"),
        ('gpu.request = "gpus-per-task"', "--gpus-per-task=1"),
        ('gpu.request = "gpus-per-task"\ndefaults.ntasks_per_node = 2', "--gpus-per-task=2"),
    ],
)
def test_gpus_are_requested_in_the_sites_style(tmp_path, gpu, expected):
    (tmp_path / "s.toml").write_text(f'extends = "slurm"\n{gpu}\n')
    lines = directives(script("a", site=str(tmp_path / "s.toml"), resources={"gpus_per_node": "4"}))
    assert [line for line in lines if "gpu" in line or "gres" in line] == ([expected] if expected else [])


PARTITIONS = """
extends = "slurm"
launcher_args = ["--cpu-bind=cores"]
sbatch = ["--hint=nomultithread"]
environment.NCCL_DEBUG = "WARN"
modules.load = ["gcc"]
gpu.type = "a100"
gpu.cpus = 8
[partitions.a]
[partitions.b]
launcher_args = ["--cpu-bind=map_cpu:1,2"]
environment.NCCL_SOCKET_IFNAME = "hsn0"
modules.load = ["gcc", "rocm"]
modules.use = ["/more"]
setup = ["ulimit -l unlimited"]
gpu.request = "gres"
gpu.vendor = "amd"
gpu.order = [1, 0]
[qos.debug]
gpu.type = "mi250"
sbatch = ["--reservation=debug"]
"""


def test_a_partition_and_a_qos_have_settings_of_their_own(tmp_path):
    (tmp_path / "s.toml").write_text(PARTITIONS)
    first, second, third = (
        script("a", site=str(tmp_path / "s.toml"), resources={"nodes": 2, "gpus_per_node": "2", **asked})
        for asked in ({"partition": "a"}, {"partition": "b"}, {"partition": "b", "qos": "debug"})
    )
    assert {"--gpus-per-node=a100:2", "--hint=nomultithread", "--cpus-per-task=8"} <= set(directives(first))
    assert {"--gres=gpu:a100:2", "--hint=nomultithread", "--cpus-per-task=8"} <= set(directives(second))
    assert {"--gres=gpu:mi250:2", "--reservation=debug", "--qos=debug"} <= set(directives(third))
    assert "--hint=nomultithread" not in directives(third)
    assert "--cpu-bind=cores @rank" in first
    assert "--cpu-bind=map_cpu:1,2 @rank" in second
    assert ("NCCL_DEBUG=WARN" in second, "NCCL_SOCKET_IFNAME=hsn0" in second) == (True, True)
    assert "NCCL_SOCKET_IFNAME" not in first
    assert ("module load rocm" in first, "module load rocm" in second, "module use /more" in second) == (
        False,
        True,
        True,
    )
    assert ("CUDA_VISIBLE_DEVICES" in first, "CUDA_VISIBLE_DEVICES" in second) == (True, False)
    assert ("ulimit -l unlimited" in first, "ulimit -l unlimited" in second) == (False, True)


@pytest.mark.parametrize(
    ("resources", "bound"),
    [
        ({"gpus_per_node": "4"}, "--cpu-bind=mask_cpu:0xf0,0xf,0xf000,0xf00"),
        ({"gpus_per_node": "2"}, "--cpu-bind=mask_cpu:0xf0,0xf"),
        ({"gpus_per_node": "4", "ntasks_per_node": 2}, ""),
        ({"ntasks_per_node": 4}, ""),
    ],
)
def test_each_rank_has_the_cores_next_to_its_gpu(tmp_path, resources, bound):
    masks = '["0xf0", "0xf", "0xf000", "0xf00"]'
    (tmp_path / "s.toml").write_text(f'extends = "slurm"\ngpu.cpu_masks = {masks}\n')
    text = script("a", site=str(tmp_path / "s.toml"), resources={"nodes": 2, **resources})
    line = next(line for line in text.splitlines() if line.startswith("  srun"))
    assert bound in line
    assert ("--cpu-bind" in line) is bool(bound)


MIXED = """
extends = "slurm"
venv = "/envs/x86"
setup = ["echo all"]
launcher_args = ["--cpu-bind=cores"]
sbatch = ["--hint=nomultithread"]
modules = { purge = true, load = ["cuda"] }
cuda.xla_flags = ["--a=1"]
container.image = "/images/x86.sif"
prepend_path.PATH = ["/x86/bin"]
[partitions.x86]
[partitions.arm]
conda.env = "/envs/arm"
launcher = "mpirun"
launcher_args = []
sbatch = []
setup = []
modules = { purge = false, load = [] }
mpi.library = "openmpi"
cuda.xla_flags = []
container.image = "/images/arm.sif"
prepend_path.PATH = ["/arm/bin"]
"""


def test_a_partition_may_replace_or_remove_software(tmp_path):
    (tmp_path / "s.toml").write_text(MIXED)
    first, second = (
        script("a", site=str(tmp_path / "s.toml"), resources={"nodes": 2, "partition": name}) for name in ("x86", "arm")
    )
    for line in ("/envs/x86/bin/activate", "echo all", "--cpu-bind=cores", "nomultithread", "module purge", "--a=1"):
        assert (line in first, line in second) == (True, False), line
    for line in ("/images/x86.sif", "/x86/bin", "module load cuda", "srun --ntasks=2"):
        assert (line in first, line in second) == (True, False), line
    for line in ("conda activate /envs/arm", "/images/arm.sif", "/arm/bin", "mpirun --bind-to none"):
        assert (line in first, line in second) == (False, True), line


def test_values_of_a_partition_must_fit_those_of_the_site(tmp_path):
    (tmp_path / "s.toml").write_text('container.runtime = "pyxis"\npartitions.a.gpu.order = [0, 2]\n')
    with pytest.raises(HpcrunError, match=r"s.toml:2: partitions.a.* must name each GPU from 0 to 1 once"):
        loader.load_site(str(tmp_path / "s.toml"))


def test_omitted_sbatch_options_appear_only_on_the_launch_line(tmp_path):
    (tmp_path / "s.toml").write_text('extends = "slurm"\nsbatch_omit = ["--ntasks-per-node", "--cpus-per-task"]\n')
    text = script("a", site=str(tmp_path / "s.toml"), resources={"nodes": 2, "ntasks_per_node": 4, "cpus_per_task": 8})
    assert [line for line in directives(text) if "task" in line] == []
    assert "--ntasks-per-node=4 --cpus-per-task=8" in text


@pytest.mark.parametrize(
    ("rank", "given", "expected"), [(0, None, "1"), (1, None, "0"), (0, "5,7", "7"), (1, "5,7", "5")]
)
def test_a_rank_uses_the_gpu_closest_to_its_cores(tmp_path, rank, given, expected):
    (tmp_path / "s.toml").write_text(PARTITIONS)
    resources = {"partition": "b", "gpus_per_node": "2"}
    text = script("a", site=str(tmp_path / "s.toml"), resources=resources)
    writes = 'hpcrun_hostfile() { :; }\nhpcrun_launch() { hpcrun_read_launch "$@"; hpcrun_write_rank; }\n'
    launch = bash_library.source_commands() + writes + text[text.index("# ---- Launch") :]
    (tmp_path / "logs").mkdir()
    environment = {
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": str(rank),
        "HPCRUN_RUN_DIR": str(tmp_path),
        "HPCRUN_LAUNCHER": "srun",
    }
    environment |= {"ROCR_VISIBLE_DEVICES": given} if given else {}
    output = bash(f'{launch}bash "$HPCRUN_RUN_DIR/rank.sh" printenv ROCR_VISIBLE_DEVICES', **environment)
    assert output.splitlines()[-1] == expected


def test_memory_per_gpu_is_requested_only_with_gpus(tmp_path):
    (tmp_path / "s.toml").write_text('extends = "slurm"\ndefaults.mem_per_gpu = "60G"\n')
    for gpus, mem, expected in (("1", None, ["--mem-per-gpu=60G"]), (None, None, []), ("1", "9G", ["--mem=9G"])):
        lines = directives(script("a", site=str(tmp_path / "s.toml"), resources={"gpus_per_node": gpus, "mem": mem}))
        assert [line for line in lines if "mem" in line] == expected


@pytest.mark.parametrize(("options", "expected"), [
    (["--gres=gpu"], True), (["--gres=gpu:4"], True), (["--gres=gpu:a100"], True), (["--gres=nvme:1,gpu:a100:2"], True),
    (["--gpus=4"], True), (["--gpus=a100:4"], True), (["--gpus-per-node=h100:2"], True), (["--gpus-per-task=1"], True),
    (["--tres-per-task=cpu=2,gres/gpu:a100=1"], True), (["--tres-per-task=gres:gpu:2"], True),
    (["--gres=gpu:0"], False), (["--gres=none"], False), (["--gpus=0"], False), (["--gres=gpumem:4G"], False),
    (["--gpu-bind=closest"], False), (["--gres=gpu:4", "--gres=none"], False), ([], False),
])  # fmt: skip
def test_sbatch_options_that_request_gpus_are_recognised(options, expected):
    assert requests_gpus(options) == expected


@pytest.mark.parametrize(("site", "job", "expected"), [
    ("", "--gres=nvme:9", ["--gres=gpu:4,nvme:9"]),
    ("--gres=nvme:1", None, ["--gres=gpu:4,nvme:1"]),
    ("--gres=nvme:1", "--gres=nvme:9", ["--gres=gpu:4,nvme:9"]),
    ("", "--gres=none", ["--gres=gpu:4", "--gres=none"]),
    ("", "--gres=gpu:1,nvme:9", ["--gres=gpu:4", "--gres=gpu:1,nvme:9"]),
])  # fmt: skip
def test_other_generic_resources_do_not_replace_the_gpus(tmp_path, site, job, expected):
    (tmp_path / "s.toml").write_text(f'extends = "slurm"\ngpu.request = "gres"\nsbatch = {[site] if site else []}\n')
    resources = {"gpus_per_node": "4", "sbatch": (job,) if job else ()}
    lines = directives(script("a", site=str(tmp_path / "s.toml"), resources=resources))
    assert [line for line in lines if "gres" in line] == expected


def test_memory_per_gpu_is_requested_with_gpus_from_raw_sbatch_options():
    resources = {"mem_per_gpu": "60G", "sbatch": ("--gres=gpu:2",)}
    lines = directives(script("a", site="slurm", resources=resources))
    assert [line for line in lines if "gpu" in line] == ["--mem-per-gpu=60G", "--gres=gpu:2"]


def test_a_gpu_type_on_the_command_line_wins():
    lines = directives(script("a", site="slurm", resources={"gpus_per_node": "h100:2"}))
    assert "--gpus-per-node=h100:2" in lines


def test_modules_come_before_exports_and_exports_before_the_launch(tmp_path):
    (tmp_path / "s.toml").write_text(
        'extends = "slurm"\nsetup = ["ulimit -c 0"]\nteardown = ["echo bye"]\n'
        '[modules]\npurge = true\nreset = true\nload = ["cuda/12.4"]\n'
        '[environment]\nB = "${HOME}/b"\n[prepend_path]\nPATH = ["/x", "/y"]\n'
    )
    text = script("a", site=str(tmp_path / "s.toml"), environment=(("C", "3"),))
    order = [
        "module purge",
        "module reset",
        "module load cuda/12.4",
        "PATH=/y",
        "PATH=/x",
        'export B="${HOME?',
        "export C=3",
    ]
    order += ["ulimit -c 0", "hpcrun_hostfile", "srun --ntasks", "echo bye"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_setup_sees_the_users_variables_and_does_not_override_them(tmp_path):
    (tmp_path / "s.toml").write_text("""extends = "slurm"
        setup = ["echo setup sees $A", "export A=site B=$A", "unset C"]
    """)
    text = script("a", site=str(tmp_path / "s.toml"), environment=(("A", "user's"), ("C", "c")))
    lines = text[text.index("# ---- Environment") : text.index("# ---- Launch")]
    assert bash(f'{lines}echo "$A $B $C"') == "setup sees user's\nuser's user's c\n"


def test_an_unset_path_leaves_no_empty_entry():
    part = [line for line in script("a", site="styx").splitlines() if "LD_LIBRARY_PATH=" in line]
    run = "set -u\n" + "\n".join(part) + '\necho "$LD_LIBRARY_PATH"'
    assert bash(run) == "/opt/GPI/lib64\n"
    assert bash(run, CONDA_PREFIX="/conda", LD_LIBRARY_PATH="/old") == "/conda/lib:/opt/GPI/lib64:/old\n"


def test_a_project_overrides_one_block_of_a_template(tmp_path, monkeypatch):
    project, lab = tmp_path / ".hpcrun", tmp_path / "lab"
    for folder, line in ((project, "echo project"), (lab, "echo lab")):
        (folder / "templates").mkdir(parents=True)
        (folder / "templates" / "slurm.sh.j2").write_text(
            '{% extends "slurm.sh.j2" %}\n{% block setup %}{{ super() }}' + line + "\n{% endblock %}\n"
        )
    monkeypatch.setenv("HPCRUN_SITE_PATH", str(lab))
    monkeypatch.chdir(tmp_path)
    trust.allow_files(layer_files.read_sources(project).values())
    text = script("a", site="slurm")
    assert text.index("echo lab") < text.index("echo project") < text.index("srun --ntasks")
    assert text.startswith("#!/bin/bash\n#SBATCH --job-name=a\n")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{% block setup %}\n{{ site.nmae }}{% endblock %}", ":2: "),
        ("{% block setup %}\n{{ run_dir | xmlattr }}{% endblock %}", ":2: "),
        ("{% block setup %}", "endblock"),
    ],
)
def test_an_invalid_template_is_an_error_with_file_and_line(tmp_path, monkeypatch, body, words):
    (tmp_path / ".hpcrun" / "templates").mkdir(parents=True)
    file = tmp_path / ".hpcrun" / "templates" / "slurm.sh.j2"
    file.write_text('{% extends "slurm.sh.j2" %}' + body)
    monkeypatch.chdir(tmp_path)
    trust.allow_files([layer_files.read_source(file)])
    with pytest.raises(HpcrunError) as error:
        script("a", site="slurm")
    assert str(file) in str(error.value)
    assert words in str(error.value)


@pytest.mark.parametrize("site", ["local", "slurm", "styx"])
def test_every_script_is_valid_bash(site):
    text = script("a b", "c", site=site, resources={"time": "1:00:00"}, environment=(("X", "a\n'b\""),))
    assert subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False).stderr == ""


@pytest.mark.parametrize(
    ("block", "successor"),
    [("record", "record.bash"), ("requeue", "slurm.bash"), ("rank", "hpcrun_launch"), ("provenance", "teardown")],
)
def test_overriding_a_removed_template_block_is_an_error_that_names_its_successor(
    tmp_path, monkeypatch, block, successor
):
    (tmp_path / ".hpcrun" / "templates").mkdir(parents=True)
    file = tmp_path / ".hpcrun" / "templates" / "slurm.sh.j2"
    file.write_text('{% extends "slurm.sh.j2" %}\n\n{% block ' + block + " %}echo mine\n{% endblock %}\n")
    monkeypatch.chdir(tmp_path)
    trust.allow_files([layer_files.read_source(file)])
    with pytest.raises(HpcrunError, match=f"slurm.sh.j2:3: job scripts have no block {block} any more") as error:
        script("a", site="slurm")
    assert successor in (error.value.hint or "")
    assert script("a", site="local")


def test_the_documentation_lists_all_removed_blocks():
    text = Path(__file__).parents[2].joinpath("docs/templates.md").read_text()
    listed = text.partition("former blocks")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(templates._REMOVED_BLOCKS)


def test_overriding_an_unknown_block_is_an_error_that_names_the_nearest(tmp_path, monkeypatch):
    lab, user = tmp_path / "lab" / "templates", tmp_path / "hpcrun" / "templates"
    for folder, body in (
        (lab, "{% block setup %}{{ super() }}{% block lab %}echo lab{% endblock %}{% endblock %}"),
        (user, "{% block lab %}echo mine{% endblock %}{% if site %}{% block teardwon %}{% endblock %}{% endif %}"),
    ):
        folder.mkdir(parents=True)
        (folder / "slurm.sh.j2").write_text('{% extends "slurm.sh.j2" %}\n' + body)
    monkeypatch.setenv("HPCRUN_SITE_PATH", str(lab.parent))
    assert "echo lab" in script("a", site="slurm")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(
        HpcrunError, match=r"hpcrun/templates/slurm.sh.j2:2: job scripts have no block teardwon"
    ) as error:
        script("a", site="slurm")
    assert error.value.hint == "did you mean teardown?"
    (user / "slurm.sh.j2").write_text((user / "slurm.sh.j2").read_text().replace("teardwon", "teardown"))
    assert "echo mine" in script("a", site="slurm")


def test_submit_warns_of_a_template_that_no_script_uses(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "hpcrun" / "templates"
    folder.mkdir(parents=True)
    (folder / "slurm.sh.j2").write_text(
        '{% extends "slurm.sh.j2" %}{% block launch %}{% include "ours.j2" %}{% endblock %}'
    )
    (folder / "ours.j2").write_text("echo ours\n")
    line = ["submit", "--site", "slurm", "--dry-run", "--", "true"]
    _, out, err = cli(*line)
    assert "echo ours" in out
    assert "no job script uses" not in err
    (folder / "slrm.sh.j2").touch()
    assert f"WARNING: no job script uses {folder}/slrm.sh.j2; did you mean slurm.sh.j2?\n" in cli(*line)[2]
