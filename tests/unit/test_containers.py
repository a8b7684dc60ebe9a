"""Containers: what runtimes are told, by ones that only write it down; tests/slurm runs jobs in real ones."""

import json
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import hpcrun
from hpcrun import submission
from hpcrun.errors import HpcrunError
from hpcrun.jobs import run_selection
from hpcrun.request import Request
from hpcrun.sites import loader
from tests import bash_library

RUNTIME = f"""#!{sys.executable}
import json, os, sys
if "--help" in sys.argv:
    print("  --container-image=IMAGE")
    sys.exit()
if "-c" in sys.argv:  # whether Python is there
    print(os.environ.get("ANSWER", "hpcrun"))
    sys.exit(int(os.environ.get("STATUS", 0)))
heard = os.read(3, 100).decode() if "PMI_FD=3" in sys.argv else None
json.dump([sys.argv[1:], dict(os.environ), heard], sys.stdout)
"""
PACKAGE = Path(hpcrun.__file__).parent


@dataclass
class StartedRank:
    """The arguments and environment of a rank in a container, or why it was not started."""

    code: int
    argv: list[str]
    environ: dict[str, str]
    heard: str | None
    errors: str

    def after(self, option):
        return [word for before, word in zip(self.argv, self.argv[1:], strict=False) if before == option]


@pytest.fixture
def image(tmp_path):
    (tmp_path / "tf.sif").write_text("")
    return tmp_path / "tf.sif"


@pytest.fixture
def site(tmp_path, image):
    """Write a site file; return its path."""

    def call(*keys, base="local"):
        file = tmp_path / "s.toml"
        file.write_text("\n".join([f'extends = "{base}"', *keys, ""]).replace("IMAGE", str(image)))
        return str(file)

    return call


@pytest.fixture
def start(tmp_path, site):
    """Run a script's part that makes the container ready, then one rank in it."""
    for name in ("apptainer", "singularity", "podman-hpc", "srun"):
        (tmp_path / name).write_text(RUNTIME)
        (tmp_path / name).chmod(0o755)
    run = tmp_path / "run"
    run.mkdir()

    def call(
        *keys, base="local", args=("./a.out", "two words"), path=tmp_path, environment=(), world=(), fds=(), **options
    ):
        request = Request(None, args, site=site(*keys, base=base), environment=environment, **options)
        plan = submission.prepare(request)
        part = plan.script[plan.script.index("# ---- Environment") : plan.script.index("# ---- Launch")]
        script = f"{bash_library.source_commands()}{part}\n"
        if "\n  env --unset" in plan.script:  # srun starts the container
            line = plan.script[plan.script.index("\n  env --unset") :]
            script += line.replace("@rank", 'bash "$HPCRUN_RUN_DIR/rank.sh"')
        else:
            script += 'bash "$HPCRUN_RUN_DIR/container.sh" "$@"'
        own = {"PATH": f"{path}:/usr/bin:/bin", "HPCRUN_RUN_DIR": str(run), "HOME": "/home/me", **dict(world)}
        argv = ["bash", "-c", script, "job.sh", *plan.spec.argv]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=own, pass_fds=fds)
        argv, environ, heard = json.loads(done.stdout) if done.stdout else [[], {}, None]
        return plan, StartedRank(done.returncode, argv, environ, heard, done.stderr)

    return call


def test_the_node_local_disk_is_bound_if_data_are_staged(start, tmp_path):
    keys = ('container.image = "IMAGE"', 'container.hpcrun = "image"', 'local_scratch = ["${LOCAL}/mine"]')
    disk = tmp_path / "local disk"
    _, rank = start(*keys, world={"LOCAL": disk}, stage_in=("data",))
    assert f"{disk}/mine:{disk}/mine" in rank.after("--bind")
    _, rank = start(*keys, world={"LOCAL": disk})
    assert [bind for bind in rank.after("--bind") if str(disk) in bind] == []


