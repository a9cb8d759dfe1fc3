"""Who is told of a command by `--notify`: an address that takes JSON by POST, or a command of the user's.

Neither is ever printed: both may hold a secret.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import requests

from tokenfree.preprocess.common.errors import UserError

OPTION = "--notify"
URL_SECONDS, COMMAND_SECONDS = 10.0, 60.0  # that an address and a command may take
_HIDDEN = "..."


def is_address(receiver: str) -> bool:
    """Whether it is an address, not a command."""
    return "://" in receiver.strip().partition(" ")[0]


def check(receiver: str) -> None:
    """See that there may be such a receiver; nothing is sent.

    Raises:
        UserError: it is neither an address of the web nor a command of this machine.
    """
    if not receiver.strip():
        raise UserError("--notify: the value is empty; give a command, or an address")
    if is_address(receiver):
        if not receiver.lower().startswith(("http://", "https://")):
            raise UserError("--notify: the address is neither http:// nor https://; give such a one, or a command")
        return
    try:
        program = shlex.split(receiver)[0]
    except ValueError as error:
        raise UserError(f"--notify: the command cannot be parted into words ({error}); mend its quotes") from None
    if shutil.which(program) is None:
        raise UserError("--notify: no such program; give a command as in a shell, or an address with http:// before it")


def hidden(words: Sequence[str]) -> list[str]:
    """The words of a command line, without what `--notify` names."""
    shown = [f"{OPTION}={_HIDDEN}" if word.startswith(f"{OPTION}=") else word for word in words]
    return [_HIDDEN if before == OPTION else word for before, word in zip(["", *shown], shown, strict=False)]


def deliver(receiver: str, notice: Mapping[str, Any]) -> str | None:
    """Hand over a notice as JSON; what went wrong, if anything did, in words without the receiver."""
    body = json.dumps(notice).encode()
    if is_address(receiver):
        try:
            answer = requests.post(
                receiver, data=body, headers={"Content-Type": "application/json"}, timeout=URL_SECONDS
            )
        except (requests.RequestException, ValueError) as error:  # their texts have the address
            return f"the address cannot be reached ({type(error).__name__})"
        return None if answer.ok else f"the address answered {answer.status_code}"
    try:
        done = subprocess.run(
            shlex.split(receiver), input=body, stdout=subprocess.DEVNULL, timeout=COMMAND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"the command took more than {COMMAND_SECONDS:.0f} seconds"
    except OSError as error:
        return f"the command cannot be run ({error.strerror})"
    return None if done.returncode == 0 else f"the command ended with status {done.returncode}"
