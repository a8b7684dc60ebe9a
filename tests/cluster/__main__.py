"""The command line: `python -m tests.cluster VERB`."""

import argparse
import os
import signal
import sys

from tests.cluster.cluster import Cluster
from tests.cluster.config import Config
from tests.cluster.errors import ClusterError
from tests.cluster.hosts import Host
from tests.cluster.install import install


def parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    default = Config()
    top = argparse.ArgumentParser(prog="python -m tests.cluster", description="A real Slurm of several hosts.")
    verbs = top.add_subparsers(dest="verb", required=True)

    def verb(name: str, help_text: str, *positional: str) -> argparse.ArgumentParser:
        command = verbs.add_parser(name, help=help_text, description=help_text)
        command.add_argument("--name", default=default.name, help="the cluster: its nodes are NAME1, NAME2, ...")
        for argument in positional:
            command.add_argument(argument)
        return command

    up = verb("up", "start a cluster")
    for name in "nodes", "gpus", "cpus":
        up.add_argument(f"--{name}", type=int, default=getattr(default, name), help="%(default)s by default")
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
