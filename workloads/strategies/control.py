"""Shutdown of training with parameter servers, because TensorFlow's servers run until they are stopped.

All other ranks connect to the chief, which sends `done` at the end. If the connection breaks earlier, the chief has
failed, and the launcher ends all ranks.
"""

from __future__ import annotations

import json
import signal
import socket
import time
from contextlib import suppress
from typing import Any

CONNECT_SECONDS = 600.0  # the import of TensorFlow may be slow on the chief's node
GRACE_SECONDS = 20.0  # time for the launcher to end the ranks after the chief has failed


class Chief:
    """The chief's connections to all other ranks.

    Args:
        port: The port on which the chief listens.
        ranks: The number of ranks.
    """

    def __init__(self, port: int, ranks: int) -> None:
        self._server = socket.create_server(("", port))
        self._server.settimeout(CONNECT_SECONDS)
        self._connections: list[Any] = []
        self._ranks = ranks

    def await_ranks(self) -> None:
        """Wait until all ranks have connected."""
        while len(self._connections) < self._ranks - 1:
            connection, _ = self._server.accept()
            self._connections.append(connection.makefile("rw", encoding="utf-8"))

    def end_ranks(self) -> None:
        """Tell all other ranks that the training is over."""
        for connection in self._connections:
            print("done", file=connection, flush=True)

    def finish(self) -> dict[str, float]:
        """End all other ranks, and wait for the evaluator.

        Returns:
            The evaluator's last metrics; empty without an evaluator.
        """
        self.end_ranks()
        metrics: dict[str, float] = {}
        for connection in self._connections:
            with suppress(OSError, ValueError):
                metrics |= json.loads(connection.readline() or "{}")
        return metrics


class Member:
    """A rank's connection to the chief; the rank ignores stop signals, which the chief handles.

    Args:
        address: The chief's host and port.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                self._socket = socket.create_connection(address, timeout=10)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        self._lines = self._socket.makefile("rw", encoding="utf-8")

    def is_done(self, seconds: float | None) -> bool:
        """Wait until the chief reports that the training is over.

        Args:
            seconds: Timeout in seconds; None: no timeout.

        Raises:
            ConnectionError: The chief has ended without reporting the end of the training.
        """
        self._socket.settimeout(seconds)
        try:
            message = self._socket.recv(4, socket.MSG_PEEK)
        except TimeoutError:
            return False
        if not message:
            time.sleep(GRACE_SECONDS)
            raise ConnectionError("the chief (rank 0) exited before the training finished")
        return True

    def leave(self, **metrics: float) -> None:
        """Tell the chief that this rank has ended its work.

        Args:
            **metrics: The evaluator's last metrics.
        """
        with suppress(OSError):
            print(json.dumps(metrics), file=self._lines, flush=True)
