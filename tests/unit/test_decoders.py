"""Processes that decode images for a rank: they outlive signals to the whole job, but not the rank."""

import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
from PIL import Image

from hpcrun.data import decoders
from hpcrun.data.image_reader import ImageReader
from tests.waiting import wait_until

START = "import os, signal; from hpcrun.data import decoders; pool = decoders.start(2); pids = list(pool._processes); "


def run_program(text):
    """Run a program in its own process group."""
    command = [sys.executable, "-c", START + text]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, start_new_session=True)


@pytest.fixture
def reader(tmp_path):
    """Return a reader of 20 images of different grey levels."""
    for number in range(20):
        Image.new("RGB", (12, 10), (number,) * 3).save(tmp_path / f"{number}.png")
    return ImageReader([(tmp_path / f"{number}.png", number) for number in range(20)], ["grey"] * 20, 8, "resnet")


def test_processes_read_the_same_images_as_the_rank_itself(reader):
    seeds = [f"1 {number}" for number in range(20)]
    expected = [np.asarray(reader.read(number, Random(seed))[0]) for number, seed in enumerate(seeds)]
    with decoders.start(2) as pool:
        results = [decoders.start_reading(reader, seeds, each)() for each in (pool, None)]
        empty_pixels, empty_labels = decoders.start_reading(reader.select([]), [], pool)()
    for pixels, labels in results:
        assert (pixels == np.stack(expected)).all()
        assert labels.tolist() == list(range(20))
    assert (empty_pixels.shape, len(empty_labels)) == ((0, 8, 8, 3), 0)


def test_the_processes_ignore_stop_signals_to_the_whole_job():
    done = run_program(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGUSR2, signal.SIG_IGN); "
        "[os.killpg(0, number) for number in (signal.SIGTERM, signal.SIGUSR2)]; "
        "print(sorted({pool.submit(os.getpid).result() for _ in range(50)} - {*pids}))"
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_a_signal_while_the_processes_start_does_not_end_them():
    program = (
        "import os, signal, threading; signal.signal(signal.SIGTERM, lambda *_: print('stop', flush=True)); "
        "from hpcrun.data import decoders; "
        "fork = os.fork; os.fork = lambda: fork() or os.kill(os.getpid(), signal.SIGTERM) or 0; "
        "pool = decoders.start(2); print(pool.submit(abs, -1).result())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.mark.parametrize("victim", ["os.getpid()", "pids[0]"])
def test_the_processes_end_with_the_rank_or_with_one_of_them(victim):
    use = "while True: pool.submit(abs, 1).result()"  # the other process may still answer for a moment
    done = run_program(f"print(*pids, flush=True); os.kill({victim}, signal.SIGKILL)\n{use}")
    pids = done.stdout.split()
    assert (done.returncode, len(pids)) == (-signal.SIGKILL if "getpid" in victim else 1, 2), done.stderr
    assert ("BrokenProcessPool" in done.stderr) == (victim == "pids[0]")
    wait_until(lambda: not any(Path("/proc", pid).exists() for pid in pids))
