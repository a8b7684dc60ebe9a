"""bash, started as launchers and schedulers start it."""

import os
import subprocess
from contextlib import contextmanager

BASH = os.environ.get("HPCRUN_TEST_BASH", "bash")  # an older one: CentOS 7 has 4.2, RHEL 8 has 4.4


@contextmanager
def bash(*argv, environ, without, **streams):
    """Start bash in a process group of its own; kill it at the end.

    Args:
        argv: A script and its arguments.
        environ: Variables that it gets.
        without: Prefixes of variables of this process that it does not inherit.
        streams: Streams as `subprocess.Popen` takes them.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    with subprocess.Popen(
        ["env", "--default-signal", BASH, *map(str, argv)],  # the tests may run by nohup
        env=inherited | {name: str(value) for name, value in environ.items()},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **streams,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
