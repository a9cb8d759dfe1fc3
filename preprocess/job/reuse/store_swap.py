"""How a finished directory in a store takes the place of the one beside it: a store renames nothing.

Its files are copied within the store. First the old mark of success and manifest go, so that nobody takes what is there
meanwhile for a finished directory; the new ones come last. Whoever is killed on the way finds the new directory whole
under its other name, and goes on. Of that the manifest is the first to go and the mark the last, which tells a
directory that is on its way out.
"""

from __future__ import annotations

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.store_lock import LOCK, HeldStorage
from tokenfree.preprocess.dataset.manifest import MANIFEST
from tokenfree.preprocess.dataset.success_mark import SUCCESS
from tokenfree.preprocess.job.preprocess_job import JOB
from tokenfree.preprocess.job.reuse.links import link

_LAST = (MANIFEST, SUCCESS)


def is_half_swapped(storage: Storage, new: Storage) -> bool:
    """Whether `new` was taking the place of `storage` when the command was killed."""
    return set(_LAST) <= set(new.names()) and SUCCESS not in storage.names() and storage.size(JOB) is None


def go_on(storage: HeldStorage, new: Storage) -> None:
    """Finish what a killed command began with the directory `new` beside this one.

    Raises:
        UserError: a file may not be written or removed.
    """
    if is_half_swapped(storage, new):
        swap(storage, new)
    elif _is_swapped(storage, new):
        _remove(new)


def _is_swapped(storage: Storage, new: Storage) -> bool:
    """Whether only the removal of `new` is left to do."""
    names = new.names()
    if SUCCESS not in names or SUCCESS not in storage.names():
        return False
    return MANIFEST not in names or new.read_bytes(SUCCESS) == storage.read_bytes(SUCCESS)


def swap(storage: HeldStorage, new: Storage) -> None:
    """Put the files of the finished directory `new` in the place of those of `storage`, and remove it then.

    Raises:
        UserError: a file may not be written or removed.
    """
    wanted = [name for name in new.find() if not _is_lock(name)]
    gone = [name for name in storage.find() if name not in {*wanted, *_LAST} and not _is_lock(name)]
    storage.check()
    for name in (*reversed(_LAST), *gone):
        storage.remove(name)
    for name in (*(name for name in wanted if name not in _LAST), *_LAST):
        link(new, name, storage, name)
    _remove(new)


def _remove(new: Storage) -> None:
    first, last = _LAST
    new.remove(first)
    for name in new.names():
        if name != last:
            new.remove(name)
    new.remove(last)


def _is_lock(name: str) -> bool:
    return name.startswith(f"{LOCK}/")
