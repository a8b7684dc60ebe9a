"""Resources of a job: formats, defaults and contradictions."""

import pytest

from hpcrun import resource_hints
from hpcrun.errors import HpcrunError
from hpcrun.resources import Resources, parse_memory, parse_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90 * 60),
        ("90:30", 90 * 60 + 30),
        ("1:30:00", 5400),
        ("2-0", 2 * 86400),
        ("1-12:30", 86400 + 12 * 3600 + 30 * 60),
        ("1-12:30:15", 86400 + 12 * 3600 + 30 * 60 + 15),
        ("UNLIMITED", float("inf")),
        ("infinite", float("inf")),
    ],
)
def test_all_time_formats_of_slurm_are_parsed(text, expected):
    assert parse_time(text) == expected


@pytest.mark.parametrize("text", ["", "1h", "1:2:3:4", "-1", "1-", "a", "1:30:00 "])
def test_other_time_formats_are_refused(text):
    with pytest.raises(ValueError, match="D-HH:MM:SS"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4000", 4000), ("4000M", 4000), ("16G", 16384), ("1T", 1048576), ("512k", 0.5), ("0", 0), (4000, 4000)],
)
def test_all_memory_formats_of_slurm_are_parsed(text, expected):
    assert parse_memory(text) == expected


@pytest.mark.parametrize("text", ["", "1.5G", "16GB", "lots", "-1"])
def test_other_memory_sizes_are_refused(text):
    with pytest.raises(ValueError, match="whole number"):
        parse_memory(text)


@pytest.mark.parametrize("types", ["END", "end,FAIL", "NONE", "TIME_LIMIT_80,ARRAY_TASKS"])
def test_all_mail_types_of_slurm_are_accepted(types):
    assert Resources(mail_type=types).mail_type == types


@pytest.mark.parametrize("types", ["", "always", "END,", "END FAIL", "END, FAIL"])
def test_other_mail_types_are_refused(types):
    with pytest.raises(ValueError, match="mail_type"):
        Resources(mail_type=types)


@pytest.mark.parametrize(
    ("time", "words"),
    [
        ("1:30", "--time=1:30 is 1 min 30 s; --time=1:30:00 is 1 h 30 min"),
        ("02:00", "--time=02:00 is 2 min 0 s; --time=02:00:00 is 2 h 0 min"),
        ("24:00", "--time=24:00 is 24 min 0 s; --time=24:00:00 is 24 h 0 min"),
        *[(time, "") for time in ("30:00", "5:00", "0:01", "1:30:00", "90", "1-0", None)],
    ],
)
def test_a_time_of_a_few_minutes_that_may_be_hours_is_a_warning(time, words):
    assert resource_hints.explain_short_time(time) == words


def lay_out(gpus_on_node=None, **requested):
    return Resources(**requested).with_layout(gpus_on_node)


def rank_layout(resources):
    return resources.nodes, resources.ranks, resources.ntasks_per_node, resources.gpus


@pytest.mark.parametrize(
    ("requested", "gpus_on_node", "expected"),
    [
        ({}, None, (1, 1, 1, 0)),
        ({"nodes": 2}, None, (2, 2, 1, 0)),  # no GPU: one rank per node
        ({"nodes": 2}, 4, (2, 8, 4, 4)),  # all GPUs of the node, one rank each
        ({"nodes": 2, "gpus_per_node": "4"}, None, (2, 8, 4, 4)),  # an explicit number of GPUs
        ({"ntasks": 2}, 4, (1, 2, 2, 2)),
        ({"ntasks": 8}, 4, (2, 8, 4, 4)),
        ({"ntasks": 8, "nodes": 2, "gpus_per_node": "4"}, None, (2, 8, 4, 4)),
        ({"ntasks": 7, "gpus_per_node": "4"}, None, (2, 7, 4, 4)),
        ({"ntasks": 3, "nodes": 2}, None, (2, 3, None, 0)),
        ({"ntasks": 6, "ntasks_per_node": 2}, None, (3, 6, 2, 0)),
        ({"nodes": 1, "ntasks_per_node": 2}, 4, (1, 2, 2, 2)),
        ({"nodes": 1, "ntasks_per_node": 2, "gpus_per_node": "a100:4"}, 4, (1, 2, 2, 4)),
    ],
)
def test_each_gpu_gets_a_rank_or_each_node_without_gpus(requested, gpus_on_node, expected):
    resources, warning = lay_out(gpus_on_node, **requested)
    assert rank_layout(resources) == expected
    assert warning is None


def test_more_ranks_than_gpus_run_on_the_cpu_with_one_warning():
    resources, warning = lay_out(4, ntasks_per_node=8, nodes=1)
    assert rank_layout(resources) == (1, 8, 8, 0)
    assert "all ranks use the CPU" in warning
    assert "--ntasks-per-node=4" in warning


