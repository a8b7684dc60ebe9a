"""The end of a log file, without rank prefixes, colours and harmless warnings."""

from __future__ import annotations

import os
import re
import textwrap
from functools import cached_property
from typing import TYPE_CHECKING

from hpcrun.frozen import frozen
from hpcrun.jobs.run_secrets import mask_secrets
from hpcrun.jobs.safe_reading import BadRecordError, open_regular_file
from hpcrun.why.frames import indent_frames
from hpcrun.why.interleaved import find_head, regroup
from hpcrun.why.literals import condense

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.jobs.runs import Run

TAIL_BYTES = 64 * 1024  # bytes read from the end of a log
MAX_LINE_LENGTH = 300  # maximum number of characters of an evidence line

_COLOUR = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_RANK_PREFIX = re.compile(
    r"""^(?:
        \[rank[ ]\d+\][ ](?!host[ ])  # hpcrun submit --output-on-all-ranks
        |\[(?:default)?\d+\]:[ ]?  # torchrun --tee
        |\[\d+,\d+\]<std(?:err|out|diag)>:[ ]?  # Open MPI --tag-output
        |\[\d+\][ ]  # MPICH -prepend-rank
        |[ ]{0,4}\d{1,6}:[ ](?=\S|[ ]{2}\S|[ ]{4})  # srun --label
        |\((?:[\w.]+[ ])?pid=\d+(?:,[ ]ip=[\d.]+)?\)[ ]?  # Ray
    )?(?:\[rank\d+\]:[ ]?(?!\[))?""",  # PyTorch
    re.MULTILINE | re.VERBOSE,
)
_PREFIX_START = re.compile(r"^(?:[\[(]|[ ]{0,4}: )", re.MULTILINE)
"""Matches the beginning of a line that may have a rank prefix, in a condensed log."""
_LABELLED_TRACEBACK = re.compile(r"^[^\s─].*traceback \(most recent call last\):(?: \(rank \))?$", re.MULTILINE)
"""Matches a labelled line of a condensed log."""
_LABELS = (
    re.compile(r"^(\S.{0,78}?)Traceback \(most recent call last\):(?: \(RANK \d+\))?$", re.MULTILINE),
    re.compile(r'^(\S.{0,78}?)  File "', re.MULTILINE),
)
_WARNING = re.compile(
    r"""^(?:
        \d{4}-\d\d-\d\d[ ]\d\d:\d\d:\d\d\.\d+:[ ][WI][ ]  # TensorFlow, XLA
            (?!.*(?:to[ ]create[ ]StreamExecutor|CUDA_ERROR_INVALID_DEVICE|OP_REQUIRES[ ]failed[ ]at[ ]xla_ops
            |OP_REQUIRES[ ]failed[ ]at[ ].*OOM[ ]when[ ]allocating)).*
        |[WI][ ](?:tensorflow|external)/\S+[ ].*  # TensorFlow 1 before 1.4
        |(?:\d{4}-\d\d-\d\d[ ][\d:.]+:[ ]E|E\d{4})[ ].*(?:[ ]register[ ]cu\w+[ ]factory
            |failed[ ]call[ ]to[ ]cuInit(?!.*(?:ERROR_UNKNOWN|unknown[ ]error))).*
        |[WI]\d{4}[ ][\d:]+.*  # absl
        |WARNING:(?:tensorflow|root|absl|py\.warnings):.*
        |\S+:\d+:[ ]\w*Warning:[ ].*
        |.*\bnot[ ]a[ ]failure\b.*
        |.*\bNCCL[ ]INFO\b.*
        |(?!.*undefined[ ]symbol).*[ ]\(ignored\)  # Open MPI's optional plugins
        |ERROR:[ ]ld\.so:[ ]object[ ].*[ ]cannot[ ]be[ ]preloaded[ ].*ignored\.
        |INFO:(?![ ]{4}.*(?:[Ff]ailed|[Dd]enied|[Uu]nable|[Cc]annot|unexpectedly)).*  # Python's logging, Apptainer
        |(?:\[rank\d+\]:)?\[[WI][\d ](?!.*(?:\bgai[ ]error|[ ]99[ ]-[ ])).*  # PyTorch
        |\S+:[ ][Ww]arning:[ ].*  # libibverbs, bash, srun
        |(?!srun:|\w+(?:Error|Exception):).*
            (?:\bretrying[ ](?:in|request)\b|,[ ]retrying$|[ ]entering[ ]retry[ ]loop|\btrying[ ]\S+[ ]instead).*
        |\S*/\.(?:bash|profile|cshrc|zsh|turing|login)\w*:[ ]line[ ]\d+:[ ].*  # the shell's startup files
        |Failed[ ]to[ ]query[ ]server:.*  # timedatectl
        |on[ ]\S+[ ]does[ ]not[ ]start[ ]its[ ]program:[ ].*  # rank.bash, after its rank prefix
    )$""",
    re.MULTILINE | re.VERBOSE,
)

