"""What the shell offers at the Tab key."""

from __future__ import annotations


def workloads(incomplete: str) -> list[str]:
    """Return the bundled workloads that begin so."""
    from hpcrun import workload

    return [name for name in workload.bundled() if name.startswith(incomplete)]


def sites(incomplete: str) -> list[str]:
    """Return the sites that begin so."""
    from hpcrun.sites import find

    return [name for name in sorted(find.files()) if name.startswith(incomplete)]


def jobs(incomplete: str) -> list[str]:
    """Return ids and names of the 50 newest runs that begin so."""
    from itertools import islice

    from hpcrun.jobs import runs

    known = ["last"]
    for run in islice(runs.every(), 50):
        known += [run.job_id or "", run.name]
    return [word for word in dict.fromkeys(known) if word and word.startswith(incomplete)]