def test_apptainer_gets_directory_bind_mounts_and_image(start, image, tmp_path):
    (tmp_path / "data").mkdir()
    plan, rank = start(
        'container.image = "IMAGE"',
        'container.binds = ["~/keys:/keys:ro", "${SCRATCH}"]',
        'container.args = ["--cleanenv"]',
        "container.home = false",
        f'data = {{ here = "{tmp_path}/data", elsewhere = "/no/such/folder" }}',
        world={"SCRATCH": "/scratch/two words"},
    )
    assert rank.argv[:2] == ["exec", f"--pwd={Path.cwd()}"]
    assert rank.argv[-3:] == [str(image), "./a.out", "two words"]
    assert {"--no-home", "--cleanenv"} <= set(rank.argv)
    assert rank.after("--bind") == [
        f"{plan.spec.run_dir}:{plan.spec.run_dir}",
        f"{Path.cwd()}:{Path.cwd()}",
        "/home/me/keys:/keys:ro",
        "/scratch/two words:/scratch/two words",
        f"{PACKAGE}:/hpcrun/hpcrun:ro",
        f"{tmp_path}/data:{tmp_path}/data",
    ]


@pytest.mark.parametrize(("runtime", "prefix"), [("apptainer", "APPTAINER"), ("singularity", "SINGULARITY")])
def test_variables_arrive_literally_and_the_users_value_wins(start, runtime, prefix):
    value = 'it\'s "$HOME" `id` \\ \n two, words'
    _, rank = start(
        f'container.runtime = "{runtime}"',
        'container.image = "IMAGE"',
        'environment = { A = "site", B = "site", C = "site", LD_LIBRARY_PATH = "/host" }',
        'prepend_path.CPATH = ["/host"]',
        'container.environment = { B = "${HOME}/b", C = "container", PYTHONPATH = "/p", LD_LIBRARY_PATH = "/inside" }',
        environment=(("C", value),),
        world={"NCCL_DEBUG": "INFO", "PYTHONPATH": "/host", "MINE": "1"},
    )
    inside = {
        name.removeprefix(f"{prefix}ENV_"): v for name, v in rank.environ.items() if name.startswith(f"{prefix}ENV")
    }
    assert {name: inside.get(name) for name in "ABC"} == {"A": "site", "B": "/home/me/b", "C": value}
    assert (inside["PYTHONPATH"], inside["LD_LIBRARY_PATH"]) == ("/hpcrun:/p", "/inside")
    assert (inside["NCCL_DEBUG"], inside["HPCRUN_NTASKS"], inside["PYTHONNOUSERSITE"]) == ("INFO", "1", "1")
    assert not {"PATH", "HOME", "CPATH", "MINE"} & set(inside)
    assert rank.environ[f"{prefix}_NO_EVAL"] == "1"  # it would run what stands in backquotes


@pytest.mark.parametrize("runtime", ["apptainer", "podman-hpc", "pyxis"])
@pytest.mark.parametrize(("typed", "seen"), [
    ("--x=mine", "--x=site --x=mine"), (None, "--x=site --x=shell"), ("/file/of/flags", "/file/of/flags")
])  # fmt: skip
def test_xla_flags_of_the_user_follow_those_of_the_site_in_containers(start, runtime, typed, seen):
    _, rank = start(
        f'container = {{ runtime = "{runtime}", image = "/" }}',
        'cuda.xla_flags = ["--x=site"]',
        base="slurm",
        environment=(("XLA_FLAGS", typed),) if typed else (),
        world={"XLA_FLAGS": "--x=shell"},
    )
    by_option = dict(word.split("=", 1) for word in rank.after("--env"))
    name = "APPTAINERENV_XLA_FLAGS" if runtime == "apptainer" else "XLA_FLAGS"
    assert {**rank.environ, **by_option}[name] == seen


@pytest.mark.parametrize(("keys", "more", "flag"), [
    ("", {}, "--nv"),
    ('gpu.vendor = "amd"', {}, "--rocm"),
    ('gpu.vendor = "intel"', {}, None),
    ("container.gpu = false", {}, None),
    ("", {"no_gpu": True}, None),
    ("", {"resources": {"nodes": 1}}, None),
    ('sbatch = ["--gres=gpu:2"]', {"resources": {"nodes": 1}}, "--nv"),
])  # fmt: skip
def test_containers_of_gpu_jobs_get_the_gpus(site, keys, more, flag):
    asked = {"resources": {"gpus_per_node": "2"}, **more}
    file = site(keys, 'container.image = "IMAGE"', base="slurm")
    script = submission.prepare(Request(None, ("./a.out",), site=file, **asked)).script
    assert [word for word in ("--nv", "--rocm") if word in script] == ([flag] if flag else [])


