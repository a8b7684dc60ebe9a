"""The saved models of a run, each as it appears, until its training has ended."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.train.ranks.collectives import on_rank_0
from hpcrun.train.ranks.world import print_line, world
from hpcrun.train.result import run_dir
from hpcrun.train.saved_model import SavedModel, find_saved_model
from hpcrun.train.saved_model_record import RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS_BETWEEN_LOOKS = 2.0
SECONDS_BETWEEN_QUERIES = 60.0
"""Of the scheduler: a job that loses its node records no end."""
_FINAL_STATES = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}
_QUERY_TIMEOUT = 60.0  # seconds


def list_models(
    source: str | Path, *, follow: bool = False, best: bool = False, after: int = 0
) -> Iterator[SavedModel]:
    """Yield the saved model of a run, or each new one as it appears; every rank must call this.

    What is yielded is a copy, which a training that goes on does not replace; it is removed after its turn.

    Args:
        source: A run directory, or a Keras model.
        follow: Whether to wait for the models of further epochs, until the run has ended.
        best: Whether to take the model of the best epoch instead of the last one.
        after: Do not yield models of this epoch or earlier ones.

    Raises:
        HpcrunError: There is no model, or the run ended without one; or `source` is no run, with `follow`.
    """
    path, done = Path(source), after
    if follow and not (path / "job.json").is_file():
        raise HpcrunError(f"--follow needs a job; {source} is no run directory", hint="--run JOB --follow")
    find_end = _EndFinder(path)
    while True:
        look = partial(_find_new_model, path, best, done, find_end) if follow else partial(_copy_model, path, best)
        saved, ended = on_rank_0("the next saved model", look)
        if saved:
            done = saved.epoch or 0
            try:
                yield saved
            finally:
                if world().rank == 0:
                    shutil.rmtree(saved.file.parent)
        elif ended:
            break
        else:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        if not follow:
            return
    if not done:
        raise HpcrunError(f"{path} ended without a saved model: {ended}", hint=f"hpcrun why {path}")
    if world().rank == 0:
        print_line(f"the training has ended: {ended}")


def last_evaluated_epoch() -> int:
    """Return the last epoch in ``metrics.jsonl`` of this job, which a requeued job begins after; 0 without one."""
    epochs = [0]
    with suppress(OSError):
        for line in ((run_dir() or Path()) / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, TypeError, KeyError):  # an incomplete line
                epochs.append(int(json.loads(line)["epoch"]))
    return max(epochs)


def _find_new_model(run: Path, best: bool, done: int, find_end: Callable[[], str]) -> tuple[SavedModel | None, str]:
    """Return a copy of the saved model, None if it is not of a later epoch; and how the run ended, if it has."""
    ended = find_end()  # before the model: none is saved after the end
    with suppress(HpcrunError, FileNotFoundError):
        saved = find_saved_model(run, best=best)
        written, recorded = saved.file.stat().st_mtime_ns, (run / RECORD).stat().st_mtime_ns
        is_being_replaced = written > recorded and not ended
        if saved.epoch is not None and saved.epoch > done and not is_being_replaced:
            copy, _ = _copy_model(run, best)
            if find_saved_model(run, best=best) == saved and saved.file.stat().st_mtime_ns == written:
                return copy, ended
            shutil.rmtree(copy.file.parent)
    return None, ended


def _copy_model(path: Path, best: bool) -> tuple[SavedModel, str]:
    saved = find_saved_model(path, best=best)
    copy = Path(tempfile.mkdtemp(prefix="evaluated-", dir=run_dir())) / saved.file.name
    shutil.copyfile(saved.file, copy)
    return replace(saved, file=copy), ""


def _find_end(run: Path) -> str:
    """Return how a run ended; empty if it has not."""
    end = _read(run / "exit.json")
    if end.get("ended") and not end.get("requeued"):
        return str(end.get("reason"))
    if _read(run / "submitted.json").get("cancelled"):
        return "it was cancelled before it began"
    if refused := _read(run / "refused.json"):
        return f"it was refused: {refused.get('reason')}"
    return ""


class _EndFinder:
    """Finds out whether a run has ended; asks the scheduler now and then, and only in the process that calls it.

    Args:
        run: The run directory.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._queried = time.monotonic()

    def __call__(self) -> str:
        """Return how the run ended; empty if it has not."""
        if (ended := _find_end(self._run)) or time.monotonic() - self._queried < SECONDS_BETWEEN_QUERIES:
            return ended
        self._queried = time.monotonic()
        return _find_end(self._run) or _query_end(self._run)


def _query_end(run: Path) -> str:
    """Return how a run ended that has not recorded it, as ``hpcrun status`` finds it; empty if it may still run."""
    command = [sys.executable, "-m", "hpcrun", "status", str(run), "--json"]
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_TIMEOUT, check=False)
        status = json.loads(done.stdout)
        state, reason = str(status["state"]), str(status["reason"] or "")
        if state in _FINAL_STATES or (state == "UNKNOWN" and reason.startswith("Slurm does not know this job")):
            return f"its job was lost ({': '.join(filter(None, [state, reason]))})"
    return ""


def _read(file: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        record = json.loads(file.read_text(encoding="utf-8"))
        return record if isinstance(record, dict) else {}
    return {}
