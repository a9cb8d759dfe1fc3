"""A run in an object store, such as s3://bucket/run: trained in a folder of this machine, which is copied to the store.

The store is the truth: whoever goes on with the run begins with what is there. Files are copied with each checkpoint;
those of the checkpoint last of all, its commit mark at the very end. A killed run therefore leaves whole checkpoints
with the metrics up to them, and parts of one that nobody reads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from preprocess.errors import JobError, UserError
from preprocess.storage import Storage
from train import checkpoints, run_lock
from train.checkpoints import Checkpoint, Warn
from train.config import PretrainRecipe
from train.data import cache
from train.metrics import append_event
from train.patience import patiently
from train.run_folder import RunFolder, lock, open_run

T = TypeVar("T")
_NOT_COPIED = ("checkpoints", "ray", run_lock.NAME, "lock.worker", "lock.fetch")  # by the general rule
_EVENTS = "events.jsonl"


class RunStore(RunFolder):
    """The run at `url`. `owner` is the holder of its lock for whom this process writes, None for readers."""

    def __init__(self, url: str, owner: str | None = None) -> None:
        self.storage = Storage.at(url)
        digest = hashlib.blake2b(self.storage.url.encode(), digest_size=12).hexdigest()
        base = cache.folder() / "runs" / digest / ("read" if owner is None else "train")
        super().__init__(base / self.storage.url.rstrip("/").rsplit("/", 1)[-1], self.storage.url)
        self._owner = owner
        self._copied: dict[str, tuple[int, int]] = {}

    def open(self, recipe: PretrainRecipe, data: str, manifest: str) -> None:
        """See `open_run`."""
        names = [name for name in self.storage.names() if name != run_lock.NAME]
        if names and "config.yaml" not in names:
            raise UserError(f"{self.name} holds other files and no run; give an empty or new address as --output")
        with tempfile.TemporaryDirectory(prefix="tokenfree-") as scratch:
            config = Path(scratch) / "config.yaml"
            if names:
                config.write_bytes(self._patiently(lambda: self.storage.read_bytes(config.name)))
            open_run(Path(scratch), recipe, data, manifest, name=self.name)
            self._patiently(lambda: self.storage.write_bytes(config.name, config.read_bytes()))

    @contextlib.contextmanager
    def claimed(self) -> Iterator[str]:
        """Held against other commands; yields the owner to give to the workers."""
        with run_lock.hold(self.storage, self._held()) as owner:
            yield owner

    def result(self) -> dict[str, Any] | None:
        return self._patiently(lambda: self.storage.read_json("result.json"))

    def events(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in self.storage.read_bytes(_EVENTS).splitlines()]
        except FileNotFoundError:
            return []

    def add_event(self, event: str, **more: Any) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="tokenfree-") as scratch:
            path = Path(scratch) / _EVENTS
            with contextlib.suppress(FileNotFoundError):
                path.write_bytes(self._patiently(lambda: self.storage.read_bytes(_EVENTS)))
            line = append_event(path, event, step=None, **more)
            self._patiently(lambda: self.storage.put(str(path), _EVENTS))
        return line

    def begin(self) -> None:
        """Bring the folder on this machine to what the store holds, but for the checkpoints; for rank 0."""
        for path in self.folder.iterdir():
            if path.is_dir() and path.name not in _NOT_COPIED:
                shutil.rmtree(path)
            elif path.is_file() and path.name not in _NOT_COPIED:
                path.unlink()
        self.fetch()

    def fetch(self) -> None:
        super().fetch()
        for name in self._patiently(self._small_files):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._patiently(lambda name=name, path=path: self.storage.get(name, str(path)))
            self._copied[name] = _version(path)

    def newest(self, warn: Warn) -> Checkpoint | None:
        for step in reversed(self._steps()):
            try:
                return self._checkpoint(step)
            except JobError as error:
                warn(f"{error}; the one before it is used")
        return None

    def here(self, checkpoint: Checkpoint) -> Checkpoint:
        return self._checkpoint(checkpoint.step)

    def saved(self, step: int, *, keep: int, best: int | None) -> None:
        name = f"checkpoints/{checkpoints.name(step)}"
        self._copy(but=_EVENTS)
        self._patiently(lambda: self._remove_checkpoint(step))  # an earlier attempt, damaged or cut short
        for path in sorted((self.folder / name).iterdir()):
            if path.name != checkpoints.MARK:
                self._put(f"{name}/{path.name}")
        self._check_owner()
        self._put(f"{name}/{checkpoints.MARK}")
        for old in checkpoints.superfluous(self._patiently(self._all_steps), step=step, keep=keep, best=best):
            self._patiently(lambda old=old: self._remove_checkpoint(old))
        checkpoints.prune(self.folder / "checkpoints", step=step, keep=1, best=None)

    def publish(self) -> None:
        self._check_owner()
        self._copy()

    def keep(self, source: Path, name: str) -> None:
        self._patiently(lambda: self.storage.put(str(source), name))

    def finish(self) -> None:
        """Copies the rest, the result last; nothing is left on this machine."""
        self._check_owner()
        self._copy(but="result.json")
        self._copy()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _held(self) -> UserError:
        return UserError(f"{self.name} is being trained by another command; wait for it or give another --output")

    def _small_files(self) -> list[str]:
        names = self.storage.find()
        left_out = (*_NOT_COPIED, "tensorboard", "profile")
        return [name for name in names if name.split("/")[0] not in left_out]

    def _copy(self, *, but: str = "") -> None:
        """Copy the files that changed since they were copied last."""
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if name.split("/")[0] in (*_NOT_COPIED, but) or path.name.startswith("_tmp_") or not path.is_file():
                continue
            version = _version(path)
            if self._copied.get(name) != version:
                self._put(name)
                self._copied[name] = version

    def _put(self, name: str) -> None:
        self._patiently(lambda: self.storage.put(str(self.folder / name), name))

    def _check_owner(self) -> None:
        """A command that was taken for dead, and whose run another goes on with, must not write any more."""
        found = self._patiently(lambda: run_lock.read(self.storage)) or {}
        if self._owner is not None and found.get("owner") != self._owner:
            raise JobError(f"{self.name} was taken over by another command on {found.get('host', 'another machine')}")

    def _all_steps(self) -> list[int]:
        return checkpoints.steps_of(self.storage.names("checkpoints"))

    def _steps(self) -> list[int]:
        """The steps whose checkpoints were copied to the end."""
        steps = self._patiently(self._all_steps)
        return [
            step
            for step in steps
            if self.storage.size(f"checkpoints/{checkpoints.name(step)}/{checkpoints.MARK}") is not None
        ]

    def _checkpoint(self, step: int) -> Checkpoint:
        """The checkpoint, on this machine, checked.

        Raises:
            JobError: it is damaged in the store.
        """
        name = f"checkpoints/{checkpoints.name(step)}"
        folder = self.folder / name
        held = JobError(f"another process still copies the checkpoint to {folder}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with lock(self.folder / "lock.fetch", seconds=3600, held=held):
            mark = self._patiently(lambda: self.storage.read_bytes(f"{name}/{checkpoints.MARK}"))
            with contextlib.suppress(JobError, OSError):
                if (folder / checkpoints.MARK).read_bytes() == mark:
                    return checkpoints.read(folder)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for file in self._patiently(lambda: self.storage.names(name)):
                self._patiently(lambda file=file: self.storage.get(f"{name}/{file}", str(folder / file)))
            return checkpoints.read(folder, name=f"{self.name}/{name}")

    def _remove_checkpoint(self, step: int) -> None:
        name = f"checkpoints/{checkpoints.name(step)}"
        self.storage.remove(f"{name}/{checkpoints.MARK}")  # first, so that readers find it whole or not at all
        self.storage.remove(name)

    def _patiently(self, act: Callable[[], T]) -> T:
        return patiently(self.storage, act)


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
