"""Files of a run that are not what hpcrun wrote: each command goes on, names the file, and tells of the other runs."""

import json
import os
import shutil
import signal
from itertools import cycle

import pytest

from hpcrun import paths
from hpcrun.jobs import state_cache

DEEP = "[" * 400 + "]" * 400
TEXTS = {
    "nothing": "",
    "blank": " " * 1023,
    "half": '{"job_id": "1", "epoch',
    "list": "[]",
    "null": "null",
    "number": "7",
    "empty object": "{}",
    "bytes": "\udcff\udcfe",
    "deep": f'{{"loss": {DEEP}, "epoch": {DEEP}}}',
    "deeper": "[" * 200_000,
    "digits": f'{{"epoch": {"9" * 5000}, "submitted": {"9" * 5000}, "time": {"9" * 5000}}}',
    "nul": '{"name": "a\\u0000b", "job_id": "1\\u0000", "reason": "\\u0000"}',
}
VALUES = [
    None, True, -1, 5, 1e30, float("nan"), float("inf"), -float("inf"), "", "\ud800", "../../x", "\x1b[2J\x9b2J\u202e",
    [], [None], ["\ud800"], {}, {"a": {"b": [1]}}, [[1, 2], "x"], "x" * 100_000,
]  # fmt: skip
KEYS = {
    "job.json": [
        "name", "scheduler", "launcher", "site", "resources", "argv", "tasks", "values", "environment", "container",
        "python", "run_dir", "directory", "snapshot", "max_requeue", "output_on_all_ranks", "version",
    ],
    "submitted.json": ["job_id", "submitted", "host", "start_time", "slurm_conf", "command", "allocation"],
    "exit.json": ["exit_code", "reason", "host", "job_id", "started", "ended", "requeued"],
    "starts.jsonl": ["job_id", "slurm_job", "host", "nodes", "started", "requeued", "more_memory"],
    "metrics.jsonl": ["epoch", "epochs", "fit", "seconds", "images_per_second", "loss"],
    "heartbeats/rank-0.json": [
        "rank", "host", "every", "time", "ended", "waits", "waited_seconds", "at", "phase", "fit", "epoch", "epochs",
        "step", "steps", "first", "step_seconds", "own_seconds", "images_per_second", "fit_seconds", "logs", "points",
    ],
    "result.json": ["ranks", "test_accuracy", "hosts", "versions"],
    "cleaned.json": ["time", "nodes"],
    "refused.json": ["reason", "time"],
    "provenance/site.json": ["values"],
    "provenance/git.json": ["commit", "changed", "notes", "untracked"],
}  # fmt: skip
FILES = [*KEYS, "1_0_log.out", "1_0_log.err", "logs/rank-1.log", "job.sh", "hostfile", "provenance/packages.txt"]
ODD = ["fifo", "zero", "directory", "dangling", "loop", "huge", "unreadable", "socketless"]
READING = [
    ("status",), ("status", "1"), ("status", "--json"), ("logs", "1"), ("logs", "1", "--rank", "1"), ("result", "1"),
    ("result", "all", "--json"), ("why", "1"), ("why", "1", "--json"), ("compare", "1", "2"), ("report", "1", "-o"),
]  # fmt: skip
ACTING = [
    ("cancel", "1"), ("prune", "1", "--yes", "--dry-run"), ("resubmit", "1", "--dry-run"), ("watch", "1"),
    ("cleanup", "1", "--dry-run"), ("cleanup", "--all", "--dry-run"),
]  # fmt: skip
SECONDS = 120


