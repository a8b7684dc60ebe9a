"""An exception that ended a Python program, and whether it is the program's own error."""

from __future__ import annotations

import re

from hpcrun.frozen import frozen

_WRAPPER_EXCEPTION = re.compile(
    r"\b(?:ChildFailedError|CalledProcessError|SystemExit|RayTaskError\S*|ProcessRaisedException|ProcessExitedException"
    r"|KeyboardInterrupt|ApplicationError|JobException|CancelledError|CheckpointException|TerminatedWorkerError|BrokenProcessPool|BrokenExecutor|SignalException|SIGTERMException)$"
)
_STANDARD_LIBRARY = re.compile(r"/lib(?:64)?/python[\d.]+/")
_MISSING_FILE = re.compile(
    r"^(?!.*shared object file)(?:\S+\.)?(?:FileNotFoundError|NotFoundError): .*No such file or directory(?!: '/)"
)
"""Matches the message about a file that an earlier program may not have written, below the working directory."""
_POINTER_ABOVE = re.compile(
    r"(?i)\b(?:check|see|look at|refer to) (?:the )?(?:print statements|errors?|exceptions?|tracebacks?|messages?|logs?"
    r"|output|stack ?traces?)(?: messages?| output)? above\b|\babove for (?:the actual|details|more)"
)
_CUT_PICKLE = re.compile(r"_pickle\.UnpicklingError: pickle data was truncated|EOFError")
"""Matches the exception of a new process whose parent failed before it had sent all data."""
_EXIT_MESSAGE = re.compile(r"^SystemExit: .*[A-Za-z]{3}")
_EXIT_WITH_NUMBER = re.compile(r"\b(?:exit|_exit|SystemExit)\(\d+\)")
"""Matches a line of code in which a program ends itself, rather than with the exit code of another process."""
_PARENT_PROCESS_MESSAGE = re.compile(
    r"(?:Horovod|job) detected that one or more processes exited"
    r"|Engine (?:core initialization failed|process failed to start)"
    r"|(?:Cluster|Nanny|Worker) failed to start|Exception in \w+ thread|See (?:the )?root cause above"
    r"|Data[Ll]oader worker \(pid\S* [\d, ]+\) (?:exited|is killed)|-- Process \d+ terminated with the following error"
)
_LOST_PEER = re.compile(
    r"DistBackendError|NCCL (?:error|communicator)|Connection closed by peer|HorovodInternalError"
    r"|NCCL: (?:unhandled|internal|remote)"
    r"|Horovod has been shut down|Connection reset by peer|Broken pipe|Gloo .*(?:timed out|reset)"
    r"|Collective ops is aborted by|WorkerLostError|recvValue failed|Socket closed|Barrier timed out"
    r"|ncclRemoteError|ncclInternalError"
    r"|Connection(?:Reset|Aborted)Error|BrokenPipeError|remote process exited or there was a network error"
    r"|DistNetworkError: .*(?:recv|reset|Broken)|failed to recv, got 0 bytes|collective operation timeout|peer hung up"
    r"|^EOFError$|DEADLINE_EXCEEDED: (?:Deadline Exceeded|Barrier|GetKeyValue)|UNAVAILABLE: failed to connect to all"
    r"|MPI_ERR_PROC_FAILED|MPI_ERR_REVOKED"
    r"|different incarnation|Rendezvous(?:Closed|GracefulExit)Error|store->\w+\S* got error"
    r"|DistStoreError: (?:Socket Timeout|wait timeout)|Collective ops is aborted by: (?:Timed out|Check the health)"
)


@frozen
class PythonError:
    """An exception that ended a program.

    Attributes:
        log: The name of the log that contains the exception.
        error: The type and message of the exception.
        file: The user's file that raised the exception.
        number: The line number in this file.
        first: The index of the first log line of the traceback, including the traceback of the exception's cause.
        aftermath: The index of the first line of an exception of a later program that is a consequence; None without.
        program: The script whose module is the first frame; empty if unknown.
        raised_code: The line of code in that file that raised the exception, as quoted by the traceback.
        handled: The index of a log line; tracebacks before this line belong to exceptions that the program caught.
        last: The index of the log line with the message.
        end: The index of the last log line of the message's paragraph.
        cause: The exception that caused this exception; empty if there is none.
        in_handler: Whether a library raised it while it handled an earlier exception, as in a teardown.
        cause_place: The user's line of code that raised the cause, if this exception was only raised after it.
        hint: The advice in the message; empty if there is none.
        code: The user's line of code that raised the exception, as quoted by the traceback.
        operation: The operation of a TensorFlow graph that failed, and the kind of graph; empty if unknown.
        ignored: Whether Python only reported the exception at exit or in a finalizer, and continued.
        in_thread: Whether the exception ended only a thread of the program.
        late: Whether Slurm was already ending the job step or the job.
        raised_in: The file that raised the exception, normally of a library.
    """

    log: str
    error: str
    file: str
    number: str
    first: int
    last: int
    end: int
    cause: str = ""
    hint: str = ""
    code: str = ""
    operation: str = ""
    ignored: bool = False
    in_thread: bool = False
    late: bool = False
    raised_in: str = ""
    raised_code: str = ""
    handled: int = 0
    program: str = ""
    cause_place: str = ""
    aftermath: int | None = None
    in_handler: bool = False

    @property
    def place(self) -> str:
        """The user's line of code that raised the exception."""
        return f"{self.file}, line {self.number}, in `{self.code}`"

    @property
    def points_above(self) -> bool:
        """Whether the message only says that the cause was printed before."""
        return bool(_POINTER_ABOVE.search(self.error))

    @property
    def is_missing_file(self) -> bool:
        """Whether the message says that a file does not exist, as if an earlier program did not write it."""
        return bool(_MISSING_FILE.search(self.error))

    @property
    def library(self) -> str:
        """The library file that raised the exception, relative to the package's parent; empty for the user's file."""
        _, found, path = self.raised_in.rpartition("-packages/")
        return path if found and self.raised_in != self.file else ""

    @property
    def is_of_library(self) -> bool:
        """Whether no file of the user's is in the traceback."""
        return "-packages/" in self.file or self.file.startswith("<") or bool(_STANDARD_LIBRARY.search(self.file))

    @property
    def is_uninformative(self) -> bool:
        """Whether the message does not name the cause, so that earlier messages may be more informative."""
        return self.error.endswith((": Graph execution error:", "root error(s) found."))

    @property
    def kind(self) -> str:
        """``own``: the program's error; ``peer``: a report of a failed rank; ``wrapper``: a report of a failed process.

        ``ignored``: Python ignored the exception, as in a destructor.
        """
        if self.ignored and not self.in_thread:
            return "ignored"
        if self.raised_in.endswith("multiprocessing/spawn.py") and _CUT_PICKLE.match(self.error):
            return "wrapper"
        if _EXIT_MESSAGE.match(self.error) or self.error.endswith("<no detail available>"):  # messages of Ray
            return "own"
        if self.error.startswith("SystemExit") and _EXIT_WITH_NUMBER.search(self.raised_code):
            return "own"
        if _WRAPPER_EXCEPTION.search(self.error.partition(":")[0]) or _PARENT_PROCESS_MESSAGE.search(self.error):
            return "wrapper"
        return "peer" if _LOST_PEER.search(self.error) else "own"
