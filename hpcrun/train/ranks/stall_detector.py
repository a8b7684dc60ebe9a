"""Stall detection: if a rank does not reach a collective, an error names the rank and its script position.

Every rank records the collective in which it waits. A thread checks this record every few seconds and queries other
ranks, whose threads answer even while their scripts are blocked.
"""

from __future__ import annotations

import atexit
import threading
import time
from typing import TYPE_CHECKING

from hpcrun.run.job import read_number
from hpcrun.run.script_position import format_ranks, script_position
from hpcrun.run.waiting import current_wait
from hpcrun.train.ranks import failure
from hpcrun.train.ranks.peers import MAX_QUERY_SECONDS
from hpcrun.train.ranks.roles import last_activity, role_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpcrun.run.waiting import waiting
    from hpcrun.train.ranks.peers import Peer, Peers
    from hpcrun.train.types import Json

DEFAULT_SECONDS = 600.0  # default of HPCRUN_STALL_SECONDS, the timeout of a collective
TICK_SECONDS = 5.0  # interval of checks, at most 1/20 of the timeout
# Number of ticks after which a waiting rank queries the next rank; number of ticks that two ranks may wait in different
# collectives before the job ends with an error (a network may fail for some seconds).
CHECK_TICKS, MISMATCH_TICKS = 2, 12
HINT = (
    "HINT: every rank must make the same calls: fit, evaluate, predict or barrier() under `if is_chief():`, "
    "or another number of batches on one rank, leaves the others waiting"
)


class StallDetector:
    """The stall detector of one rank.

    Args:
        peers: Connections to the other ranks.
        limit: Timeout of a collective in seconds; 0: no timeout.
    """

    def __init__(self, peers: Peers, limit: float) -> None:
        self.peers = peers
        self.limit = limit
        self.tick = min(TICK_SECONDS, limit / 20) if limit else TICK_SECONDS
        self.ticks = 0  # number of ticks in the current collective
        self._last_wait: waiting | None = None
        self._refused_queries = 0
        self._has_next_rank_answered = False
        self._closing = threading.Event()

    def answer(self, request: Json) -> Json:
        """Answer a request of another rank with the first failure or this rank's status."""
        if "failed" in request:
            return failure.first_failure(request["failed"], request["line"], request["text"])
        return self.status()

    def status(self) -> Json:
        """Return the collective in which this rank waits (or None), the number of ticks, and what it does where."""
        wait = current_wait()
        waited_ticks = self.ticks if wait is self._last_wait else 0
        return {
            "what": wait and wait.description,
            "is_collective": wait is not None and not isinstance(wait.step, str),
            "waits": str(wait),
            "ticks": waited_ticks,
            "at": script_position(with_library_function=wait is None),
            "last": last_activity(),
        }

    def run(self) -> None:
        """Check for stalls every tick until `close`, and end the job if it stalls."""
        # A refused connection to another host counts only after an earlier reply, because a firewall may also refuse
        # connections.
        self._has_next_rank_answered = self.peers.is_on_this_host(self._next_rank) or not isinstance(
            self._query_next_rank(), OSError
        )
        while not self._closing.wait(self.tick):
            wait = current_wait()
            if wait is None or wait is not self._last_wait:
                self._last_wait, self.ticks, self._refused_queries = wait, 0, 0
                continue
            self.ticks += 1
            if self.limit and self.ticks * self.tick >= self.limit:
                self.abort(f"no progress for {self.limit:g} s", ". HPCRUN_STALL_SECONDS sets the limit (0: none)")
            elif self.ticks >= CHECK_TICKS:
                query_start = time.monotonic()
                self._check_next_rank()
                # A query without a reply takes seconds. Count at most the query's timeout, because this rank may have
                # been stopped.
                self.ticks += int(min(time.monotonic() - query_start, MAX_QUERY_SECONDS) / self.tick)

    def close(self) -> None:
        """Stop the checks and answers, because this rank's script has ended."""
        self._closing.set()
        self.peers.close()

    def abort(self, reason: str, hint: str = "") -> None:
        """Query the status of all ranks, print it, and end the job."""
        other_ranks = [r for r in range(len(self.peers.all_peers)) if r != self.peers.rank]
        replies = self.peers.query_all(other_ranks, "where") | {self.peers.rank: self.status()}
        text = "\n  ".join([f"error: {reason}", *self._format_replies(replies)])
        failure.report_and_abort(f"{text}\n{HINT}{hint}", f"error: {reason}", 1, arbiters=range(self.peers.rank + 1))

    @property
    def _next_rank(self) -> int:
        return (self.peers.rank + 1) % len(self.peers.all_peers)

    def _query_next_rank(self) -> Json | OSError:
        return self.peers.query_all([self._next_rank], "where")[self._next_rank]

    def _check_next_rank(self) -> None:
        reply, wait = self._query_next_rank(), self._last_wait
        if wait is None or current_wait() is not wait:
            return
        if isinstance(reply, OSError):
            self._refused_queries = (
                self._refused_queries + 1
                if self._has_next_rank_answered and isinstance(reply, ConnectionRefusedError)
                else 0
            )
            if self._refused_queries == 2:
                self.abort(f"rank {self._next_rank} has ended, and others wait for it")
            return
        self._has_next_rank_answered, self._refused_queries = True, 0
        mismatch = reply["what"] not in {
            None,
            wait.description,
        }  # the same collective in different steps is not a mismatch: a network failure may be the cause
        # Ranks may rightly wait for messages of single ranks, and others in a collective.
        are_collectives = reply["is_collective"] and not isinstance(wait.step, str)
        if mismatch and are_collectives and min(reply["ticks"], self.ticks) >= MISMATCH_TICKS:
            self.abort("the ranks wait in different collectives")

    def _format_replies(self, replies: dict[int, Json | OSError]) -> Iterable[str]:
        ranks_by_status: dict[str, list[int]] = {}
        for rank, reply in sorted(replies.items()):
            ranks_by_status.setdefault(_describe(reply), []).append(rank)
        for description, ranks in ranks_by_status.items():
            peer = self.peers.all_peers[ranks[0]]
            role = role_of(ranks[0])
            process = "" if len(ranks) > 1 else f" (host {peer.host}, pid {peer.pid}{role and f', {role}'})"
            yield f"{format_ranks(ranks)}{process}: {description}"