@pytest.mark.parametrize(
    ("requested", "words"),
    [
        ({"nodes": 4, "ntasks": 3}, ["--ntasks=3", "--nodes=4"]),
        ({"nodes": 2, "ntasks": 5, "ntasks_per_node": 2}, ["--ntasks=5", "at most 4"]),
        ({"mem": "4G", "mem_per_cpu": "1G"}, ["--mem=4G", "--mem-per-cpu=1G"]),
        ({"mem_per_gpu": "60G", "mem_per_cpu": "1G"}, ["--mem-per-gpu=60G", "--mem-per-cpu=1G"]),
    ],
)
def test_contradictory_resources_are_refused_before_submission(requested, words):
    with pytest.raises(HpcrunError) as error:
        lay_out(**requested)
    for word in words:
        assert word in str(error.value)


def test_higher_layers_override_values_and_extend_lists():
    lower = Resources(nodes=1, mem_per_gpu="4G", time="10", sbatch=("--a=1",))
    merged = Resources(nodes=2, mem_per_cpu="1G", sbatch=("--b=2",)).with_defaults(lower)
    assert (merged.nodes, merged.mem_per_gpu, merged.mem_per_cpu, merged.time) == (2, None, "1G", "10")
    assert merged.sbatch == ("--a=1", "--b=2")


def test_submit_warns_of_a_time_of_a_few_minutes_and_of_mail_that_nobody_gets(cli):
    _, _, err = cli("submit", "lenet5", "--site", "slurm", "-t", "1:30", "--mail-user", "me", "--dry-run")
    assert "WARNING: --time=1:30 is 1 min 30 s; " in err
    assert "WARNING: --mail-user=me gets no mail without --mail-type" in err


def test_submit_warns_of_gpus_that_set_no_number_of_ranks(cli):
    line = ["submit", "--site", "slurm", "--dry-run", "--sbatch=--gres=gpu:4"]
    _, _, err = cli(*line, "--", "a.out")
    assert (
        "WARNING: --sbatch=--gres=gpu:4: hpcrun does not count these GPUs, and starts 1 rank; --gpus-per-node=N" in err
    )
    assert "does not count" not in cli(*line, "--gpus-per-node", "4", "--", "a.out")[2]


@pytest.mark.parametrize(("option", "hint"), [
    ("--hold --nice=5", "HINT: --sbatch=--hold --sbatch=--nice=5\n"),
    ("--gpus-per-node=4", "HINT: --gpus-per-node=4\n"),
    ("--array=1-4", "HINT: --sweep NAME=1..4 runs a task for each value"),
    ("hold", "HINT: did you mean --sbatch=--hold?\n"),
])  # fmt: skip
def test_a_wrong_sbatch_option_is_answered_with_the_right_one(cli, option, hint):
    code, _, err = cli("submit", "--site", "slurm", "--dry-run", f"--sbatch={option}", "--", "a.out")
    assert (code, hint in err) == (2, True), err


def test_submit_warns_of_memory_per_gpu_without_gpus(cli):
    line = ["submit", "--site", "slurm", "--dry-run", "--mem-per-gpu", "1G"]
    _, script, err = cli(*line, "--", "a.out")
    assert "WARNING: --mem-per-gpu=1G is ignored: the job has no GPUs; --mem sets the memory per node" in err
    assert "mem-per-gpu" not in script.partition("\n\n")[0]
    for more in (["--gpus-per-node", "2"], ["--sbatch=--gres=gpu:2"]):
        _, script, err = cli(*line, *more, "--", "a.out")
        assert ("--mem-per-gpu=1G" in script, "ignored" in err) == (True, False)


@pytest.mark.parametrize(("option", "warning"), [
    ("--mem=640", "WARNING: --mem=640 is 640 MiB, as in sbatch; --mem=640G is 640 GiB\n"),
    ("--mem=64", "ERROR: --mem=64 is 64 MiB, as in sbatch\nHINT: --mem=64G for 64 GiB, --mem=64M for 64 MiB\n"),
    ("--mem-per-gpu=16", "ERROR: --mem-per-gpu=16 is 16 MiB"),
    ("--mem=4000", ""),
    ("--mem=64M", ""),
    ("--mem=64G", ""),
    ("--mem=0", ""),  # all the memory of a node
])  # fmt: skip
def test_submit_warns_of_a_memory_size_without_a_unit_that_may_be_in_gb_and_refuses_a_tiny_one(cli, option, warning):
    _, _, err = cli("submit", "lenet5", "--site", "slurm", option, "--dry-run")
    assert warning in err if warning else "MiB" not in err
