"""Files of one directory on a disk in another one, without a copy where the file system can do that."""

from __future__ import annotations

import os
import shutil

from tokenfree.preprocess.common.storage import Storage


def link(source: str, storage: Storage, name: str) -> None:
    """Put the local file `source` into a local directory as `name`, which is not there. Files of jobs are replaced and
    never changed, so two directories may share one.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    with storage.explained():
        target = storage.path(name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            os.link(source, target)
        except OSError:  # another file system, or one without links
            with storage.new_file(name) as new:
                shutil.copyfile(source, new.path)
