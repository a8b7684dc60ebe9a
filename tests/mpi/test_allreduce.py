"""The allreduce workload: output, saved files, errors."""

import json
import os
import platform

import pytest

from tests.mpi.ranks import PROGRAMS, ROOT, needs_mpi, run

pytestmark = [pytest.mark.mpi, needs_mpi]

ALLREDUCE = ROOT / "workloads" / "allreduce" / "allreduce.py"


@pytest.mark.parametrize(("ranks", "dtype", "smallest"), [(2, "float32", 4), (3, "float64", 8)])
def test_each_size_has_a_row_and_a_json_entry(tmp_path, ranks, dtype, smallest):
    options = ["--max-size", "10K", "--iterations", 3, "--dtype", dtype]
    chunk_size = {"HPCRUN_FUSION_THRESHOLD_KB": "1"}
    outcome = run(ranks, ALLREDUCE, *options, HPCRUN_RUN_DIR=str(tmp_path), HPCRUN_NTASKS=str(ranks), **chunk_size)
    assert (outcome.code, outcome.stderr) == (0, "")
    assert not any(outcome.stdout[1:]), "rank 0 alone prints"

    lines = outcome.stdout[0].splitlines()
    facts = {name: " ".join(rest) for name, *rest in (line.split("  ") for line in lines) if rest and name}
    assert facts["ranks"].strip() == facts["ranks per host"].strip() == str(ranks)
    assert facts["MPI library"].strip().startswith("MPICH ")
    assert facts["chunk size"].strip() == "1 KB, as hpcrun.train sends gradients"
    header = next(number for number, line in enumerate(lines) if line.split()[:2] == ["size", "iterations"])
    table = lines[header + 1 : lines.index("", header)]
    assert len({len(line) for line in [lines[header], *table]}) == 1, "columns are aligned"
    sizes = [smallest * 4**power for power in range(6)] + [10240]
    names = [f"{size} B" if size < 1024 else f"{size // 1024} KB" for size in sizes]
    assert [" ".join(line.split()[:2]) for line in table] == names
    assert [line.split()[-1] == "-" for line in table] == [size <= 1024 for size in sizes]

    saved = json.loads((tmp_path / "allreduce.json").read_text())
    assert (saved["ranks"], list(saved["ranks_on_host"].values()), saved["piece_bytes"]) == (ranks, [ranks], 1024)
    assert [row["bytes"] for row in saved["sizes"]] == sizes
    for row in saved["sizes"]:
        for figures in [row, *([row["in_pieces"]] if row["bytes"] > 1024 else [])]:
            assert figures["iterations"] == 3
            assert 0 < figures["min_us"] <= figures["median_us"] <= figures["max_us"]
            assert figures["algbw_GBps"] == pytest.approx(row["bytes"] / (figures["median_us"] * 1e-6) / 1e9)
            assert figures["busbw_GBps"] == pytest.approx(figures["algbw_GBps"] * {2: 1, 3: 4 / 3}[ranks])

    result = json.loads((tmp_path / "result.json").read_text())
    assert result["latency_us"] == saved["sizes"][0]["median_us"]
    assert result["peak_busbw_GBps"] == max(row["busbw_GBps"] for row in saved["sizes"])
    in_pieces = [row["in_pieces"]["busbw_GBps"] for row in saved["sizes"] if row["in_pieces"]]
    assert result["peak_busbw_in_pieces_GBps"] == max(in_pieces)
    assert (result["ranks"], result["hosts"]) == (ranks, [os.uname().nodename])
    assert set(result["versions"]) == {"python", "mpi"}, "TensorFlow has not been started"


def test_a_single_rank_gets_a_notice(tmp_path):
    outcome = run(0, ALLREDUCE, "--max-size", "1K", HPCRUN_RUN_DIR=str(tmp_path), HPCRUN_FUSION_THRESHOLD_KB="0")
    assert outcome.code == 0, outcome.stderr
    assert "A single rank has no communication" in outcome.stdout[0]
    assert "chunk size      none: one message per tensor" in outcome.stdout[0]
    assert "peak_busbw_GBps" not in json.loads((tmp_path / "result.json").read_text())


def test_wrong_sums_end_the_benchmark():
    outcome = run(2, PROGRAMS / "wrong_sum.py", ALLREDUCE, "--max-size", "4K")
    assert outcome.code == 1
    message = "error: MPI_Allreduce of 1 KB: 1 of 256 sums are wrong on this rank\nHINT: "
    assert f"[rank 1/2 on {platform.node()}] {message}" in outcome.stderr
    assert "256 B" in outcome.stdout[0], "correct rows are printed"
    assert "Traceback" not in outcome.stderr


def test_too_few_mpi_ranks_are_an_error():
    outcome = run(2, ALLREDUCE, HPCRUN_NTASKS="3", HPCRUN_LAUNCHER="mpiexec")
    assert outcome.code == 2
    assert "MPI started 2 ranks where the job has 3" in outcome.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-size", "lots"], "--max-size 'lots' is not a size\nHINT: bytes, or with K, M or G: 4, 64K, 256M"),
        (["--max-size", "0"], "--max-size '0' is not a size\nHINT: "),
        (["--min-size", "4", "--dtype", "float64"], "--min-size 4 is not a multiple of float64 (8 B each)\nHINT: "),
        (["--min-size", "1M", "--max-size", "4K"], "--min-size 1M is more than --max-size 4K\nHINT: "),
        (
            ["--max-size", "1000000G"],
            "cannot allocate 1000000 GB of memory for the largest message\nHINT: --max-size 64M",
        ),
        (["--iterations", "-1"], "--iterations=-1 is negative\nHINT: 0 chooses by size"),
        (["--dtype", "int8"], "--dtype=int8: must be one of float32, float64"),
    ],
)
def test_user_errors_have_no_traceback(options, message):
    outcome = run(0, ALLREDUCE, *options)
    assert outcome.code == 2
    assert message in outcome.stderr
    assert "Traceback" not in outcome.stderr
