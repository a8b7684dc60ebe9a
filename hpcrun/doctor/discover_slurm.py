"""Parsers for the output of Slurm's commands about a cluster."""

from __future__ import annotations

import re


def parse_config(text: str) -> dict[str, str]:
    """Parse the output of `scontrol show config`."""
    lines = (line.partition("=") for line in text.splitlines() if " = " in line)
    return {key.strip(): value.strip() for key, _, value in lines}


def enforces_accounts(settings: dict[str, str]) -> bool:
    """Return whether Slurm enforces accounts, from the output of `parse_config`."""
    return "associations" in settings.get("AccountingStorageEnforce", "")


def parse_accounts(text: str, settings: dict[str, str]) -> list[str]:
    """Return a user's accounts on a cluster, of all clusters in the database.

    Args:
        text: The output of sacctmgr: account, cluster.
        settings: The result of `parse_config`, with the cluster's name if known.
    """
    rows = (line.split("|") for line in text.splitlines() if "|" in line)
    cluster = settings.get("ClusterName", "").lower()  # the database stores names in lower case (slurm.conf(5))
    return list(dict.fromkeys(name for name, where, *_ in rows if name and cluster in {"", where}))


def parse_mpi_types(text: str) -> list[str]:
    """Parse the output of `srun --mpi=list`; older versions prefix each type with srun's name."""
    types = re.findall(r"^(?:srun:)?[ \t]+(\w+)[ \t]*$", text, re.MULTILINE)
    return list(dict.fromkeys([*types, *re.findall(r"pmix_v\d+", text)]))
