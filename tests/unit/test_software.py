"""Python environments and Spack, as a job's script activates them: bash itself is the judge."""

import json
import subprocess
import sys

import pytest

import hpcrun
from hpcrun import submission
from hpcrun.errors import HpcrunError
from hpcrun.request import Request
from hpcrun.sites import loader
from hpcrun.workload import find_workload

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
        return submission.prepare(Request(None, ("true",), site=str(tmp_path / "s.toml")))

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


def create_file(tmp_path, file, text=""):
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
    create_file(tmp_path, "conda/etc/profile.d/conda.sh", CONDA)
    create_file(tmp_path, "envs/two words/bin/python3")
    code, out = activated(f'conda = {{ root = "${{WORK}}/conda", env = "{env}" }}', 'echo "$CONDA_PREFIX"')
    assert (code, [line.replace(str(tmp_path / "work"), "WORK") for line in out]) == expected


def test_a_module_may_bring_conda(activated, tmp_path):
    create_file(
        tmp_path, "bin/conda", "#!/bin/bash\n[ \"$*\" = 'shell.bash hook' ] && cat <<'HOOK'\n" + CONDA + "HOOK\n"
    )
    (tmp_path / "work/bin/conda").chmod(0o755)
    path = f"{tmp_path}/work/bin:/usr/bin:/bin"
    assert activated('conda.env = "known"', 'echo "$CONDA_PREFIX"', path) == (0, ["known"])


@pytest.mark.parametrize(("env", "line"), [("ml", "env activate ml"), ("${WORK}/ml", "env activate --dir WORK/ml")])
def test_spack_activates_and_loads_in_order(activated, tmp_path, env, line):
    create_file(tmp_path, "spack/share/spack/setup-env.sh", SPACK)
    keys = f'spack = {{ root = "${{WORK}}/spack", env = "{env}", load = ["a@1", "b"] }}'
    code, out = activated(keys, "true")
    out = [command.replace(str(tmp_path / "work"), "WORK") for command in out]
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
    with pytest.raises(HpcrunError, match="2 ranks need mpiexec, which is not installed"):
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


@pytest.mark.parametrize(("name", "content", "mode", "expected"), [
    ("job.sh", "#!/bin/sh\n", 0o644, "not executable\nHINT: chmod +x ./job.sh, or start it with bash: -- bash ./job"),
    ("a.out", "ELF", 0o644, "./a.out is not executable\nHINT: chmod +x ./a.out"),
    ("x.py", "", 0o644, "not executable\nHINT: without --, hpcrun starts it with Python: hpcrun submit ./x.py -- in"),
    ("job.sh", "#!/bin/bash\r\n", 0o755, "./job.sh has Windows line ends, so its interpreter is not found\nHINT: sed"),
])  # fmt: skip
def test_a_program_that_cannot_start_is_refused(cli, tmp_path, monkeypatch, name, content, mode, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content.encode())
    (tmp_path / name).chmod(mode)
    for program in ((), ("--sweep", "seed=1,2")):
        code, _, err = cli("submit", "--site", "slurm", *program, "--", f"./{name}", "in")
        assert (code, expected in err) == (2, True), err


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Change to a folder with programs."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.out", "build/app", "x.py", "plot.R", "script"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("echo one\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "a.uut").touch()  # no program
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "elsewhere").symlink_to("/dev/shm")  # another file system, which a node has, too


@pytest.mark.parametrize(("program", "expected"), [
    ("./a.uot", "./a.uot: there is no such program in HERE\nHINT: did you mean ./a.out?"),
    ("HERE/a.uot", "HERE/a.uot: there is no such program in HERE\nHINT: did you mean HERE/a.out?"),
    ("./biuld/app", "./biuld/app: there is no folder HERE/biuld\nHINT: did you mean ./build/app?"),
    ("build/../build/ap", "there is no such program in HERE/build\nHINT: did you mean ./build/app?"),
    ("./other", "no such program in HERE\nHINT: make it first"),
    ("./dangling", "no such program in HERE\nHINT: make it first"),
    ("~/a.out", "~/a.out: there is no such program in "),
    ("./build", "./build is a folder\nHINT: name the program in it: ./build/PROGRAM"),
    ("./x.py", "./x.py names no interpreter (#!)\nHINT: without --, hpcrun starts it with Python: hpcrun submit"),
    ("x.py", "x.py is not on PATH\nHINT: without --, hpcrun starts it with Python: hpcrun submit x.py"),
    ("./plot.R", "./plot.R names no interpreter (#!)\nHINT: start it with its interpreter: -- Rscript ./plot.R"),
])  # fmt: skip
def test_a_program_that_does_not_exist_is_refused(cli, tmp_path, programs, program, expected):
    code, out, err = cli("submit", "--site", "slurm", "--", program.replace("HERE", str(tmp_path)))
    assert (code, out) == (2, "")
    assert f"{expected}\n".replace("HERE", str(tmp_path)).rstrip("\n") in err


