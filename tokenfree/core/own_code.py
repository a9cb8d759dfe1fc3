"""Custom parts: in a recipe, a name with a dot is a class of a module outside tokenfree.

Such a module lies in the working directory or is installed. To import it is to run it, so settings that others may have
written, such as those of a run, are built inside `trusting`.
"""

import contextlib
import dataclasses
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from tokenfree.core.errors import UserError
from tokenfree.core.files import hash_file

logger = logging.getLogger("tokenfree")
_refused: ContextVar[list[str] | None] = ContextVar("refused", default=None)  # None: any module may be imported


class UntrustedCode(UserError):
    """Settings name custom code that the user has not said to trust; none of it was imported.

    Attributes:
        names: the classes.
    """

    def __init__(self, source: str, names: list[str]) -> None:
        self.names = tuple(dict.fromkeys(names))
        super().__init__(
            f"{source} names code outside tokenfree, {', '.join(self.names)}, which is run when it is opened; give "
            "--trust-code (in Python trust_code=True) if you trust it"
        )


@contextlib.contextmanager
def trusting(trust: bool, source: str) -> Iterator[None]:
    """Import custom modules in the block only with `trust`. Modules that are imported already, such as those that the
    user's own recipe names, may be used without it.

    Raises:
        UntrustedCode: at the end of the block, if others were asked for; `source` is what names them.
    """
    refused = None if trust else []
    token = _refused.set(refused)
    try:
        yield
    except UserError:
        if not refused:
            raise
    finally:
        _refused.reset(token)
    if refused:
        raise UntrustedCode(source, refused)


def is_own(name: Any) -> bool:
    """Whether the name of a part is that of a custom class, `MODULE.CLASS`."""
    return isinstance(name, str) and "." in name


def load(name: str) -> Any:
    """Return what a module has under the name `MODULE.CLASS`; a module of the working directory goes before others.

    Raises:
        UserError: it cannot be imported, or its module is not imported yet and not trusted.
    """
    module_name, _, attribute = name.rpartition(".")
    refused = _refused.get()
    if refused is not None and attribute not in getattr(sys.modules.get(module_name), "__dict__", {}):
        refused.append(name)
        raise UserError(f"{name} is not trusted")
    with working_directory_first() as folder:
        try:
            found = getattr(importlib.import_module(module_name), attribute)
        except (Exception, SystemExit) as error:
            reason = " ".join(f"{type(error).__name__}: {error}{_place(error)}".split())
            raise UserError(
                f"{name!r} cannot be imported from the working directory, {folder}, or as installed: {reason}. Give "
                "MODULE.CLASS, run the command where the module lies, or fix the module"
            ) from error
    return found


def _place(error: BaseException) -> str:
    """Return where a custom module raised an error; empty where the import itself failed."""
    inside = (__file__, importlib.__file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    last = frames[-1]
    return "" if last.filename in inside else f" ({last.filename}, line {last.lineno})"


def hashes(settings: Any) -> dict[str, str]:
    """Return the SHA-256 of the file of each custom class among nested settings, where it has one."""
    found = {}
    for value in vars(settings).values():
        if dataclasses.is_dataclass(value):
            found |= hashes(value)
            name = getattr(value, "name", "")
            file = getattr(sys.modules.get(type(value).__module__), "__file__", None)
            if is_own(name) and file:  # a class of a notebook has no file
                found[name] = hash_file(file)
    return found


def warn_of_changes(settings: Any, before: Mapping[str, str], source: str) -> None:
    """Warn of custom classes whose file has another SHA-256 than it had `before`."""
    now = hashes(settings)
    changed = [name for name in before if now.get(name, before[name]) != before[name]]
    if changed:
        logger.warning("%s: the code of %s has changed since the run began", source, ", ".join(changed))


@contextlib.contextmanager
def working_directory_first() -> Iterator[str]:
    """In the block modules of the working directory are found before all others, and after it when no other is: what a
    module imports later is found too, and hides nothing.
    """
    folder = os.getcwd()
    sys.path.insert(0, folder)
    importlib.invalidate_caches()  # a module may have been written a moment ago
    try:
        yield folder
    finally:
        sys.path.remove(folder)
        if folder not in sys.path and "" not in sys.path:
            sys.path.append(folder)