def _describe(reply: Json | OSError) -> str:
    if isinstance(reply, ConnectionRefusedError):
        return "has ended"
    if isinstance(reply, TimeoutError):
        return "does not answer: its process is stopped or busy outside of Python, or its host is out of reach"
    if isinstance(reply, OSError):
        return f"cannot be asked: {reply}"
    if reply["what"] is None:
        return f"did not arrive, is at {reply['at']}" + (reply["last"] and f"; it last began {reply['last']}")
    return f"waiting in {reply['waits']}, at {reply['at']}"


def start_detector(peers: Peers, rank: int, all_peers: Sequence[Peer], limit: float) -> None:
    """Start the threads that answer other ranks and detect stalls until this process ends.

    Args:
        peers: Connections of this rank.
        rank: This rank.
        all_peers: The `Peers.local_peer` of each rank, in rank order.
        limit: Timeout of a collective in seconds; 0: no timeout.
    """
    detector = StallDetector(peers, limit)
    peers.serve(rank, all_peers, detector.answer)
    failure.connect_peers(peers)
    atexit.register(detector.close)
    threading.Thread(target=detector.run, name="hpcrun stall detector", daemon=True).start()


def read_stall_seconds() -> float:
    """Read the timeout of collectives in seconds from HPCRUN_STALL_SECONDS.

    Raises:
        HpcrunError: The value is not a number of seconds.
    """
    return read_number("HPCRUN_STALL_SECONDS", DEFAULT_SECONDS, "seconds", "600, or 0 for no limit")