@pytest.mark.parametrize(("line", "expected"), [
    ("python y.py --lr 1", "y.py: there is no such script in HERE\nHINT: did you mean x.py?"),
    ("python3 biuld/app.py", "biuld/app.py: there is no such script in HERE/biuld\nHINT: make it first, or"),
    ("bash scirpt.sh", "scirpt.sh: there is no such script in HERE\nHINT: make it first"),
    ("Rscript plt.R", "HINT: did you mean plot.R?"),
])  # fmt: skip
def test_a_script_that_does_not_exist_is_refused(cli, tmp_path, programs, line, expected):
    code, out, err = cli("submit", "--site", "slurm", "--", *line.split())
    assert (code, out) == (2, "")
    assert expected.replace("HERE", str(tmp_path)) in err


@pytest.mark.parametrize(("options", "warns"), [
    (["--", "no-such-program"], True),
    (["--", "sh", "-c", "true"], False),
    (["--", "python", "-m", "x.py"], False),
    (["-x", "PATH=/opt/bin", "--", "no-such-program"], False),
    (["--container", "docker://a/b:1", "--", "no-such-program"], False),
])  # fmt: skip
def test_submit_warns_of_a_program_that_is_not_on_path(cli, options, warns):
    code, _, err = cli("submit", "--dry-run", "--site", "slurm", *options)
    warning = "WARNING: no-such-program is not on PATH here, and may be missing on the nodes, too\n"
    assert (code, warning in err) == (0, warns), err


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        ("pyhton", "did you mean python?"),
        ("mpirnu", "did you mean mpirun?"),
    ],
)
def test_the_warning_names_the_program_that_was_meant(cli, programs, program, hint):
    code, _, err = cli("submit", "--dry-run", "--site", "styx", "--", program, "1")
    warning = f"WARNING: {program} is not on PATH here, and may be missing on the nodes, too\nHINT: {hint}\n"
    assert (code, warning in err) == (0, True), err


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        ("x.py", "without --, hpcrun starts it with Python: hpcrun submit x.py -- 1"),
        ("a.out", "for the file in this folder: ./a.out"),
    ],
)
def test_one_message_names_the_file_that_was_meant(cli, programs, program, hint):
    refusal = f"{program} is not on PATH"
    code, _, err = cli("submit", "--dry-run", "--site", "styx", "--", program, "1")
    assert (code, err.count(hint)) == (0, 1), err
    assert f"WARNING: {refusal}: without it, no job is submitted here\nHINT: {hint}\n" in err
    assert cli("submit", "--site", "styx", "--", program, "1") == (2, "", f"ERROR: {refusal}\nHINT: {hint}\n")


