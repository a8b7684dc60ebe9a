"""Trust in site files and templates, because their bash lines run as this user.

hpcrun uses files that only root, this user and trusted users can write. Other files, and files of a project, which may
come from a cloned repository, need the user's permission (``hpcrun site allow``). An allowed file is used only with the
text that was allowed.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import paths, permissions
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpcrun.sites.loader import LoadedSite
    from hpcrun.sites.source import SiteSource


class NotAllowedError(HpcrunError):
    """The user has not allowed a file yet."""


def require_trusted(loaded_site: LoadedSite) -> None:
    """Refuse a site that has files that are not trusted.

    Args:
        loaded_site: The site and its files.

    Raises:
        NotAllowedError: A file is not trusted; the message contains each file, the reason, and the command that allows
            it.
    """
    _raise_not_allowed(
        [(source, why) for source in loaded_site.sources if (why := refusal_reason(source))], loaded_site.site.name
    )


def require_trusted_template(source: SiteSource) -> None:
    """Refuse a template that is not trusted.

    Raises:
        NotAllowedError: The template is not trusted; the message contains the file, the reason, and the command to
            allow it.
    """
    if why := refusal_reason(source):
        _raise_not_allowed([(source, why)], None)


def refusal_reason(source: SiteSource) -> str | None:
    """Return the reason why a file is not trusted; None if it is trusted."""
    if source.file.parent in {paths.shipped_folder("site-configs"), paths.shipped_folder("templates")}:
        return None  # a user who can write these files can also change hpcrun
    from hpcrun import write_access

    try:
        other_writer = write_access.find_other_writer(
            source.file, trusted_owners(), source.file_stat, file_only=source.is_record
        )
    except OSError as error:
        other_writer = f"{error.filename}: {error.strerror}"
    allowed_text = read_allowed_text(source.file)
    is_in_project = is_project_file(source)
    if allowed_text is None:
        reason = other_writer or ("it may come from somebody else" if is_in_project else None)
        return reason and f"{reason}, and you have not allowed it"
    if allowed_text == source.text or (
        other_writer is None and not is_in_project and source.file_stat.st_uid in trusted_owners()
    ):
        return None
    return (
        f"{other_writer}, and the file has changed since you allowed it"
        if other_writer
        else "it has changed since you allowed it"
    )


def is_project_file(source: SiteSource) -> bool:
    """Return whether a site file or template belongs to a project."""
    file = source.file
    return not source.is_record and any(
        one.parent.name == paths.PROJECT_FOLDER or f"/{paths.PROJECT_FOLDER}/templates/" in str(one)
        for one in (Path(os.path.normpath(file)), file.resolve())
    )


def allow_files(sources: Iterable[SiteSource]) -> None:
    """Record that this user allows these files with their current text."""
    for source in sources:
        _write_record(
            _record_file(source.file), {"file": str(source.file), "text": source.text, "allowed": _current_time()}
        )


def read_allowed_text(file: Path) -> str | None:
    """Return the text that a file had when the user last allowed it; None if the user never did.

    Raises:
        HpcrunError: Another user can write the record.
    """
    try:
        text = json.loads(_require_private(_record_file(file)).read_bytes())["text"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(text)


def list_allowed() -> list[dict[str, Any]]:
    """Return the allowed owners, then the allowed files.

    Each table has ``owner`` or ``file``, and the time ``allowed``.
    """
    allowed_items = [{"owner": one["name"], "allowed": one["allowed"]} for one in _read_owners()]
    for record in sorted(_record_folder().glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            allowed_file = json.loads(_require_private(record).read_bytes())
            allowed_items += (
                [{"file": allowed_file["file"], "allowed": allowed_file["allowed"]}] if "file" in allowed_file else []
            )
    return allowed_items


def revoke_file(file: Path) -> bool:
    """Revoke the permission to use a file; return whether the file was allowed."""
    try:
        _record_file(file).unlink()
    except FileNotFoundError:
        return False
    return True


def trusted_owners() -> frozenset[int]:
    """Return the uids of the trusted users."""
    return frozenset(one["uid"] for one in _read_owners())


def allow_owner(name: str, uid: int) -> None:
    """Trust all files of a user."""
    other_owners = [one for one in _read_owners() if one["uid"] != uid]
    _write_record(
        _record_folder() / "owners", {"owners": [*other_owners, {"name": name, "uid": uid, "allowed": _current_time()}]}
    )


def revoke_owner(name: str) -> bool:
    """Revoke the trust in a user; return whether the user was trusted."""
    owners = _read_owners()
    remaining_owners = [one for one in owners if one["name"] != name]
    if len(remaining_owners) < len(owners):
        _write_record(_record_folder() / "owners", {"owners": remaining_owners})
    return len(remaining_owners) < len(owners)


def _raise_not_allowed(refused_sources: list[tuple[SiteSource, str]], site: str | None) -> None:
    if not refused_sources:
        return
    from shlex import quote

    from hpcrun.sites.layer_files import escape_invisible

    folders = {folder for _, folder in paths.config_layers()}
    is_site_named = site is not None and all(
        source.file.parent in folders for source, _ in refused_sources
    )  # the site was given by name, not by path
    name = (
        site if is_site_named else escape_invisible(" ".join(quote(str(source.file)) for source, _ in refused_sources))
    )
    lines = [escape_invisible(f"{source.file} is not used: {why}") for source, why in refused_sources]
    raise NotAllowedError("\n".join(lines), hint=f"hpcrun site allow {name} shows it and asks whether to use it")


def _record_folder() -> Path:
    return paths.user_data_folder("allowed")


def _record_file(file: Path) -> Path:
    import hashlib  # this import takes 3 ms, and few commands need it

    return _record_folder() / f"{hashlib.sha256(bytes(file)).hexdigest()[:32]}.json"


def _read_owners() -> list[dict[str, Any]]:
    try:
        owners = json.loads(_require_private(_record_folder() / "owners").read_bytes())["owners"]
        return [{"uid": int(one["uid"]), "name": str(one["name"]), "allowed": one["allowed"]} for one in owners]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        raise HpcrunError(
            f"{_record_folder() / 'owners'} cannot be read", hint="remove it, and allow the users again"
        ) from None


def _require_private(file: Path) -> Path:
    """Check that only this user can write or replace a file or folder, and return its path.

    Raises:
        HpcrunError: Another user can write or replace the file.
        OSError: The file does not exist.
    """
    from hpcrun import write_access

    file.lstat()
    if other_writer := write_access.find_other_writer(file):
        hint = (
            "the file records what you have allowed: chmod it, or set XDG_DATA_HOME to another folder; then allow again"
        )
        raise HpcrunError(f"{file} cannot be trusted: {other_writer}", hint=hint)
    return file


def _write_record(file: Path, content: dict[str, Any]) -> None:
    permissions.make_own_folder(file.parent, is_private=True)
    _require_private(file.parent)
    paths.write_atomically(file, json.dumps(content, indent=1).encode())


def _current_time() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="seconds")
