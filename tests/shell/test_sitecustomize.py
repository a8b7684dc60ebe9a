"""sitecustomize.py in real Python processes: what a program does not notice of it, and the exit code it recognizes."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[2] / "hpcrun" / "shell"


def run_python(folder, text, *path):
    """Run a program with this file's hooks, and print the exit code that they recognize."""
    # Debian's Python has a sitecustomize of its own, which is sys.modules['sitecustomize'] then
    find = "find = sys.exit.__globals__['find_exit_code']"
    prints = f"import atexit, sys; {find}; atexit.register(lambda: print('code', find()))"
    (folder / "program.py").write_text(f"{prints}\n{text}")
    env = {**os.environ, "PYTHONPATH": ":".join(map(str, (LIBRARY, *path)))}
    return subprocess.run([sys.executable, "program.py"], cwd=folder, env=env, capture_output=True, check=False)


IN_A_THREAD = "import threading\ndef run():\n"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, ""),
        (0, "sys.exit()"),
        (0, "sys.exit(0)"),
        (3, "sys.exit(3)"),
        (1, "sys.exit('no data')"),
        (1, "sys.exit((1, 2))"),
        (5, "raise SystemExit(5)"),
        (5, "exit(5)"),
        (0, "raise SystemExit"),
        (1, "raise SystemExit('no data')"),
        (6, "class Stop(SystemExit):\n  def __init__(self): super().__init__(6)\nraise Stop"),
        (0, "try: raise SystemExit(4)\nexcept SystemExit: pass"),
        (3, "import pickle; sys.exit(pickle.loads(pickle.dumps(SystemExit(3))).code)"),
        (0, f"{IN_A_THREAD}  try: sys.exit(4)\n  except SystemExit: pass\nthreading.Thread(target=run).start()"),
        (0, "import _thread, time; _thread.start_new_thread(sys.exit, (4,)); time.sleep(0.2)"),
        (1, "1 / 0"),
        (130, "raise KeyboardInterrupt"),
        (2, "import argparse; argparse.ArgumentParser().parse_args(['--unknown'])"),
        (4, "try:\n  with open('/dev/null'): sys.exit(4)\nexcept ValueError: pass\nfinally: print('end')"),
        (4, "try: sys.exit(4)\nexcept SystemExit: raise"),
        (0, "try: sys.exit(4)\nexcept SystemExit: pass"),
        (0, "try: sys.exit(4)\nexcept SystemExit as error: kept = error"),
        (0, "import threading; thread = threading.Thread(target=lambda: sys.exit(4)); thread.start()"),
        (1, "try: sys.exit(4)\nexcept SystemExit: raise ValueError from None"),
    ],
)
def test_the_exit_code_of_a_process_is_known_when_it_ends(tmp_path, code, text):
    completed = run_python(tmp_path, text)
    assert completed.stdout.splitlines()[-1] == f"code {code}".encode()
    assert completed.returncode in {code, -2 if code == 130 else code}


@pytest.mark.parametrize("ends", ["sys.exit(4)", "raise SystemExit(4)", "raise SystemExit"])
def test_a_thread_ends_without_a_message(tmp_path, ends):
    text = f"{IN_A_THREAD}  {ends}\nthread = threading.Thread(target=run); thread.start(); thread.join()"
    completed = run_python(tmp_path, text)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, b"code 0\n", b"")


def test_an_error_in_a_thread_is_printed(tmp_path):
    text = "import threading; thread = threading.Thread(target=lambda: 1 / 0); thread.start(); thread.join()"
    assert b"ZeroDivisionError" in run_python(tmp_path, text).stderr


def test_a_program_does_not_notice_the_hooks(tmp_path):
    hidden = tmp_path / "site"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("print('hidden one')\nname = 'hidden'")
    text = "import pickle, sitecustomize; print(sys.path[1:2], pickle.dumps(sys.exit, 0), sitecustomize.name)"
    lines = run_python(tmp_path, text, hidden).stdout.decode().splitlines()
    assert lines == ["hidden one", f"{[str(hidden)]} {pickle.dumps(sys.exit, 0)!r} hidden", "code 0"]


