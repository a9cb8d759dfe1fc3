"""Parts from the user's own code: in a recipe, a name with a dot is a class of a module outside tokenfree.

Such a module lies in the working directory or is installed. To import it is to run it, so that whoever reads settings
that others may have written, such as those of a run, keeps to the names that the user trusts.
"""

import contextlib
import dataclasses
import importlib
import inspect
import logging
import os
import pkgutil
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from tokenfree.core.errors import Nearest, UserError
from tokenfree.core.files import hash_file

logger = logging.getLogger("tokenfree")


@dataclasses.dataclass
class _Trust:
    """The names that may be loaded, and those that were asked for besides."""

    names: Collection[str]
    refused: dict[str, None] = dataclasses.field(default_factory=dict)


_trust: ContextVar[_Trust | None] = ContextVar("trust", default=None)  # None: all names


class UntrustedCode(UserError):
    """Settings name code that the user has not said to trust; nothing of it was run.

    Attributes:
        names: of the classes.
    """

    def __init__(self, source: str, names: Collection[str]) -> None:
        self.names = tuple(names)
        super().__init__(
            f"{source} names code outside tokenfree, {', '.join(self.names)}, which is run when it is opened; give "
            "--trust-code (in Python trust_code=True) if you trust it"
        )


@contextlib.contextmanager
def trusting(names: Collection[str] | None, source: str) -> Iterator[None]:
    """In the block no other classes than these are loaded; all where None.

    Raises:
        UntrustedCode: at the end of the block, if others were asked for; `source` is what names them.
    """
    if names is None:
        yield
        return
    trust = _Trust(names)
    token = _trust.set(trust)
    try:
        yield
    except UserError:
        if not trust.refused:
            raise
    finally:
        _trust.reset(token)
    if trust.refused:
        raise UntrustedCode(source, list(trust.refused))


def is_own(name: Any) -> bool:
    """Whether the name of a part is that of a class of the user's, `MODULE.CLASS`."""
    return isinstance(name, str) and "." in name


def load(name: str) -> type:
    """The class `MODULE.CLASS`; a module of the working directory goes before an installed one.

    Raises:
        UserError: there is no such module or class, or the module fails; or the class is not trusted.
    """
    trust = _trust.get()
    if trust is not None and name not in trust.names:
        trust.refused[name] = None
        raise UserError(f"{name} is not trusted")
    module_name, _, attribute = name.rpartition(".")
    if not all(part.isidentifier() for part in name.split(".")):
        raise UserError(f"{name!r} names no class; give MODULE.CLASS, such as my_module.MeanPool")
    module = _imported(module_name)
    found = getattr(module, attribute, None)
    if found is None:
        classes = [each for each, value in vars(module).items() if _is_class_of(value, module)]
        hint = Nearest(attribute, classes).hint if classes else ""
        raise UserError(f"{_shown(module)} has no class {attribute!r}{hint}")
    if not inspect.isclass(found):
        raise UserError(f"{attribute} of {_shown(module)} is no class; name the class of the part's settings")
    return found


def classes_in(settings: Any) -> dict[str, type]:
    """The classes of the user's among nested settings, by their names in recipes."""
    found: dict[str, type] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            name = getattr(value, "name", None)
            if isinstance(name, str) and is_own(name):
                found[name] = type(value)
            found |= classes_in(value)
    return found


def hashes(settings: Any) -> dict[str, str]:
    """The SHA-256 of the file of each class of the user's among nested settings, where it has one."""
    found = {}
    for name, own_class in classes_in(settings).items():
        with contextlib.suppress(OSError, TypeError):  # defined in no file, such as in a notebook
            found[name] = hash_file(inspect.getfile(own_class))
    return found


def warn_of_changes(settings: Any, before: Mapping[str, str], source: str) -> None:
    """Say in a line which classes of the settings have other files than they had `before`, by their SHA-256."""
    now = hashes(settings)
    changed = [name for name in before if name in now and now[name] != before[name]]
    if changed:
        logger.warning(
            "%s: the code of %s has changed since the run was begun; what it computes may be other than in training",
            source,
            ", ".join(changed),
        )


def _imported(name: str) -> ModuleType:
    with working_directory_first() as folder:
        try:
            return importlib.import_module(name)
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
                near = Nearest(name, [info.name for info in pkgutil.iter_modules([folder])])
                hint = "" if near.name is None else near.hint
                raise UserError(
                    f"there is no module {error.name!r}{hint} in the working directory, {folder}, and none is "
                    "installed; run the command where the module lies, or install it"
                ) from None
            raise UserError(f"the module {name} cannot be imported: {_told(error)}; mend that") from error


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


def _told(error: BaseException) -> str:
    """An error of a module in one line, with the place where it was raised."""
    message = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    file, line = (frames[-1].filename, frames[-1].lineno) if frames else ("", 0)
    if isinstance(error, SyntaxError):
        file, line = error.filename, error.lineno
    return f"{type(error).__name__}: {message} ({file}, line {line})"


def _is_class_of(value: Any, module: ModuleType) -> bool:
    return inspect.isclass(value) and value.__module__ == module.__name__


def _shown(module: ModuleType) -> str:
    return f"the module {module.__name__} ({getattr(module, '__file__', None) or 'without a file'})"
