"""Questions from rank to rank beside MPI: a thread answers them also while MPI, or the rank's script, is stuck."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hpcrun.train.types import Json

ANSWER_SECONDS = 2.0  # for an answer: they come within milliseconds, unless a process is stopped or holds Python's lock
MAX_QUERY_SECONDS = ANSWER_SECONDS + 1  # for all answers: looking up a host's name has no limit of its own
MAX_MESSAGE_BYTES = 2**20  # bytes of a question: tracebacks travel in them
_MAC = 32  # bytes of an HMAC-SHA-256


class Peer(NamedTuple):
    """Where one rank answers.

    Args:
        host: Its host's name.
        address: Its host's IP address on the way out, for hosts that do not know the name.
        port: The TCP port; 0 where it could not listen.
        pid: Its process.
        key: A secret of its own; rank 0's is the job's.
    """

    host: str
    address: str
    port: int
    pid: int
    key: bytes


class Peers:
    """All ranks' answering threads, as one rank reaches them.

    A question and its answer are JSON, signed with a key that only the job's ranks have (HMAC, RFC 2104).

    Args:
        host: This host's name.
    """

    def __init__(self, host: str) -> None:
        self.rank = 0
        self.all: Sequence[Peer] = ()
        self._server: socket.socket | None = None
        port = 0
        with suppress(OSError):  # without a network there is nobody to ask, and MPI goes on all the same
            self._server = socket.create_server(("", 0), backlog=1024)
            port = self._server.getsockname()[1]
        self.own = Peer(host, _outgoing_address(), port, os.getpid(), secrets.token_bytes(32))

    def serve(self, rank: int, all_peers: Sequence[Peer], answer: Callable[[Json], Json]) -> None:
        """Answer from now on, in a thread of its own, and know whom to ask.

        Args:
            rank: This rank.
            all_peers: All ranks' `own`, in rank order.
            answer: Turns a question into its answer.
        """
        self.rank, self.all = rank, all_peers
        if self._server:
            # A forked child must not keep the port open when this process has gone.
            os.register_at_fork(after_in_child=self._server.close)
            threading.Thread(
                target=self._serve, args=(self._server, answer), name="hpcrun answers", daemon=True
            ).start()

    def close(self) -> None:
        """Refuse all questions from now on: this rank comes to no collective any more."""
        if self._server:
            with suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)  # close alone would not wake the thread in accept()
            self._server.close()

    def query(self, rank: int, question: Json) -> Json:
        """Return one rank's answer.

        Raises:
            OSError: It gives none; ConnectionRefusedError where nothing listens there any more.
        """
        answer = self.query_all([rank], question)[rank]
        if isinstance(answer, OSError):
            raise answer
        return answer

    def query_all(self, ranks: Iterable[int], question: Json) -> dict[int, Json | OSError]:
        """Ask several ranks at once, and return each one's answer, or why there is none."""
        # A thread each, because looking up a host's name has no time limit of its own.
        answers: dict[int, Json | OSError] = {rank: TimeoutError("no answer") for rank in ranks}
        results: dict[int, Json | OSError] = {}
        threads = [threading.Thread(target=self._query, args=(r, question, results), daemon=True) for r in answers]
        for thread in threads:
            thread.start()
        end = time.monotonic() + MAX_QUERY_SECONDS
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        return answers | results

    def is_on_this_host(self, rank: int) -> bool:
        """Return whether a rank is on this host."""
        return self.all[rank][:2] == self.own[:2]

    def _query(self, rank: int, question: Json, results: dict[int, Json | OSError]) -> None:
        try:
            results[rank] = self._exchange(rank, question)
        except OSError as error:
            results[rank] = error

    def _exchange(self, rank: int, question: Json) -> Json:
        if not self.all[rank].port:
            raise OSError("it could not open a port")
        key = self.all[0].key
        asked = _sign(key, question)
        with self._connect(rank) as connection:
            connection.sendall(asked)
            connection.shutdown(socket.SHUT_WR)
            return _verify(key, _read(connection), asked[:_MAC])

    def _connect(self, rank: int) -> socket.socket:
        peer = self.all[rank]
        if self.is_on_this_host(rank):
            return socket.create_connection(("127.0.0.1", peer.port), ANSWER_SECONDS)
        with suppress(socket.gaierror):  # a name that only its own host knows
            if peer.host != self.own.host:  # or that several hosts have
                return socket.create_connection((peer.host, peer.port), ANSWER_SECONDS)
        return socket.create_connection((peer.address, peer.port), ANSWER_SECONDS)

    def _serve(self, server: socket.socket, answer: Callable[[Json], Json]) -> None:
        key = self.all[0].key
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                if server.fileno() < 0 or not _is_listening(server):
                    return
                time.sleep(1)  # too many open files: that may pass
                continue
            with connection, suppress(OSError):
                connection.settimeout(ANSWER_SECONDS)
                asked = _read(connection)
                connection.sendall(_sign(key, answer(_verify(key, asked)), asked[:_MAC]))


def _sign(key: bytes, message: Json, asked: bytes = b"") -> bytes:
    body = json.dumps(message).encode()
    return hmac.digest(key, asked + body, "sha256") + body


def _verify(key: bytes, sealed: bytes, asked: bytes = b"") -> Json:
    mac, body = sealed[:_MAC], sealed[_MAC:]
    if not hmac.compare_digest(mac, hmac.digest(key, asked + body, "sha256")):
        raise ConnectionError("the answer is not from a rank of this job" if asked else "not a rank of this job")
    return json.loads(body)


def _read(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        return stream.read(MAX_MESSAGE_BYTES)


def _is_listening(server: socket.socket) -> bool:
    with suppress(OSError):
        return bool(server.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    return False


def _outgoing_address() -> str:
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: it only picks the interface (TEST-NET-1, RFC 5737)
        return str(probe.getsockname()[0])
    return "127.0.0.1"