def test_an_error_in_the_hidden_sitecustomize_is_printed(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import nothing_of_the_kind")
    assert b"No module named 'nothing_of_the_kind'" in run_python(tmp_path, "", tmp_path).stderr


def test_jax_finds_the_ranks_of_this_job_before_those_of_srun(tmp_path, monkeypatch):
    clusters = tmp_path / "jax/_src/clusters"
    clusters.mkdir(parents=True)
    for folder in (clusters, clusters.parent, clusters.parent.parent):
        (folder / "__init__.py").write_text("")
    base = "class ClusterEnv:\n  _cluster_types = []\n  def __init_subclass__(cls): cls._cluster_types.append(cls)\n"
    (clusters / "__init__.py").write_text(f"{base}class SlurmCluster(ClusterEnv): pass\n")
    text = (
        "import sys; before = list(sys.meta_path)\nfrom jax._src import clusters\n"
        "ours, slurm = clusters.ClusterEnv._cluster_types\n"
        "print(slurm.__name__, ours.get_coordinator_address(60), ours.get_process_count(), ours.get_process_id())\n"
        "print(len(before) - len(sys.meta_path))"
    )
    world = {"JAX_COORDINATOR_ADDRESS": "n1:12001", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "3"}
    for name, value in world.items():
        monkeypatch.setenv(name, value)
    assert run_python(tmp_path, text).stdout.decode().splitlines()[:2] == ["SlurmCluster n1:12001 4 3", "1"]


TORCH = """
import types
module = sys.modules["torch.distributed.distributed_c10d"] = types.ModuleType("c10d")
module.is_initialized, module.get_world_size, module._default_pg_init_method = lambda: {0}, lambda: {1}, {2!r}
"""


@pytest.mark.parametrize(
    ("state", "alone"),
    [
        ((True, 4, "env://"), None),
        ((True, 2, "env://"), "rank 0 was in a world of 2 ranks, of 4 in the job"),
        ((False, 0, "env://"), "rank 0 was in a world of 2 ranks, of 4 in the job"),  # after destroy_process_group
        ((False, 0, "file://store"), None),  # of unknown size
    ],
)
def test_a_world_without_some_ranks_is_recorded(tmp_path, monkeypatch, state, alone):
    world = {"HPCRUN_RUN_DIR": tmp_path, "HPCRUN_RANK": 0, "HPCRUN_NTASKS": 4, "WORLD_SIZE": 2}
    for name, value in world.items():
        monkeypatch.setenv(name, str(value))
    for _ in range(2):  # a template may start several programs in turn
        assert run_python(tmp_path, TORCH.format(*state)).stderr == b""
    found = {name: (tmp_path / name).read_text() for name in ("met", "alone") if (tmp_path / name).exists()}
    assert found == ({"alone": alone} if alone else {"met": ""})


C10D = """
import os
class Store: host = os.environ["STORE_HOST"]
class Prefix: underlying_store = Store()
class Group:
    def size(self): return int(os.environ["SIZE"])
class _world: pg_map, default_pg, calls = {}, None, 0
_default_pg_init_method = None
def _update_default_pg(group): _world.default_pg, _world.calls = group, _world.calls + 1
def is_initialized(): return _world.default_pg is not None
def get_world_size(): return int(os.environ["SIZE"])
def init_process_group():
    _world.pg_map[group := Group()] = ("gloo", Prefix())
    _update_default_pg(group)
def destroy_process_group(): _update_default_pg(None)
"""


@pytest.mark.parametrize(
    ("host", "size", "ranks", "alone"),
    [
        ("n1", 2, 2, None),
        ("n1", 2, 4, "rank 0 was in a world of 2 ranks, of 4 in the job"),
        ("localhost", 2, 2, "rank 0 was in a world of 2 ranks on one of 2 nodes"),
        ("127.0.0.1", 4, 2, "rank 0 was in a world of 4 ranks on one of 2 nodes"),
        ("localhost", 1, 2, "torch.distributed has one rank in each; let the script read WORLD_SIZE and RANK"),
    ],
)
@pytest.mark.parametrize("end", ["", "c10d.destroy_process_group()", "c10d.destroy_process_group(); os._exit(0)"])
def test_a_world_of_torch_is_recorded_when_it_connects(tmp_path, monkeypatch, host, size, ranks, alone, end):
    package = tmp_path / "torch/distributed"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "distributed_c10d.py").write_text(C10D)
    (tmp_path / "hostfile").write_text("n1:2\nn2 slots=2\n")
    world = {"HPCRUN_RUN_DIR": tmp_path, "HPCRUN_RANK": 0, "HPCRUN_NTASKS": ranks, "STORE_HOST": host, "SIZE": size}
    for name, value in world.items():
        monkeypatch.setenv(name, str(value))
    text = (
        "import os; from torch.distributed import distributed_c10d as c10d; "
        f"c10d.init_process_group(); assert c10d._world.calls == 1; {end}"
    )
    assert run_python(tmp_path, text).stderr == b""
    found = {name: (tmp_path / name).read_text() for name in ("met", "alone") if (tmp_path / name).exists()}
    assert found == ({"alone": alone} if alone else {"met": ""})


