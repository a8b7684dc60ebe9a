"""``python -m hpcrun.doctor.node_probe``: what this node is, in the environment of a job's rank, as a file of the run.

With ``--mpi`` it also starts MPI, as one rank of many, and waits for what rank 0 has written.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

FOLDER = "doctor"
"""Of the run directory, where each node's file is."""

PATIENCE_SECONDS = 60.0
"""For MPI to start, and for rank 0's file to be seen: an NFS client may hide a new file for as long."""


def main() -> None:
    """Write down what there is."""
    from hpcrun.doctor import host_facts, installed_software, mounts

    run_dir = Path(os.environ["HPCRUN_RUN_DIR"])
    folder = run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    rank = os.environ.get("HPCRUN_RANK", "")
    file = folder / f"{os.uname().nodename}-{rank or os.getpid()}.json"
    kind, source = mounts.of(run_dir)
    names, driver = host_facts.gpus()
    told: dict[str, Any] = {
        "host": os.uname().nodename,
        "facts": {**host_facts.host(names, driver), **installed_software.software(), "run root": f"{kind} {source}"},
        "gpus": len(names),
        "measured": host_facts.measured(run_dir),
    }
    _write(file, told)
    if "--mpi" not in sys.argv[1:]:
        return
    if rank == "0":
        (folder / "rank-0").write_text(told["host"])
    told["sees rank 0's file"] = _seen(folder / "rank-0")
    told["ranks"] = {"expected": int(os.environ["HPCRUN_NTASKS"]), "size": None, "failure": "MPI_Init ended the rank"}
    if not told["facts"]["MPI library"]:
        del told["ranks"]
    _write(file, told)
    if "ranks" in told:
        told["ranks"] |= _world(told, file)
        _write(file, told)


def _write(file: Path, told: dict[str, Any]) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(told))
    part.replace(file)


def _seen(file: Path) -> bool:
    end = time.monotonic() + PATIENCE_SECONDS
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.1)
        os.scandir(file.parent).close()  # an NFS client looks anew
    return file.exists()


def _world(told: dict[str, Any], file: Path) -> dict[str, Any]:
    """Start MPI, and return how many ranks it has; a start that never ends, ends this rank."""

    def give_up() -> None:
        told["ranks"]["failure"] = f"MPI_Init did not end within {PATIENCE_SECONDS:.0f} s"
        _write(file, told)
        os._exit(1)

    timer = threading.Timer(PATIENCE_SECONDS, give_up)
    timer.daemon = True
    timer.start()
    from mpi4py import MPI

    timer.cancel()
    return {"size": MPI.COMM_WORLD.Get_size(), "failure": ""}


if __name__ == "__main__":
    main()
