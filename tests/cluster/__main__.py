"""The command line: `python -m tests.cluster VERB`."""

import argparse
import os
import signal
import sys

from tests.cluster.cluster import Cluster
from tests.cluster.config import PROCTRACKS, Config
from tests.cluster.errors import ClusterError
from tests.cluster.hosts import Host
from tests.cluster.install import install

HARDER = {
    "min_job_age": "seconds after which slurmctld forgets an ended job; %(default)s by default",
    "prolog": "seconds that a Prolog takes on each node",
    "prolog_flags": "PrologFlags, e.g. Alloc: the Prolog before the job's start, not before its first step",
    "epilog": "seconds that an Epilog takes on each node",
    "banners": "let sbatch and srun print banners to stdout and stderr (evaluate what `env` prints)",
    "enforce_part_limits": "let sbatch refuse what no partition can run",
    "node_prefix": "what comes before a node's number, e.g. gpu-A01r; the cluster's name by default",
    "drained": "how many nodes are drained, from the last one",
    "reserved": "how many nodes before those are in the reservation `course`",
    "first_job_id": "the first job's id; %(default)s by default, so two clusters have equal ids",
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    default = Config()
    top = argparse.ArgumentParser(prog="python -m tests.cluster", description="A real Slurm of several hosts.")
    verbs = top.add_subparsers(dest="verb", required=True)

    def verb(name: str, help_text: str, *positional: str) -> argparse.ArgumentParser:
        command = verbs.add_parser(name, help=help_text, description=help_text)
        command.add_argument("--name", default=default.name, help="its nodes are NAME1, NAME2, ...; n by default")
        for argument in positional:
            command.add_argument(argument)
        return command

    up = verb("up", "start a cluster; jobs in its partition `low` are preempted by those in `high`")
    for name in "nodes", "gpus", "cpus":
        up.add_argument(f"--{name}", type=int, default=getattr(default, name), help="%(default)s by default")
    up.add_argument("--proctrack", choices=PROCTRACKS, default=default.proctrack, help="%(default)s by default")
    for name, help_text in HARDER.items():
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
        help="a directory under /tmp that nodes see too; may be repeated",
    )
    verb("down", "end a cluster and remove every trace of it")
    verb("env", "print what a shell has to evaluate to use a cluster")
    verb("status", "print what sinfo says of the nodes")
    verb("run", "run a command on a node, or on the controller NAME-ctl", "host").add_argument(
        "command", nargs=argparse.REMAINDER
    )
    verb("link", "cut, join or throttle a node's cable", "node").add_argument(
        "change", help="down, up, a rate such as 10mbit, or norate"
    )
    verb("crash", "end a node at once", "node")
    verb("boot", "start a crashed node", "node")
    verb("kill", "kill -9 a node's slurmd, or the controller's slurmctld", "host")
    verb("start", "start it again", "host")
    verbs.add_parser("install", help="install the packages that a cluster needs, where that may be")
    return top


def main() -> None:
    """Run one verb."""
    # So that `up` ends what it has started, as it does on Ctrl+C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = vars(parser().parse_args())
    verb = options.pop("verb")
    if verb == "install":
        install()
    elif verb == "up":
        Cluster(Config(**options | {"shared_paths": tuple(options["shared_paths"])})).up()
    elif verb == "down":
        Cluster(Config(options["name"])).down()
    else:
        act(verb, Cluster.attach(options.pop("name")), **options)


def act(verb: str, cluster: Cluster, **options: str | list[str]) -> None:
    """Run a verb of a cluster that is up.

    Args:
        verb: The verb.
        cluster: The cluster.
        **options: What the verb takes.
    """
    if verb == "env":
        print(f"export SLURM_CONF={cluster.config.slurm_conf}")
        if path := cluster.config.banner_path:
            print(f'export PATH="{path}$PATH"')
    elif verb == "status":
        print(cluster.status(), end="")
    elif verb == "run":
        argv = [*Host(cluster.config, str(options["host"])).entering(), *options["command"]]
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
