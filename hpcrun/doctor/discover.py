"""Discovery of a first site file for a cluster: TOML with the source of each value in a comment."""

from __future__ import annotations

import os
import time
import tomllib
from typing import TYPE_CHECKING, Any

from hpcrun import paths
from hpcrun.doctor import discover_commands, discover_mpi, discover_partitions, discover_paths, discover_slurm
from hpcrun.doctor.installed_software import loaded_modules
from hpcrun.errors import HpcrunError, pluralize
from hpcrun.schedulers.command import TIMEOUT_SECONDS, run
from hpcrun.schedulers.environment import require_slurm_conf
from hpcrun.schedulers.slurm_client import SlurmClient
from hpcrun.schedulers.slurm_partitions import parse_partitions
from hpcrun.sites import toml
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable


def discover_slurm_site(name: str, report_line: Callable[[str], None]) -> str:
    """Create a site file for the Slurm cluster of this host.

    Args:
        name: The site's name.
        report_line: Function that prints a line about progress or a failed command.

    Raises:
        HpcrunError: Slurm is not installed, or does not respond.
    """
    require_slurm_conf(None)
    report_line(f"querying sinfo, scontrol, srun, sacctmgr and MPI: at most {TIMEOUT_SECONDS:.0f} s")
    results = discover_commands.run_commands(
        {**discover_commands.SLURM_COMMANDS, **discover_commands.MPI_COMMANDS, **discover_commands.account_commands()},
        SlurmClient().query,
    )
    partitions_result = results["partitions"]
    if not partitions_result.text:
        command = " ".join(discover_commands.SLURM_COMMANDS["partitions"])
        fault = f"{command}: {partitions_result.failure or 'no partitions listed'}"
        if "is not installed" in partitions_result.failure:
            hint = "run it on a login node, or hpcrun site init NAME --scheduler local for this machine alone"
            raise HpcrunError(f"this host has no Slurm ({partitions_result.failure})", hint=hint)
        hint = "scontrol ping shows whether Slurm is up; then run the command again"
        raise HpcrunError(f"Slurm does not list its partitions: {fault}", hint=hint, exit_code=1)
    for query_name in ("config", "nodes", "mpi types", "accounts"):
        if fault := results[query_name].failure:
            report_line(f"{query_name}: {fault}; the file omits what depends on it")
    slurm_config = discover_slurm.parse_config(results["config"].text)
    all_partitions = parse_partitions(partitions_result.text, results["nodes"].text)
    partitions = [partition for partition in all_partitions if partition.properties.get("RootOnly") != "YES"]
    select_plugin = slurm_config.get("SelectType", "select/cons_tres")
    cluster_name = slurm_config.get("ClusterName", name)
    slurm_version = slurm_config.get("SLURM_VERSION", "unknown version")
    title = f"{cluster_name}: {pluralize(len(partitions), 'partition')}, Slurm {slurm_version}"
    return _render_site_file(
        name,
        title=title,
        scheduler="slurm",
        mpi=discover_mpi.choose_mpi(results, os.environ),
        slurm_conf=discover_paths.discover_slurm_conf(os.environ),
        hosts=discover_paths.discover_hosts(
            os.uname().nodename, [group.names for partition in all_partitions for group in partition.nodes]
        ),
        local_scratch=discover_paths.discover_local_scratch(slurm_config.get("TmpFS", "")),
        gpu_request=None
        if select_plugin == "select/cons_tres"
        else discover_partitions.DiscoveredValue("gres", f"SelectType={select_plugin}"),
        partitions=discover_partitions.partition_tables(partitions),
        cuda=discover_mpi.find_cuda_root(os.environ) if any(partition.gpus for partition in partitions) else None,
        accounts=discover_slurm.parse_accounts(results["accounts"].text, slurm_config),
        default_partition=next((partition.name for partition in partitions if partition.default), None),
        account_required=discover_slurm.enforces_accounts(slurm_config)
        and not results["default account"].failure
        and not results["default account"].text.strip(),
    )


def discover_local_site(name: str, report_line: Callable[[str], None]) -> str:
    """Create a site file for this machine, which has no scheduler.

    Args:
        name: The site's name.
        report_line: Function that prints a line about progress.
    """
    report_line(f"querying MPI: at most {TIMEOUT_SECONDS:.0f} s")
    results = discover_commands.run_commands(discover_commands.MPI_COMMANDS, run)
    return _render_site_file(
        name,
        title=f"{os.uname().nodename}, without a scheduler",
        scheduler="local",
        mpi=discover_mpi.choose_mpi(results, os.environ, slurm=False),
        hosts=[os.uname().nodename],
        run_root=discover_partitions.DiscoveredValue(
            discover_paths.discover_run_root(os.environ).value, "a folder of this machine"
        ),
    )


def _render_site_file(name: str, **values: Any) -> str:
    import jinja2

    from hpcrun.sites.schema import SCHEMA_FILE
    from hpcrun.sites.validate import validate

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hpcrun.doctor", "."),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - TOML
    )
    environment.filters |= {
        "toml": toml.literal,
        "comment": _printable_line,
        "partition": lambda one: toml.format_key("partitions", one),
    }
    optional_names = ["slurm_conf", "local_scratch", "gpu_request", "partitions"]
    empty_values: dict[str, Any] = dict.fromkeys(
        [*optional_names, "default_partition", "account_required", "accounts"], ()
    )
    text = _align_comments(
        environment.get_template("site.toml.j2").render(
            empty_values
            | {
                "schema": (paths.shipped_folder("site-configs") / SCHEMA_FILE).as_uri(),
                "name": name,
                "host": os.uname().nodename,
                "date": time.strftime("%Y-%m-%d"),
                "version": __version__,
                "detect": discover_paths.discover_cluster_variable(os.environ),
                "run_root": discover_paths.discover_run_root(os.environ),
                "modules": loaded_modules(os.environ),
                "module_system": discover_mpi.identify_module_system(os.environ),
                "cuda": None,
                "tab": "\t",
            }
            | values
        )
    )
    try:
        validate({**tomllib.loads(text), "name": name}, {})
    except (HpcrunError, tomllib.TOMLDecodeError) as error:
        hint = "write the file by hand: docs/sites.md; and please report Slurm's output"
        raise HpcrunError(f"the discovered values are not a valid site file: {error}", hint=hint, exit_code=1) from None
    return text


def _align_comments(text: str) -> str:
    """Align the comments of each table in one column; in the argument, a tab separates value and comment."""
    tables = []
    for table in text.split("\n\n"):
        value_and_comment = [line.partition("\t") for line in table.split("\n")]
        width = max([len(value) for value, tab, _ in value_and_comment if tab and len(value) <= toml.WIDTH], default=0)
        tables.append(
            "\n".join(f"{value:{width}}  {comment}" if tab else value for value, tab, comment in value_and_comment)
        )
    return "\n\n".join(tables)


def _printable_line(text: str) -> str:
    return "".join(character for character in " ".join(text.split()) if character.isprintable())