@pytest.fixture
def jobs(fake_slurm, tmp_path, monkeypatch):
    """Return a function that makes the first of two jobs anew, with all files that a run can have."""
    monkeypatch.chdir(tmp_path)
    for command in ("srun", "ssh"):
        fake_slurm.replace_command(command, "exit 1")
    runs = [fake_slurm.submit(name, nodes=1) for name in ("bad", "good")]
    run = runs[0].directory
    record = json.loads((run / "job.json").read_text())
    record["site"]["restart"]["cancel_seconds"] = 1  # cancel waits for ranks that do not exist
    (run / "job.json").write_text(json.dumps(record))
    for one in runs:
        fake_slurm.write_exit_record(one)
    for folder in ("heartbeats", "provenance", "checkpoints"):
        (run / folder).mkdir(exist_ok=True)
    whole = {
        "starts.jsonl": {
            "job_id": "1",
            "slurm_job": "1",
            "host": "n1",
            "nodes": "n1",
            "started": 10,
            "requeued": False,
        },
        "metrics.jsonl": {"epoch": 1, "epochs": 2, "loss": 0.5, "seconds": 2.0, "images_per_second": 9.5},
        "heartbeats/rank-0.json": {"rank": 0, "every": 5.0, "time": 20.0, "epoch": 2, "step": 3, "steps": 4},
        "result.json": {"ranks": 2, "test_accuracy": 0.5},
        "cleaned.json": {"time": 80.0, "nodes": ["n1"]},
        "provenance/site.json": {"values": {"launcher": {"value": "none", "from": "/x.toml:1"}}},
        "provenance/git.json": {"commit": "abc", "changed": [], "notes": []},
    }
    for name, content in whole.items():
        (run / name).write_text(f"{json.dumps(content)}\n")
    for name in ("1_0_log.out", "1_0_log.err", "logs/rank-1.log", "logs/rank-x.log", "hostfile"):
        (run / name).write_text("n1\n")
    kept = tmp_path / "kept"
    shutil.copytree(run, kept, symlinks=True)

    def fresh():
        shutil.rmtree(run)
        shutil.copytree(kept, run, symlinks=True)
        state_cache.clear_cache()
        return run

    return fresh


@pytest.fixture
def calls(cli):
    """Call commands; a traceback fails the test, and so does one that does not end."""

    def late(*_):
        raise AssertionError("it hangs")

    def call(*argv):
        argv = (*argv, f"{os.getpid()}.html") if argv[-1] == "-o" else argv
        signal.signal(signal.SIGALRM, late)
        signal.alarm(SECONDS)
        try:
            code, out, err = cli(*argv)
        finally:
            signal.alarm(0)
        assert code in {0, 1, 2}, (argv, err)
        return code, out, err

    return call


def check(calls, what, commands=(*READING, *ACTING)):
    for argv in commands:
        try:
            code, out, err = calls(*argv)
        except Exception as error:
            raise AssertionError(f"{what}: hpcrun {' '.join(argv)}: {error!r}") from error
        if argv[0] == "status" and len(argv) == 1:
            assert code == 0, (what, err)
            assert any(line.split()[:2] == ["2", "good"] for line in out.splitlines()), (what, out)
        for text in (out, err):
            assert not set("\x1b\x9b\u202e") & set(text), (what, argv, text)


def damage(file, kind):
    if file.is_dir():
        shutil.rmtree(file)
    else:
        file.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "zero":
        file.symlink_to("/dev/zero")
    elif kind == "directory":
        file.mkdir()
    elif kind == "dangling":
        file.symlink_to("nowhere")
    elif kind == "loop":
        file.symlink_to(file.name)
    elif kind == "huge":
        with file.open("wb") as stream:
            stream.truncate(1 << 36)
    elif kind == "unreadable":
        file.symlink_to("/proc/self/mem")  # root may open anything; reading this fails
    else:
        file.symlink_to("/dev/null")


@pytest.mark.thorough
@pytest.mark.parametrize("file", FILES)
def test_a_record_that_is_no_regular_file_is_reported_without_blocking(jobs, calls, file):
    for kind in ODD:
        run = jobs()
        damage(run / file, kind)
        big_log = kind == "huge" and ("log" in file or file == "hostfile")
        endless = {"logs"} if big_log else {"watch"} if file in {"job.json", "submitted.json", "exit.json"} else set()
        check(calls, f"{file} {kind}", [one for one in (*READING, *ACTING) if one[0] not in endless])


@pytest.mark.thorough
@pytest.mark.parametrize("file", list(KEYS))
def test_invalid_records_are_reported(jobs, calls, file):
    for text in TEXTS.values():
        run = jobs()
        (run / file).write_text(text, errors="surrogateescape")
        check(calls, f"{file} {text[:40]!r}", [("status",), ("status", "--json"), ("why", "1"), ("result", "1")])