_MISSING_LINE_BREAK = re.compile(
    r"(?<=\S)(?=(?:slurmstepd\S{0,40}|srun): error: )|(?<=\])(?=Traceback \(most |terminate called )"
    r"|(?<=[\'\"])(?=sbatch: (?:error|fatal): )|(?<=\\n)(?=sbatch: (?:error|fatal): )"
)
"""Matches the position between a progress bar, or text of another program, and a message in the same line."""

_ESCAPE = re.compile(r"\\(.)")
_ESCAPED_TRACEBACK = "Traceback (most recent call last):\\n"

_WRAPPED_FRAME = re.compile(r'^( *File) ?\n?("[^"\n]+")(?:\n, ?|, ?\n|, )(line \d+, in .*)$', re.MULTILINE)
"""Matches a line of a traceback that a logger has wrapped."""

_TIANHE_COMMANDS = re.compile(r"^yh(run|batch|alloc): ", re.MULTILINE)
"""Names of Slurm's commands on Tianhe systems, such as yhrun."""

_HYDRA_REPORT = re.compile(
    r"^(?:=   .*|YOUR APPLICATION TERMINATED WITH .*|This typically refers to a problem with .*"
    r"|Please see the FAQ page for .*|\[(?:proxy:|mpiexec@)\S*\] .*)$",
    re.MULTILINE,
)
"""Matches lines that MPICH's mpiexec writes when it ends the ranks and proxies of a job."""

_HYDRA_MARKS = ("=   ", "YOUR APPLICATION ", "This typically ", "Please see the FAQ ", "[proxy:", "[mpiexec@")
"""If a log contains none of these texts, `_HYDRA_REPORT` matches none of its lines."""

_WARNING_MARKS = (
    "-- ::.: ", "i :", "w :", "e :", "warning: ", "warning:", "not a failure", "nccl info", "info:", " (ignored)",
    " cannot be preloaded",
    " does not start its program: ", "[w", "[i", "w tensorflow/", "i tensorflow/", "retry", "/.bash",
    "/.profile", "/.cshrc", "/.zsh", " instead", "failed to query server",
)  # fmt: skip
"""If a condensed log contains none of these texts, `_WARNING` matches none of its lines."""


@frozen
class Log:
    """The end of a log file.

    Attributes:
        name: The file's path below the run directory.
        lines: The lines at the end of the file.
        full_text: The text of these lines, without rank prefixes.
        full_condensed: The condensed `full_text`, see `hpcrun.why.literals.condense`.
    """

    name: str
    lines: tuple[str, ...]
    full_text: str
    full_condensed: str

    @classmethod
    def read(cls, file: Path, run: Run, *, without_launcher: bool = False) -> Log:
        """Read the end of a run's file, whole lines only; the result is empty if the file cannot be read.

        Args:
            file: The log file.
            run: The run.
            without_launcher: Whether to replace lines in which the launcher reports how it ended the ranks by empty
                lines.
        """
        try:
            with open_regular_file(file) as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(size - TAIL_BYTES, 0))
                data = stream.read()
        except (FileNotFoundError, BadRecordError):
            size, data = 0, b""
        if size > TAIL_BYTES:
            data = data.partition(b"\n")[2]
        text = mask_secrets(_split_lines(data.decode(errors="replace")), run)
        if "\x1b[" in text:
            text = _COLOUR.sub("", text)
        original_text = text
        condensed_text = condense(text)  # a search for marks in this shorter text takes less time
        if any(mark in condensed_text for mark in ("it/s]", "s/it]", "slurmstepd: error: ", "sbatch: ")):
            text = _MISSING_LINE_BREAK.sub("\n", text)
        if _ESCAPED_TRACEBACK.lower() in condensed_text:
            text = "\n".join(map(_without_escapes, text.split("\n")))
        lines = tuple(text.split("\n"))
        text = _TIANHE_COMMANDS.sub(r"s\1: ", text) if "yh" in condensed_text else text
        if without_launcher:
            text = _without_hydra(text)
        if text != original_text:
            condensed_text = condense(text)
        lines, text, condensed_text = _clean(lines, text, condensed_text)
        return cls(str(file).removeprefix(f"{run.directory}/"), lines, text, condensed_text)

    @cached_property
    def text(self) -> str:
        """The text, in which lines with harmless warnings are replaced by empty lines."""
        if not any(mark in self.full_condensed for mark in _WARNING_MARKS):
            return self.full_text
        return _WARNING.sub("", self.full_text)

    @cached_property
    def condensed_text(self) -> str:
        """The condensed text without harmless warnings, see `hpcrun.why.literals.condense`."""
        return self.full_condensed if self.text is self.full_text else condense(self.text)

    def line_number(self, match: re.Match[str]) -> int:
        """Return the index of the line in which a match (or its group ``line``) ends."""
        end_position = match.end("line") if "line" in match.re.groupindex else match.end()
        return match.string.count("\n", 0, max(end_position - 1, match.start()))

    def line(self, index: int) -> str:
        """Return a line as evidence."""
        line = self.lines[index].strip()
        return line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]} ..."


