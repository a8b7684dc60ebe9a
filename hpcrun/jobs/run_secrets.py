"""Masking of the secrets of a run in texts that its program may have printed."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from hpcrun import secrets
from hpcrun.jobs import safe_reading

if TYPE_CHECKING:
    from hpcrun.jobs.runs import Run

Value = TypeVar("Value")


def mask_secrets(value: Value, run: Run) -> Value:
    """Replace the values of a run's secrets by ``***``, in a text, or in the texts of tables and lists.

    The secrets are those in the run's ``secrets.env``, and the variables of its site whose names mark secrets.
    """
    site_variables = run.spec.site.all_values.get("environment")
    texts = site_variables.items() if isinstance(site_variables, dict) else ()
    secret_values = [text for name, text in texts if isinstance(text, str) and secrets.is_secret(name, text)]
    with suppress(FileNotFoundError, ValueError, safe_reading.BadRecordError):
        content = safe_reading.read_text((run.sweep or run).directory / secrets.SECRETS_FILE, "replace")
        secret_values += secrets.parse_secrets(content)
    masked_value: Value = secrets.mask_known(value, secret_values)
    return masked_value


def masked_result(run: Run) -> dict[str, object]:
    """Return the values of a run's ``result.json``, with secrets replaced by ``***``."""
    return mask_secrets(secrets.mask_value(dict(run.result_values())), run)
