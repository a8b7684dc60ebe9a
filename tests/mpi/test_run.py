"""`hpcrun run` on real MPI ranks prints each error once."""

import contextlib
import os
import platform
import re
import socket
import subprocess
import sys

import pytest

from tests.mpi.ranks import PROGRAMS, ROOT, backend_python, needs_mpi, thorough
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.mpi, needs_mpi]

HOST = platform.node()


def hpcrun_run(folder, *argv, timeout=120, python=sys.executable, through=()):
    """Run `hpcrun run`, optionally through another command, with its runs and index in a folder; merge both streams."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HPCRUN_", "SLURM_", "PMI", "MPI", "KERAS_"))}
    clean |= {"PYTHONPATH": str(ROOT), "HPCRUN_RUN_ROOT": str(folder / "runs"), "XDG_STATE_HOME": str(folder / "state")}
    command = [*through, python, "-m", "hpcrun", "run", "--site", "local", *map(str, argv)]
    done = subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, timeout=timeout * PATIENCE, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["raise", "1"], 1, "ValueError: a bug in the script"),
        (["refuse", "1"], 2, "error: this cannot be"),
        (["exit", "1"], 3, "error: sys.exit(3) at failing.py"),
        pytest.param(["hang", "1"], 1, "error: no progress for 15 s", marks=thorough),
        (["stop", "0"], 1, "error: no progress for 15 s"),  # only rank 1, which has its own log, can report it
        (["raise", "all"], 1, "ValueError: a bug in the script"),
    ],
)
def test_the_error_of_a_job_is_printed_once(tmp_path, arguments, code, message):
    program = PROGRAMS / "failing.py"
    found, text = hpcrun_run(tmp_path, "-n", 2, "-x", "HPCRUN_STALL_SECONDS=15", program, "--", *arguments)
    assert (found, text.count(message)) == (code, 1), text
    assert text.count(f"/2 on {HOST}] ") == 1
    assert ("'s log ends (hpcrun logs" in text) == (arguments == ["stop", "0"])


def test_an_error_before_hpcrun_train_is_printed(tmp_path):
    (tmp_path / "train.py").write_text(
        "import os\n"
        "if os.environ['HPCRUN_RANK'] == '1':\n"
        "    import nothing_of_the_kind\n"
        "import hpcrun.train\n"
        "hpcrun.train.comm()\n"
    )
    code, text = hpcrun_run(tmp_path, "-n", 2, "-x", "HPCRUN_STALL_SECONDS=15", "./train.py")
    assert code != 0
    assert "rank 1's log ends (hpcrun logs" in text
    assert text.count("ModuleNotFoundError: No module named 'nothing_of_the_kind'") == 1


WIFI = """
ip link set lo up && ip link add wifi type veth peer name router && ip address add 198.51.100.7/24 dev wifi &&
ip link set router up && ip link set wifi up && exec "$@"
"""
LEAVES = """
import subprocess
from mpi4py import MPI
MPI.COMM_WORLD.allreduce(1)
if MPI.COMM_WORLD.rank == 0:
    subprocess.run(["ip", "link", "delete", "wifi"], check=True)
