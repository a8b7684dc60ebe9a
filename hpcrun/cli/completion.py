"""Shell completion of workloads, sites, jobs, states and layers."""

from __future__ import annotations


def workloads(incomplete: str) -> list[str]:
    """Return the names of bundled workloads that begin with a text."""
    from hpcrun import workload

    return [name for name in workload.bundled_names() if name.startswith(incomplete)]


def sites(incomplete: str) -> list[str]:
    """Return the names of sites that begin with a text."""
    from hpcrun.sites import loader

    return [name for name in sorted(loader.list_site_files()) if name.startswith(incomplete)]


def jobs(incomplete: str) -> list[str]:
    """Return the ids and names of the 50 newest runs that begin with a text."""
    from hpcrun.jobs import run_index

    candidates = ["last", "all"]
    for entry in run_index.list_entries()[:50]:
        candidates += [entry.job_id or "", entry.name]
    return [word for word in dict.fromkeys(candidates) if word and word.startswith(incomplete)]


def states(incomplete: str) -> list[str]:
    """Return job states that begin with the last part of a comma-separated list."""
    from hpcrun.jobs.states import STATE_CODES

    typed_part, comma, word = incomplete.rpartition(",")
    names = [name.lower() if word.islower() else name for name in sorted(STATE_CODES.values())]
    return [f"{typed_part}{comma}{name}" for name in names if name.startswith(word)]


def layers(incomplete: str) -> list[str]:
    """Return the names of added layers that begin with a text."""
    from hpcrun import paths

    return [layer["name"] for layer in paths.added_layers() if layer["name"].startswith(incomplete)]
