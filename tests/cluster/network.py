"""The network: a switch on the controller, with a cable to this machine and one to each node.

All of it but this machine's end of one cable lies in the cluster's namespaces: no firewall rule of this machine is in
the nodes' way, and nothing outlives the controller.
"""

import json
import subprocess

from tests.cluster.config import Config
from tests.cluster.errors import ClusterError, call

BRIDGE = "switch"


def ip(*commands: str, pid: int | None = None) -> None:
    """Run a batch of iproute2's `ip` commands.

    Args:
        *commands: Each without the word `ip`.
        pid: A process in whose network they run; None is this machine's.
    """
    call(*_in_network(pid), "ip", "-batch", "-", stdin="\n".join(commands) + "\n")


def _in_network(pid: int | None) -> list[str]:
    return ["nsenter", f"--target={pid}", "--net", "--"] if pid else []


def check_free(config: Config) -> None:
    """Refuse a subnet that this machine uses already.

    Args:
        config: The cluster.

    Raises:
        ClusterError: An interface has an address in it, or the interface's name is taken.
    """
    for link in json.loads(call("ip", "-json", "address")):
        addresses = [address.get("local", "") for address in link.get("addr_info", ())]
        taken = [address for address in addresses if address.startswith(f"{config.subnet}.")]
        if taken or link["ifname"] == config.interface:
            what = f"interface {link['ifname']} {' '.join(addresses)} is in the way of {config.subnet}.0/24"
            raise ClusterError(f"{what} on {config.interface}\nHINT: choose another --name")


def connect_machine(config: Config, controller: int) -> None:
    """Make the switch and the cable between it and this machine.

    Args:
        config: The cluster.
        controller: The id of its controller's first process.
    """
    ip(
        f"link add {config.interface} type veth peer name machine netns {controller}",
        f"address add {config.address()}/24 dev {config.interface}",
        f"link set {config.interface} up",
    )
    ip(
        "link set lo up",
        f"link add {BRIDGE} type bridge",
        f"address add {config.address(config.controller)}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
        f"link set machine master {BRIDGE} up",
        pid=controller,
    )


def connect_node(config: Config, name: str, controller: int, node: int) -> None:
    """Make the cable between the switch and a node.

    Args:
        config: The cluster.
        name: The node's name, which becomes the name of the cable's end at the switch.
        controller: The id of the controller's first process.
        node: The id of the node's first process.
    """
    # The same hardware address after each boot, as a real node has: the others remember it for half a minute.
    mac = "02:00:" + ":".join(f"{int(byte):02x}" for byte in config.address(name).split("."))
    ip(
        f"link add {name} type veth peer name eth0 address {mac} netns {node}",
        f"link set {name} master {BRIDGE} up",
        pid=controller,
    )
    ip("link set lo up", f"address add {config.address(name)}/24 dev eth0", "link set eth0 up", pid=node)


def disconnect_machine(config: Config) -> None:
    """Remove this machine's end of the cable; the kernel would, but some time later."""
    _remove(config.interface)


def disconnect_node(name: str, controller: int) -> None:
    """Remove a node's cable, likewise."""
    _remove(name, controller)


def _remove(interface: str, pid: int | None = None) -> None:
    # Not there any more is as good.
    subprocess.run([*_in_network(pid), "ip", "link", "delete", interface], capture_output=True, check=False)


def limit(interface: str, pid: int, rate: str | None) -> None:
    """Set how fast one end of a cable sends.

    Args:
        interface: That end.
        pid: The id of a process in the network that it is in.
        rate: A rate of tc(8), e.g. `10mbit`; None lifts the limit.
    """
    tc = [*_in_network(pid), "tc", "qdisc"]
    where = ["dev", interface, "root"]
    if rate:
        call(*tc, "replace", *where, "tbf", "rate", rate, "burst", "256kb", "latency", "400ms")
    else:
        subprocess.run([*tc, "delete", *where], capture_output=True, check=False)