MPI.COMM_WORLD.barrier()
"""


NO_NETWORKS = subprocess.run(["unshare", "--net", "ip", "link"], check=False, capture_output=True).returncode != 0


@pytest.mark.skipif(NO_NETWORKS, reason="no network of its own can be made: needs root and ip (iproute2)")
def test_a_lost_network_does_not_end_a_run_on_one_host(tmp_path):
    (tmp_path / "leaves.py").write_text(LEAVES)
    code, text = hpcrun_run(tmp_path, "-n", 2, "./leaves.py", through=["unshare", "--net", "bash", "-c", WIFI, "wifi"])
    assert code == 0, text


def page():
    return (ROOT / "docs/training.md").read_text()


def examples():
    return re.findall(r"^```python\n(.*?)^```", page(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=thorough), 2])
def test_examples_of_the_docs_run_on_ranks(tmp_path, ranks):
    (tmp_path / "train.py").write_text("\n".join(examples()))
    code, text = hpcrun_run(tmp_path, "-n", ranks, "./train.py", timeout=300)
    assert code == 0, text
    assert text.count("epoch 1 is over") == 1
    assert "learning rate 0.001 grows to " in text
    assert re.search(r"^loss \d", text, re.MULTILINE)
    shown = re.findall(r"^(?:epoch|result) .*?mae [\d.]+", page(), re.MULTILINE)  # on two ranks
    assert len(shown) == 3
    assert [line for line in shown if f"\n{line}" not in text and ranks == 2] == []


@thorough
@pytest.mark.parametrize(("backend", "ranks"), [("tensorflow", 2), ("tensorflow", 1), ("jax", 2), ("torch", 2)])
def test_the_main_example_prints_the_output_in_the_docs(tmp_path, backend, ranks):
    (tmp_path / "train.py").write_text(examples()[0])
    how = ["-n", ranks, "-x", f"KERAS_BACKEND={backend}"]
    code, text = hpcrun_run(tmp_path, *how, "./train.py", python=backend_python(backend))
    assert code == 0, text
    assert (tmp_path / "model.keras").exists()
    shown = re.findall(r"^(?:epoch|result) .*?mae [\d.]+", text, re.MULTILINE)
    assert len(shown) >= 3
    if backend == "tensorflow":
        assert [line for line in shown if "step" not in line and line not in page()] == []


ALONE = "each of the 2 ranks worked alone"


@pytest.mark.parametrize(
    ("script", "before", "after"),
    [
        ("", 1, 1),  # plain Keras
        ("import hpcrun.train", 0, 1),  # without Model
        ("import hpcrun.train; hpcrun.train.barrier()", 0, 0),
        ("import hpcrun.train; hpcrun.train.rank()", 0, 0),  # the script splits the work itself
        ("exec('import hpcrun.train'); exec('hpcrun.train.barrier()')", 1, 0),  # not visible in the script's text
        ("", None, 1),  # behind a shell
        ("import mpi4py; print('TF_CONFIG', 'RANK')", 0, 1),  # nothing but names
        ("from mpi4py import MPI", 0, 0),
        ("from mpi4py import MPI; MPI.Finalize()", 0, 0),
        ("exec('from mpi4py import MPI')", None, 0),
        ("import os; os.environ['PMI_SIZE'] = '1'; del os.environ['PMI_FD']; from mpi4py import MPI", 0, 1),
    ],
)
# before is None behind a shell
def test_separate_models_get_a_warning(tmp_path, script, before, after):
    (tmp_path / "site-packages").mkdir()  # beside the script, keras.py would be a module of the user
    (tmp_path / "site-packages/keras.py").write_text("")  # real training would take long and is not needed
    no_tensorflow = "sys.modules['hpcrun.train.ranks.device'] = types.SimpleNamespace(bind_device=str)"
    (tmp_path / "train.py").write_text(f"import sys, types\n{no_tensorflow}\nimport keras\n{script}\n")
    argv = ["--", "sh", "-c", "python3 train.py"] if before is None else ["train.py"]
    path = f"PYTHONPATH={tmp_path}/site-packages:{ROOT}"
    code, text = hpcrun_run(tmp_path, "-n", 2, "-x", path, *argv)
    assert code == 0, text
    assert text.count("WARNING: each of the 2 ranks would train a separate model") == (before or 0)
    assert text.count(f"WARNING: {ALONE}") == after, text
    env = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state")}
    for command in ("status", "why"):
        asked = subprocess.run(
            [sys.executable, "-m", "hpcrun", command, "last"], env=env, capture_output=True, text=True, check=True
        )
        assert (ALONE in asked.stdout) == bool(after), asked.stdout


WORLDS = {
    "torch": """
import os, torch.distributed as dist
dist.init_process_group("gloo", f"file://{os.environ['HPCRUN_RUN_DIR']}/store", rank=int(rank), world_size=2)
dist.barrier()  # a rank that ends early breaks the connections of the others
dist.destroy_process_group()
""",
    "jax": """
import jax
jax.distributed.initialize("127.0.0.1:%d", 2, int(rank))
""",
    "tensorflow": """
import json, tensorflow as tf
workers = ["127.0.0.1:%d", "127.0.0.1:%d"]
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": int(rank)}})
tf.distribute.MultiWorkerMirroredStrategy()
""",
}


@pytest.mark.parametrize("backend", [pytest.param(name, marks=thorough) for name in WORLDS])
@pytest.mark.parametrize("joins", [True, False])
def test_ranks_in_the_world_of_another_framework_get_no_warning(tmp_path, backend, joins):
    program = WORLDS[backend]
    program %= tuple(find_free_ports(program.count("%d")))
    begin = f"import os; rank = os.environ['HPCRUN_RANK']; import {backend}\n"
    (tmp_path / "train.py").write_text(begin + program * joins)
    code, text = hpcrun_run(tmp_path, "-n", 2, "train.py", python=backend_python(backend), timeout=300)
    assert (code, f"WARNING: {ALONE}" in text) == (0, not joins), text


@thorough
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_a_distributed_script_runs_on_a_single_rank(tmp_path, backend):
    programs = {
        "torch": "import torch.distributed as dist\ndist.init_process_group('gloo')\nsize = dist.get_world_size()\n",
        "jax": "import jax\njax.distributed.initialize()\nsize = jax.process_count()\n",
    }
    (tmp_path / "train.py").write_text(f"{programs[backend]}print('SIZE', size)")
    code, text = hpcrun_run(tmp_path, "-n", 1, "train.py", python=backend_python(backend))
    assert (code, "SIZE 1" in text) == (0, True), text


def find_free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
