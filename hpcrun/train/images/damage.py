"""Damaged images: left out before the training, or an error that names the image."""

from __future__ import annotations

import re
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from hpcrun.errors import HpcrunError, pluralize
from hpcrun.train.backends import add_explanation
from hpcrun.train.ranks.collectives import checked_allgather
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = np.ndarray[Any, Any]

_NAMES_OF_OPERATIONS = re.compile(r"\{\{.*?\}\}|\[Op:.*?\]")
_LISTED = 5  # damaged images in a message
_last_read: deque[tuple[Callable[[int], str | None], int]] = deque(maxlen=4096)
_HINT = "copy or build it again, or leave out damaged images: skip_bad=True, --skip-bad of workloads"


def gather_problems(problems: Sequence[str], *, skip_bad: bool) -> None:
    """Report the damaged images of all ranks; every rank must call this.

    Args:
        problems: A message for each damaged image that this rank found.
        skip_bad: Whether they are left out.

    Raises:
        HpcrunError: An image is damaged, and damaged ones are not left out; raised on all ranks, with the same message.
    """
    found = [problem for each in checked_allgather("damaged images", list(problems)) for problem in each]
    if found and not skip_bad:
        raise HpcrunError(found[0], hint=_HINT)
    if found and world().rank == 0:
        more = f"\n  and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        lines = "".join(f"\n  {problem}" for problem in found[:_LISTED])
        print(f"WARNING: {pluralize(len(found), 'damaged image')} left out:{lines}{more}", file=sys.stderr)


def find_good(check: Callable[[int], str | None], images: int) -> Array:
    """Check all images, each rank some of them, and return the numbers of good ones; every rank must call this.

    Args:
        check: Reads and decodes an image, and returns what is wrong with it, by its number; None for a good one.
        images: The number of images.

    Raises:
        HpcrunError: All images are damaged.
    """
    me = world()
    own = range(me.rank, images, me.size)
    with ThreadPoolExecutor(me.threads) as pool:
        problems = {number: problem for number, problem in zip(own, pool.map(check, own), strict=True) if problem}
    gather_problems(list(problems.values()), skip_bad=True)
    damaged = [number for each in checked_allgather("numbers of damaged images", list(problems)) for number in each]
    if len(damaged) == images:
        raise HpcrunError(f"all {images} images are damaged")
    return np.setdiff1d(np.arange(images), damaged)


def check_image(content: bytes) -> str | None:
    """Return why an image file cannot be decoded; None if it can."""
    try:
        with tf.device("CPU"):
            if tf.io.is_jpeg(content):
                tf.io.decode_jpeg(content, channels=3, ratio=8)  # reads all data, and computes an eighth of the pixels
            else:
                tf.io.decode_image(content, channels=3, expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        reason = _NAMES_OF_OPERATIONS.sub("", error.message.splitlines()[0]).strip()
        return f"not an image that TensorFlow decodes: {reason}"
    return None


def remember(check: Callable[[int], str | None], numbers: Sequence[int]) -> None:
    """Remember that images are read: TensorFlow's error about one of them does not say which.

    Args:
        check: As for `find_good`.
        numbers: The numbers of the images.
    """
    if not _last_read:
        add_explanation(_explain)
    _last_read.extend((check, number) for number in numbers)


def _explain(error: Exception) -> HpcrunError | None:
    """Return the error that names the image that was damaged last; None if an error has another cause."""
    if not isinstance(error, tf.errors.InvalidArgumentError):
        return None
    problems = (check(number) for check, number in reversed(list(_last_read)))
    problem = next(filter(None, problems), None)
    return HpcrunError(problem, hint=_HINT) if problem else None
