"""Followers of a run: programs that use the model of each epoch during the training.

A follower registers as a folder in ``followers`` of the run directory. After each epoch, the training keeps the model
there, in ``epoch-N``, until the follower removes it. Keeping a model is a hard link, which takes no time. A follower
that was killed no longer renews its registration, so the training removes its folder. Without followers, the training
keeps no models.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from hpcrun.permissions import make_folder
from hpcrun.train.ranks.world import world
from hpcrun.train.saved_model_record import LAST, replace_by_link, replace_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

FOLDER, REGISTRATION = "followers", "registration.json"
MAX_SECONDS_WITHOUT_RENEWAL = 180.0
"""Age at which a registration expires; renewals may be delayed by a busy process, or cached by NFS."""
_SECONDS_BETWEEN_RENEWALS = 10.0
_MAX_SHARE_OF_FREE_SPACE = 0.25


class Follower:
    """The registration of this job as a follower, by its rank 0, for the duration of a ``with`` block.

    If the run directory is read-only, the block begins with a warning, and the training keeps no models.

    Args:
        run: The run directory.
        name: A name that no other follower of the run has. A follower that was interrupted and continues under the same
            name finds the models that were kept in the meantime.
        best: Whether to keep only models that are the best so far.
    """

    def __init__(self, run: Path, name: str, *, best: bool) -> None:
        self._folder = run / FOLDER / name
        self._registration = json.dumps({"best": best})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> Self:
        if world().rank > 0:
            return self
        try:
            self._register()
        except OSError as error:
            reason = f"{self._folder} cannot be written: {error.strerror}"
            print(f"WARNING: {reason}; epochs that end during an evaluation are skipped", file=sys.stderr)
        else:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if world().rank > 0:
            return
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)
        with suppress(OSError):  # the folder has other followers
            self._folder.parent.rmdir()

    def kept_models(self) -> dict[int, Path]:
        """Return the models that the training has kept, by epoch."""
        return dict(_list_models(self._folder))

    def _register(self) -> None:
        make_folder(self._folder)
        replace_text(self._folder / REGISTRATION, self._registration)

    def _renew(self) -> None:
        while not self._ended.wait(_SECONDS_BETWEEN_RENEWALS):
            with suppress(OSError):
                self._register()


def keep_model(model: Path, epoch: int, *, is_best: bool) -> None:
    """Keep the model of an epoch for each follower of the run, and remove the folders of killed followers.

    Models are kept only while they take at most a quarter of the free disk space.

    Args:
        model: The model, which was just saved in the run directory.
        epoch: The epoch, from 1.
        is_best: Whether the model is the best so far.
    """
    for follower in _list_followers(model.parent):
        with suppress(OSError):  # the follower has ended in the meantime, or the disk is full
            registration = _read_registration(follower, model.stat().st_mtime)
            if registration is None:
                shutil.rmtree(follower, ignore_errors=True)
            elif (is_best or not registration.get("best")) and _has_space(model):
                make_folder(follower / f"epoch-{epoch}")
                replace_by_link(model, follower / f"epoch-{epoch}" / LAST)


def remove_kept_models(run: Path) -> bool:
    """Remove kept models, except the oldest model of each follower, which may be in use.

    Args:
        run: The run directory.

    Returns:
        Whether models were removed.
    """
    removable_models = [model for follower in _list_followers(run) for _, model in sorted(_list_models(follower))[1:]]
    for model in removable_models:
        shutil.rmtree(model.parent, ignore_errors=True)
    return bool(removable_models)


def _list_followers(run: Path) -> list[Path]:
    with suppress(OSError):
        return list((run / FOLDER).iterdir())
    return []


def _list_models(follower: Path) -> Iterator[tuple[int, Path]]:
    """Yield epoch and path of each model that was kept for a follower."""
    for model in follower.glob(f"epoch-*/{LAST}"):
        with suppress(ValueError):
            yield int(model.parent.name.removeprefix("epoch-")), model


def _read_registration(follower: Path, now: float) -> dict[str, bool] | None:
    """Return a registration; None if it has expired.

    Args:
        follower: The folder of the follower.
        now: Time of the file server, whose clock may differ from the clock of this host, in seconds since 1970.
    """
    with suppress(OSError, ValueError), (follower / REGISTRATION).open("rb") as file:
        if now - os.fstat(file.fileno()).st_mtime <= MAX_SECONDS_WITHOUT_RENEWAL:
            return dict(json.load(file))
    return None


def _has_space(model: Path) -> bool:
    """Return whether one more model of this size can be kept."""
    kept_models = [kept for follower in _list_followers(model.parent) for _, kept in _list_models(follower)]
    bytes_per_model, free_bytes = model.stat().st_size, shutil.disk_usage(model.parent).free
    return (len(kept_models) + 1) * bytes_per_model <= _MAX_SHARE_OF_FREE_SPACE * free_bytes
