"""Quoting of hostile values in job scripts, checked by running them in bash and by sbatch's parsing rules.

Every value that reaches the job script is full of quotes, substitutions and directives. The job then runs with
fake commands: no substitution may start ``canary``, and each value arrives literally.
"""

import dataclasses
import re
import subprocess
import types
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from hpcrun import submission, workload
from hpcrun.errors import HpcrunError
from hpcrun.request import Request
from hpcrun.resources import Resources
from hpcrun.schedulers.slurm_directives import sbatch_options
from hpcrun.sites.loader import LoadedSite
from hpcrun.sites.site_model import Site
from tests.waiting import DEADLINE

pytestmark = pytest.mark.slow

SITE = TypeAdapter(Site)
PIECES = [
    "'", '"', "\\", "$(canary)", "`canary`", ";canary;", "|canary&", "&&canary", "<(canary)", "${HOME}", "$HOME", "$",
    "{", "}", "*", "?", "~", "~/", "!!", "#", " #SBATCH --wrap=canary ", "#SBATCH --wrap=canary", "--wrap=canary", "-x",
    "=", ":", ",", "%j", "{{ 1 }}", "{% raw %}", "<#", "RANK", "packjob", "HetJob", "'\"'\"'", "\\'", " ", "  ", "a",
    "é", "日", "a b",
]  # fmt: skip
BREAKS = ["\n", "\nRANK\n", "\r", "\t", "\n#SBATCH --wrap=canary\n", "\ncanary\n", "\u2028", "\x1b[2J", "\\\n"]


def texts(pieces: list[str], min_size: int) -> st.SearchStrategy[str]:
    """Return texts of these pieces, without variables other than HOME."""
    joined = st.lists(st.sampled_from(pieces), min_size=min_size, max_size=6).map("".join)
    return joined.map(lambda text: re.sub(r"\$\{(?!HOME\})", "$", text))


LINE, ANY = texts(PIECES, 1), texts(PIECES + BREAKS, 0)
PARTITION = LINE.filter(lambda text: text.strip(", "))
FOLDER = LINE.map(lambda text: text.replace("/", "").replace("$", "").strip(".") or "x")  # valid as a file name
EXCLUDED_KEYS = {
    "setup",
    "teardown",
    "python",
    "run_root",
    "name",
    "scheduler",
    "launcher",
}  # bash lines, or set by the tests
COMMANDS = {
    "canary": 'touch "$REC/canary"',
    "prog": """env -0 >"$REC/env"; printf '%s' "$PWD" >"$REC/cwd"
for one; do printf '%s\\0' "$one"; done >"$REC/argv" """,
    "scontrol": "true",
    "scancel": "true",
    "python": "true",
    **dict.fromkeys(
        ["srun", "mpiexec", "mpirun"],
        """printf '%s\\0' "$@" >"$REC/launch"
case $0 in */srun) unset PMI_RANK ;; esac  # then the rank prints a warning with the site's name
while [ $# -gt 0 ] && [ "$1" != "$HPCRUN_RUN_DIR/rank.sh" ]; do shift; done
bash "$@" && : >"$HPCRUN_RUN_DIR/completed/rank-1"  # the other rank""",
    ),
}


def values(hint: Any, key: str) -> st.SearchStrategy[Any] | None:
    """Return hostile values of a site's key; None if the key takes no text."""
    kinds = get_args(hint) if get_origin(hint) is types.UnionType else (hint,)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return table(hint)
    if get_origin(hint) is tuple:
        if get_args(hint)[0] is not str:
            return None
        text = LINE.map("--comment={}".format) if key == "sbatch" else LINE
        return st.lists(text, max_size=2).map(tuple)
    if get_origin(hint) is dict:
        inner = get_args(hint)[1]
        if inner is str:
            return st.dictionaries(st.just(f"H_{key}".upper()), ANY)
        below = st.lists(ANY.filter(bool), max_size=2) if get_origin(inner) is tuple else values(inner, key)
        names = st.just(f"H_{key}".upper()) if get_origin(inner) is tuple else LINE
        return st.dictionaries(names, below, max_size=1) if below is not None else None
    if str in kinds and int not in kinds and not any(get_origin(kind) is Literal for kind in kinds):
        return LINE
    return None


