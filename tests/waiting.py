"""Wait for the effect of another process."""

import time

DEADLINE = 20  # s


def wait_until(condition, seconds=DEADLINE):
    """Call a condition until its value is true, and return the value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"the condition is still false after {seconds} s"
        time.sleep(0.02)
    return value
