"""Waiting for what another process does."""

import time

DEADLINE = 20  # s


def wait_until(condition):
    """Ask until the answer is true, and return it."""
    end = time.monotonic() + DEADLINE
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return value
