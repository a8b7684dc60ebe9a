"""The command line: `python -m tests.cluster COMMAND`."""

import argparse
import os
import signal
import sys

from tests.cluster.cluster import Cluster
from tests.cluster.config import PROCTRACKS, Config
from tests.cluster.errors import ClusterError
from tests.cluster.hosts import Host
from tests.cluster.install import install

OPTION_HELP = {
    "min_job_age": "seconds after which slurmctld forgets an ended job; %(default)s by default",
    "prolog": "run time of the Prolog on each node, in seconds",
    "prolog_flags": "PrologFlags, e.g. Alloc: run the Prolog before the job starts, not before its first step",
    "epilog": "run time of the Epilog on each node, in seconds",
    "banners": "make sbatch and srun print banners to stdout and stderr (evaluate the output of `env`)",
    "enforce_part_limits": "make sbatch reject jobs that no partition can run",
    "enforce_limits": "enforce accounts and the limits of QoS",
    "over_memory_kill": "kill steps that use more than their memory",
    "node_prefix": "prefix of the node names, e.g. gpu-A01r; the cluster's name by default",
    "drained": "number of drained nodes, counted from the last one",
    "reserved": "number of nodes before those in the reservation `course`",
    "first_job_id": "id of the first job; %(default)s by default, so the ids of two clusters overlap",
}


def create_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    default = Config()
    top = argparse.ArgumentParser(prog="python -m tests.cluster", description="A real Slurm of several hosts.")
    verbs = top.add_subparsers(dest="verb", required=True)

    def add_command(name: str, help_text: str, *positional: str) -> argparse.ArgumentParser:
        command = verbs.add_parser(name, help=help_text, description=help_text)
        command.add_argument("--name", default=default.name, help="the nodes are NAME1, NAME2, ...; n by default")
        for argument in positional:
            command.add_argument(argument)
        return command

    up = add_command("up", "start a cluster; jobs in its partition `high` preempt those in `low`")
    for name in "nodes", "gpus", "cpus":
        up.add_argument(f"--{name}", type=int, default=getattr(default, name), help="%(default)s by default")
    up.add_argument("--proctrack", choices=PROCTRACKS, default=default.proctrack, help="%(default)s by default")
    for name, help_text in OPTION_HELP.items():
        value = getattr(default, name)
        kind = {"action": "store_true"} if value is False else {"type": type(value), "default": value}
        up.add_argument(f"--{name.replace('_', '-')}", help=help_text, **kind)
    up.add_argument("--no-accounting", dest="accounting", action="store_false", help="without slurmdbd")
    up.add_argument(
        "--shared-path",
        dest="shared_paths",
        action="append",
        default=list(default.shared_paths),
        metavar="DIR",
        help="a directory under /tmp that the nodes share; may be repeated",
    )
    add_command("down", "stop a cluster and remove all its files")
    add_command("env", "print the shell commands that select a cluster")
    add_command("status", "print the output of sinfo")
    add_command("run", "run a command on a node, or on the controller NAME-ctl", "host").add_argument(
        "command", nargs=argparse.REMAINDER
    )
    add_command("link", "disconnect, connect or throttle the network of a node", "node").add_argument(
        "change", help="down, up, a rate such as 10mbit, or norate"
    )
    add_command("crash", "stop a node at once, as a power cut does", "node")
    add_command("boot", "start a crashed node", "node")
    add_command("kill", "kill -9 a node's slurmd, or the controller's slurmctld", "host")
    add_command("start", "restart a killed slurmd or slurmctld", "host")
    verbs.add_parser("install", help="install the packages that a cluster needs, with apt-get as root")
    return top


def main() -> None:
    """Run one command."""
    # SIGTERM makes `up` stop the daemons that it started, as Ctrl+C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = vars(create_parser().parse_args())
    verb = options.pop("verb")
    if verb == "install":
        install()
    elif verb == "up":
        Cluster(Config(**options | {"shared_paths": tuple(options["shared_paths"])})).up()
    elif verb == "down":
        Cluster(Config(options["name"])).down()
    else:
        run_on(Cluster.attach(options.pop("name")), verb, **options)


def run_on(cluster: Cluster, verb: str, **options: str | list[str]) -> None:
    """Run a command on a running cluster.

    Args:
        cluster: The cluster.
        verb: The command's name.
        **options: The command's arguments.
    """
    if verb == "env":
        print(f"export SLURM_CONF={cluster.config.slurm_conf}")
        if path := cluster.config.banner_path:
            print(f'export PATH="{path}$PATH"')
    elif verb == "status":
        print(cluster.status(), end="")
    elif verb == "run":
        argv = [*Host(cluster.config, str(options["host"])).nsenter_command(), *options["command"]]
        os.execvpe(argv[0], argv, cluster.config.environ())
    else:
        getattr(cluster, verb)(**options)


if __name__ == "__main__":
    try:
        main()
    except ClusterError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
