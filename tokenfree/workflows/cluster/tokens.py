"""The token that Ray requires of anyone who connects. It is created if missing, and used unless disabled."""

import contextlib
import os
import secrets
from functools import partial
from pathlib import Path

MODE = "RAY_AUTH_MODE"


def use(*, asked: bool = True) -> None:
    """Make Ray require and send the token in this process and its children, if `asked`, before Ray is imported."""
    if not asked:
        os.environ[MODE] = "disabled"
    os.environ.setdefault(MODE, "token")


def use_if_made() -> None:
    """Send the token when connecting, if there is one here. Clusters that require none ignore it."""
    if path().exists() or os.environ.get("RAY_AUTH_TOKEN"):
        use()


def make() -> None:
    """Write a token to where Ray looks for it, if a token is used and missing. Only this user can read the file."""
    if os.environ.get(MODE) != "token" or os.environ.get("RAY_AUTH_TOKEN"):
        return
    path().parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError), open(path(), "x", opener=partial(os.open, mode=0o600)) as file:
        file.write(secrets.token_hex(32))


def path() -> Path:
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
