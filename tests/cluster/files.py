"""The files of one cluster: its state directory, and its entries in /etc/hosts and the configuration of ssh."""

import dataclasses
import fcntl
import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from string import Template

from tests.cluster.config import SETTINGS, Config
from tests.cluster.errors import ClusterError, call

ETC = Path(__file__).parent / "etc"
HOSTS = Path("/etc/hosts")
# Both Debian's and Ubuntu's ssh_config include this folder.
SSH_CONFIG = "/etc/ssh/ssh_config.d/hpcrun-cluster-{}.conf"


def render_templates(config: Config) -> dict[str, str]:
    """Fill in the templates of `etc/`.

    Args:
        config: The cluster.

    Returns:
        The text of each file, by file name.
    """
    nodes = f"{config.node_prefix or config.name}[1-{config.nodes}]"
    controller = config.address(config.controller)
    accounting = f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={controller}
AccountingStoragePass={config.run}/munge.sock
AccountingStorageTRES=gres/gpu"""
    gpus = f"NodeName={nodes} Name=gpu Type=h100 File={config.state}/dev/gpu[0-{config.gpus - 1}]"
    values = {
        "name": config.name,
        "state": config.state,
        "controller": config.controller,
        "controller_address": controller,
        "nodes": nodes,
        "node_names": " ".join(config.nodelist),
        "node_addresses": f"{config.subnet}.[11-{10 + config.nodes}]",
        "cpus": config.cpus,
        "real_memory": config.real_memory,
        "gpus": gpus if config.gpus else "",
        "gres": f"Gres=gpu:h100:{config.gpus}" if config.gpus else "",
        "accounting": accounting if config.accounting else "AccountingStorageType=accounting_storage/none",
        "optional_settings": "\n".join(_optional_settings(config)),
        "proctrack": config.proctrack,
        "min_job_age": config.min_job_age,
        "first_job_id": config.first_job_id,
        "path": config.path,
        # A short lifetime makes requeues quick, but a credential must stay valid until all nodes have launched.
        "cred_expire": (5 if config.nodes <= 32 else 120) + config.prolog,
    }
    return {template.name: Template(template.read_text()).substitute(values) for template in ETC.iterdir()}


def _optional_settings(config: Config) -> Iterator[str]:
    if config.prolog:
        # slurmctld and srun give up on jobs and steps that take longer to start.
        yield f"Prolog={config.state}/etc/prolog\nBatchStartTimeout={config.prolog + 10}"
    if config.prolog_flags:
        yield f"PrologFlags={config.prolog_flags}"
    if config.epilog:
        yield f"Epilog={config.state}/etc/epilog"
    if config.enforce_part_limits:
        yield "EnforcePartLimits=ALL"
    if config.over_memory_kill:
        yield "JobAcctGatherParams=OverMemoryKill"
    if config.enforce_limits:
        yield "AccountingStorageEnforce=associations,limits,qos"


def _write_scripts(config: Config) -> None:
    for name, seconds in ("prolog", config.prolog), ("epilog", config.epilog):
        log = f'echo "$SLURM_JOB_ID $(uname -n)" >>{config.log}/{name}.log'
        _write_script(config.state / "etc" / name, f"sleep {seconds}\n{log}")
    for name in ("sbatch", "srun") if config.banners else ():
        banner = f"echo '##### Welcome to {config.name}! Jobs so far: 4711 #####'"
        warning = f"echo '{name}: 8 of 10 TB are in use: {{\"quota\": 10}}' >&2"
        _write_script(config.state / "bin" / name, f'{banner}\n{warning}\nexec {shutil.which(name)} "$@"')


def _write_script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def hosts_block(config: Config) -> str:
    """Return the cluster's lines of /etc/hosts, between comments that mark their begin and end."""
    lines = [f"{config.address(host)} {host}" for host in (config.controller, *config.nodelist)]
    mark = f"# hpcrun-cluster {config.name}"
    return "\n".join(["", f"{mark} begin", *lines, f"{mark} end", ""])


def write_state(config: Config) -> None:
    """Create the state directory with all files that the daemons read.

    Args:
        config: The cluster.

    Raises:
        ClusterError: Another user owns the parent directory.
    """
    config.state.parent.mkdir(parents=True, exist_ok=True)
    if config.state.parent.stat().st_uid != os.getuid():
        raise ClusterError(
            f"{config.state.parent} belongs to another user\nHINT: set HPCRUN_CLUSTER_ROOT to a directory of yours"
        )
    # Write the settings first, because `remove` refuses a directory without them.
    config.state.mkdir(exist_ok=True)
    (config.state / SETTINGS).write_text(json.dumps(dataclasses.asdict(config), indent=2) + "\n")
    for directory in "bin", "dev", "etc", "log", "mnt", "run", "shared", "spool", "ssh", "statesave":
        (config.state / directory).mkdir()
    # Link to a device, because Slurm leaves CUDA_VISIBLE_DEVICES empty for a regular file.
    for i in range(config.gpus):
        (config.state / f"dev/gpu{i}").symlink_to("/dev/null")
    ssh = config.state / "ssh"
    for name in "id", "host":
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "hpcrun-cluster", "-f", ssh / name)
    shutil.copy(ssh / "id.pub", ssh / "authorized_keys")
    machine = f"127.0.0.1 localhost\n{config.address()} {socket.gethostname()}\n"
    etc = config.state / "etc"
    for secret in "munge.key", "slurmdbd.conf":
        (etc / secret).touch(mode=0o600)
    texts = render_templates(config) | {"hosts": machine + hosts_block(config)}
    for name, text in texts.items():
        (etc / name).write_text(text)
    (etc / "munge.key").write_bytes(os.urandom(1024))
    _write_scripts(config)


def remove_state(config: Config) -> None:
    """Remove the state directory; refuse a directory that is not a cluster's.

    Args:
        config: The cluster.

    Raises:
        ClusterError: The directory is not a cluster's.
    """
    if not config.state.exists():
        return
    is_foreign = not (config.state / SETTINGS).exists() and any(config.state.iterdir())
    if is_foreign or config.state.stat().st_uid != os.getuid():
        raise ClusterError(
            f"{config.state} is not the state directory of a cluster\nHINT: set HPCRUN_CLUSTER_ROOT to another one"
        )
    shutil.rmtree(config.state)
    if not any(config.state.parent.iterdir()):
        config.state.parent.rmdir()


def add_host_entries(config: Config) -> None:
    """Add the nodes to this machine's /etc/hosts, and their key to its configuration of ssh."""
    _edit_hosts(config, hosts_block(config))
    Path(SSH_CONFIG.format(config.name)).write_text((config.state / "etc/ssh_config").read_text())


def remove_host_entries(config: Config) -> None:
    """Undo `add_host_entries`, also for a cluster with another number of nodes."""
    _edit_hosts(config, "")
    Path(SSH_CONFIG.format(config.name)).unlink(missing_ok=True)


def _edit_hosts(config: Config, block: str) -> None:
    begin, end = (f"\n# hpcrun-cluster {config.name} {edge}\n" for edge in ("begin", "end"))
    # Edit in place, because in a container this file is a mount; lock it, because two clusters may start at once.
    with HOSTS.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        old = file.read()
        before, found, rest = old.partition(begin)
        new = (before + rest.partition(end)[2] if found else old) + block
        if new != old:
            file.seek(0)
            file.write(new)
            file.truncate()
