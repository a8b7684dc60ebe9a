"""Parsers for the output of Slurm commands about a cluster."""

from __future__ import annotations

import re


def parse_config(text: str) -> dict[str, str]:
    """Parse the output of `scontrol show config`."""
    lines = (line.partition("=") for line in text.splitlines() if " = " in line)
    return {key.strip(): value.strip() for key, _, value in lines}


def enforces_accounts(settings: dict[str, str]) -> bool:
    """Return whether Slurm accepts only jobs with a valid account, by the settings from `parse_config`."""
    return "associations" in settings.get("AccountingStorageEnforce", "")


def parse_accounts(text: str, settings: dict[str, str]) -> list[str]:
    """Return a user's accounts on this cluster; the accounting database may contain several clusters.

    Args:
        text: The output of sacctmgr, with the columns account and cluster.
        settings: The settings from `parse_config`, with the cluster's name if known.
    """
    rows = (line.split("|") for line in text.splitlines() if "|" in line)
    cluster = settings.get("ClusterName", "").lower()  # the database stores names in lower case (slurm.conf(5))
    return list(dict.fromkeys(name for name, row_cluster, *_ in rows if name and cluster in {"", row_cluster}))


def parse_mpi_types(text: str) -> list[str]:
    """Parse the output of `srun --mpi=list`; older versions of srun print ``srun:`` before each type."""
    types = re.findall(r"^(?:srun:)?[ \t]+(\w+)[ \t]*$", text, re.MULTILINE)
    return list(dict.fromkeys([*types, *re.findall(r"pmix_v\d+", text)]))
