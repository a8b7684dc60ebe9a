"""Job options for the compression of gradients."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.job_option import declare_option, require_choice, require_whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

CODECS = ("none", "fp16", "bf16", "ternary", "powersgd")
AUTO = "auto"
_PANEL = "Compression of gradients"


@frozen(kw_only=True)
class CompressionOptions:
    """Job options for the compression of gradients; None stands for the default.

    Attributes:
        compress: The codec that compresses gradients; ``auto`` to measure and choose; None for no compression.
        clip_factor: Standard deviations to which ``ternary`` clips gradients; 0 for no clipping.
        powersgd_rank: The rank of the matrices that ``powersgd`` sends.
        min_size: The number of elements of the smallest layer that ``ternary`` and ``powersgd`` compress.
        float_last_layer: Whether the last layer is sent unrounded.
        float_every: The interval in steps at which gradients are sent unrounded; 0 for never.
        float_first: How many steps are sent unrounded at the beginning of a training.
        error_feedback: Whether a rank adds the compression error to the gradients of the next step; None for the
            codec's default.
        virtual_workers: The number of workers of a larger job for which each rank stands; None for one.
    """

    compress: str | None = declare_option(
        None,
        "--compress",
        "Codec in which ranks send gradients: none, fp16, bf16, ternary, powersgd or auto; default: none.",
        "CODEC",
        convert=lambda value: value and value.lower(),
        variable="HPCRUN_COMPRESS",
        panel=_PANEL,
    )
    clip_factor: float | None = declare_option(
        None,
        "--clip-factor",
        "Standard deviations to which ternary clips gradients (0: not at all); default: 2.5.",
        "C",
        variable="HPCRUN_CLIP_FACTOR",
        panel=_PANEL,
    )
    powersgd_rank: int | None = declare_option(
        None,
        "--powersgd-rank",
        "Rank of the matrices that powersgd sends; default: 4.",
        "R",
        variable="HPCRUN_POWERSGD_RANK",
        panel=_PANEL,
    )
    min_size: int | None = declare_option(
        None,
        "--min-size",
        "Smallest layer that ternary and powersgd compress, in numbers; default: 2048.",
        "N",
        variable="HPCRUN_MIN_SIZE",
        panel=_PANEL,
    )
    float_last_layer: bool = declare_option(
        False,
        "--float-last-layer",
        "Send the last layer unrounded (ternary, powersgd).",
        variable="HPCRUN_FLOAT_LAST_LAYER",
        panel=_PANEL,
    )
    float_every: int | None = declare_option(
        None,
        "--float-every",
        "Send every Nth step unrounded (ternary, powersgd; 0: none); default: 0.",
        "N",
        variable="HPCRUN_FLOAT_EVERY",
        panel=_PANEL,
    )
    float_first: int | None = declare_option(
        None,
        "--float-first",
        "Send the first N steps of a training unrounded (ternary, powersgd, auto); default: 0.",
        "N",
        variable="HPCRUN_FLOAT_FIRST",
        panel=_PANEL,
    )
    error_feedback: bool | None = declare_option(
        None,
        "--error-feedback/--no-error-feedback",
        "Add what was not sent to the next step (ternary, powersgd); default: with powersgd.",
        variable="HPCRUN_ERROR_FEEDBACK",
        panel=_PANEL,
    )
    virtual_workers: int | None = declare_option(
        None,
        "--virtual-workers",
        "Workers for which each rank stands, to study the convergence of larger jobs; default: 1.",
        "K",
        variable="HPCRUN_VIRTUAL_WORKERS",
        panel=_PANEL,
    )

    def require_codec(self) -> None:
        """Refuse compression options that the codec does not use.

        Raises:
            HpcrunError: An option has no effect.
        """
        users = {
            "clip_factor": ("ternary",),
            "powersgd_rank": ("powersgd",),
            **dict.fromkeys(("min_size", "float_last_layer", "float_every", "error_feedback"), ("ternary", "powersgd")),
            "float_first": ("ternary", "powersgd", AUTO),
        }
        declared = {one.name: one for one in fields(CompressionOptions)}
        if self.compress == AUTO and (self.virtual_workers or 1) > 1:
            raise HpcrunError(
                f"--compress=auto measures real ranks, and this job has --virtual-workers={self.virtual_workers}",
                hint=f"name a codec: {', '.join(CODECS)}",
            )
        for name, codecs in users.items():
            if getattr(self, name) != declared[name].default and self.compress not in codecs:
                flag = declared[name].metadata["option"].flag
                needed = " or ".join(f"--compress={codec}" for codec in codecs)
                raise HpcrunError(f"{flag} has no effect without {needed}", hint=f"give {needed}, too, or omit {flag}")

    def require_compatible_variables(self, variables: Mapping[str, str]) -> None:
        """Refuse variables that change how gradients are sent in a way that the compression options exclude.

        Args:
            variables: The environment variables of the job.

        Raises:
            HpcrunError: A variable and an option exclude each other.
        """
        layerwise, workers = f"--compress={self.compress}", f"--virtual-workers={self.virtual_workers}"
        exclusions = (
            ("--compress=auto", self.compress == AUTO, ("HPCRUN_OVERLAP", "HPCRUN_HIERARCHICAL")),
            (layerwise, self.compress in {"ternary", "powersgd"}, ("HPCRUN_HIERARCHICAL",)),
            ("--float-last-layer", self.float_last_layer, ("HPCRUN_OVERLAP",)),
            (workers, (self.virtual_workers or 1) > 1, ("HPCRUN_OVERLAP", "HPCRUN_HIERARCHICAL", "HPCRUN_CUDA_AWARE")),
        )
        for option, is_given, names in exclusions:
            for name in names if is_given else ():
                if variables.get(name) == "1":
                    raise HpcrunError(f"{option} does not work with {name}=1", hint=f"leave out {name} or {option}")

    def require_valid_compression(self) -> None:
        """Refuse invalid values of the compression options."""
        require_choice("--compress", self.compress, (*CODECS, AUTO), "hpcrun has no such codec")
        if self.clip_factor is not None and not (
            isinstance(self.clip_factor, int | float) and 0 <= self.clip_factor < math.inf
        ):
            hint = "2.5 clips gradients to 2.5 standard deviations, 0 leaves them as they are"
            raise HpcrunError(f"--clip-factor={self.clip_factor}: not a number from 0", hint=hint)
        for flag, value, minimum, example in (
            ("--powersgd-rank", self.powersgd_rank, 1, "4 sends matrices of four columns and rows"),
            ("--min-size", self.min_size, 0, "2048 sends smaller layers unrounded"),
            ("--float-every", self.float_every, 0, "100 sends every 100th step unrounded, 0 none"),
            ("--float-first", self.float_first, 0, "1000 sends the first 1000 steps unrounded, 0 none"),
            ("--virtual-workers", self.virtual_workers, 1, "4 lets each rank stand for four ranks of a larger job"),
        ):
            require_whole_number(
                f"{flag}={value}: not a whole number from {minimum}", value, hint=example, minimum=minimum
            )
