"""Waiting by polling, which leaves the core to others and lets this rank answer requests of other ranks meanwhile."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_idle_tasks: list[Callable[[], bool]] = []


def poll(is_complete: Callable[[], bool], max_interval: float = 0.005) -> None:
    """Wait until a function returns true, and call the idle tasks meanwhile, in the main thread only.

    Args:
        is_complete: Function without side effects, or the `Test` of an MPI request.
        max_interval: Longest pause between two calls in seconds.
    """
    tasks = _idle_tasks if threading.current_thread() is threading.main_thread() else ()
    interval = 0.0
    while not is_complete():
        if sum(task() for task in tasks):
            interval = 0.0  # there may be more to do soon
        time.sleep(interval)
        interval = min(interval * 1.2 + 1e-5, max_interval)


def add_idle_task(task: Callable[[], bool]) -> None:
    """Let every later `poll` call a function.

    Args:
        task: Function that does not wait for other ranks, and returns whether it has done something.
    """
    _idle_tasks.append(task)


def has_idle_tasks() -> bool:
    """Return whether waits must call idle tasks."""
    return bool(_idle_tasks)
