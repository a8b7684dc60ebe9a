"""What a job was granted: variables as real schedulers set them, hostfiles as people write them."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.allocation import HOSTFILE_FORMATS, NODELIST_VARIABLES, Allocation, Host
from hpcrun.errors import HpcrunError


def pairs(allocation):
    return [(host.name, host.tasks) for host in allocation.hosts]


def slurm(**variables):
    return Allocation.from_environment({f"SLURM_{name}": value for name, value in variables.items()})


# Every one of these was copied from a job under Slurm 22.05.
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
def test_a_batch_script_gets_the_tasks_that_were_asked_for(variables, tasks):
    granted = slurm(**variables)
    assert granted.source == "slurm"
    assert pairs(granted) == [(f"n{index}", count) for index, count in enumerate(tasks, start=1)]
    assert granted.ntasks == sum(tasks)


def test_a_step_gets_its_own_hosts_and_tasks():
    step = slurm(
        JOB_NODELIST="n[1-4]",
        STEP_NODELIST="n[3-4]",
        TASKS_PER_NODE="2,1",
        STEP_TASKS_PER_NODE="2,1",
        NTASKS="3",
    )
    assert pairs(step) == [("n3", 2), ("n4", 1)]


def test_a_job_submitted_from_inside_a_step_does_not_get_the_other_jobs_hosts():
    nested = {"TASKS_PER_NODE": "2", "NTASKS": "2", "STEP_NODELIST": "n[1-2]", "STEP_TASKS_PER_NODE": "1(x2)"}
    assert pairs(slurm(JOB_NODELIST="n4", **nested)) == [("n4", 2)]
    nested |= {"STEP_NODELIST": "n1", "STEP_TASKS_PER_NODE": "2"}
    assert pairs(slurm(JOB_NODELIST="n4", **nested)) == [("n4", 2)]


def test_the_interactive_shell_of_salloc_gets_the_whole_job():
    shell = slurm(
        JOB_NODELIST="n[1-2]",
        TASKS_PER_NODE="2,1",
        NTASKS="3",
        STEP_ID="4294967290",
        STEP_NODELIST="n1",
        STEP_TASKS_PER_NODE="1",
    )
    assert pairs(shell) == [("n1", 2), ("n2", 1)]


def test_variables_that_contradict_each_other_are_named():
    with pytest.raises(HpcrunError, match=r"SLURM_TASKS_PER_NODE=2\(x3\) counts 3.*NODELIST=n\[1-2\] names 2"):
        slurm(JOB_NODELIST="n[1-2]", TASKS_PER_NODE="2(x3)")
    with pytest.raises(HpcrunError, match="SLURM_NTASKS: 'many'"):
        slurm(JOB_NODELIST="n[1-2]", NTASKS="many")


def srun_deals(ntasks, cpus):
    """Slurm's own loop, _task_layout_block, as it stands there."""
    tasks, dealt, cycle, over = [0] * len(cpus), 0, 0, False
    while dealt < ntasks:
        space_remaining = False
        for index, room in enumerate(cpus):
            if dealt < ntasks and (cycle < room or over):
                tasks[index] += 1
                dealt += 1
                space_remaining = space_remaining or cycle + 1 < room
        over = over or not space_remaining
        cycle += 1
    return tasks


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
def test_fewer_tasks_than_room_are_dealt_as_srun_deals_them(room, data):
    ntasks = data.draw(st.integers(1, sum(room)))
    granted = slurm(JOB_NODELIST=f"n[1-{len(room)}]", TASKS_PER_NODE=",".join(map(str, room)), NTASKS=str(ntasks))
    expected = [count for count in srun_deals(ntasks, room) if count]
    assert pairs(granted) == [(f"n{index}", count) for index, count in enumerate(expected, start=1)]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 100))
