"""Benchmark of distribution strategies and libraries: step time, and the cost of communication.

    python benchmarks/strategies.py
    python benchmarks/strategies.py --model lenet5 --ranks 2 --rounds 10

Each rank, worker or replica has one thread and its own batch of the same size. The cost of communication is the median,
over rounds, of the time of a step with communication minus that of a step without communication in the same round, so
that other load on the machine affects both steps equally. MirroredStrategy and the parameter server run in separate
processes, so their costs are differences of medians. PyTorch's steps are compared with PyTorch's steps without
communication. Each ratio is the cost divided by the cost of hpcrun.train with the same number of ranks.

All ranks run on this host. Horovod (tools/horovod.sh) and PyTorch (tools/backends.sh) are skipped if they are missing.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.training.launch import JobError, launch_on_this_host  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOROVOD, BACKENDS = ROOT / ".venv-horovod", ROOT / ".venv-backends"
Times = dict[str, list[float]]
Row = tuple[str, float, float]  # name, seconds per step, seconds of communication per step


def free_ports(count: int) -> list[str]:
    """Return free ports of this host."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [str(each.getsockname()[1]) for each in sockets]


def cost(times: Times, name: str) -> tuple[float, float]:
    """Return the median time of a step and of its communication, in seconds."""
    pairs = zip(times[name], times["none"], strict=True)
    return statistics.median(times[name]), statistics.median(with_it - without for with_it, without in pairs)


def measure_ranks(model: str, ranks: int, rounds: int) -> Iterator[Row]:
    """Measure hpcrun.train and MultiWorkerMirroredStrategy in one job, and compare other strategies with its steps."""
    launch = launch_on_this_host()
    argv = ("steps.py", model, "none", "hpcrun", "mwms", "--rounds", rounds)
    times: Times = launch(ranks, *argv)["times"]
    alone = statistics.median(times["none"])
    yield "one" if ranks == 1 else "no communication", alone, 0.0
    yield "hpcrun.train", *cost(times, "hpcrun")
    yield "multiworker", *cost(times, "mwms")
    mirrored = f"mirrored:{ranks}"
    step = statistics.median(launch(1, "steps.py", model, mirrored, "--rounds", rounds)["times"][mirrored])
    yield "mirrored", step, step - alone
    with tempfile.TemporaryDirectory() as folder:
        settings = {"PORTS": ",".join(free_ports(ranks + 2)), "DONE": f"{folder}/done"}
        found = launch(ranks + 1, "ps_steps.py", model, "--rounds", rounds, **settings)
    step = statistics.median(found["times"])
    yield "parameter server", step, step - alone


def measure_horovod(model: str, ranks: int, rounds: int) -> Iterator[Row]:
    """Measure Horovod with its default settings, in its own environment."""
    times = launch_on_this_host(HOROVOD)(ranks, "steps.py", model, "none", "horovod", "--rounds", rounds)["times"]
    yield "Horovod", *cost(times, "horovod")


def measure_ddp(model: str, ranks: int, rounds: int) -> Iterator[Row]:
    """Measure PyTorch's DistributedDataParallel."""
    (port,) = free_ports(1)
    launch = launch_on_this_host(BACKENDS)
    times = launch(ranks, "ddp_steps.py", model, "--rounds", rounds, MASTER_PORT=port)["times"]
    yield "DDP, gloo (PyTorch)", *cost(times, "ddp")


def find_skipped() -> dict[str, str]:
    """Return the measurements whose software is missing, and the script that installs the software."""
    packages = {
        "Horovod": (HOROVOD, "horovod", "bash tools/horovod.sh builds it"),
        "DDP, gloo (PyTorch)": (BACKENDS, "torch", "bash tools/backends.sh installs PyTorch"),
    }
    return {
        name: advice
        for name, (folder, package, advice) in packages.items()
        if not list(folder.glob(f"lib/python*/site-packages/{package}"))
    }


def main() -> None:
    """Measure, and print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=["resnet50", "lenet5"], help="may be repeated (both)")
    parser.add_argument("--ranks", action="append", type=int, help="may be repeated (1, 2 and 4)")
    parser.add_argument("--rounds", type=int, default=20, help="of ResNet-50; LeNet-5's are ten times as many")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exit normally, which ends the child processes
    if (load := os.getloadavg()[0]) > 0.5:
        print(f"WARNING: the machine is busy (load {load:.1f}): the results are unreliable", file=sys.stderr)
    skipped, failed = find_skipped(), False
    measures: list[Callable[[str, int, int], Iterator[Row]]] = [measure_ranks]
    measures += [measure_horovod] if "Horovod" not in skipped else []
    measures += [measure_ddp] if "DDP, gloo (PyTorch)" not in skipped else []
    for model in args.model or ["resnet50", "lenet5"]:
        print(f"\n{model} on this machine with {os.cpu_count()} cores, a thread per rank")
        print(f"{'ranks':>5}  {'':20} {'step':>10}  {'communication':>15}  : hpcrun.train")
        for ranks in args.ranks or [1, 2, 4]:
            reference = 0.0
            for measure in measures:
                try:
                    for name, step, communication in measure(
                        model, ranks, args.rounds * (10 if model == "lenet5" else 1)
                    ):
                        reference = communication if name == "hpcrun.train" else reference
                        has_ratio = ranks > 1 and communication > 0 and reference > 0
                        ratio = f"{communication / reference:12.1f} x" if has_ratio else ""
                        row = f"{ranks:5}  {name:20} {step * 1000:7.1f} ms  {communication * 1000:12.2f} ms  {ratio}"
                        print(row.rstrip(), flush=True)
                except JobError as error:
                    failed = True
                    print(f"{ranks:5}  FAILED: {error}", flush=True)
        for name, reason in skipped.items():
            print(f"{'':5}  {name:20} SKIP: {reason}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