def table(kind: type) -> st.SearchStrategy[dict[str, Any]]:
    hints = get_type_hints(kind)
    found = {
        one.name: values(hints[one.name], one.name) for one in dataclasses.fields(kind) if one.name not in EXCLUDED_KEYS
    }
    return st.fixed_dictionaries({}, optional={name: one for name, one in found.items() if one is not None})


def site(given: dict[str, Any], **more: Any) -> Site:
    """Return a site of the valid values only."""
    kept = dict(more)
    for key, value in given.items():
        try:
            SITE.validate_python({**kept, key: value})
        except ValidationError:
            continue
        kept[key] = value
    return SITE.validate_python(kept)


class FakeCluster:
    """Fake commands that record their arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin, self.rec = folder, folder / "bin", folder / "rec"
        self.bin.mkdir()
        for name, body in COMMANDS.items():
            (self.bin / name).write_text(f"#!/bin/bash\n{body}\n")
            (self.bin / name).chmod(0o755)

    def python(self, name: str) -> str:
        """Return the path of a Python in a folder of this name."""
        self.make_folder(name)
        file = self.folder / name / "python"
        file.unlink(missing_ok=True)
        file.symlink_to(self.bin / "python")
        return str(file)

    def make_folder(self, name: str) -> Path:
        (self.folder / name).mkdir(exist_ok=True)
        return self.folder / name

    def run(self, plan: submission.Plan, **environment: str) -> str:
        """Run a job's script as Slurm would, and return its stderr."""
        self.make_folder("rec")
        for file in self.rec.iterdir():
            file.unlink()
        ranks = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "PMI_RANK": "0", "MPI_LOCALRANKID": "0"}
        ranks |= {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
        slurm = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1", "SLURM_ARRAY_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": "0"}
        cluster = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": "/home/me", "REC": str(self.rec), "HPCRUN_TASK": "0"}
        module = {"BASH_FUNC_module%%": """() { printf '%s\\0' "$@" >>"$REC/module"; }"""}
        whole = {**cluster, **ranks, **slurm, **module, **environment}
        plan.spec.run_dir.mkdir(parents=True, exist_ok=True)
        file = self.rec / "job.sh"
        file.write_text(plan.script)
        assert subprocess.run(["bash", "-n", file], capture_output=True, check=False).stderr == b"", plan.script
        done = subprocess.run(
            ["bash", file], env=whole, cwd=self.folder, capture_output=True, timeout=DEADLINE, check=False
        )
        assert not (self.rec / "canary").exists(), plan.script
        return done.stderr.decode()

    def recorded_words(self, name: str) -> list[str]:
        file = self.rec / name
        return file.read_bytes().decode().split("\0")[:-1] if file.exists() else []


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    return FakeCluster(tmp_path_factory.mktemp("world"))


def directives(script: str) -> list[str]:
    """Return the options in a script's ``#SBATCH`` lines as sbatch reads them.

    A backslash takes the next character literally, also within quotes of either kind; a # outside of quotes begins a
    comment; and ``packjob`` and ``hetjob`` anywhere in a line separate jobs (sbatch(1), and sbatch's opt.c).
    """
    found = []
    for line in script.split("\n"):
        if line and not line.startswith("#"):
            break  # sbatch stops at the first command
        if not line.startswith("#SBATCH"):
            continue
        rest = line.removeprefix("#SBATCH ")
        assert not re.search("packjob|hetjob", rest, re.IGNORECASE)
        text, quote, escaped = "", "", False
        for one in rest:
            if escaped:
                text, escaped = text + one, False
            elif one == "\\":
                escaped = True
            elif quote:
                text, quote = (text, "") if one == quote else (text + one, quote)
            elif one in "\"'":
                quote = one
            else:
                assert not one.isspace(), line
                assert one != "#", line
                text += one
        assert (quote, escaped) == ("", False), line
        found.append(text)
    return found


def expanded(text: str) -> str:
    text = f"${{HOME}}/{text[2:]}" if text.startswith("~/") else text
    return text.replace("${HOME}", "/home/me")


LINES = st.lists(LINE, max_size=2)
fixed = st.fixed_dictionaries
REQUEST = fixed({
    "job_name": LINE, "account": LINE, "constraint": LINE, "mail_user": LINE,
    "sbatch": LINE.map(lambda text: (f"--comment={text}",)),
})  # fmt: skip
KNOWN = fixed(
    {
        "name": LINE,
        "launcher_args": LINES,
        "environment": fixed({"H_ENV": ANY}),
        "prepend_path": fixed({"H_PATH": st.lists(ANY.filter(bool), min_size=1, max_size=2)}),
        "data": fixed({"h-data": ANY}),
        "modules": fixed({"load": LINES}),
        "mpi": fixed({"type": LINE}),
        "sbatch": st.lists(LINE.map("--reservation={}".format), max_size=1),
        "cuda": fixed({"data_dir": LINE, "xla_flags": LINES, "libdevice": LINES}),
        "gpu": fixed({"type": LINE}),
    }
)
JOB = fixed({
    "site": KNOWN, "resources": REQUEST, "partition": PARTITION, "x": ANY, "args": st.lists(ANY, max_size=3),
    "sweep": st.none() | LINE, "scheduler": st.sampled_from(["slurm", "slurm", "local"]),
    "launcher": st.sampled_from(["srun", "mpiexec", "mpirun"]), "folder": FOLDER, "runs": FOLDER, "python": FOLDER,
})  # fmt: skip


def check_values_arrive(cluster: FakeCluster, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one job, and check what its rank, launcher and modules got."""
    facts = job["site"]
    made = SITE.validate_python(
        {
            **facts,
            "mpi": {**facts.get("mpi", {}), "library": "openmpi" if job["launcher"] == "mpirun" else "mpich"},
            "scheduler": job["scheduler"],
            "launcher": job["launcher"],
            "partitions": {job["partition"]: {}},
        }
    )
    resources = {
        **job["resources"],
        "partition": job["partition"],
        "nodes": 1,
        "ntasks_per_node": 2,
        "gpus_per_node": 2,
    }
    if job["scheduler"] == "local":
        resources = {"ntasks": 2}
    sweep = (("lr", (job["sweep"],)),) if job["sweep"] else ()
    monkeypatch.setattr("sys.executable", cluster.python(job["python"]))
    monkeypatch.setenv("HPCRUN_RUN_ROOT", str(cluster.folder / job["runs"]))
    start = cluster.make_folder(job["folder"])
    request = Request(None, (), resources, environment=(("H_X", job["x"]),), sweep=sweep)
    program = workload.Workload(name="p", program=(str(cluster.bin / "prog"),))
    plan = submission.plan(request, LoadedSite(made, "", {}), program, tuple(job["args"]), directory=start)
    stderr = cluster.run(plan)
    assert (cluster.rec / "env").exists(), stderr
    env = dict(one.split("=", 1) for one in cluster.recorded_words("env"))
    assert env["H_ENV"] == expanded(facts["environment"]["H_ENV"])
    assert env["H_PATH"] == ":".join(map(expanded, facts["prepend_path"]["H_PATH"]))
    assert env["HPCRUN_DATA_H_DATA"] == expanded(facts["data"]["h-data"])
    assert env["H_X"] == job["x"]
    assert env["HPCRUN_SITE_NAME"] == facts["name"]
    assert all(expanded(flag) in env.get("XLA_FLAGS", "") for flag in facts["cuda"]["xla_flags"])
    assert env["PATH"].startswith(f"{cluster.folder}/{job['python']}:")
    assert env["HPCRUN_RUN_DIR"].startswith(str(plan.spec.run_dir))
    assert cluster.recorded_words("argv") == [*job["args"], *([f"--lr={job['sweep']}"] if job["sweep"] else [])]
    assert cluster.recorded_words("module") == [word for name in facts["modules"]["load"] for word in ("load", name)]
    assert set(facts["launcher_args"]) <= set(cluster.recorded_words("launch"))
    if job["scheduler"] == "local":
        assert (cluster.rec / "cwd").read_text() == str(start)
        return
    assert directives(plan.script) == sbatch_options(plan.spec)
    assert f"--chdir={start}" in directives(plan.script)
    assert job["launcher"] != "srun" or f"--mpi={facts['mpi']['type']}" in cluster.recorded_words("launch")


FEW_EXAMPLES = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # shrinking takes minutes, and the first failure suffices
    suppress_health_check=list(HealthCheck),
)


@FEW_EXAMPLES
@given(job=JOB)
def test_random_values_arrive_literally(cluster, job):
    with pytest.MonkeyPatch.context() as monkeypatch:
        check_values_arrive(cluster, job, monkeypatch)


@pytest.mark.parametrize("scheduler", ["slurm", "local"])
@pytest.mark.parametrize(
    "text", ["$(canary)", "'`canary`", '";canary;"', "\\';canary;'", "a #SBATCH --wrap=x hetjob\\"]
)
def test_one_text_in_all_keys_arrives_literally(cluster, text, scheduler, monkeypatch):
    keys = {
        "name": text, "launcher_args": [text], "environment": {"H_ENV": text}, "prepend_path": {"H_PATH": [text]},
        "data": {"h-data": text}, "modules": {"load": [text]}, "mpi": {"type": text}, "gpu": {"type": text},
        "sbatch": [f"--reservation={text}"], "cuda": {"data_dir": text, "xla_flags": [text], "libdevice": [text]},
    }  # fmt: skip
    resources = {**dict.fromkeys(["job_name", "account", "constraint"], text), "sbatch": (f"--comment={text}",)}
    folders = dict.fromkeys(["folder", "runs", "python"], text.replace("$", ""))
    job = {"scheduler": scheduler, "launcher": "srun", "partition": text, "x": text, "args": [text], "sweep": None}
    check_values_arrive(cluster, {**job, **folders, "site": keys, "resources": resources}, monkeypatch)


@pytest.mark.thorough
@settings(FEW_EXAMPLES, max_examples=300, derandomize=False)
@given(job=JOB)
def test_many_random_values_arrive_literally(cluster, job):
    with pytest.MonkeyPatch.context() as monkeypatch:
        check_values_arrive(cluster, job, monkeypatch)


@FEW_EXAMPLES
@given(keys=table(Site), resources=table(Resources), name=LINE, launcher=st.sampled_from(["srun", "mpiexec", "none"]))
def test_no_site_key_can_run_a_command(cluster, keys, resources, name, launcher):
    """Test all keys of the model, so that new keys are tested, too."""
    made = site(keys, name=name, launcher=launcher)
    kept = {key: value for key, value in resources.items() if key != "dependency"}
    if made.partitions:
        kept["partition"] = next(iter(made.partitions))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("sys.executable", cluster.python("bin of python"))
        monkeypatch.setenv("HPCRUN_RUN_ROOT", str(cluster.folder / "runs"))
        try:
            plan = submission.plan(
                Request(None, (), kept),
                LoadedSite(made, "", {}),
                *workload.find_workload(None, (str(cluster.bin / "prog"),)),
            )
        except HpcrunError:
            return  # refused before anything runs
    cluster.run(plan)
    assert directives(plan.script) == sbatch_options(plan.spec)


@pytest.mark.parametrize(
    ("request_", "site_", "words"),
    [
        ({"environment": (("X", "a\0b"),)}, {}, "NUL"),
        ({}, {"environment": {"X": "a\0b"}}, "NUL"),
        ({"resources": {"sbatch": ("--comment=a\nb",)}}, {}, "--comment"),
        ({"resources": {"sbatch": ("--comment=a\rb",)}}, {}, "--comment"),
        ({"resources": {"job_name": "a\n#SBATCH --wrap=x"}}, {}, "--job-name"),
    ],
)
def test_values_that_scripts_cannot_contain_are_refused(request_, site_, words):
    found = LoadedSite(SITE.validate_python({"name": "s", **site_}), "", {})
    with pytest.raises(HpcrunError, match=words):
        submission.plan(
            Request(None, ("x",), **{"resources": {}, **request_}), found, *workload.find_workload(None, ("x",))
        )


def test_line_breaks_in_file_names_do_not_break_directives(tmp_path, monkeypatch):
    found = LoadedSite(SITE.validate_python({"name": "s"}), "", {})
    folder = tmp_path / "a\n#SBATCH --wrap=canary"
    folder.mkdir()
    (folder / "b\ncanary.py").write_text("")
    program = workload.find_workload(str(folder / "b\ncanary.py"))
    assert "--job-name=b-canary" in directives(submission.plan(Request(None), found, *program).script)
    monkeypatch.chdir(folder)
    with pytest.raises(HpcrunError, match="an #SBATCH line cannot contain"):
        submission.plan(Request(None), found, *program)
    with pytest.raises(ValidationError, match="one line"):
        SITE.validate_python({"name": "s\ncanary"})
