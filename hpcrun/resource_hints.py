"""What a user probably meant by an invalid value of a resource: ``--time=2:00:00`` for ``--time=2h``."""

from __future__ import annotations

import re

_EXAMPLES = {
    "time": "1:30:00", "mem": "16G", "mem_per_gpu": "16G", "mem_per_cpu": "4G", "gpus_per_node": "4",
    "sbatch": "--reservation=maint", "mail_type": "END,FAIL",
}  # fmt: skip
"""A valid value of each field; of the others it is a number or a name."""

_UNITS = re.compile(
    r"(?:(?P<days>\d+)\s*d[a-z]*)?\s*(?:(?P<hours>\d+)\s*h[a-z]*)?\s*(?:(?P<minutes>\d+)\s*m[a-z]*)?\s*(?:(?P<seconds>\d+)\s*s[a-z]*)?",
    re.IGNORECASE,
)
_SIZE = re.compile(r"(\d+)\s*([KMGT])i?(?:B|bytes?)?", re.IGNORECASE)


def hint(field: str, value: object) -> str:
    """Return what to type in place of an invalid value.

    Args:
        field: The field of `hpcrun.resources.Resources`.
        value: Its invalid value.
    """
    option, text = f"--{field.replace('_', '-')}", str(value).strip()
    meant = ""
    if field == "time" and (found := _UNITS.fullmatch(text)) and any(found.groups()):
        meant = _format_time({name: int(number or 0) for name, number in found.groupdict().items()})
    elif field.startswith("mem") and (size := _SIZE.fullmatch(text)):
        meant = f"{size[1]}{size[2].upper()}"
    elif field == "gpus_per_node" and (swapped := re.fullmatch(r"(\d+):([A-Za-z]\w*)", text)):
        meant = f"{swapped[2]}:{swapped[1]}"
    elif field == "gpus_per_node" and re.fullmatch(r"[A-Za-z]\w*", text):
        meant = f"{text}:1"
    elif field == "sbatch" and re.fullmatch(r"[a-z][a-z-]*(=.*)?", text):
        meant = f"--{text}"
    if meant:
        return f"did you mean {option}={meant}?"
    example = _EXAMPLES.get(field) or ("2" if isinstance(value, int) else "NAME")
    return f"for example {option}={example}; see hpcrun submit --help"


def _format_time(numbers: dict[str, int]) -> str:
    """Return Slurm's form of a time: ``1:30:00`` or ``2-00:00:00``."""
    minutes, seconds = divmod(numbers["minutes"] * 60 + numbers["seconds"], 60)
    hours, minutes = divmod(numbers["hours"] * 60 + minutes, 60)
    days, hours = divmod(numbers["days"] * 24 + hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{seconds:02}" if days else f"{hours}:{minutes:02}:{seconds:02}"
