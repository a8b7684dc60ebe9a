"""What the shell offers at the Tab key."""

from __future__ import annotations


def workloads(incomplete: str) -> list[str]:
    """Return the bundled workloads that begin so."""
    from hpcrun import workload

    return [name for name in workload.bundled() if name.startswith(incomplete)]


def sites(incomplete: str) -> list[str]:
    """Return the sites that begin so."""
    from hpcrun.sites import loader

    return [name for name in sorted(loader.list_site_files()) if name.startswith(incomplete)]


def jobs(incomplete: str) -> list[str]:
    """Return ids and names of the 50 newest runs that begin so."""
    from hpcrun.jobs import index

    known = ["last", "all"]
    for entry in index.entries()[:50]:
        known += [entry.job_id or "", entry.name]
    return [word for word in dict.fromkeys(known) if word and word.startswith(incomplete)]


def states(incomplete: str) -> list[str]:
    """Return the states that go on so; several are separated by commas."""
    from hpcrun.jobs.states import CODES

    before, comma, word = incomplete.rpartition(",")
    names = [name.lower() if word.islower() else name for name in sorted(CODES.values())]
    return [f"{before}{comma}{name}" for name in names if name.startswith(word)]


def layers(incomplete: str) -> list[str]:
    """Return the added layers that begin so."""
    from hpcrun import paths

    return [one["name"] for one in paths.added_layers() if one["name"].startswith(incomplete)]
