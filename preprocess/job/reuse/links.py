"""Files of one directory in another one of the same disk or store, without a copy where the file system can do that."""

from __future__ import annotations

import os
import shutil

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.store_lock import HeldStorage
from tokenfree.preprocess.common.stored.store_retry import retry_store


def link(old: Storage, source: str, new: Storage, name: str) -> None:
    """Put the file `source` of a directory into another one as `name`. Files of jobs are replaced and never changed, so
    two directories may share one. A store copies by itself: nothing of it comes here.

    Raises:
        UserError: the directory cannot be written to, or is full.
        JobError: the store could not be used for minutes.
    """
    with new.explained():
        if not new.is_local:
            if isinstance(new, HeldStorage):
                new.check()
            retry_store(new, lambda: new.fs.cp_file(old.path(source), new.path(name)))
            return
        target = new.path(name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            os.link(old.path(source), target)
        except OSError:  # another file system, or one without links
            with new.new_file(name) as copy:
                shutil.copyfile(old.path(source), copy.path)
