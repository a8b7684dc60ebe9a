"""Iterator over the models of a run while its training saves them."""

from __future__ import annotations

import json
import os
import platform
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
from hpcrun.run.job import print_line, run_dir
from hpcrun.train.followers import Follower
from hpcrun.train.ranks.collectives import on_rank_0
from hpcrun.train.ranks.world import world
from hpcrun.train.saved_model import SavedModel, find_saved_model, read_names
from hpcrun.train.saved_model_record import RECORD, read_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS_BETWEEN_CHECKS = 2.0
SECONDS_BETWEEN_QUERIES = 60.0
"""Interval of queries to the scheduler, needed because a job that loses its node does not record its end."""
_FINAL_STATES = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}
_QUERY_TIMEOUT = 60.0  # seconds


def list_models(
    source: str | Path, *, follow: bool = False, best: bool = False, after_epoch: int = 0
) -> Iterator[SavedModel]:
    """Yield the saved model of a run, or each model that the run will save. Collective.

    The training cannot replace the file of a yielded model, which is removed after the iteration. With `follow`, the
    training keeps the models of the epochs that end during an iteration, if the run directory is writable; models that
    were not kept are skipped, and the newest model is next.

    Args:
        source: A run directory, or a Keras model.
        follow: Whether to wait for models of further epochs until the run has ended.
        best: Whether to use the model of the best epoch instead of the last epoch.
        after_epoch: Epoch after which models are yielded; models of this and earlier epochs are skipped.

    Raises:
        HpcrunError: There is no model, the run ended without a model, or with `follow`, `source` is not a run.
    """
    path = Path(source)
    if not follow:
        yield from _yield_and_remove(on_rank_0("the saved model", partial(_copy_model, path, best)))
    elif (path / "job.json").is_file():
        yield from _follow(path, best, after_epoch)
    else:
        raise HpcrunError(f"--follow needs a job; {source} is not a run directory", hint="--run JOB --follow")


def _follow(run: Path, best: bool, last_epoch: int) -> Iterator[SavedModel]:
    find_end = _EndFinder(run)
    name = folder.name if (folder := run_dir()) else f"{platform.node()}-{os.getpid()}"
    with Follower(run, name, best=best) as follower:
        while True:
            find_model = partial(_find_new_model, run, best, last_epoch, find_end, follower)
            saved, end_reason = on_rank_0("the next saved model", find_model)
            if saved:
                if not best:
                    _report_skipped(last_epoch, saved.epoch or 0)
                last_epoch = saved.epoch or 0
                yield from _yield_and_remove(saved)
            elif end_reason:
                break
            else:
                time.sleep(SECONDS_BETWEEN_CHECKS)
    if not last_epoch:
        raise HpcrunError(f"{run} ended without a saved model: {end_reason}", hint=f"hpcrun why {run}")
    _print_on_rank_0(f"the training has ended: {end_reason}")


def _yield_and_remove(saved_model: SavedModel) -> Iterator[SavedModel]:
    try:
        yield saved_model
    finally:
        if world().rank == 0:
            shutil.rmtree(saved_model.file.parent, ignore_errors=True)


def _report_skipped(last_epoch: int, epoch: int) -> None:
    if epoch == last_epoch + 2:
        _print_on_rank_0(f"epoch {last_epoch + 1} is skipped: its model was not kept")
    elif epoch > last_epoch + 2:
        _print_on_rank_0(f"epochs {last_epoch + 1} to {epoch - 1} are skipped: their models were not kept")


def _print_on_rank_0(line: str) -> None:
    if world().rank == 0:
        print_line(line)


def last_evaluated_epoch() -> int:
    """Return the last epoch in this job's ``metrics.jsonl``, after which a requeued job continues; 0 if none."""
    epochs = [0]
    with suppress(OSError):
        for line in ((run_dir() or Path()) / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, TypeError, KeyError):  # skip an incomplete line
                epochs.append(int(json.loads(line)["epoch"]))
    return max(epochs)


def _find_new_model(
    run: Path, best: bool, last_epoch: int, find_end: Callable[[], str], follower: Follower
) -> tuple[SavedModel | None, str]:
    """Return the next saved model (None if there is none), and why the run ended (empty while it runs)."""
    end_reason = find_end()  # check the end before the models, because no model is saved after the end
    newest_model = None
    with suppress(HpcrunError):
        newest_model = find_saved_model(run, best=best)
    kept_models = follower.kept_models()  # after `newest_model`, which was kept before the run recorded it
    for epoch in sorted(kept_models):
        if epoch > last_epoch:
            return SavedModel(kept_models[epoch], read_names(run), epoch, read_record(run)), end_reason
        shutil.rmtree(kept_models[epoch].parent, ignore_errors=True)  # evaluated before the training was resumed
    if newest_model and (newest_model.epoch or 0) > last_epoch:
        return _copy_newest_model(run, best, newest_model, has_ended=bool(end_reason)), end_reason
    return None, end_reason


def _copy_newest_model(run: Path, best: bool, saved_model: SavedModel, *, has_ended: bool) -> SavedModel | None:
    """Return a copy of a model that was not kept; None if the training is replacing the model."""
    with suppress(HpcrunError, FileNotFoundError):
        model_mtime, record_mtime = saved_model.file.stat().st_mtime_ns, (run / RECORD).stat().st_mtime_ns
        if model_mtime <= record_mtime or has_ended:
            copy = _copy_model(run, best)
            if find_saved_model(run, best=best) == saved_model and saved_model.file.stat().st_mtime_ns == model_mtime:
                return copy
            shutil.rmtree(copy.file.parent)
    return None


def _copy_model(path: Path, best: bool) -> SavedModel:
    saved_model = find_saved_model(path, best=best)
    copy = Path(tempfile.mkdtemp(prefix="evaluated-", dir=run_dir())) / saved_model.file.name
    shutil.copyfile(saved_model.file, copy)
    return replace(saved_model, file=copy)


def _find_end(run: Path) -> str:
    """Return the recorded reason why a run ended; empty if it has not ended."""
    exit_record = _read_json(run / "exit.json")
    if exit_record.get("ended") and not exit_record.get("requeued"):
        return str(exit_record.get("reason"))
    if _read_json(run / "submitted.json").get("cancelled"):
        return "it was cancelled before it began"
    if refusal := _read_json(run / "refused.json"):
        return f"it was refused: {refusal.get('reason')}"
    return ""


class _EndFinder:
    """Detector of the end of a run, from its files and, less often, from the scheduler.

    Args:
        run: The run directory.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._queried = time.monotonic()

    def __call__(self) -> str:
        """Return the reason why the run ended; empty if it has not ended."""
        if (end_reason := _find_end(self._run)) or time.monotonic() - self._queried < SECONDS_BETWEEN_QUERIES:
            return end_reason
        self._queried = time.monotonic()
        return _find_end(self._run) or _query_end(self._run)


def _query_end(run: Path) -> str:
    """Return the reason why a run ended, according to ``hpcrun status``; empty if the run may not have ended."""
    command = [sys.executable, "-m", "hpcrun", "status", str(run), "--json"]
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        query_result = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_TIMEOUT, check=False)
        status = json.loads(query_result.stdout)
        state, reason = str(status["state"]), str(status["reason"] or "")
        if state in _FINAL_STATES or (state == "UNKNOWN" and reason.startswith("Slurm does not know this job")):
            return f"its job was lost ({': '.join(filter(None, [state, reason]))})"
    return ""


def _read_json(file: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        record = json.loads(file.read_text(encoding="utf-8"))
        return record if isinstance(record, dict) else {}
    return {}
