"""Python environments and Spack, as a job's script activates them: bash itself is the judge."""

import json
import subprocess
import sys

import pytest

from hpcrun import submission
from hpcrun.errors import HpcrunError
from hpcrun.request import Request
from hpcrun.sites import loader

CONDA = """
conda() {
  [ "$1" = activate ] && [ -d "$2" -o "$2" = known ] || return 1
  export CONDA_PREFIX=$2 PATH=/conda/bin:$PATH
}
"""
SPACK = """
spack() {
  case "$*" in "env activate --dir "*|"env activate ml"|"load a@1"|"load b") echo "spack $*" ;; *) return 1 ;; esac
}
"""

OR_A_MODULE = "load a module that provides it, or set site key"


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Plan a job of a site with these keys."""
    monkeypatch.setenv("WORK", str(tmp_path / "work"))
    (tmp_path / "work").mkdir()

    def call(keys):
        (tmp_path / "s.toml").write_text(f'extends = "slurm"\n{keys}\n')
        return submission.prepare(Request(None, ("./a.out",), site=str(tmp_path / "s.toml")))

    return call


@pytest.fixture
def activated(plan, tmp_path):
    """Run a job's script from its modules up to its exports, and then these words, for the exit code and the output."""

    def call(keys, then='command -v python3; echo "${CONDA_PREFIX-}"', path="/usr/bin:/bin"):
        text = plan(keys).script
        start = min(text.index(mark) for mark in ("# ---- Spack", "# ---- The Python") if mark in text)
        part = text[start : text.index("# ---- Environment ---")]
        script = f'hpcrun_fail() {{ echo "FAIL $1"; exit 1; }}\n{part}\n{then}'
        environment = {"PATH": path, "WORK": str(tmp_path / "work"), "HOME": str(tmp_path)}
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, env=environment)
        return done.returncode, done.stdout.splitlines()

    return call


def made(tmp_path, file, text=""):
    (tmp_path / "work" / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "work" / file).write_text(text)


@pytest.mark.parametrize(("key", "folder"), [("venv", "env"), ("uv", "env/.venv")])
def test_a_virtual_environment_is_activated(activated, tmp_path, key, folder):
    real = tmp_path / "work" / folder
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", real], check=True)
    code, out = activated(f'{key} = "${{WORK}}/env"', "command -v python3; python3 -c 'import sys; print(sys.prefix)'")
    assert (code, out) == (0, [f"{real}/bin/python3", str(real)])


@pytest.mark.parametrize(("key", "words"), [
    ('venv = "${WORK}/none"', "FAIL there is no virtual environment in ${WORK}/none (site key venv)"),
    ('uv = "${WORK}/none"', "FAIL the uv project ${WORK}/none has no .venv: uv sync makes it there (site key uv)"),
    ('conda = { root = "${WORK}/none", env = "x" }', "FAIL there is no conda in ${WORK}/none (site key conda.root)"),
    ('conda.env = "x"', f"FAIL there is no command conda: {OR_A_MODULE} conda.root"),
    ('spack = { root = "${WORK}/none", env = "x" }', "FAIL there is no Spack in ${WORK}/none (site key spack.root)"),
    ('spack.load = ["x"]', f"FAIL there is no command spack: {OR_A_MODULE} spack.root"),
])  # fmt: skip
def test_missing_software_ends_the_job_and_names_the_key(activated, key, words):
    assert activated(key) == (1, [words])


@pytest.mark.parametrize(("env", "expected"), [
    ("known", (0, ["known"])),
    ("${WORK}/envs/two words", (0, ["WORK/envs/two words"])),
    ("no-such", (1, ["FAIL the conda environment no-such cannot be activated (site key conda.env)"])),
])  # fmt: skip
def test_a_conda_environment_is_activated_by_name_or_folder(activated, tmp_path, env, expected):
    made(tmp_path, "conda/etc/profile.d/conda.sh", CONDA)
    made(tmp_path, "envs/two words/bin/python3")
    code, out = activated(f'conda = {{ root = "${{WORK}}/conda", env = "{env}" }}', 'echo "$CONDA_PREFIX"')
    assert (code, [line.replace(str(tmp_path / "work"), "WORK") for line in out]) == expected


def test_a_module_may_bring_conda(activated, tmp_path):
    made(tmp_path, "bin/conda", "#!/bin/bash\n[ \"$*\" = 'shell.bash hook' ] && cat <<'HOOK'\n" + CONDA + "HOOK\n")
    (tmp_path / "work/bin/conda").chmod(0o755)
    path = f"{tmp_path}/work/bin:/usr/bin:/bin"
    assert activated('conda.env = "known"', 'echo "$CONDA_PREFIX"', path) == (0, ["known"])


@pytest.mark.parametrize(("env", "line"), [("ml", "env activate ml"), ("${WORK}/ml", "env activate --dir WORK/ml")])
def test_spack_activates_and_loads_in_order(activated, tmp_path, env, line):
    made(tmp_path, "spack/share/spack/setup-env.sh", SPACK)
    keys = f'spack = {{ root = "${{WORK}}/spack", env = "{env}", load = ["a@1", "b"] }}'
    code, out = activated(keys, "true")
    out = [told.replace(str(tmp_path / "work"), "WORK") for told in out]
    assert (code, out) == (0, [f"spack {line}", "spack load a@1", "spack load b"])
    code, out = activated(keys.replace('"b"', '"c"'), "true")
    assert (code, out[-1]) == (1, "FAIL Spack cannot load c (site key spack.load)")


