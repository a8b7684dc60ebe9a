"""The rendered script, with bash itself as the judge of quoting."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcrun import pipeline
from hpcrun.errors import HpcrunError
from hpcrun.request import Request
from hpcrun.script import expand, quote

text = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=40)


def bash(script, **environment):
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, check=True, env={"PATH": "/usr/bin:/bin", **environment}
    )
    return done.stdout.decode()


@settings(max_examples=50, deadline=None)
@given(st.lists(text, min_size=1, max_size=8))
def test_no_value_breaks_out_of_its_quotes(values):
    script = "".join(f"printf '%s\\0' {quote(value)} {expand(value.replace('${', ''))};" for value in values)
    printed = bash(script).split("\0")[:-1]
    assert printed == [part for value in values for part in (value, value.replace("${", ""))]


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
    return pipeline.prepare(Request(target, args, **more)).script


def directives(text):
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]


def test_only_what_somebody_set_is_emitted():
    lines = directives(script("./a.out", site="slurm", resources={"nodes": 2, "time": "1-0", "exclusive": True}))
    assert [line for line in lines if not line.startswith("--chdir=")] == [
        "--job-name=a.out",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--time=1-0",
        "--exclusive",
    ]


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
    ],
)
def test_gpus_are_asked_for_as_the_site_wants(tmp_path, gpu, expected):
    (tmp_path / "s.toml").write_text(f'extends = "slurm"\n{gpu}\n')
    lines = directives(script("a", site=str(tmp_path / "s.toml"), resources={"gpus_per_node": "4"}))
    assert [line for line in lines if "gpu" in line or "gres" in line] == ([expected] if expected else [])


def test_a_gpu_type_on_the_command_line_wins():
    lines = directives(script("a", site="slurm", resources={"gpus_per_node": "h100:2"}))
    assert "--gpus-per-node=h100:2" in lines


def test_modules_come_before_exports_and_exports_before_the_launch(tmp_path):
    (tmp_path / "s.toml").write_text(
        'extends = "slurm"\nsetup = ["ulimit -c 0"]\nteardown = ["echo bye"]\n'
        '[modules]\npurge = true\nload = ["cuda/12.4"]\n'
        '[environment]\nB = "${HOME}/b"\n[prepend_path]\nPATH = ["/x", "/y"]\n'
    )
    text = script("a", site=str(tmp_path / "s.toml"), environment=(("C", "3"),))
    order = ["module purge", "module load cuda/12.4", "PATH=/y", "PATH=/x", 'export B="${HOME?', "export C=3"]
    order += ["ulimit -c 0", "-m hpcrun hostfile", "srun --ntasks", "echo bye"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_an_unset_path_leaves_no_empty_entry():
    part = [line for line in script("a", site="styx").splitlines() if "LD_LIBRARY_PATH=" in line]
    run = "set -u\n" + "\n".join(part) + '\necho "$LD_LIBRARY_PATH"'
    assert bash(run) == "/opt/GPI/lib64\n"
    assert bash(run, CONDA_PREFIX="/conda", LD_LIBRARY_PATH="/old") == "/conda/lib:/opt/GPI/lib64:/old\n"


@pytest.mark.parametrize("where", ["nvvm/libdevice", "lib/nvvm/libdevice", "lib"])
def test_libdevice_is_linked_where_xla_looks_and_flags_are_appended(tmp_path, where):
    folder = tmp_path / "conda" / where
    folder.mkdir(parents=True)
    (folder / "libdevice.10.bc").write_text("bitcode")
    text = script("a", site="styx")
    block = text[text.index("for hpcrun_file") : text.index("# ---- Where")]
    linked = f"{tmp_path}/run/cuda/nvvm/libdevice/libdevice.10.bc"
    run = f'set -u; HPCRUN_RUN_DIR={tmp_path}/run\n{block}\necho "$XLA_FLAGS"; cat {linked}'
    assert bash(run, CONDA_PREFIX=str(tmp_path / "conda"), XLA_FLAGS="--mine") == (
        f"--mine --xla_gpu_cuda_data_dir={tmp_path}/run/cuda\nbitcode"
    )


def test_a_project_overrides_one_block_of_a_template(tmp_path, monkeypatch):
    project, lab = tmp_path / ".hpcrun", tmp_path / "lab"
    for folder, line in ((project, "echo project"), (lab, "echo lab")):
        (folder / "templates").mkdir(parents=True)
        (folder / "templates" / "slurm.sh.j2").write_text(
            '{% extends "slurm.sh.j2" %}\n{% block setup %}{{ super() }}' + line + "\n{% endblock %}\n"
        )
    monkeypatch.setenv("HPCRUN_SITE_PATH", str(lab))
    monkeypatch.chdir(tmp_path)
    text = script("a", site="slurm")
    assert text.index("echo lab") < text.index("echo project") < text.index("srun --ntasks")
    assert text.startswith("#!/bin/bash\n#SBATCH --job-name=a\n")


@pytest.mark.parametrize(
    ("body", "words"),
    [("{% block setup %}\n{{ site.nmae }}{% endblock %}", ":2: "), ("{% block setup %}", "endblock")],
)
def test_a_wrong_template_names_its_file_and_line(tmp_path, monkeypatch, body, words):
    (tmp_path / ".hpcrun" / "templates").mkdir(parents=True)
    file = tmp_path / ".hpcrun" / "templates" / "slurm.sh.j2"
    file.write_text('{% extends "slurm.sh.j2" %}' + body)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HpcrunError) as error:
        script("a", site="slurm")
    assert str(file) in str(error.value)
    assert words in str(error.value)


@pytest.mark.parametrize("site", ["local", "slurm", "styx"])
def test_every_script_is_valid_bash(site):
    text = script("a b", "c", site=site, resources={"time": "1:00:00"}, environment=(("X", "a\n'b\""),))
    assert subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False).stderr == ""