def test_the_interpreter_is_the_one_in_the_container(site, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("")
    file = site('container = { image = "IMAGE", python = "/opt/python" }')
    plan = submission.prepare(Request(str(folder / "train.py"), ("--lr", "1"), site=file))
    assert (plan.spec.python, *plan.spec.argv) == (sys.executable, "/opt/python", f"{folder}/train.py", "--lr", "1")
    assert f"  {folder}:{folder}\n" in plan.script
    copied = submission.prepare(Request(str(folder / "train.py"), site=file, snapshot=True))
    assert copied.spec.argv == ("/opt/python", f"{copied.spec.run_dir}/code/train.py")


@pytest.mark.parametrize(("world", "words"), [
    ({"STATUS": "1"}, "FAIL python3 does not start in the container (site key container.python)"),
    ({"ANSWER": "False"}, "WARNING: python3 in IMAGE is not Python 3.11 or later with hpcrun"),
    ({"ANSWER": "a banner\nhpcrun"}, ""),
])  # fmt: skip
def test_a_missing_python_is_reported_before_the_ranks_start(start, image, world, words):
    _, rank = start('container.image = "IMAGE"', args=("python3", "train.py"), world=world)
    assert words.replace("IMAGE", str(image)) in rank.errors
    assert bool(words) == bool(rank.errors)
    assert (rank.code != 0) == ("STATUS" in world)


@pytest.mark.parametrize(("keys", "path", "words"), [
    ('container.image = "IMAGE"', "/nowhere", "there is no command apptainer (site key container.runtime)"),
    ('container.image = "/gone/tf.sif"', None, "there is no image /gone/tf.sif (site key container.image"),
    ('container.image = "${WORK}/tf.sif"', None, "WORK: the table container of the site file names it"),
])  # fmt: skip
def test_software_missing_on_a_node_ends_the_job_and_names_the_key(start, tmp_path, keys, path, words):
    _, rank = start(keys, path=path or tmp_path)
    assert (rank.code != 0, words in rank.errors) == (True, True), rank.errors


def test_podman_gets_variables_as_options_and_the_pmi_socket(start):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.send(b"a rank's PMI")
        _, rank = start(
            'container = { runtime = "podman-hpc", image = "registry/tf:1", environment.B = "a b" }',
            world={"PMIX_SERVER_TMPDIR": "/tmp", "PMI_RANK": "0", "PMI_FD": str(theirs.fileno())},
            fds=(theirs.fileno(),),
        )
    assert rank.argv[:5] == ["run", "--rm", f"--workdir={Path.cwd()}", "--network=host", "--ipc=host"]
    assert rank.argv[-3:] == ["registry/tf:1", "./a.out", "two words"]
    variables = dict(word.split("=", 1) for word in rank.after("--env"))  # the last of a name wins
    assert {name: variables[name] for name in ("B", "PMI_RANK", "PMI_FD", "PYTHONPATH", "HPCRUN_NTASKS")} == {
        "B": "a b",
        "PMI_RANK": "0",
        "PMI_FD": "3",
        "PYTHONPATH": "/hpcrun",
        "HPCRUN_NTASKS": "1",
    }
    assert rank.heard == "a rank's PMI"
    assert "--preserve-fds=1" in rank.argv
    assert {"/tmp:/tmp", f"{PACKAGE}:/hpcrun/hpcrun:ro"} <= set(rank.after("--volume"))


def test_the_hosts_mpi_replaces_that_of_the_image(site):
    file = site('container = { runtime = "podman-hpc", image = "registry/tf", mpi = "host" }', base="slurm")
    script = submission.prepare(Request(None, ("./a.out",), site=file)).script
    assert "podman-hpc run --rm --workdir" in script
    assert " --mpi\n" in script
    assert "--network=host" not in script  # --mpi brings it


def test_tasks_of_a_sweep_run_in_containers(site, tmp_path):
    (tmp_path / "train.py").write_text("")
    sweep = (("lr", ("1", "2")),)
    plan = submission.prepare(Request(str(tmp_path / "train.py"), site=site('container.image = "IMAGE"'), sweep=sweep))
    assert [task.argv[0] for task in plan.spec.tasks] == ["python3", "python3"]
    assert f"  {tmp_path}:{tmp_path}\n" in plan.script
    assert "--python python3" in plan.script
    assert subprocess.run(["bash", "-n"], input=plan.script, text=True, check=False).returncode == 0


def test_pyxis_gets_its_options_on_the_launch_line(start, tmp_path):
    plan, rank = start(
        'environment = { A = "site", LD_LIBRARY_PATH = "/host" }',
        f'data.here = "{tmp_path}"',
        '[container]\nruntime = "pyxis"\nimage = "nvcr.io#nvidia/tf:1"\nbinds = ["${SCRATCH}:/s"]\nhome = false',
        'environment = { A = "1", B = "b" }',
        base="slurm",
        environment=(("C", "c"),),
        world={"SCRATCH": "/scratch", "PYTHONPATH": "/host"},
    )
    values = dict(word.split("=", 1) for word in rank.argv if word.startswith("--container-"))
    assert values["--container-image"] == "nvcr.io#nvidia/tf:1"
    assert values["--container-workdir"] == str(Path.cwd())
    run, here = plan.spec.run_dir, tmp_path
    assert values["--container-mounts"].split(",") == [
        *(f"{folder}:{folder}" for folder in dict.fromkeys([run, Path.cwd()])),
        "/scratch:/s",
        f"{PACKAGE}:/hpcrun/hpcrun:ro",
        f"{here}:{here}",
    ]
    passed = values["--container-env"].split(",")
    assert {"A", "B", "C", "PYTHONPATH", "HPCRUN_NTASKS", "HPCRUN_DATA_HERE"} <= set(passed)
    assert len(passed) == len(set(passed))
    assert rank.argv[-4:] == ["bash", f"{tmp_path}/run/rank.sh", "./a.out", "two words"]
    assert "--no-container-mount-home" in rank.argv
    assert {name: rank.environ[name] for name in ("A", "B", "C", "PYTHONPATH")} == {
        "A": "1",
        "B": "b",
        "C": "c",
        "PYTHONPATH": "/hpcrun",
    }
    assert "LD_LIBRARY_PATH" not in rank.environ


@pytest.mark.parametrize(("keys", "words"), [
    ('image = "tf.sif"', "container.image = 'tf.sif': must be an absolute path, or begin with ~/, ${NAME} or docker://"),
    ('runtime = "docker"', "container.runtime = 'docker': expected 'apptainer', 'singularity', 'podman-hpc'"),
    ('binds = ["data"]', "container.binds = 'data': a bind is SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro"),
    ('binds = ["/a:/b:rx"]', "a bind is SOURCE"),
    ('binds = ["/a,/b"]', "a bind is SOURCE"),
    ('mpi = "host"', "container.mpi = 'host': name the folders of the host's MPI in"),
    ('environment = {"A B" = "x"}', "container.environment = 'A B': the name of an environment variable has letters"),
    ('images = "x"', "unknown key container.images; did you mean image?"),
])  # fmt: skip
def test_invalid_keys_are_refused(site, keys, words):
    with pytest.raises(HpcrunError) as error:
        loader.load_site(site(f"[container]\n{keys}"))
    assert words in str(error.value)


@pytest.mark.parametrize(("argv", "words"), [
    (["--container", "none.sif"], "--container=none.sif: there is no such file, and an image must be"),
    (["--container", "a.sif", "--no-container"], "--container=a.sif and --no-container contradict each other"),
    (["--container", "docker://tf"], "WARNING: each rank would download docker://tf: run `apptainer pull"),
])  # fmt: skip
def test_a_requested_image_is_checked(cli, site, argv, words):
    _, _, err = cli("submit", "--site", site(base="slurm"), *argv, "--dry-run", "--", "./a.out")
    assert words in err


def test_a_missing_image_is_refused_before_submission(site, tmp_path, isolated_home):
    file = site(f'container.image = "{tmp_path}/gone.sif"', base="slurm")
    with pytest.raises(HpcrunError, match=r"container.image = .*: there is no .*/gone.sif here"):
        hpcrun.submit(None, ["true"], site=file)
    assert not (isolated_home / "runs").exists()


def test_an_image_that_the_job_copies_to_its_node_is_not_checked_at_submission(site, tmp_path, fake_slurm, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    file = site(
        'container.image = "${TMPDIR}/gone.sif"', 'setup = ["cp /images/tf.sif $TMPDIR/gone.sif"]', base="slurm"
    )
    (fake_slurm.folder / "id").write_text("1")
    script = (hpcrun.submit(None, ["true"], site=file).directory / "job.sh").read_text()
    assert script.index("cp /images/tf.sif") < script.index("\nhpcrun_enter_container ")


def test_pyxis_needs_srun(site):
    file = site('container = { runtime = "pyxis", image = "x" }', base="local")
    with pytest.raises(HpcrunError, match="pyxis is a plugin of srun, and this job starts its ranks without a"):
        submission.prepare(Request(None, ("true",), site=file))


@pytest.mark.parametrize("folder", ["a:b", "a,b", "a${b}"])
def test_a_folder_that_no_runtime_can_bind_is_refused(site, tmp_path, monkeypatch, folder):
    (tmp_path / folder).mkdir()
    file = site('container.image = "IMAGE"')
    monkeypatch.chdir(tmp_path / folder)
    with pytest.raises(HpcrunError, match=r"apptainer cannot bind a folder with (:|,|\$\{) in its name"):
        submission.prepare(Request(None, ("true",), site=file))


def image_of(run="last"):
    return (json.loads((run_selection.select_one(run).directory / "job.json").read_text())["container"] or {}).get(
        "image"
    )


@pytest.mark.parametrize(("asked", "first", "again", "without"), [
    (None, "IMAGE", "NEW", None),  # the site's, as it is then
    ("/images/a.sif", "/images/a.sif", "/images/a.sif", None),
    (False, None, None, None),
])  # fmt: skip
def test_resubmit_uses_the_container_of_the_run(cli, fake_slurm, site, image, tmp_path, asked, first, again, without):
    file = site('container.image = "IMAGE"', base="slurm")
    (fake_slurm.folder / "id").write_text("1")
    (tmp_path / "new.sif").write_text("")
    names = {"IMAGE": str(image), "NEW": str(tmp_path / "new.sif")}
    hpcrun.submit(None, ["a.out"], site=file, container=asked)
    assert image_of() == names.get(first, first)
    (fake_slurm.folder / "id").write_text("2")
    code, _, err = cli("resubmit", "1")
    assert (code, image_of(), "changed    nothing" in err) == (0, names.get(first, first), True)
    Path(file).write_text(Path(file).read_text().replace(str(image), names["NEW"]))
    cli("resubmit", "1", "--site", file)
    assert image_of() == names.get(again, again)
    _, _, err = cli("resubmit", "1", "--no-container")
    assert image_of() is without
    if first:
        assert f"container: nothing, was {names.get(first, first)}" in err


def test_the_path_of_the_images_python_is_quoted(site, tmp_path):
    canary = tmp_path / "canary"
    python = f'$(touch {canary})\\"; touch {canary}; \\"`touch {canary}`'
    (tmp_path / "t.py").write_text("")
    named = site('container.image = "IMAGE"', f'container.python = "{python}"')
    script = submission.prepare(Request(str(tmp_path / "t.py"), site=named)).script
    lines = [line.rstrip("\\") for line in script.splitlines() if line.startswith("hpcrun_enter_container")]
    shows = 'hpcrun_enter_container() { printf "%s\n" "$@" >&2; }'
    done = subprocess.run(["bash", "-c", "\n".join([shows, *lines])], capture_output=True, text=True, check=False)
    assert len(lines) == 1
    assert f"$(touch {canary})" in done.stderr
    assert not canary.exists()
