"""``python -m hpcrun.doctor.node_probe``: report this node's facts in a file of the run directory.

With ``--mpi`` it also starts MPI and waits for a file that rank 0 writes.
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
"""The folder in the run directory with the report of each node."""

TIMEOUT_SECONDS = 60.0
"""Timeout of MPI_Init, and of waiting for rank 0's file: an NFS client may hide a new file for as long."""


def main() -> None:
    """Write the report of this node."""
    from hpcrun.doctor import host_facts, installed_software, mounts

    run_dir = Path(os.environ["HPCRUN_RUN_DIR"])
    folder = run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    rank = os.environ.get("HPCRUN_RANK", "")
    file = folder / f"{os.uname().nodename}-{rank or os.getpid()}.json"
    kind, source = mounts.find_mount(run_dir)
    names, driver = host_facts.list_gpus()
    report: dict[str, Any] = {
        "host": os.uname().nodename,
        "facts": {
            **host_facts.describe_host(names, driver),
            **installed_software.describe_software(),
            "run root": f"{kind} {source}",
        },
        "gpus": len(names),
        "measured": host_facts.measure_host(run_dir),
    }
    _write_report(file, report)
    if "--mpi" not in sys.argv[1:]:
        return
    if rank == "0":
        (folder / "rank-0").write_text(report["host"])
    report["sees rank 0's file"] = _wait_for_file(folder / "rank-0")
    report["ranks"] = {"expected": int(os.environ["HPCRUN_NTASKS"]), "size": None, "failure": "MPI_Init ended the rank"}
    if not report["facts"]["MPI library"]:
        del report["ranks"]
    _write_report(file, report)
    if "ranks" in report:
        report["ranks"] |= _start_mpi(report, file)
        _write_report(file, report)


def _write_report(file: Path, report: dict[str, Any]) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(report))
    part.replace(file)


def _wait_for_file(file: Path) -> bool:
    end = time.monotonic() + TIMEOUT_SECONDS
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.1)
        os.scandir(file.parent).close()  # refreshes an NFS client's cache
    return file.exists()


def _start_mpi(report: dict[str, Any], file: Path) -> dict[str, Any]:
    """Initialize MPI, and return the number of ranks; exit after a timeout."""

    def abort() -> None:
        report["ranks"]["failure"] = f"MPI_Init did not return within {TIMEOUT_SECONDS:.0f} s"
        _write_report(file, report)
        os._exit(1)

    timer = threading.Timer(TIMEOUT_SECONDS, abort)
    timer.daemon = True
    timer.start()
    from mpi4py import MPI

    timer.cancel()
    return {"size": MPI.COMM_WORLD.Get_size(), "failure": ""}


if __name__ == "__main__":
    main()