def test_any_number_of_tasks_finds_a_place(room, ntasks):
    granted = Allocation("pbs", tuple(Host(f"n{index}", count) for index, count in enumerate(room)))
    spread = [host.tasks for host in granted.with_tasks(ntasks).hosts]
    assert sum(spread) == ntasks
    if ntasks > sum(room):
        assert max(spread) <= max(*room, -(-ntasks // len(room)))
        assert all(after >= before for after, before in zip(spread, room, strict=True))


@pytest.mark.parametrize(
    "spelling",
    ["n1,n2,n3", "n1 n2 n3", "n1\nn2\nn3\n", "n[1-3]", " n1, n2,\tn3 ", "n1,n1,n2,n1,n3,n3", "n1,n[2-3],n2"],
)
def test_carme_in_any_spelling(spelling):
    assert Allocation.from_environment({"CARME_NODES": spelling}) == Allocation(
        "carme", (Host("n1"), Host("n2"), Host("n3"))
    )


@pytest.mark.parametrize("variable", [name for name in NODELIST_VARIABLES if name.endswith("FILE")])
def test_nodefiles_repeat_a_host_for_every_slot(variable, tmp_path):
    nodefile = tmp_path / "nodes"
    nodefile.write_text("n2.hpc\nn2.hpc\nn1.hpc\nn2.hpc\n")
    granted = Allocation.from_environment({variable: str(nodefile)})
    assert pairs(granted) == [("n2.hpc", 3), ("n1.hpc", 1)]
    assert granted.source == {"PBS": "pbs", "LSB": "lsf", "OAR": "oar"}[variable[:3]]
    nodefile.unlink()
    with pytest.raises(HpcrunError, match=rf"cannot read \${variable} {nodefile}: No such file"):
        Allocation.from_environment({variable: str(nodefile)})


@pytest.mark.parametrize(
    ("variable", "value"),
    [("LSB_MCPU_HOSTS", "n2 3 n1 1 "), ("LSB_HOSTS", "n2 n2 n2 n1"), ("LSB_HOSTS", "n2 n1 n2 n2")],
)
def test_lsf_variables(variable, value):
    assert Allocation.from_environment({variable: value}) == Allocation("lsf", (Host("n2", 3), Host("n1", 1)))


@pytest.mark.parametrize("value", ["n1 2 n2", "n1 two", "n1 0"])
def test_lsf_nonsense(value):
    with pytest.raises(HpcrunError, match="LSB_MCPU_HOSTS"):
        Allocation.from_environment({"LSB_MCPU_HOSTS": value})


def test_the_scheduler_below_comes_before_what_runs_on_it():
    both = {"CARME_NODES": "n1,n2", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "4(x2)"}
    assert pairs(Allocation.from_environment(both)) == [("n1", 4), ("n2", 4)]


def test_outside_a_job_it_is_this_host():
    nowhere = Allocation.from_environment({"SLURM_JOB_NODELIST": "", "CARME_NODES": " "})
    assert nowhere == Allocation("host", (Host(os.uname().nodename, 1),))


GRANTED = Allocation("hostfile", (Host("n2", 3), Host("n1", 1), Host("gpu-7.cluster", 12)))


def test_dialects():
    assert GRANTED.hostfile("openmpi") == "n2 slots=3\nn1 slots=1\ngpu-7.cluster slots=12\n"
    assert GRANTED.hostfile("hydra") == "n2:3\nn1:1\ngpu-7.cluster:12\n"
    assert GRANTED.hostfile("ranks") == "n2\n" * 3 + "n1\n" + "gpu-7.cluster\n" * 12
    assert GRANTED.hostfile("plain") == GRANTED.hostfile() == "n2\nn1\ngpu-7.cluster\n"


@pytest.mark.parametrize("dialect", HOSTFILE_FORMATS)
def test_every_dialect_is_read_back(dialect, tmp_path):
    path = tmp_path / "hosts"
    path.write_text(GRANTED.hostfile(dialect))
    expected = GRANTED.with_tasks(ntasks_per_node=1) if dialect == "plain" else GRANTED
    assert Allocation.from_hostfile(path) == expected


def test_an_unknown_dialect_gets_the_nearest_one():
    with pytest.raises(HpcrunError, match="openmpi, hydra, ranks, plain") as error:
        GRANTED.hostfile("open-mpi")
    assert error.value.hint == "did you mean openmpi?"


def test_hostfiles_as_people_write_them(tmp_path):
    path = tmp_path / "hosts"
    path.write_text(
        "# my hosts\r\n\r\nn1   slots=2 max_slots=4  # fat\n\tn2:3\nn3\nn1\n"
        "n4 slots = 2\nn5 max-slots=8 slots=1\nn6 max_slots=2\nn7 slots=0\n"
    )
    assert pairs(Allocation.from_hostfile(path)) == [
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
def test_a_line_that_is_no_host_is_named_with_its_number(line, tmp_path):
    path = tmp_path / "hosts"
    path.write_text(f"n0\n# fine\n{line}\n", encoding="latin-1")
    with pytest.raises(HpcrunError, match=rf"{path}:3: ") as error:
        Allocation.from_hostfile(path)
    assert error.value.hint


@pytest.mark.parametrize("text", ["", "\n# nobody\n", "n1 slots=0\n"])
def test_a_hostfile_without_a_host(text, tmp_path):
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(HpcrunError, match=f"{path} names no host"):
        Allocation.from_hostfile(path)


def test_a_missing_hostfile(tmp_path):
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
def test_other_tasks(options, tasks):
    other = FOUR.with_tasks(**options)
    assert other.source == "slurm"
    assert pairs(other) == [(f"n{index}", count) for index, count in enumerate(tasks, start=1)]


def test_too_few_hosts_for_the_tasks():
    with pytest.raises(HpcrunError, match="17 tasks at 4 per node need 5 hosts; there are 4") as error:
        FOUR.with_tasks(17, 4)
    assert error.value.hint == "request 5 nodes, or --ntasks-per-node=5"


@pytest.mark.parametrize("options", [{"ntasks": 0}, {"ntasks_per_node": 0}, {"ntasks": -1}])
def test_no_tasks(options):
    with pytest.raises(HpcrunError, match="at least 1 task"):
        FOUR.with_tasks(**options)
