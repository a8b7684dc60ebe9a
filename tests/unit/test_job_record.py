"""job.json as typed values: of this version, of another one, and of none."""

import json
from pathlib import Path

import pytest

from hpcrun.errors import HpcrunError
from hpcrun.jobs.job_record import JobRecord, RecordedContainer
from hpcrun.jobs.runs import Run
from hpcrun.jobs.safe_reading import parse_record_text
from hpcrun.resources import Resources


@pytest.fixture
def recorded(fake_slurm):
    """Return a function that changes the record of a job, by key, and reads it."""
    file = fake_slurm.submit(nodes=2, time="30", sbatch=["--hint=x"], max_requeue=2).directory / "job.json"

    def read(**changes) -> JobRecord:
        content = json.loads(file.read_text())
        for path, value in changes.items():
            table, _, key = path.rpartition("__")
            (content[table] if table else content)[key] = value
        file.write_text(json.dumps(content))
        return Run(file.parent).spec

    return read


def test_unknown_keys_of_another_version_are_ignored(recorded):
    spec = recorded(of_tomorrow={"a": [1]}, site__of_tomorrow=1, resources__of_tomorrow="x")
    assert (spec.is_recorded, spec.is_repeatable, spec.name, spec.max_requeue) == (True, True, "a.out", 2)
    assert (spec.site.name, spec.resources.nodes, spec.site.traps_stop_signal) == ("slurm", 2, True)
    with pytest.raises(ValueError, match="unknown option 'of_tomorrow'"):
        spec.resources.to_resources()
    with pytest.raises(HpcrunError, match="not valid for this version"):
        spec.site.load()


def test_resources_and_site_are_those_of_the_submission(recorded):
    spec = recorded()
    expected = Resources(nodes=2, ntasks_per_node=1, time="30", job_name="a.out", sbatch=("--hint=x",))
    assert spec.resources.to_resources() == expected
    assert spec.site.load().site.name == "slurm"


@pytest.mark.parametrize(("value", "expected"), [
    (None, None),
    ({}, RecordedContainer()),
    ({"image": "a.sif", "python": "python3", "of_tomorrow": []}, RecordedContainer("a.sif", "python3")),
])  # fmt: skip
def test_a_container_is_typed(recorded, value, expected):
    assert recorded(container=value).container == expected


@pytest.mark.parametrize(
    "changes", [{"container": {"image": 5}}, {"container": []}, {"tasks": [{"values": []}]}, {"site__restart": 1}]
)
def test_a_record_with_a_value_of_another_type_is_not_used(recorded, changes):
    spec = recorded(**changes)
    assert (spec.is_recorded, spec.is_repeatable, spec) == (False, False, JobRecord())


def test_scripts_of_an_old_version_do_not_trap_the_signal_of_a_stop():
    spec = parse_record_text(JobRecord, '{"site": {"name": "x"}}')
    assert (spec.site.traps_stop_signal, spec.site.restart.cancel_seconds) == (False, 30)


def test_a_path_is_replaced_in_all_values():
    text = '{"argv": ["/a/x.py"], "tasks": [{"values": [["n", "/a"]], "argv": []}], "site": {"name": "/a"}, "/a": 1}'
    moved = parse_record_text(JobRecord, text).with_replaced_path(Path("/a"), Path("/b"))
    assert (moved.argv, moved.tasks[0].values) == (["/b/x.py"], [("n", "/b")])
    assert (moved.site.name, moved.all_values["/a"]) == ("/b", 1)