@pytest.mark.parametrize(
    ("words", "options", "hint"),
    [
        (["x.py --lr 0.1"], {}, "hpcrun.submit('x.py', ['--lr', '0.1'])"),
        (["x.py"], {"args": "--lr 0.1"}, "args=['--lr', '0.1']"),
        (["x.py"], {"node": 2}, "did you mean nodes?"),
        (["x.py"], {"nodes": "two"}, "for example --nodes=2; see hpcrun submit --help"),
        (["x.py"], {"sbatch": "--hold"}, "sbatch=['--hold']"),
    ],
)
def test_mistakes_of_the_python_api_are_explained(tmp_path, monkeypatch, words, options, hint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").touch()
    with pytest.raises(HpcrunError) as error:
        hpcrun.submit(*words, site="slurm", **options)
    assert error.value.hint == hint


def test_the_python_api_takes_paths_and_numbers(tmp_path, isolated_home):
    script = tmp_path / "x.py"
    script.write_text("import os, sys\nprint(sys.argv[1:], os.environ['A'])\n")
    job = hpcrun.submit(script, [1, 2.5], environment={"A": 4}, site="local", no_gpu=True, quiet=True)
    job.result()
    assert "['1', '2.5'] 4" in job.stdout()


def test_the_python_api_warns_of_it_and_refuses_a_second_launcher():
    plan = submission.prepare(Request(None, ("no-such-program",), site="slurm", resources={"ntasks": 1}))
    assert any(text.startswith("no-such-program is not on PATH here") for text in plan.warnings)
    with pytest.raises(HpcrunError, match="each of the 4 ranks would start mpirun") as error:
        submission.prepare(Request(None, ("mpirun", "a"), site="slurm", resources={"ntasks": 4}))
    assert error.value.hint.endswith("for one mpirun: --ntasks=1")


@pytest.mark.parametrize(("options", "program"), [
    ("", "./script"),  # bash starts it
    ("", "/usr/bin/only-on-nodes"),
    ("", "/nowhere/a.out"),
    ("", "./elsewhere/a.out"),
    ("", "$SCRATCH/a.out"),
    ("--container docker://a/b:1", "./a.uot"),
    ("--dependency afterok:5", "./a.uot"),
    ("--site ./setup.toml", "./a.uot"),
])  # fmt: skip
def test_a_program_that_nodes_may_have_is_accepted(cli, tmp_path, programs, options, program):
    (tmp_path / "setup.toml").write_text('extends = "slurm"\nsetup = ["make"]\n')
    line = [*options.split(), *(["--site", "slurm"] if "--site" not in options else [])]
    code, _, err = cli("submit", "--dry-run", *line, "--", program)
    assert (code, "without it, no job" in err) == (0, False), err


@pytest.mark.parametrize(("options", "program", "content"), [
    ("", "./frozen.py", b"\x7fELF\x02\0"),
    ("", "./perl", b"#!/usr/bin/perl -w\r\n"),  # its interpreter is found: the line end belongs to the option
    ("-x PATH=/opt/bin", "tool", b"#!/bin/sh\n"),
])  # fmt: skip
def test_a_program_that_linux_can_start_is_accepted(cli, tmp_path, monkeypatch, options, program, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / program).write_bytes(content)
    (tmp_path / program).chmod(0o755)
    code, _, err = cli("submit", "--dry-run", "--site", "slurm", *options.split(), "--", program)
    assert (code, "without it, no job" in err) == (0, False), err


def test_a_program_without_permission_to_read_it_is_accepted(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "licensed").write_bytes(b"\x7fELF")
    (tmp_path / "licensed").chmod(0o711)
    monkeypatch.setattr("hpcrun.job_program._read_first_line", raise_permission_error)  # root can read all files
    code, _, err = cli("submit", "--dry-run", "--site", "slurm", "--", "./licensed")
    assert (code, "without it, no job" in err) == (0, False), err


def raise_permission_error(file, *_, **__):
    raise PermissionError(13, "Permission denied", str(file))


def test_a_program_that_this_host_lacks_is_refused_where_the_job_runs_here(cli):
    assert (
        "/usr/bin/only-on-nodes: there is no such program in /usr/bin\n"
        in cli("run", "--site", "local", "--", "/usr/bin/only-on-nodes")[2]
    )


def test_a_program_is_searched_on_path_and_not_in_the_folder(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("job.sh", "true"):
        (tmp_path / name).write_text("#!/bin/bash\n")
    assert (
        "ERROR: job.sh is not on PATH\nHINT: for the file in this folder: ./job.sh\n"
        in cli("submit", "--", "job.sh")[2]
    )
    assert (
        "WARNING: ./job.sh is not executable: without it, no job is submitted"
        in cli("submit", "--dry-run", "--", "./job.sh")[2]
    )
    assert cli("run", "--site", "local", "--", "true")[0] == 0


def test_a_local_file_may_have_the_name_of_a_command_from_a_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gmx").touch()
    (tmp_path / "s.toml").write_text('extends = "slurm"\nmodules.load = ["gromacs"]\n')
    planned = submission.prepare(Request(None, ("gmx",), site=str(tmp_path / "s.toml")))
    assert submission.find_missing_software(planned) == ()


def test_an_unreadable_script_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x.py").touch()
    monkeypatch.setattr("pathlib.Path.read_bytes", raise_permission_error)
    with pytest.raises(HpcrunError) as error:
        find_workload(str(tmp_path / "x.py"))
    assert (error.value.message, error.value.hint) == (
        f"{tmp_path}/x.py: Permission denied",
        f"ls -l {tmp_path}/x.py shows who can read it",
    )


@pytest.mark.parametrize(
    ("packages", "missing", "hint"),
    [
        (["sys", "tensorfow"], "tensorfow", "packages has the names that Python imports: did you mean tensorflow?"),
        (["scikit-learn"], "scikit-learn", "packages has the names that Python imports: did you mean sklearn?"),
        (["xpandas", "foo.bar"], "xpandas, foo.bar", "pip install xpandas foo.bar, or set python in the site file"),
        (["keras", "tensorflow"], "keras, tensorflow", "pip install 'hpcrun-slurm[train-gpu]' (without GPUs: [train-"),
        (
            ["torch", "torchaudio"],
            "torch, torchaudio",
            "pip install 'hpcrun-slurm[torch]' torchaudio, or set python in the site file",
        ),
    ],
)
def test_missing_packages_of_a_workload_are_refused(cli, tmp_path, monkeypatch, packages, missing, hint):
    monkeypatch.setattr("hpcrun.plan_checks.find_spec", lambda name: name if name == "sys" else None)
    (tmp_path / "w").mkdir()
    (tmp_path / "w/train.py").touch()
    (tmp_path / "w/workload.toml").write_text(f"packages = {json.dumps(packages)}")
    code, _, err = cli("submit", str(tmp_path / "w"), "--site", "local", "--no-gpu")
    message = f"w needs {missing} (packages in workload.toml), which this Python environment does not have"
    assert (code, f"ERROR: {message}\nHINT: {hint}" in err) == (2, True), err
