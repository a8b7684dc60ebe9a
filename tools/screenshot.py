"""Run commands in a terminal and draw their output as an SVG for the docs: screenshot.py FILE.svg COMMAND..."""

import io
import os
import pty
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 110


def terminal_output(command: str) -> str:
    """Return the output of a command on a terminal with `WIDTH` columns."""
    os.environ.update({"COLUMNS": str(WIDTH), "TERM": "xterm-256color"})
    parts: list[bytes] = []

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 65536)
        parts.append(data)
        return data

    pty.spawn(["bash", "-c", command], read)
    return b"".join(parts).decode(errors="replace").replace("\r\n", "\n")


console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
for line in sys.argv[2:]:
    console.print(Text.assemble(("$ ", "bold green"), (line, "bold")))
    console.print(Text.from_ansi(terminal_output(line).replace(str(Path.home()), "~")))
console.save_svg(sys.argv[1], title="hpcrun")
