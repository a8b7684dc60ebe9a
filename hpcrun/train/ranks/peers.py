"""Queries between ranks over TCP instead of MPI; a thread replies even while MPI or the script is blocked."""

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

REPLY_TIMEOUT_SECONDS = 2.0  # timeout; a reply takes milliseconds unless the process is stopped or holds the GIL
MAX_QUERY_SECONDS = REPLY_TIMEOUT_SECONDS + 1  # expected maximum of a query; host name lookups have no timeout
MAX_MESSAGE_BYTES = 2**20  # maximum size of a request, which may contain tracebacks
_MAC_BYTES = 32  # size of an HMAC-SHA-256 in bytes


class Peer(NamedTuple):
    """The address of the thread in which a rank answers requests of other ranks.

    Args:
        host: The host name.
        address: The host's outgoing IP address, for hosts that cannot resolve the name.
        port: The TCP port; 0 if no port could be opened.
        pid: The process ID.
        key: A random secret; the key of rank 0 signs all messages of the job.
    """

    host: str
    address: str
    port: int
    pid: int
    key: bytes


class Peers:
    """The threads in which all ranks answer requests of other ranks.

    Requests and replies are JSON, signed with the key of the job (HMAC, RFC 2104).

    Args:
        host: This host's name.
    """

    def __init__(self, host: str) -> None:
        self.rank = 0
        self.all_peers: Sequence[Peer] = ()
        self._server: socket.socket | None = None
        port = 0
        with suppress(OSError):  # without this connection, MPI still works
            self._server = socket.create_server(("", 0), backlog=1024)
            port = self._server.getsockname()[1]
        self.local_peer = Peer(host, _outgoing_address(), port, os.getpid(), secrets.token_bytes(32))

    def serve(self, rank: int, all_peers: Sequence[Peer], answer: Callable[[Json], Json]) -> None:
        """Start the thread that answers requests of other ranks.

        Args:
            rank: This rank.
            all_peers: The attribute `local_peer` of each rank, in rank order.
            answer: Function that returns the reply to a request.
        """
        self.rank, self.all_peers = rank, all_peers
        if self._server:
            # A forked child must not keep the port open after this process has exited.
            os.register_at_fork(after_in_child=self._server.close)
            threading.Thread(
                target=self._serve, args=(self._server, answer), name="hpcrun replies", daemon=True
            ).start()

    def close(self) -> None:
        """Stop answering, because this rank calls no more collectives."""
        if self._server:
            with suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)  # close() alone would not wake the thread in accept()
            self._server.close()

    def query(self, rank: int, request: Json) -> Json:
        """Send a request to one rank, and return the reply.

        Raises:
            OSError: The rank does not answer; ConnectionRefusedError if its port is closed.
        """
        reply = self.query_all([rank], request)[rank]
        if isinstance(reply, OSError):
            raise reply
        return reply

    def query_all(self, ranks: Iterable[int], request: Json) -> dict[int, Json | OSError]:
        """Send a request to several ranks in parallel, and return each reply or error."""
        # Start a thread for each rank, because host name lookups have no timeout.
        replies: dict[int, Json | OSError] = {rank: TimeoutError("no reply") for rank in ranks}
        results: dict[int, Json | OSError] = {}
        threads = [threading.Thread(target=self._query, args=(r, request, results), daemon=True) for r in replies]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + MAX_QUERY_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return replies | results

    def is_on_this_host(self, rank: int) -> bool:
        """Return whether a rank is on this host."""
        return self.all_peers[rank][:2] == self.local_peer[:2]

    def _query(self, rank: int, request: Json, results: dict[int, Json | OSError]) -> None:
        try:
            results[rank] = self._exchange(rank, request)
        except OSError as error:
            results[rank] = error

    def _exchange(self, rank: int, request: Json) -> Json:
        if not self.all_peers[rank].port:
            raise OSError("it could not open a port")
        key = self.all_peers[0].key
        signed_request = _sign(key, request)
        with self._connect(rank) as connection:
            connection.sendall(signed_request)
            connection.shutdown(socket.SHUT_WR)
            return _verify(key, _read(connection), signed_request[:_MAC_BYTES])

    def _connect(self, rank: int) -> socket.socket:
        peer = self.all_peers[rank]
        if self.is_on_this_host(rank):
            return socket.create_connection(("127.0.0.1", peer.port), REPLY_TIMEOUT_SECONDS)
        with suppress(socket.gaierror):  # this host cannot resolve the other host's name
            if peer.host != self.local_peer.host:  # several hosts may have the same name
                return socket.create_connection((peer.host, peer.port), REPLY_TIMEOUT_SECONDS)
        return socket.create_connection((peer.address, peer.port), REPLY_TIMEOUT_SECONDS)

    def _serve(self, server: socket.socket, answer: Callable[[Json], Json]) -> None:
        key = self.all_peers[0].key
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                if server.fileno() < 0 or not _is_listening(server):
                    return
                time.sleep(1)  # temporary error, such as too many open files
                continue
            with connection, suppress(OSError):
                connection.settimeout(REPLY_TIMEOUT_SECONDS)
                signed_request = _read(connection)
                connection.sendall(_sign(key, answer(_verify(key, signed_request)), signed_request[:_MAC_BYTES]))


def _sign(key: bytes, message: Json, signed_request: bytes = b"") -> bytes:
    body = json.dumps(message).encode()
    return hmac.digest(key, signed_request + body, "sha256") + body


def _verify(key: bytes, signed_body: bytes, signed_request: bytes = b"") -> Json:
    mac, body = signed_body[:_MAC_BYTES], signed_body[_MAC_BYTES:]
    if not hmac.compare_digest(mac, hmac.digest(key, signed_request + body, "sha256")):
        raise ConnectionError(
            "the reply is not from a rank of this job" if signed_request else "not a rank of this job"
        )
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
        probe.connect(("192.0.2.1", 9))  # selects the interface without sending (TEST-NET-1, RFC 5737)
        return str(probe.getsockname()[0])
    return "127.0.0.1"