def test_the_order_is_modules_spack_python_exports(plan):
    text = plan('modules.load = ["m"]\nspack.load = ["a"]\nvenv = "/v"\nenvironment.LAST = "1"\n').script
    places = [text.index(part) for part in ("module load m", "spack load a", "/v/bin/activate", "export LAST=1")]
    assert places == sorted(places)


@pytest.mark.parametrize(("keys", "python"), [
    ("", sys.executable),
    ('venv = "/v"', "python3"),
    ('conda.env = "x"', "python3"),
    ('spack.load = ["python"]', "python3"),
    ('conda.env = "x"\npython = "/p/python3.12"', "/p/python3.12"),
])  # fmt: skip
def test_the_jobs_python_is_the_environments_unless_the_site_names_one(plan, keys, python):
    planned = plan(keys)
    assert planned.spec.python == python
    assert f" slurm --python {python} " in planned.script


def test_the_launcher_may_be_the_environments(tmp_path, monkeypatch):
    (tmp_path / "s.toml").write_text('extends = "local"\nvenv = "/not/of/this/machine"\n')
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    run = submission.create(submission.prepare(Request(None, ("a",), {"ntasks": 2}, str(tmp_path / "s.toml"))))
    assert "\n  mpiexec " in (run.directory / "job.sh").read_text()
    (tmp_path / "s.toml").write_text('extends = "local"\npython = "/usr/bin/python3"\n')
    with pytest.raises(HpcrunError, match="2 ranks need mpiexec, which is not there"):
        submission.create(submission.prepare(Request(None, ("a",), {"ntasks": 2}, str(tmp_path / "s.toml"))))


def test_a_python_without_hpcrun_names_the_key_that_chose_it(plan):
    assert " --python-key conda.env " in plan('conda.env = "x"').script


@pytest.mark.parametrize(("keys", "words"), [
    ('venv = "/a"\nuv = "/b"', "FILE:3: uv = '/b': jobs use only one Python: choose venv or uv"),
    ('venv = "/a"\nconda.env = "b"', "FILE:2: venv = '/a': jobs use only one Python: choose conda or venv"),
    ('conda.root = "/a"', "FILE:2: conda.root = '/a': no environment to activate: set conda.env too"),
    ('spack.root = "/a"', "FILE:2: spack.root = '/a': nothing to load: set spack.env or spack.load too"),
    ('conda.environment = "a"', "FILE:2: unknown key conda.environment; valid keys: env, root"),
])  # fmt: skip
def test_invalid_keys_are_refused_with_their_line(tmp_path, keys, words):
    (tmp_path / "s.toml").write_text(f'extends = "slurm"\n{keys}\n')
    with pytest.raises(HpcrunError) as error:
        loader.load_site(str(tmp_path / "s.toml"))
    assert words in str(error.value).replace(str(tmp_path / "s.toml"), "FILE")


@pytest.mark.parametrize(("keys", "words"), [
    ('venv = "${WORK}/none"', "venv = '${WORK}/none': there is no WORK/none/bin/activate here"),
    ('uv = "${WORK}/none"', "uv = '${WORK}/none': there is no WORK/none/.venv/bin/activate here"),
    ('conda = { root = "/usr", env = "x" }', "conda.root = '/usr': there is no /usr/etc/profile.d/conda.sh here"),
    ('conda.env = "${WORK}/x"', "conda.env = '${WORK}/x': there is no WORK/x here"),
    ('spack = { root = "/usr", env = "x" }', "spack.root = '/usr': there is no /usr/share/spack/setup-env.sh here"),
])  # fmt: skip
def test_missing_software_is_refused_before_submission(plan, tmp_path, isolated_home, keys, words):
    planned = plan(keys)
    with pytest.raises(HpcrunError) as error:
        submission.create(planned)
    assert words in str(error.value).replace(str(tmp_path / "work"), "WORK")
    assert not (isolated_home / "runs").exists()


@pytest.mark.parametrize(
    "keys", ['venv = "/not/of/this/machine"', 'venv = "${ONLY_THE_JOB}/env"', 'conda.env = "name"']
)
def test_software_that_only_nodes_have_is_checked_by_the_job(plan, keys):
    run = submission.create(plan(keys))
    assert json.loads((run.directory / "job.json").read_text())["python"] == "python3"


@pytest.mark.parametrize("command", [["submit", "--site"], ["site", "test"]])
def test_a_dry_run_warns_of_missing_software(cli, tmp_path, isolated_home, command):
    (tmp_path / "s.toml").write_text(f'extends = "slurm"\nvenv = "{tmp_path}/none"\n')
    more = ["--dry-run", *(["--", "true"] if command[0] == "submit" else [])]
    code, out, err = cli(*command, str(tmp_path / "s.toml"), *more)
    assert (code, out.startswith("#!/bin/bash")) == (0, True)
    assert f"WARNING: venv = '{tmp_path}/none': there is no {tmp_path}/none/bin/activate here" in err
    assert not (isolated_home / "runs").exists()
