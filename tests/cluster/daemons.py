"""The daemons of the controller, in start order."""

from tests.cluster.errors import call, wait_for
from tests.cluster.hosts import Host


def start_munge(controller: Host) -> None:
    """Start munged with one key and one socket that all hosts of the cluster share."""
    run, log = controller.config.run, controller.config.log
    controller.call(
        "munged",
        f"--key-file={controller.config.state}/etc/munge.key",
        f"--socket={run}/munge.sock",
        f"--pid-file={run}/munged.pid",
        f"--seed-file={run}/munged.seed",
        f"--log-file={log}/munged.log",
    )


def start_mariadb(controller: Host) -> None:
    """Start MariaDB for slurmdbd, without a network port."""
    state, run, log = controller.config.state, controller.config.run, controller.config.log / "mariadb.log"
    # not /tmp, which clusters share: processes with the same pid would share temporary tables
    options = ("--no-defaults", "--user=root", f"--datadir={state}/db", f"--tmpdir={run}")
    install = ("--skip-test-db", "--auth-root-authentication-method=normal")
    controller.call("mariadb-install-db", *options, *install)
    run_options = ("--skip-networking", f"--socket={run}/mariadb.sock", f"--pid-file={run}/mariadb.pid")
    innodb = ("--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900")
    controller.call("setsid", "--fork", "mariadbd", *options, *run_options, *innodb, f"--log-error={log}")
    ping = ("mariadb-admin", "--no-defaults", "--user=root", f"--socket={run}/mariadb.sock", "ping")
    wait_for("mariadbd", lambda: call(*ping), 30, log)


def start_slurmdbd(controller: Host) -> None:
    """Start slurmdbd, which creates its tables."""
    config = controller.config
    controller.call("slurmdbd", env={"MYSQL_UNIX_PORT": f"{config.run}/mariadb.sock"})
    log = config.log / "slurmdbd.log"
    wait_for("slurmdbd", lambda: call("sacctmgr", "-n", "list", "cluster", env=config.environ()), 30, log)


def start_slurmctld(controller: Host) -> None:
    """Start slurmctld."""
    config = controller.config
    controller.call("slurmctld")
    log = config.log / "slurmctld.log"
    wait_for("slurmctld", lambda: "UP" in call("scontrol", "ping", env=config.environ()), 20, log)
