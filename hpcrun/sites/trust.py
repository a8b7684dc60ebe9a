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

    from hpcrun.sites.loader import Found
    from hpcrun.sites.source import Source


class NotAllowedError(HpcrunError):
    """Files are not used before the user has allowed them."""


def require(found: Found) -> None:
    """Refuse a site that must not be used to run anything yet.

    Args:
        found: The site, with the files that it was read from.

    Raises:
        NotAllowedError: Names each file, who may write it or that it has changed, and what to type.
    """
    _refuse([(source, why) for source in found.sources if (why := refusal(source))], found.site.name)


def require_template(source: Source) -> None:
    """Refuse a template that must not be used yet.

    Raises:
        NotAllowedError: Names it, who may write it or that it has changed, and what to type.
    """
    if why := refusal(source):
        _refuse([(source, why)], None)


def refusal(source: Source) -> str | None:
    """Tell why a file is not used, None where it is."""
    if source.file.parent in {paths.shipped_folder("site-configs"), paths.shipped_folder("templates")}:
        return None  # who can write these can write hpcrun
    from hpcrun import owners

    try:
        who = owners.writer(source.file, trusted_owners(), source.status, itself=source.record)
    except OSError as error:
        who = f"{error.filename}: {error.strerror}"
    before = allowed(source.file)
    project = of_project(source)
    if before is None:
        why = who or ("it may be somebody else's work" if project else None)
        return why and f"{why}, and you have not allowed it"
    if before == source.text or (who is None and not project and source.status.st_uid in trusted_owners()):
        return None
    return f"{who}, and it has changed since you allowed it" if who else "it has changed since you allowed it"


def of_project(source: Source) -> bool:
    """Return whether a site file or template is a project's, also one that is named by its path."""
    file = source.file
    return not source.record and any(
        one.parent.name == paths.PROJECT_FOLDER or f"/{paths.PROJECT_FOLDER}/templates/" in str(one)
        for one in (Path(os.path.normpath(file)), file.resolve())
    )


def allow(sources: Iterable[Source]) -> None:
    """Remember that this user has seen these files and lets them be used as they are."""
    for source in sources:
        _keep(_record(source.file), {"file": str(source.file), "text": source.text, "allowed": _now()})


def allowed(file: Path) -> str | None:
    """Return what a file said when it was allowed last; None where it never was.

    Raises:
        HpcrunError: Somebody else may have written that it was.
    """
    try:
        text = json.loads(_safe(_record(file)).read_bytes())["text"]
    except (OSError, ValueError, KeyError):
        return None
    return str(text)


def everything() -> list[dict[str, Any]]:
    """Return what was allowed: owners, then files, each with ``owner`` or ``file``, and the time ``allowed``."""
    told = [{"owner": one["name"], "allowed": one["allowed"]} for one in _owners()]
    for record in sorted(_folder().glob("*.json")):
        with suppress(OSError, ValueError, KeyError):
            facts = json.loads(_safe(record).read_bytes())
            told += [{"file": facts["file"], "allowed": facts["allowed"]}] if "file" in facts else []
    return told


def revoke(file: Path) -> bool:
    """Forget that a file was allowed; return whether it was."""
    try:
        _record(file).unlink()
    except FileNotFoundError:
        return False
    return True


def trusted_owners() -> frozenset[int]:
    """Return the ids of the users all of whose files are used."""
    return frozenset(one["uid"] for one in _owners())


def allow_owner(name: str, uid: int) -> None:
    """Let all files of a user be used, whatever is in them."""
    kept = [one for one in _owners() if one["uid"] != uid]
    _keep(_folder() / "owners", {"owners": [*kept, {"name": name, "uid": uid, "allowed": _now()}]})


def revoke_owner(name: str) -> bool:
    """Forget that a user's files are used; return whether they were."""
    known = _owners()
    left = [one for one in known if one["name"] != name]
    if len(left) < len(known):
        _keep(_folder() / "owners", {"owners": left})
    return len(left) < len(known)


def _refuse(refused: list[tuple[Source, str]], site: str | None) -> None:
    if not refused:
        return
    from shlex import quote

    from hpcrun.sites.layer_files import plain

    folders = {folder for _, folder in paths.config_layers()}
    whole = site is not None and all(source.file.parent in folders for source, _ in refused)  # no path was named
    name = site if whole else plain(" ".join(quote(str(source.file)) for source, _ in refused))
    lines = [plain(f"{source.file} is not used: {why}") for source, why in refused]
    raise NotAllowedError("\n".join(lines), hint=f"hpcrun site allow {name} shows it, and lets it be used as it is")


def _folder() -> Path:
    return paths.user_data_folder("allowed")


def _record(file: Path) -> Path:
    return _folder() / f"{hashlib.sha256(bytes(file)).hexdigest()[:32]}.json"


def _owners() -> list[dict[str, Any]]:
    try:
        return list(json.loads(_safe(_folder() / "owners").read_bytes())["owners"])
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError):
        raise HpcrunError(
            f"{_folder() / 'owners'} cannot be read", hint="remove it, and allow its users again"
        ) from None


def _safe(file: Path) -> Path:
    """Return a file or folder of ours that nobody else can write, or put there.

    Raises:
        HpcrunError: Somebody can.
        OSError: It is not there.
    """
    from hpcrun import owners

    file.lstat()
    if who := owners.writer(file):
        hint = "it says what you have allowed: chmod, or XDG_DATA_HOME names another place; then allow it again"
        raise HpcrunError(f"{file} cannot be trusted: {who}", hint=hint)
    return file


def _keep(file: Path, content: dict[str, Any]) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _safe(file.parent)
    paths.write_atomically(file, json.dumps(content, indent=1).encode())


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="seconds")
