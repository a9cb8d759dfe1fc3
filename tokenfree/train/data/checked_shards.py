"""Which shards of this machine were found right: each is hashed once, until its size or one of its times is another.

What was found right is remembered by empty files in the cache (see `tokenfree.train.machine.cache_folder`), so that
other workers and later runs need not hash it again; where these cannot be written, by this process alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading

from tokenfree.preprocess.common.local_files import hash_file
from tokenfree.train.machine.cache_folder import folder

_sound: set[str] = set()
_hashing = threading.Lock()  # the thread that looks ahead may be about what another one needs now


def is_sound(path: str, sha256: str) -> bool:
    """Whether the content of the file is that of `sha256`.

    Raises:
        OSError: it cannot be read.
    """
    status = os.stat(path)
    what = (os.path.abspath(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns, sha256)
    key = hashlib.blake2b(repr(what).encode(errors="surrogateescape"), digest_size=16).hexdigest()
    mark = folder() / "checked" / key
    with _hashing:
        if key in _sound or mark.exists():
            return True
        if hash_file(path) != sha256:
            return False
        _sound.add(key)
    with contextlib.suppress(OSError):
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    return True
