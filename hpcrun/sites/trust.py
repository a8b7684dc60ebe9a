"""Which site files and templates are used: their lines run as this user, so nobody else may slip one in.

A file that nobody can write but root, this user, and those whom the user trusts, is used. Any other is used once the
user has seen and allowed it (``hpcrun site allow``), and so is any of a project, for it may have come with a repository
that somebody else wrote. What was ever allowed is used only as it was then.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import paths
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpcrun.sites.loader import LoadedSite
    from hpcrun.sites.source import Source


class NotAllowedError(HpcrunError):
    """Files are not used before the user has allowed them."""


def require_trusted(found: LoadedSite) -> None:
    """Refuse a site that must not be used to run anything yet.

    Args:
        found: The site, with the files that it was read from.

    Raises:
        NotAllowedError: Names each file, who may write it or that it has changed, and what to type.
    """
    _raise_not_allowed([(source, why) for source in found.sources if (why := refusal_reason(source))], found.site.name)


def require_trusted_template(source: Source) -> None:
    """Refuse a template that must not be used yet.

    Raises:
        NotAllowedError: Names it, who may write it or that it has changed, and what to type.
    """
    if why := refusal_reason(source):
        _raise_not_allowed([(source, why)], None)


def refusal_reason(source: Source) -> str | None:
    """Tell why a file is not used, None where it is."""
    if source.file.parent in {paths.shipped_folder("site-configs"), paths.shipped_folder("templates")}:
        return None  # who can write these can write hpcrun
    from hpcrun import write_access

    try:
        who = write_access.find_other_writer(source.file, trusted_owners(), source.status, file_only=source.record)
    except OSError as error:
        who = f"{error.filename}: {error.strerror}"
    before = read_allowed_text(source.file)
    project = is_project_file(source)
    if before is None:
        why = who or ("it may be somebody else's work" if project else None)
        return why and f"{why}, and you have not allowed it"
    if before == source.text or (who is None and not project and source.status.st_uid in trusted_owners()):
        return None
    return f"{who}, and it has changed since you allowed it" if who else "it has changed since you allowed it"


def is_project_file(source: Source) -> bool:
    """Return whether a site file or template is a project's, also one that is named by its path."""
    file = source.file
    return not source.record and any(
        one.parent.name == paths.PROJECT_FOLDER or f"/{paths.PROJECT_FOLDER}/templates/" in str(one)
        for one in (Path(os.path.normpath(file)), file.resolve())
    )


def allow_files(sources: Iterable[Source]) -> None:
    """Remember that this user has seen these files and lets them be used as they are."""
    for source in sources:
        _write_record(_record_file(source.file), {"file": str(source.file), "text": source.text, "allowed": _now()})


def read_allowed_text(file: Path) -> str | None:
    """Return what a file said when it was allowed last; None where it never was.

    Raises:
        HpcrunError: Somebody else may have written that it was.
    """
    try:
        text = json.loads(_require_private(_record_file(file)).read_bytes())["text"]
    except (OSError, ValueError, KeyError):
        return None
    return str(text)


def list_allowed() -> list[dict[str, Any]]:
    """Return what was allowed: owners, then files, each with ``owner`` or ``file``, and the time ``allowed``."""
    allowed_items = [{"owner": one["name"], "allowed": one["allowed"]} for one in _read_owners()]
    for record in sorted(_record_folder().glob("*.json")):
        with suppress(OSError, ValueError, KeyError):
            facts = json.loads(_require_private(record).read_bytes())
            allowed_items += [{"file": facts["file"], "allowed": facts["allowed"]}] if "file" in facts else []
    return allowed_items


def revoke_file(file: Path) -> bool:
    """Forget that a file was allowed; return whether it was."""
    try:
        _record_file(file).unlink()
    except FileNotFoundError:
        return False
    return True


def trusted_owners() -> frozenset[int]:
    """Return the ids of the users all of whose files are used."""
    return frozenset(one["uid"] for one in _read_owners())


def allow_owner(name: str, uid: int) -> None:
    """Let all files of a user be used, whatever is in them."""
    kept = [one for one in _read_owners() if one["uid"] != uid]
    _write_record(_record_folder() / "owners", {"owners": [*kept, {"name": name, "uid": uid, "allowed": _now()}]})


def revoke_owner(name: str) -> bool:
    """Forget that a user's files are used; return whether they were."""
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
    whole = site is not None and all(source.file.parent in folders for source, _ in refused)  # no path was named
    name = site if whole else escape_invisible(" ".join(quote(str(source.file)) for source, _ in refused))
    lines = [escape_invisible(f"{source.file} is not used: {why}") for source, why in refused]
    raise NotAllowedError("\n".join(lines), hint=f"hpcrun site allow {name} shows it, and lets it be used as it is")


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
            f"{_record_folder() / 'owners'} cannot be read", hint="remove it, and allow its users again"
        ) from None


def _require_private(file: Path) -> Path:
    """Return a file or folder of ours that nobody else can write, or put there.

    Raises:
        HpcrunError: Somebody can.
        OSError: It is not there.
    """
    from hpcrun import write_access

    file.lstat()
    if who := write_access.find_other_writer(file):
        hint = "it says what you have allowed: chmod, or XDG_DATA_HOME names another place; then allow it again"
        raise HpcrunError(f"{file} cannot be trusted: {who}", hint=hint)
    return file


def _write_record(file: Path, content: dict[str, Any]) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_private(file.parent)
    paths.write_atomically(file, json.dumps(content, indent=1).encode())


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="seconds")
