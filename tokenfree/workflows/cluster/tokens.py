"""The token that Ray asks for of whoever connects: made where there is none, and used unless the user says not."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

MODE = "RAY_AUTH_MODE"


def use(*, asked: bool = True) -> None:
    """Have Ray, in this process and those that it starts, ask for the token and give it; none where `asked` is False.

    It is to be called before Ray is imported.
    """
    if not asked:
        os.environ[MODE] = "disabled"
    os.environ.setdefault(MODE, "token")


def use_if_made() -> None:
    """For whoever connects: give the token if there is one here. A cluster that asks for none does not mind."""
    if path().exists() or os.environ.get("RAY_AUTH_TOKEN"):
        use()


def make() -> None:
    """Write a token to where Ray looks for it, if there is none and one is used; only this user can read the file."""
    if os.environ.get(MODE) != "token" or os.environ.get("RAY_AUTH_TOKEN"):
        return
    path().parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError), open(path(), "x", opener=_private) as file:
        file.write(secrets.token_hex(32))


def path() -> Path:
    """The file of the token."""
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)
