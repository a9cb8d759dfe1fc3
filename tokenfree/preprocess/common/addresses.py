"""Paths and addresses that cannot be used, told before anything is read or written."""

import os
import re
import stat

from tokenfree.preprocess.common.errors import UserError

_NOT_UTF8 = re.compile("[\ud800-\udfff]")  # how Python stands for bytes of a path that are no UTF-8
_PROCESS_FOLDERS = ("/dev/", "/proc/")  # what stands there differs from process to process
_KINDS = {
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}


def is_utf8(text: str) -> bool:
    """Whether an argument, path or file name holds no bytes that are not UTF-8."""
    return _NOT_UTF8.search(text) is None


def check_address(address: str, source: str = "") -> None:
    """Refuse an address that fsspec would read otherwise than it stands there, or that no manifest can hold.

    Raises:
        UserError: it holds `::` or is not UTF-8; the message names `source`, such as a setting.
    """
    place = ": ".join(filter(None, (source, address)))
    if not is_utf8(address):
        raise UserError(f"{place}: this path is not UTF-8; rename it")
    if "::" in address:
        raise UserError(f"{place}: '::' in a path would stand for a chain of file systems; rename it, or copy it first")


def check_is_stored(path: str, source: str = "") -> None:
    """Refuse a local path of what is no file or folder: it is read more than once, and by several processes.

    Raises:
        UserError: it is a pipe, a socket or a device, such as /dev/stdin; the message names `source`.
    """
    if not os.path.exists(path):
        return
    mode = os.stat(path).st_mode
    kind = next((name for is_kind, name in _KINDS.items() if is_kind(mode)), None)
    if kind is None and os.path.abspath(path).startswith(_PROCESS_FOLDERS):
        kind = "an open file of one process"
    if kind is not None:
        place = ": ".join(filter(None, (source, path)))
        raise UserError(f"{place} is {kind}, and inputs are read more than once; save it as a file first")
