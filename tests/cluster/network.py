"""The network: a bridge on the controller, with a veth link to this machine and one to each node.

Only this machine's end of its link is outside the cluster's namespaces. So this machine's firewall does not affect the
nodes, and no interface outlives the controller.
"""

import json
import subprocess

from tests.cluster.config import Config
from tests.cluster.errors import ClusterError, call

BRIDGE = "switch"


def run_ip(*commands: str, pid: int | None = None) -> None:
    """Run a batch of iproute2's `ip` commands.

    Args:
        *commands: The commands, without the word `ip`.
        pid: A process in the network namespace to use; None means this machine's.
    """
    call(*_nsenter_network(pid), "ip", "-batch", "-", stdin="\n".join(commands) + "\n")


def _nsenter_network(pid: int | None) -> list[str]:
    return ["nsenter", f"--target={pid}", "--net", "--"] if pid else []


def check_free(config: Config) -> None:
    """Raise an error if this machine already uses the cluster's subnet.

    Args:
        config: The cluster.

    Raises:
        ClusterError: An interface has an address in the subnet, or the cluster's interface exists.
    """
    for link in json.loads(call("ip", "-json", "address")):
        addresses = [address.get("local", "") for address in link.get("addr_info", ())]
        used_addresses = [address for address in addresses if address.startswith(f"{config.subnet}.")]
        if used_addresses or link["ifname"] == config.interface:
            conflict = f"interface {link['ifname']} {' '.join(addresses)} conflicts with {config.subnet}.0/24"
            raise ClusterError(f"{conflict} on {config.interface}\nHINT: choose another --name")


def connect_machine(config: Config, controller: int) -> None:
    """Create the bridge and the link between it and this machine.

    Args:
        config: The cluster.
        controller: The id of the controller's first process.
    """
    run_ip(
        f"link add {config.interface} type veth peer name machine netns {controller}",
        f"address add {config.address()}/24 dev {config.interface}",
        f"link set {config.interface} up",
    )
    run_ip(
        "link set lo up",
        f"link add {BRIDGE} type bridge",
        f"address add {config.address(config.controller)}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
        f"link set machine master {BRIDGE} up",
        pid=controller,
    )


def connect_node(config: Config, name: str, controller: int, node: int) -> None:
    """Create the link between the bridge and a node.

    Args:
        config: The cluster.
        name: The node's name, also the name of the bridge's end of the link.
        controller: The id of the controller's first process.
        node: The id of the node's first process.
    """
    # Keep the hardware address over reboots, as real nodes do: other hosts cache it for half a minute.
    mac = "02:00:" + ":".join(f"{int(byte):02x}" for byte in config.address(name).split("."))
    run_ip(
        f"link add {name} type veth peer name eth0 address {mac} netns {node}",
        f"link set {name} master {BRIDGE} up",
        pid=controller,
    )
    run_ip("link set lo up", f"address add {config.address(name)}/24 dev eth0", "link set eth0 up", pid=node)


def disconnect_machine(config: Config) -> None:
    """Remove this machine's end of the link; the kernel would do it later."""
    _remove(config.interface)


def disconnect_node(name: str, controller: int) -> None:
    """Remove a node's link."""
    _remove(name, controller)


def _remove(interface: str, pid: int | None = None) -> None:
    # The interface may already be gone.
    subprocess.run([*_nsenter_network(pid), "ip", "link", "delete", interface], capture_output=True, check=False)


def limit_rate(interface: str, pid: int, rate: str | None) -> None:
    """Limit the send rate of one end of a link.

    Args:
        interface: The interface.
        pid: The id of a process in its network namespace.
        rate: A rate of tc(8), e.g. `10mbit`; None removes the limit.
    """
    tc = [*_nsenter_network(pid), "tc", "qdisc"]
    device = ["dev", interface, "root"]
    if rate:
        call(*tc, "replace", *device, "tbf", "rate", rate, "burst", "256kb", "latency", "400ms")
    else:
        subprocess.run([*tc, "delete", *device], capture_output=True, check=False)
