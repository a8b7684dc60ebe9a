"""Wait for the effect of another process."""

import time

PATIENCE = 4  # limits hold for a quiet machine of two cores; where tests run side by side on slow cores, allow more
DEADLINE = 30 * PATIENCE  # s


def wait_until(condition, seconds=DEADLINE):
    """Call a condition until its value is true, and return the value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"the condition is still false after {seconds} s"
        time.sleep(0.02)
    return value