def test_the_process_that_starts_others_keeps_their_record(tmp_path, monkeypatch):
    for name, value in {"HPCRUN_RUN_DIR": tmp_path, "HPCRUN_RANK": 0, "HPCRUN_NTASKS": 4}.items():
        monkeypatch.setenv(name, str(value))
    (tmp_path / "alone").write_text("rank 0 was in a world of 2 ranks, of 4 in the job")
    run_python(tmp_path, "import types; sys.modules['torch'] = types.ModuleType('torch')")
    assert (tmp_path / "alone").read_text() == "rank 0 was in a world of 2 ranks, of 4 in the job"


@pytest.mark.parametrize(
    ("imports", "tasks", "marker", "text"),
    [
        ("tensorflow", 2, "met", ""),
        ("tensorflow, hpcrun.train", 2, "met", ""),
        ("tensorflow, hpcrun.train", 1, "alone", "rank 0 was in a world of 2 ranks, of 4 in the job"),
        ("hpcrun.train", 0, None, ""),  # it records its own world
    ],
)
def test_the_world_of_tensorflow_counts_also_beside_hpcrun_train(tmp_path, imports, tasks, marker, text):
    eager = tmp_path / "tensorflow/python/eager"
    eager.mkdir(parents=True)
    for folder in (eager, eager.parent, eager.parent.parent):
        (folder / "__init__.py").write_text("")
    (tmp_path / "hpcrun/train").mkdir(parents=True)
    for folder in ("hpcrun", "hpcrun/train"):
        (tmp_path / folder / "__init__.py").write_text("")
    (eager / "context.py").write_text(
        "class N:\n  def __init__(self, **names): self.__dict__.update(names)\n"
        f"server = N(cluster=N(job=[N(tasks=[1] * {tasks}), N(tasks=[1])]))\n"
        "_context = N(_collective_ops_server_def=None, _server_def=server)\n"
    )
    text_of_program = f"import {imports}\n" + ("import tensorflow.python.eager.context\n" if tasks else "")
    world = {"HPCRUN_RANK": "0", "HPCRUN_NTASKS": "3" if tasks == 2 else "4", "HPCRUN_RUN_DIR": str(tmp_path)}
    (tmp_path / "program.py").write_text(text_of_program)
    env = {**os.environ, **world, "PYTHONPATH": f"{LIBRARY}:{tmp_path}"}
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=env, check=True)
    assert [name for name in ("met", "alone") if (tmp_path / name).exists()] == ([marker] if marker else [])
    assert not marker or (tmp_path / marker).read_text() == text


@pytest.mark.parametrize(
    ("text", "record", "exit_codes"),
    [
        ("sys.exit(3)", "", [3]),
        ("raise ValueError", '{"exit_code": null, "reason": "running"}', [1]),
        ("raise MPI.Exception", "", []),  # usually because another rank has failed
        ("sys.exit(143)", "", []),
        ("sys.exit(3)", '{"exit_code": 143, "reason": "stopped by SIGTERM"}', []),
    ],
)
def test_a_rank_that_fails_after_mpi_init_records_it_before_it_ends(tmp_path, monkeypatch, text, record, exit_codes):
    monkeypatch.setenv("HPCRUN_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("HPCRUN_RANK", "1")
    if record:
        (tmp_path / "exit.json").write_text(record)
    library = (
        "import types; MPI = types.ModuleType('mpi4py.MPI'); sys.modules['mpi4py.MPI'] = MPI\n"
        "MPI.Exception = type('Exception', (RuntimeError,), {})\n"
        "MPI.Is_initialized = lambda: True; MPI.Is_finalized = lambda: False\n"
        "MPI.COMM_WORLD = types.SimpleNamespace(Get_size=lambda: 2)\n"
    )
    run_python(tmp_path, library + text)
    failures = tmp_path / "failed.jsonl"
    lines = map(json.loads, failures.read_text().splitlines() if failures.exists() else ())
    assert [(line["rank"], line["exit_code"]) for line in lines] == [(1, code) for code in exit_codes]
