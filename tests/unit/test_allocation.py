"""Allocations of jobs: variables as schedulers set them, and hostfiles as users write them."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.allocation import HOSTFILE_FORMATS, NODELIST_VARIABLES, Allocation, Host
from hpcrun.errors import HpcrunError


def names_and_tasks(allocation):
    return [(host.name, host.tasks) for host in allocation.hosts]


def read_slurm(**variables):
    return Allocation.from_environment({f"SLURM_{name}": value for name, value in variables.items()})


# These variables were copied from jobs of Slurm 22.05.
SLURM_JOBS = {
    "-N2 -n3": ({"JOB_NODELIST": "n[1-2]", "TASKS_PER_NODE": "2,1", "NTASKS": "3"}, [2, 1]),
    "-N4 -n7 --ntasks-per-node=2": (
        {"JOB_NODELIST": "n[1-4]", "TASKS_PER_NODE": "2(x4)", "NTASKS": "7"},
        [2, 2, 2, 1],
    ),
    "-N3 -n10 -O": ({"JOB_NODELIST": "n[1-3]", "TASKS_PER_NODE": "4,3(x2)", "NTASKS": "10"}, [4, 3, 3]),
    "-N4 --exclusive": ({"JOB_NODELIST": "n[1-4]", "TASKS_PER_NODE": "2(x4)"}, [2, 2, 2, 2]),
    "-N4": ({"JOB_NODELIST": "n[1-4]", "TASKS_PER_NODE": "1(x4)"}, [1, 1, 1, 1]),
    "arbitrary": ({"JOB_NODELIST": "n[1-4]", "NTASKS": "6"}, [2, 2, 1, 1]),
}


@pytest.mark.parametrize(("variables", "tasks"), SLURM_JOBS.values(), ids=SLURM_JOBS)
def test_a_batch_script_gets_the_requested_tasks(variables, tasks):
    granted = read_slurm(**variables)
    assert granted.source == "slurm"
    assert names_and_tasks(granted) == [(f"n{index}", count) for index, count in enumerate(tasks, start=1)]
    assert granted.ntasks == sum(tasks)


def test_a_step_gets_its_own_hosts_and_tasks():
    step = read_slurm(
        JOB_NODELIST="n[1-4]",
        STEP_NODELIST="n[3-4]",
        TASKS_PER_NODE="2,1",
        STEP_TASKS_PER_NODE="2,1",
        NTASKS="3",
    )
    assert names_and_tasks(step) == [("n3", 2), ("n4", 1)]


def test_a_job_submitted_in_a_step_does_not_get_the_hosts_of_that_step():
    nested = {"TASKS_PER_NODE": "2", "NTASKS": "2", "STEP_NODELIST": "n[1-2]", "STEP_TASKS_PER_NODE": "1(x2)"}
    assert names_and_tasks(read_slurm(JOB_NODELIST="n4", **nested)) == [("n4", 2)]
    nested |= {"STEP_NODELIST": "n1", "STEP_TASKS_PER_NODE": "2"}
    assert names_and_tasks(read_slurm(JOB_NODELIST="n4", **nested)) == [("n4", 2)]


def test_the_interactive_shell_of_salloc_gets_the_whole_job():
    shell = read_slurm(
        JOB_NODELIST="n[1-2]",
        TASKS_PER_NODE="2,1",
        NTASKS="3",
        STEP_ID="4294967290",
        STEP_NODELIST="n1",
        STEP_TASKS_PER_NODE="1",
    )
    assert names_and_tasks(shell) == [("n1", 2), ("n2", 1)]


def test_contradictory_slurm_variables_are_named():
    with pytest.raises(HpcrunError, match=r"SLURM_TASKS_PER_NODE=2\(x3\) counts 3.*NODELIST=n\[1-2\] names 2"):
        read_slurm(JOB_NODELIST="n[1-2]", TASKS_PER_NODE="2(x3)")
    with pytest.raises(HpcrunError, match="SLURM_NTASKS: 'many'"):
        read_slurm(JOB_NODELIST="n[1-2]", NTASKS="many")


def srun_layout(ntasks, cpus):
    """Distribute tasks by the same loop as Slurm's _task_layout_block."""
    tasks, placed, cycle, oversubscribed = [0] * len(cpus), 0, 0, False
    while placed < ntasks:
        space_remaining = False
        for index, slots in enumerate(cpus):
            if placed < ntasks and (cycle < slots or oversubscribed):
                tasks[index] += 1
                placed += 1
                space_remaining = space_remaining or cycle + 1 < slots
        oversubscribed = oversubscribed or not space_remaining
        cycle += 1
    return tasks


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
def test_tasks_are_distributed_as_by_srun(slots, data):
    ntasks = data.draw(st.integers(1, sum(slots)))
    granted = read_slurm(
        JOB_NODELIST=f"n[1-{len(slots)}]", TASKS_PER_NODE=",".join(map(str, slots)), NTASKS=str(ntasks)
    )
    expected = [count for count in srun_layout(ntasks, slots) if count]
    assert names_and_tasks(granted) == [(f"n{index}", count) for index, count in enumerate(expected, start=1)]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 100))