@pytest.mark.thorough
@pytest.mark.parametrize("file", list(KEYS))
def test_values_of_wrong_types_are_reported(jobs, calls, file):
    in_turn = cycle([*READING, *(one for one in ACTING if one[0] != "watch")])  # all of them each time take too long
    for key in KEYS[file]:
        for value in VALUES:
            run = jobs()
            whole = (run / file).read_text() if (run / file).exists() else "{}"
            (run / file).write_text(f"{json.dumps({**json.loads(whole), key: value})}\n")
            check(calls, f"{file}: {key} {value!r:.40}", [next(in_turn)])


SEEN = [
    ("metrics.jsonl", '{"epochs": "\\ud800"}', 'epochs is "\\\\ud800"'),
    ("submitted.json", '{"job_id": "1", "host": "n1", "submitted": 1e30}', "submitted is 1e+30, not a time"),
    ("job.json", '{"site": 5}', "site: 5 is not an object"),
    ("exit.json", '{"exit_code": "0", "reason": "", "started": 1, "ended": 2}', 'exit_code is "0"'),
    ("starts.jsonl", '{"nodes": 7}', "nodes is 7, not a text"),
]


@pytest.mark.parametrize(("file", "text", "words"), SEEN)
def test_the_row_names_the_invalid_file_and_the_reason(jobs, calls, file, text, words):
    run = jobs()
    (run / file).write_text(f"{text}\n")
    code, out, err = calls("status", "--json")
    reasons = {row["name"].partition("-")[0]: row["reason"] for row in json.loads(out)}
    assert code == 0, err
    assert file in reasons["bad"]
    assert "is invalid: " in reasons["bad"]
    assert words.replace("\\\\", "\\") in reasons["bad"]
    assert ".json" not in reasons["good"]


@pytest.mark.parametrize("kind", ["fifo", "zero", "directory"])
def test_the_row_names_the_type_of_what_replaced_a_file(jobs, calls, kind):
    run = jobs()
    damage(run / "metrics.jsonl", kind)
    is_folder = kind == "directory"
    message = f"metrics.jsonl is {'a directory' if is_folder else 'a pipe, device or socket'}, not a file"
    assert message in calls("status")[1]
    damage(run / "result.json", kind)
    assert message.replace("metrics.jsonl", "result.json") in calls("result", "1")[2]


@pytest.mark.parametrize(("file", "key"), [("job.json", "job_id"), ("result.json", "api_key"), ("job.json", "argv")])
def test_a_very_long_value_is_truncated(jobs, calls, file, key):
    run = jobs()
    whole = json.loads((run / file).read_text())
    value = "y" * 1_000_000
    (run / file).write_text(json.dumps({**whole, key: [value, value] if key == "argv" else value}))
    code, out, err = calls("compare", "1", "2", "--all")
    assert (code, "y" * 2000 in out, "1,000,000 characters" in out or "***" in out) == (0, False, True), err
    assert calls("report", "1", "2", "-o")[0] == 0


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["ended", "last"])
def test_an_invalid_cache_does_not_break_status(jobs, calls, name):
    calls("status")
    file = paths.run_index_folder().with_name(f"{name}.json")
    known = json.loads(file.read_text())["runs"] if file.exists() else {}
    for kind in ODD:
        damage(file, kind)
        check(calls, f"{name} {kind}", [("status",)])
    for key in {key for note in known.values() for key in note}:
        for value in VALUES:
            file.unlink(missing_ok=True)
            notes = {run: {**note, key: value} for run, note in known.items()}
            file.write_text(json.dumps({"format": state_cache.CACHE_FORMAT, "runs": notes}))
            assert calls("status")[0] == 0, (key, value)


def test_an_index_entry_that_is_no_link_to_a_run_is_ignored(jobs, calls):
    folder = paths.run_index_folder()
    (folder / "1800000000000000001.9-copied").mkdir()  # cp -rL of a home directory replaces the links
    (folder / "1800000000000000002.9-file").touch()
    os.mkfifo(folder / "1800000000000000003-pipe")
    for name, target in (("8.9-root", "/"), ("7.9-loop", "7.9-loop"), (f"{'9' * 60}.9-late", "/nonexistent")):
        (folder / name).symlink_to(target)
    several = [("status", "all"), ("prune", "all", "--dry-run"), ("status", "--rebuild")]
    for argv in [("status",), ("why", "1"), *several]:
        code, out, err = calls(*argv)
        assert (code, "Invalid argument" in err) == (0, False), (argv, err)
        assert argv[0] != "status" or "--rebuild" in argv or "good" in out, (argv, out)
