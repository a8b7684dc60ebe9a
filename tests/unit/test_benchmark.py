"""`hpcrun site test`: what it submits, what it calls slow, what it keeps of it and where."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from hpcrun.doctor import benchmark_records, benchmark_regressions, benchmark_results
from hpcrun.doctor.benchmark_files import NodeSpeeds
from hpcrun.doctor.benchmark_records import BenchmarkRecord
from hpcrun.doctor.site_job import plan_benchmark
from hpcrun.errors import HpcrunError
from hpcrun.jobs.record_validation import parse_record
from hpcrun.sites import loader

NODE = {"compute_GFLOPS": 50.0, "memory_GBps": 10.0}


@pytest.fixture
def user_site_file(isolated_home):
    """Return a site file of the user."""
    file = isolated_home / "config/hpcrun/mine.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        'extends = "slurm"\n[partitions.debug]\nmax_nodes = 1\nmax_time = 5\n[partitions.big]\nmin_nodes = 4\n'
    )
    return file


def measured(*slow_links, **of_nodes):
    """Return what the workload says of three nodes; links of some are at a tenth."""
    names = ["n1", "n2", "n3"]
    rate = {name: 0.1 if name in slow_links else 1.0 for name in names}
    pairs = [
        {"nodes": [a, b], "latency_us": 20.0, "bandwidth_GBps": min(rate[a], rate[b])}
        for a, b in (("n1", "n2"), ("n1", "n3"), ("n2", "n3"))
    ]
    return {"nodes": {name: {"ranks": 1, **NODE, **of_nodes.get(name, {})} for name in names}, "pairs": pairs}


def recorded(found=None, **more):
    of_nodes = benchmark_results.node_metrics(parse_record(NodeSpeeds, found or measured()))
    facts = {"time": "2026-05-31T14:00:00+00:00", "site": "mine", "nodes": 3, "ranks": 3, "of_nodes": of_nodes}
    return BenchmarkRecord(**{**facts, "figures": {"latency_us": 40.0, "bandwidth_GBps": 1.0}, **more})


def regression_sentences(record, *before):
    return [
        one.sentence
        for one in benchmark_regressions.find_regressions(
            record, benchmark_regressions.comparable_records(record, before)
        )
    ]


def test_a_node_with_a_slow_link_is_named_and_its_partners_are_not():
    slow = "node n3 is slow: its bandwidth is 0.1 GB/s, 90 % less than the 1 GB/s of the other nodes"
    assert regression_sentences(recorded(measured("n3"))) == [slow]
    assert regression_sentences(recorded()) == []


def test_a_slow_node_is_named_even_of_two():
    found = measured(n2={"compute_GFLOPS": 39.0})
    slow = "node n2 is slow: its compute is 39 GFLOPS, 22 % less than the 50 GFLOPS of the other nodes"
    assert regression_sentences(recorded(found)) == [slow]
    two = {"nodes": {name: found["nodes"][name] for name in ("n1", "n2")}, "pairs": found["pairs"][:1]}
    assert regression_sentences(recorded(two, nodes=2)) == [slow]


def test_differences_below_the_threshold_are_no_regression():
    record = recorded(measured(n1={"memory_GBps": 8.1}))
    assert regression_sentences(replace(record, figures={"latency_us": 59.0, "bandwidth_GBps": 0.81}), recorded()) == []


def test_two_nodes_are_compared_with_earlier_tests():
    found: dict[str, Any] = {
        "nodes": {"n1": NODE, "n2": NODE},
        "pairs": [{"nodes": ["n1", "n2"], "latency_us": 20, "bandwidth_GBps": 1}],
    }
    before = recorded(found, nodes=2)
    slower = {**found, "pairs": [{**found["pairs"][0], "bandwidth_GBps": 0.5}]}
    now = recorded(slower, nodes=2, figures={"latency_us": 120.0, "bandwidth_GBps": 0.6})
    assert regression_sentences(now) == []
    of = "of 2 earlier tests"
    assert regression_sentences(now, before, before) == [
        f"the network between n1 and n2 is slow: its bandwidth is 0.5 GB/s, 50 % less than the 1 GB/s {of}",
        f"the allreduce's latency is 120 us, 3 times the 40 us {of}",
        f"the allreduce's bandwidth is 0.6 GB/s, 40 % less than the 1 GB/s {of}",
    ]


def test_the_median_of_comparable_tests_counts():
    now = recorded(figures={"bandwidth_GBps": 1.0})
    others: list[dict[str, Any]] = [{"nodes": 2}, {"ranks": 12}, {"partition": "big"}, {"failed": "nodes"}]
    assert regression_sentences(now, *(recorded(**other, figures={"bandwidth_GBps": 9.0}) for other in others)) == []
    odd = recorded(figures={"bandwidth_GBps": 9.0})
    assert regression_sentences(now, odd, recorded(), recorded()) == []
    assert regression_sentences(now, odd, odd, recorded())[0].endswith("89 % less than the 9 GB/s of 3 earlier tests")
    assert regression_sentences(now, *30 * [odd], *20 * [recorded()]) == [], "the latest twenty"


def test_records_beside_a_site_file_are_not_listed_as_sites(user_site_file):
    found = loader.load_site("mine")
    first, second = recorded(), recorded(time="2026-06-01T14:00:00+00:00", failed="ranks")
    assert (
        benchmark_records.append_record(found, second)
        == benchmark_records.append_record(found, first)
        == user_site_file.with_name("mine.tested.jsonl")
    )
    assert benchmark_records.read_records(found) == [first, second]
    assert [name for name in loader.list_site_files() if "mine" in name] == ["mine"]
    assert benchmark_records.describe_last_test(found).endswith("by hpcrun ?: FAILED (ranks)")


def test_records_of_a_site_given_by_path_are_beside_that_file(user_site_file, tmp_path):
    (tmp_path / "mine.toml").write_text('description = "a"\n')
    assert (
        benchmark_records.append_record(loader.load_site(str(tmp_path / "mine.toml")), recorded())
        == tmp_path / "mine.tested.jsonl"
    )


def test_records_go_to_the_users_folder_if_the_layer_is_not_writable(user_site_file, isolated_home, tmp_path):
    own = isolated_home / "state/hpcrun/tested"
    assert benchmark_records.append_record(loader.load_site("slurm"), recorded()) == own / "slurm.tested.jsonl", (
        "hpcrun's own folder"
    )
    victim = tmp_path / "victim"
    victim.touch()
    user_site_file.with_name("mine.tested.jsonl").symlink_to(victim)
    found = loader.load_site("mine")
    assert benchmark_records.append_record(found, recorded()) == own / "mine.tested.jsonl"
    assert (victim.read_text(), benchmark_records.read_records(found)) == ("", [recorded()])


def test_without_a_writable_folder_the_test_still_reports(user_site_file, isolated_home):
    (isolated_home / "state").write_text("")
    user_site_file.with_name("mine.tested.jsonl").mkdir()
    assert benchmark_records.append_record(loader.load_site("mine"), recorded()) is None


def test_a_groups_folder_has_a_file_for_the_group(user_site_file):
    user_site_file.parent.chmod(0o770)
    file = benchmark_records.append_record(loader.load_site("mine"), recorded())
    assert file is not None
    assert file.stat().st_mode & 0o777 == 0o664


def test_concurrent_appends_keep_all_records(user_site_file):
    found = loader.load_site("mine")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: benchmark_records.append_record(found, recorded(job_id=str(number))), range(100)))
    assert sorted(int(record.job_id) for record in benchmark_records.read_records(found)) == list(range(100))


WRONG: list[dict[str, Any]] = [
    {"time": 1},
    {"figures": {"latency_us": "x"}},
    {"figures": {"latency_us": 0}},
    {"of_nodes": {"n1": 4}},
    {"versions": {"mpi": 5}},
]
LINES = [json.dumps({"time": "2026", "site": "a", "nodes": 1, "ranks": 1, **wrong}) for wrong in WRONG]


@pytest.mark.parametrize("line", ["", "{", "[]", "null", '{"time": "2026"}', "\udcff", "[" * 9999, *LINES])
def test_invalid_records_are_skipped(user_site_file, line):
    found = loader.load_site("mine")
    file = benchmark_records.append_record(found, recorded())
    assert file is not None
    with file.open("a", errors="surrogateescape") as stream:
        stream.write(line + "\n")
    assert benchmark_records.read_records(found) == [recorded()]


def test_records_with_unknown_or_hostile_values_are_read_safely(user_site_file):
    line = {"time": "2026", "site": "mine", "user": "\x1b[2Jeve", "nodes": 1, "ranks": 1, "figures": {}, "new": {}}
    user_site_file.with_name("mine.tested.jsonl").write_text(json.dumps(line) + "\n")
    (record,) = benchmark_records.read_records(loader.load_site("mine"))
    assert record.user == "?[2Jeve"


@pytest.mark.parametrize(
    ("asked", "nodes", "ranks", "time"),
    [
        ({}, 2, 2, "10"),
        ({"partition": "debug"}, 1, 1, "5"),
        ({"partition": "big"}, 4, 4, "10"),
        ({"nodes": 3, "ntasks_per_node": 4, "time": "1:00:00"}, 3, 12, "1:00:00"),
        ({"ntasks": 1}, 1, 1, "10"),
    ],
)
def test_the_benchmark_request_has_the_expected_resources(user_site_file, asked, nodes, ranks, time):
    spec = plan_benchmark("mine", asked).spec
    assert (spec.resources.nodes, spec.resources.ranks, spec.resources.time) == (nodes, ranks, time)
    assert (spec.name, spec.launcher) == ("site-test", "srun")


@pytest.mark.parametrize(("gpus", "ranks"), [(0, 2), (1, 2), (4, 4)])
def test_a_local_benchmark_has_two_ranks_or_one_per_gpu(monkeypatch, gpus, ranks):
    for module in ("doctor.site_job", "placement"):
        monkeypatch.setattr(f"hpcrun.{module}.count_local_gpus", lambda: gpus)
    planned = plan_benchmark("local", {})
    assert (planned.spec.resources.ranks, planned.warnings) == (ranks, ())
    assert plan_benchmark("local", {"ntasks": 3}).spec.resources.ranks == 3


def test_a_benchmark_beyond_the_limits_is_refused(user_site_file):
    with pytest.raises(HpcrunError, match="more than partition debug allows: 1 node"):
        plan_benchmark("mine", {"partition": "debug", "nodes": 2})