def test_any_number_of_tasks_is_distributed(slots, ntasks):
    granted = Allocation("pbs", tuple(Host(f"n{index}", count) for index, count in enumerate(slots)))
    spread = [host.tasks for host in granted.with_tasks(ntasks).hosts]
    assert sum(spread) == ntasks
    if ntasks > sum(slots):
        assert max(spread) <= max(*slots, -(-ntasks // len(slots)))
        assert all(after >= before for after, before in zip(spread, slots, strict=True))


@pytest.mark.parametrize(
    "spelling",
    ["n1,n2,n3", "n1 n2 n3", "n1\nn2\nn3\n", "n[1-3]", " n1, n2,\tn3 ", "n1,n1,n2,n1,n3,n3", "n1,n[2-3],n2"],
)
def test_carme_nodes_are_read_with_any_separator(spelling):
    assert Allocation.from_environment({"CARME_NODES": spelling}) == Allocation(
        "carme", (Host("n1"), Host("n2"), Host("n3"))
    )


@pytest.mark.parametrize("variable", [name for name in NODELIST_VARIABLES if name.endswith("FILE")])
def test_nodefiles_repeat_a_host_for_every_slot(variable, tmp_path):
    nodefile = tmp_path / "nodes"
    nodefile.write_text("n2.hpc\nn2.hpc\nn1.hpc\nn2.hpc\n")
    granted = Allocation.from_environment({variable: str(nodefile)})
    assert names_and_tasks(granted) == [("n2.hpc", 3), ("n1.hpc", 1)]
    assert granted.source == {"PBS": "pbs", "LSB": "lsf", "OAR": "oar"}[variable[:3]]
    nodefile.unlink()
    with pytest.raises(HpcrunError, match=rf"cannot read \${variable} {nodefile}: No such file"):
        Allocation.from_environment({variable: str(nodefile)})


@pytest.mark.parametrize(
    ("variable", "value"),
    [("LSB_MCPU_HOSTS", "n2 3 n1 1 "), ("LSB_HOSTS", "n2 n2 n2 n1"), ("LSB_HOSTS", "n2 n1 n2 n2")],
)
def test_lsf_variables_are_read(variable, value):
    assert Allocation.from_environment({variable: value}) == Allocation("lsf", (Host("n2", 3), Host("n1", 1)))


@pytest.mark.parametrize("value", ["n1 2 n2", "n1 two", "n1 0"])
def test_invalid_lsf_variables_are_refused(value):
    with pytest.raises(HpcrunError, match="LSB_MCPU_HOSTS"):
        Allocation.from_environment({"LSB_MCPU_HOSTS": value})


def test_slurm_variables_override_those_of_carme():
    both = {"CARME_NODES": "n1,n2", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "4(x2)"}
    assert names_and_tasks(Allocation.from_environment(both)) == [("n1", 4), ("n2", 4)]


def test_without_a_job_the_allocation_is_this_host():
    outside = Allocation.from_environment({"SLURM_JOB_NODELIST": "", "CARME_NODES": " "})
    assert outside == Allocation("host", (Host(os.uname().nodename, 1),))


GRANTED = Allocation("hostfile", (Host("n2", 3), Host("n1", 1), Host("gpu-7.cluster", 12)))


def test_hostfile_formats():
    assert GRANTED.hostfile("openmpi") == "n2 slots=3\nn1 slots=1\ngpu-7.cluster slots=12\n"
    assert GRANTED.hostfile("hydra") == "n2:3\nn1:1\ngpu-7.cluster:12\n"
    assert GRANTED.hostfile("ranks") == "n2\n" * 3 + "n1\n" + "gpu-7.cluster\n" * 12
    assert GRANTED.hostfile("plain") == GRANTED.hostfile() == "n2\nn1\ngpu-7.cluster\n"


@pytest.mark.parametrize("format_name", HOSTFILE_FORMATS)
def test_each_hostfile_format_is_read_back(format_name, tmp_path):
    path = tmp_path / "hosts"
    path.write_text(GRANTED.hostfile(format_name))
    expected = GRANTED.with_tasks(ntasks_per_node=1) if format_name == "plain" else GRANTED
    assert Allocation.from_hostfile(path) == expected


def test_an_unknown_hostfile_format_gets_a_suggestion():
    with pytest.raises(HpcrunError, match="openmpi, hydra, ranks, plain") as error:
        GRANTED.hostfile("open-mpi")
    assert error.value.hint == "did you mean openmpi?"


def test_handwritten_hostfiles_are_read(tmp_path):
    path = tmp_path / "hosts"
    path.write_text(
        "# my hosts\r\n\r\nn1   slots=2 max_slots=4  # fat\n\tn2:3\nn3\nn1\n"
        "n4 slots = 2\nn5 max-slots=8 slots=1\nn6 max_slots=2\nn7 slots=0\n"
    )
    assert names_and_tasks(Allocation.from_hostfile(path)) == [
        ("n1", 3),
        ("n2", 3),
        ("n3", 1),
        ("n4", 2),
        ("n5", 1),
        ("n6", 1),
    ]


@pytest.mark.parametrize(
    "line",
    ["n1 n2", "n1 slots=two", "n1 slot=2", "n1:x", "n1:2 slots=2", "n1,n2", "-n1", "n1:", "n\x001", "n1\xff"],
)
def test_an_invalid_hostfile_line_is_named_with_its_number(line, tmp_path):
    path = tmp_path / "hosts"
    path.write_text(f"n0\n# fine\n{line}\n", encoding="latin-1")
    with pytest.raises(HpcrunError, match=rf"{path}:3: ") as error:
        Allocation.from_hostfile(path)
    assert error.value.hint


@pytest.mark.parametrize("text", ["", "\n# nobody\n", "n1 slots=0\n"])
def test_a_hostfile_without_hosts_is_refused(text, tmp_path):
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(HpcrunError, match=f"{path} names no host"):
        Allocation.from_hostfile(path)


def test_a_missing_hostfile_is_refused(tmp_path):
    with pytest.raises(HpcrunError, match=f"cannot read the hostfile {tmp_path}/no: No such file"):
        Allocation.from_hostfile(tmp_path / "no")
    with pytest.raises(HpcrunError, match="Is a directory"):
        Allocation.from_hostfile(tmp_path)


FOUR = Allocation("slurm", tuple(Host(f"n{index}", 8) for index in range(1, 5)))


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, [8, 8, 8, 8]),
        ({"ntasks": 4}, [1, 1, 1, 1]),
        ({"ntasks": 7}, [2, 2, 2, 1]),
        ({"ntasks": 2}, [1, 1]),
        ({"ntasks": 33}, [9, 8, 8, 8]),
        ({"ntasks_per_node": 2}, [2, 2, 2, 2]),
        ({"ntasks": 6, "ntasks_per_node": 4}, [2, 2, 1, 1]),
        ({"ntasks": 16, "ntasks_per_node": 4}, [4, 4, 4, 4]),
    ],
)
def test_with_tasks_distributes_tasks(options, tasks):
    other = FOUR.with_tasks(**options)
    assert other.source == "slurm"
    assert names_and_tasks(other) == [(f"n{index}", count) for index, count in enumerate(tasks, start=1)]


def test_more_tasks_than_the_hosts_allow_are_refused():
    with pytest.raises(HpcrunError, match="17 tasks at 4 per node need 5 hosts; there are 4") as error:
        FOUR.with_tasks(17, 4)
    assert error.value.hint == "request 5 nodes, or --ntasks-per-node=5"


@pytest.mark.parametrize("options", [{"ntasks": 0}, {"ntasks_per_node": 0}, {"ntasks": -1}])
def test_zero_tasks_are_refused(options):
    with pytest.raises(HpcrunError, match="at least 1 task"):
        FOUR.with_tasks(**options)
