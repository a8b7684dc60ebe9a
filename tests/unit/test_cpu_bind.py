"""The cores that ranks are bound to: hpcrun/shell/cpu_bind.bash, on nodes that are pretended, and on this one."""

import os
import re
import subprocess
from pathlib import Path

import pytest

import hpcrun
from tests.waiting import DEADLINE

FILE = Path(hpcrun.__file__).parent / "shell/cpu_bind.bash"
# two sockets of four cores; CPU n + 8 is the second hardware thread of CPU n
TOPOLOGY = "# NODE,SOCKET,CORE,CPU\n" + "".join(f"{n // 4 % 2},{n // 4 % 2},{n % 8},{n}\n" for n in range(16))


@pytest.fixture
def bound(tmp_path):
    """Return the CPUs that each rank of a pretended node is bound to; None where it is left as it was."""

    def call(kind, ranks, mask="0-15", topology=TOPOLOGY, **environment):
        bindings = []
        (tmp_path / "topology").write_text(topology)
        for rank in range(int(ranks or 1)):
            answer = tmp_path / f"rank{rank}"
            programs = {
                "lscpu": f"cat {tmp_path}/topology",
                "taskset": f'[ $# = 3 ] && echo "$2" >{answer} || echo "pid 1\'s current affinity list: {mask}"',
            }
            for name, text in programs.items():
                (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
                (tmp_path / name).chmod(0o755)
            script = f'set -eu; source {FILE}; hpcrun_cpu_bind {kind} {rank} "{ranks}"'
            path = {"PATH": f"{tmp_path}:/usr/bin:/bin", **environment}
            subprocess.run(["bash", "-c", script], env=path, check=True, timeout=DEADLINE)
            bindings.append(answer.read_text().strip() if answer.exists() else None)
        return bindings

    return call


def test_ranks_share_the_cores_of_a_socket_before_those_of_the_next(bound):
    assert bound("cores", 4) == ["0,8,1,9", "2,10,3,11", "4,12,5,13", "6,14,7,15"]
    assert bound("cores", 2) == ["0,8,1,9,2,10,3,11", "4,12,5,13,6,14,7,15"]
    assert bound("cores", 3) == ["0,8,1,9", "2,10,3,11,4,12", "5,13,6,14,7,15"]


def test_ranks_are_bound_to_the_sockets_of_their_cores(bound):
    first, second = "0,8,1,9,2,10,3,11", "4,12,5,13,6,14,7,15"
    assert bound("sockets", 4) == [first, first, second, second]
    assert bound("sockets", 3) == [first, f"{first},{second}", second]


def test_only_cores_of_the_job_are_distributed(bound):
    assert bound("cores", 2, mask="2-3,5") == ["2", "3,5"]


@pytest.mark.parametrize(
    ("ranks", "more"),
    [
        (9, {}),  # more ranks than cores
        (1, {}),
        ("", {}),
        (2, {"topology": ""}),
        (2, {"SLURM_CPU_BIND_TYPE": "mask_cpu:", "SLURM_STEP_TASKS_PER_NODE": "2"}),
        (4, {"mask": "0-3", "SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_CPUS_ON_NODE": "16"}),
    ],
)
def test_processes_that_are_not_bound(bound, ranks, more):
    assert set(bound("cores", ranks, **more)) == {None}


@pytest.mark.parametrize(
    ("tasks", "kind"), [("2(x2)", "none"), ("1(x2)", "mask_cpu:"), ("1", "mask_cpu:"), ("", "mask_cpu:")]
)
def test_hpcrun_binds_where_slurm_has_not_bound_the_ranks(bound, tasks, kind):
    """Slurm binds the process by which mpiexec starts the ranks of a node to all cores that the job has there."""
    step = {"SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_CPUS_ON_NODE": "16", "SLURM_CPU_BIND_TYPE": kind}
    assert bound("cores", 2, **step) == bound("cores", 2)


@pytest.mark.parametrize(("node", "tasks"), [(0, 2), (2, 2), (3, 1), (4, 4)])
def test_tasks_per_node_of_a_step_are_parsed(node, tasks):
    script = f"source {FILE}; hpcrun_tasks_on_node '2(x3),1,4'"
    done = subprocess.run(
        ["bash", "-c", script], env={"SLURM_NODEID": str(node)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(tasks)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_two_processes_have_no_cpu_in_common():
    script = f"source {FILE}; hpcrun_cpu_bind cores %d 2; exec python3 -c 'import os; print(*os.sched_getaffinity(0))'"
    outputs = [
        subprocess.run(["bash", "-c", script % rank], capture_output=True, text=True, check=True).stdout
        for rank in (0, 1)
    ]
    first, second = (set(one.split()) for one in outputs)
    assert first
    assert second
    assert not first & second


def line(cli, *words):
    code, out, err = cli("submit", "-N", "1", "-n", "2", "--dry-run", *words, "--", "x")
    assert code == 0, err
    assert " --local-rank SLURM_LOCALID \\\n  --local-ranks SLURM_STEP_TASKS_PER_NODE " in out
    return re.findall(r" --cpu-bind (\w+)", out.partition("\nhpcrun_launch ")[2].partition(" -- ")[0])


def test_cpu_bind_comes_from_the_option_or_the_site(cli, tmp_path):
    site = ["--site", "slurm"]
    assert line(cli, *site) == ["cores"]
    assert line(cli, *site, "--cpu-bind", "sockets") == ["sockets"]
    assert line(cli, *site, "--cpu-bind", "none") == []
    (tmp_path / "c.toml").write_text('extends = "slurm"\ncpu_bind = "sockets"\n')
    assert line(cli, "--site", str(tmp_path / "c.toml")) == ["sockets"]
    (tmp_path / "c.toml").write_text('extends = "slurm"\nlauncher_args = ["--cpu-bind=cores"]\n')
    assert line(cli, "--site", str(tmp_path / "c.toml")) == []
    code, _, err = cli("submit", *site, "--cpu-bind", "map_cpu:1", "--dry-run", "--", "x")
    assert (code, "HINT: the choices: cores, sockets, none" in err) == (2, True)
