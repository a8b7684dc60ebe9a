"""``python -m hpcrun.doctor.node_probe [--mpi] [LAUNCHER]``: write a report about this node to the run directory.

LAUNCHER is the site's launcher. With ``--mpi`` the program also starts MPI, and waits for a file that rank 0 writes.
With ``--then SCRIPT [ARGUMENT...]`` the first rank of each node writes the report, and then all ranks run SCRIPT.
The report needs only the standard library, because NumPy or MPI may be missing on a node.
"""

from __future__ import annotations

import faulthandler
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

REPORT_FOLDER = "doctor"
"""The folder in the run directory for the report of each node."""

_RANK_FAILURE = "the rank ended in {}, or was in it for 60 s"
TIMEOUT_SECONDS = 60.0
"""Timeout of loading MPI, of MPI_Init, and of the wait for rank 0's file, which an NFS client may not show earlier."""


def main() -> None:
    """Write the report about this node, and then run the script of ``--then``."""
    arguments = sys.argv[1:]
    separator_index = arguments.index("--then") if "--then" in arguments else len(arguments)
    options, script_argv = arguments[:separator_index], arguments[separator_index + 1 :]
    if not script_argv or os.environ["HPCRUN_LOCAL_RANK"] == "0":
        _describe_node(options)
    if script_argv:
        sys.argv = script_argv
        sys.path.insert(0, str(Path(script_argv[0]).parent))  # Python does this for a script
        runpy.run_path(script_argv[0], run_name="__main__")


def _describe_node(options: list[str]) -> None:
    """Write the report about this node."""
    from hpcrun.doctor import host_facts, installed_software, mounts

    run_dir = Path(os.environ["HPCRUN_RUN_DIR"])
    folder = run_dir / REPORT_FOLDER
    folder.mkdir(exist_ok=True)
    rank = os.environ.get("HPCRUN_RANK", "")
    file = folder / f"{os.uname().nodename}-{rank or os.getpid()}.json"
    file_system, mount_source = mounts.find_mount(run_dir)
    gpu_names, driver_version = host_facts.list_gpus()
    starts_mpi, launchers = "--mpi" in options, [word for word in options if word != "--mpi"]
    # with --mpi this process loads the MPI library itself, after it has written a first report
    mpi_facts = ("", _RANK_FAILURE.format("loading MPI")) if starts_mpi else installed_software.identify_mpi_library()
    report: dict[str, Any] = {
        "host": os.uname().nodename,
        "facts": {
            **host_facts.describe_host(gpu_names, driver_version),
            **installed_software.describe_software(*mpi_facts, launchers),
            "run root": f"{file_system} {mount_source}",
        },
        "gpus": len(gpu_names),
        "measured": host_facts.measure_host(run_dir),
    }
    _write_report(file, report)
    if not starts_mpi:
        return
    report["facts"] |= _load_mpi()
    if rank == "0":
        (folder / "rank-0").write_text(report["host"])
    report["sees_rank_0"] = _wait_for_file(folder / "rank-0")
    failure = _RANK_FAILURE.format("MPI_Init")
    report["ranks"] = {"expected": int(os.environ["HPCRUN_NTASKS"]), "size": None, "failure": f"{failure},"}
    if not report["facts"]["MPI library"]:
        del report["ranks"]
    _write_report(file, report)
    if "ranks" in report:
        report["ranks"] |= _start_mpi()
        _write_report(file, report)


def _write_report(file: Path, report: dict[str, Any]) -> None:
    temporary_file = file.with_suffix(".part")
    temporary_file.write_text(json.dumps(report))
    temporary_file.replace(file)


def _wait_for_file(file: Path) -> bool:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
        os.scandir(file.parent).close()  # opening the folder refreshes the cache of an NFS client
    return file.exists()


def _load_mpi() -> dict[str, str]:
    """Load mpi4py's MPI library, and return its version or the failure; exit after a timeout."""
    from hpcrun.doctor.installed_software import shorten_mpi_version

    faulthandler.dump_traceback_later(TIMEOUT_SECONDS, exit=True)
    try:
        import mpi4py

        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI

        version, failure = shorten_mpi_version(MPI.Get_library_version()), ""
    except (ImportError, RuntimeError) as error:
        version, failure = "", f"{type(error).__name__}: {error}".strip().splitlines()[-1]
    faulthandler.cancel_dump_traceback_later()
    return {"MPI library": version, "MPI failure": failure}


def _start_mpi() -> dict[str, Any]:
    """Initialize MPI, and return the size of MPI_COMM_WORLD; exit after a timeout."""
    # mpi4py holds the GIL in MPI_Init; this timer does not need the GIL
    faulthandler.dump_traceback_later(TIMEOUT_SECONDS, exit=True)
    from mpi4py import MPI

    MPI.Init_thread()
    faulthandler.cancel_dump_traceback_later()
    return {"size": MPI.COMM_WORLD.Get_size(), "failure": ""}


if __name__ == "__main__":
    main()