def _without_escapes(line: str) -> str:
    """Return the lines of a traceback that a program printed as one string of Python or JSON."""
    if _ESCAPED_TRACEBACK not in line:
        return line
    return _ESCAPE.sub(lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), line)


def _clean(lines: tuple[str, ...], text: str, condensed_text: str) -> tuple[tuple[str, ...], str, str]:
    """Return a log's lines, their text without labels and wrapped lines, and its condensed form.

    Lines of other ranks within a traceback follow it; otherwise, the order of the lines remains.
    """
    original_text = text
    if text[:1] in {" ", ">", "\n"}:
        text = _without_margin(text)
    if text.startswith('File "') or '\nFile "' in text:
        text = indent_frames(text)
    if text != original_text:
        condensed_text = condense(text)
    if _PREFIX_START.search(condensed_text):
        text = "\n".join([_RANK_PREFIX.sub("", line, count=1) for line in text.split("\n")])
        condensed_text = condense(text)
    if _LABELLED_TRACEBACK.search(condensed_text):
        text, condensed_text = _without_labels(text, condensed_text)
    if (head := find_head(text)) is not None:
        texts = text.split("\n")
        order = [head + index for index in regroup(lines[head:], texts[head:])]
        if order != sorted(order):
            lines = (*lines[:head], *[lines[index] for index in order])
            text = "\n".join([*texts[:head], *[texts[index] for index in order]])
            condensed_text = condense(text)
    if "\n, line " in text or ", \nline " in text:
        text = _WRAPPED_FRAME.sub(_join_frame, text)
    if "╰──" in text:
        text = _unwrap_messages(text)
        condensed_text = condense(text)
    return lines, text, condensed_text


def _without_margin(text: str) -> str:
    """Return a text without the spaces or quotation marks that all its lines begin with, as a report quotes a log.

    The end of a stack of HDF5, whose lines are numbered with #, keeps its spaces.
    """
    lines = text.split("\n")
    if all(line.startswith(">") for line in lines if line.strip()):
        return "\n".join([line.removeprefix(">").removeprefix(" ") for line in lines])
    is_quoted = not text.lstrip().startswith("#") and all(line.startswith(" ") for line in lines if line)
    return textwrap.dedent(text) if is_quoted else text


def _split_lines(text: str) -> str:
    """Replace carriage returns, such as those of progress bars, by line ends."""
    if "\r" not in text:
        return text
    text = text.replace("\r\n", "\n")
    return text.replace("\r: ", "\\r: ").replace("\r", "\n")  # a name in an error message may end with \r


def _without_hydra(text: str) -> str:
    """Replace the lines in which Hydra reports how it ended the ranks by empty lines."""
    return _HYDRA_REPORT.sub("", text) if any(mark in text for mark in _HYDRA_MARKS) else text


def _without_labels(text: str, condensed_text: str) -> tuple[str, str]:
    """Return a text and its condensed form without labels that a launcher or logger writes before lines, such as hosts.

    Labels are recognised in tracebacks: all lines of a traceback have the same label, except for digits.
    """
    heads, frames = ({_without_digits(label) for label in pattern.findall(text)} for pattern in _LABELS)
    labels = heads & frames
    if not labels:
        return text, condensed_text
    choices = "|".join(sorted((re.escape(label).replace("0", r"\d+") for label in labels), reverse=True))
    text = re.sub(f"^(?:{choices})", "", text, flags=re.MULTILINE)
    return text, condense(text)


def _join_frame(match: re.Match[str]) -> str:
    """Join a wrapped line of a traceback to one line, followed by empty lines."""
    return f"{match[1]} {match[2]}, {match[3]}" + "\n" * match[0].count("\n")


def _unwrap_messages(text: str) -> str:
    """Join each message that the package rich wrapped below a traceback's box to one line, followed by empty lines."""
    lines = text.split("\n")
    for index, box in enumerate(lines[:-1]):
        if not box.startswith("╰──"):
            continue
        for following in range(index + 2, min(index + 6, len(lines))):
            previous_line = lines[following - 1]
            if len(previous_line) < len(box) - 20 or not lines[following].strip() or previous_line.endswith((".", ":")):
                break
            lines[following - 1], lines[following] = "", f"{previous_line.rstrip()} {lines[following].strip()}"
        target_index = next((n for n in range(index + 1, len(lines)) if lines[n]), index + 1)
        lines[index + 1], lines[target_index] = (
            lines[target_index],
            lines[index + 1] if target_index != index + 1 else lines[target_index],
        )
    return "\n".join(lines)


def _without_digits(label: str) -> str:
    return re.sub(r"\d+", "0", label)
