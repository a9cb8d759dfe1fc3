"""Custom parts: in a recipe, a name with a dot is a class in a module outside tokenfree.

Importing such a module runs it, and anyone may have written the settings that name it. Therefore modules are
imported only inside `trusting`.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from tokenfree.core.errors import UserError

# None: any module may be imported; unset: none.
_refused: ContextVar[list[str] | None] = ContextVar("refused")


class UntrustedCode(UserError):
    """Settings name custom classes (`names`) that the user has not trusted. None of them was imported."""

    def __init__(self, source: str, names: list[str]) -> None:
        self.names = tuple(dict.fromkeys(names))
        super().__init__(
            f"{source} names code outside tokenfree, {', '.join(self.names)}, which is run when it is opened; {_TRUST}"
        )


_TRUST = "give --trust-code (in Python trust_code=True) if you trust it"


@contextlib.contextmanager
def trusting(trust: bool, source: str) -> Iterator[None]:
    """Import custom modules in the block only with `trust`. Those that are already imported need none.

    At the end of the block, raises UntrustedCode if `source` names other modules.
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


def is_trusted() -> bool:
    return _refused.get([]) is None


def load(name: str) -> Any:
    """Return the attribute `MODULE.CLASS`. Raises UserError if it cannot be imported or is not trusted."""
    module_name, _, attribute = name.rpartition(".")
    refused = _refused.get([])
    if refused is not None and attribute not in getattr(sys.modules.get(module_name), "__dict__", {}):
        refused.append(name)
        raise UserError(f"{name} is code outside tokenfree; {_TRUST}")
    with working_directory_first() as folder:
        try:
            return getattr(importlib.import_module(module_name), attribute)
        except (Exception, SystemExit) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(
                f"{name!r} cannot be imported from the working directory, {folder}, or as installed: {reason}. Give "
                "MODULE.CLASS, run the command where the module lies, or fix the module (--debug shows where it failed)"
            ) from error


@contextlib.contextmanager
def working_directory_first() -> Iterator[str]:
    """Search the working directory before other folders in the block, and after them, for later imports, at its end."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    # A module may be brand-new.
    importlib.invalidate_caches()
    try:
        yield folder
    finally:
        sys.path.remove(folder)
        if folder not in sys.path and "" not in sys.path:
            sys.path.append(folder)
