"""The trust in site files and templates, whose bash lines run as this user.

hpcrun uses a file that only root, this user and trusted users can write. It uses any other file, and every file of a
project, which may be cloned from somebody else's repository, only after the user has allowed it (``hpcrun site
allow``). A file that was ever allowed is used only with the text that was allowed.
"""

from __future__ import annotations

import hashlib
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
    from hpcrun.sites.source import Source


class NotAllowedError(HpcrunError):
    """The user has not allowed a file yet."""


def require_trusted(loaded_site: LoadedSite) -> None:
    """Refuse a site with files that are not trusted.

    Args:
        loaded_site: The site and its files.

    Raises:
        NotAllowedError: The message names each file, who can write it or that it has changed, and the command to type.
    """
    _raise_not_allowed(
        [(source, why) for source in loaded_site.sources if (why := refusal_reason(source))], loaded_site.site.name
    )


def require_trusted_template(source: Source) -> None:
    """Refuse a template that is not trusted.

    Raises:
        NotAllowedError: The message names it, who can write it or that it has changed, and the command to type.
    """
    if why := refusal_reason(source):
        _raise_not_allowed([(source, why)], None)


def refusal_reason(source: Source) -> str | None:
    """Return why a file is not trusted, or None where it is."""
    if source.file.parent in {paths.shipped_folder("site-configs"), paths.shipped_folder("templates")}:
        return None  # whoever can write these can also change hpcrun
    from hpcrun import write_access

    try:
        who = write_access.find_other_writer(source.file, trusted_owners(), source.status, file_only=source.record)
    except OSError as error:
        who = f"{error.filename}: {error.strerror}"
    before = read_allowed_text(source.file)
    project = is_project_file(source)
    if before is None:
        why = who or ("it may come from somebody else" if project else None)
        return why and f"{why}, and you have not allowed it"
    if before == source.text or (who is None and not project and source.status.st_uid in trusted_owners()):
        return None
    return f"{who}, and it has changed since you allowed it" if who else "it has changed since you allowed it"


def is_project_file(source: Source) -> bool:
    """Return whether a site file or template belongs to a project."""
    file = source.file
    return not source.record and any(
        one.parent.name == paths.PROJECT_FOLDER or f"/{paths.PROJECT_FOLDER}/templates/" in str(one)
        for one in (Path(os.path.normpath(file)), file.resolve())
    )


def allow_files(sources: Iterable[Source]) -> None:
    """Record that this user allows these files with their current text."""
    for source in sources:
        _write_record(_record_file(source.file), {"file": str(source.file), "text": source.text, "allowed": _now()})


def read_allowed_text(file: Path) -> str | None:
    """Return the text of a file when it was last allowed, or None where it never was.

    Raises:
        HpcrunError: Somebody else can write the record.
    """
    try:
        text = json.loads(_require_private(_record_file(file)).read_bytes())["text"]
    except (OSError, ValueError, KeyError):
        return None
    return str(text)


def list_allowed() -> list[dict[str, Any]]:
    """Return what is allowed: owners, then files, each with ``owner`` or ``file`` and the time ``allowed``."""
    allowed_items = [{"owner": one["name"], "allowed": one["allowed"]} for one in _read_owners()]
    for record in sorted(_record_folder().glob("*.json")):
        with suppress(OSError, ValueError, KeyError):
            facts = json.loads(_require_private(record).read_bytes())
            allowed_items += [{"file": facts["file"], "allowed": facts["allowed"]}] if "file" in facts else []
    return allowed_items


def revoke_file(file: Path) -> bool:
    """Revoke a file; return whether it was allowed."""
    try:
        _record_file(file).unlink()
    except FileNotFoundError:
        return False
    return True


def trusted_owners() -> frozenset[int]:
    """Return the user ids of the trusted users."""
    return frozenset(one["uid"] for one in _read_owners())


def allow_owner(name: str, uid: int) -> None:
    """Trust all files of a user."""
    kept = [one for one in _read_owners() if one["uid"] != uid]
    _write_record(_record_folder() / "owners", {"owners": [*kept, {"name": name, "uid": uid, "allowed": _now()}]})


def revoke_owner(name: str) -> bool:
    """Revoke the trust in a user; return whether the user was trusted."""
    known = _read_owners()
    left = [one for one in known if one["name"] != name]
    if len(left) < len(known):
        _write_record(_record_folder() / "owners", {"owners": left})
    return len(left) < len(known)


def _raise_not_allowed(refused: list[tuple[Source, str]], site: str | None) -> None:
    if not refused:
        return
    from shlex import quote

    from hpcrun.sites.layer_files import escape_invisible

    folders = {folder for _, folder in paths.config_layers()}
    whole = site is not None and all(source.file.parent in folders for source, _ in refused)  # no path was given
    name = site if whole else escape_invisible(" ".join(quote(str(source.file)) for source, _ in refused))
    lines = [escape_invisible(f"{source.file} is not used: {why}") for source, why in refused]
    raise NotAllowedError("\n".join(lines), hint=f"hpcrun site allow {name} shows it and asks whether to use it")


def _record_folder() -> Path:
    return paths.user_data_folder("allowed")


def _record_file(file: Path) -> Path:
    return _record_folder() / f"{hashlib.sha256(bytes(file)).hexdigest()[:32]}.json"


def _read_owners() -> list[dict[str, Any]]:
    try:
        return list(json.loads(_require_private(_record_folder() / "owners").read_bytes())["owners"])
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError):
        raise HpcrunError(
            f"{_record_folder() / 'owners'} cannot be read", hint="remove it, and allow the users again"
        ) from None


def _require_private(file: Path) -> Path:
    """Return a file or folder of this user after a check that nobody else can write or replace it.

    Raises:
        HpcrunError: Somebody else can.
        OSError: It does not exist.
    """
    from hpcrun import write_access

    file.lstat()
    if who := write_access.find_other_writer(file):
        hint = "it records what you have allowed: chmod it, or set XDG_DATA_HOME to another folder; then allow again"
        raise HpcrunError(f"{file} cannot be trusted: {who}", hint=hint)
    return file


def _write_record(file: Path, content: dict[str, Any]) -> None:
    permissions.make_own_folder(file.parent, private=True)
    _require_private(file.parent)
    paths.write_atomically(file, json.dumps(content, indent=1).encode())


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="seconds")
