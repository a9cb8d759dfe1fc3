"""A run in a folder or an object store: who may write to it, its checkpoints, its result.

    <run>/config.yaml     recipe, data path and manifest fingerprint, written before anything starts; and its attempts
    <run>/checkpoints/    see train/runs/checkpoints.py
    <run>/metrics.jsonl   events.jsonl   tensorboard/      see train/runs/metrics.py
    <run>/result.json     written last: the run is complete
    <run>/ray/            storage and logs of Ray, if it was used

A run in a store, such as s3://bucket/run, is trained in a local folder and copied to the store with each checkpoint.
The store is authoritative: a resumed run begins with its content. The commit mark of a checkpoint is copied last, so a
killed run leaves complete checkpoints with the metrics up to them, and parts of one that nobody reads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import folder as cache_folder
from tokenfree.core.files import lock, write_atomically
from tokenfree.core.locks import LOCK, check, hold
from tokenfree.core.storage import Storage, retry_store
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.checkpoints import Checkpoint, Warn, checkpoint_name, newest, prune, read, steps
from tokenfree.train.runs.config import (
    CONFIG,
    CONFIG_NAME,
    EVENTS,
    EVENTS_NAME,
    RESULT,
    RESULT_NAME,
    RunConfig,
    no_run,
    open_run,
)
from tokenfree.train.runs.metrics import append_event


class Run(Protocol):
    """A run and what is done with it as training goes on."""

    folder: Path  # where the worker of rank 0 reads and writes
    name: str  # its path or address

    def open(self, config: RunConfig[Any]) -> None:
        """Make a new run, or see that the existing one is of the same recipe and data; see `open_run`.

        Raises:
            UserError: it is of others, or cannot be written.
        """
        ...

    def write_config(self, config: RunConfig[Any]) -> None:
        """For the command that has it claimed: put `config` in place of its own.

        Raises:
            JobError: the run was taken over by another command.
        """
        ...

    def reopen(self, config: RunConfig[Any]) -> None:
        """For the command that has it claimed: make it a run of `config`, and one that is not complete.

        Raises:
            UserError: it cannot be written.
        """
        ...

    def claimed(self) -> AbstractContextManager[str | None]:
        """Held against other commands; gives the owner that workers need to write to it (see `run_at`).

        Raises:
            UserError: another command trains this run.
        """
        ...

    def written(self) -> AbstractContextManager[None]:
        """For the worker of rank 0: in the block `folder` holds the run and is this worker's alone; after a block that
        raised nothing, what the folder holds is the run.

        Raises:
            JobError: another process still writes to the folder.
        """
        ...

    def result(self) -> dict[str, Any] | None:
        """The result of a complete run, else None.

        Raises:
            UserError: its file is damaged.
        """
        ...

    def events(self) -> list[dict[str, Any]]:
        """The lines of events.jsonl; none of a new run.

        Raises:
            UserError: a line of it is damaged.
        """
        ...

    def add_event(self, event: str, *, step: int | None = None, **more: Any) -> dict[str, Any]:
        """Append a line to events.jsonl while no worker lives; returns it."""
        ...

    def fetch(self) -> None:
        """Have the small files of an existing run in `folder`.

        Raises:
            UserError: there is no run.
        """
        ...

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, ascending; damaged ones included."""
        ...

    def newest(self, warn: Warn) -> Checkpoint | None:
        """The newest sound checkpoint, on this machine; `warn` is told of each damaged one passed over."""
        ...

    def here(self, checkpoint: Checkpoint) -> Checkpoint:
        """A checkpoint that the worker of rank 0 has, for a worker on this machine.

        Raises:
            JobError: it is damaged.
        """
        ...

    def at(self, step: int) -> Checkpoint:
        """The checkpoint of a step, on this machine.

        Raises:
            JobError: it is damaged, or there is none.
        """
        ...

    def saved(self, step: int, *, keep: int, best: int | None) -> None:
        """The checkpoint of `step` stands in `folder`: make it the run's, and remove old ones, see `prune`.

        Raises:
            JobError: the run was taken over by another command.
        """
        ...

    def publish(self) -> None:
        """Something happened that others are to see before the next checkpoint.

        Raises:
            JobError: the run was taken over by another command.
        """
        ...

    def keep(self, source: Path, name: str) -> None:
        """Copy a file of this machine into the run under `name`."""
        ...


class RunFolder:
    """A run in a folder that all workers reach; see `tokenfree.train.runs.run.Run` for what its methods promise."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = str(folder)

    def open(self, config: RunConfig[Any]) -> None:
        """See `open_run`.

        Raises:
            UserError: it is a run of another recipe or other data, or cannot be written.
        """
        open_run(self.folder, config)

    def write_config(self, config: RunConfig[Any]) -> None:
        """Put `config` in place of its own."""
        write_atomically(self.folder / CONFIG_NAME, config.text())

    def reopen(self, config: RunConfig[Any]) -> None:
        """Remove its result, then write its config: killed in between, it is an unfinished run as it was before."""
        (self.folder / RESULT_NAME).unlink(missing_ok=True)
        self.write_config(config)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[str | None]:
        """Held by a lock file. The workers need no proof of it: the lock that they take in `written` tells.

        Raises:
            UserError: another command trains this run.
        """
        with lock(self.folder / "lock", seconds=0, held=trained_by_another(self.name)):
            yield None

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """The folder is the run, so that it is only locked.

        Raises:
            JobError: another process still trains the run.
        """
        with held_by_worker(self.folder, self.name):
            yield

    def result(self) -> dict[str, Any] | None:
        """The content of result.json, None where there is none yet."""
        try:
            return RESULT.json(Storage.at(str(self.folder)), RESULT_NAME)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def events(self) -> list[dict[str, Any]]:
        """The lines of events.jsonl; none of a new run."""
        return EVENTS.json_lines(Storage.at(str(self.folder)), EVENTS_NAME)

    def add_event(self, event: str, *, step: int | None = None, **more: Any) -> dict[str, Any]:
        """Append a line to events.jsonl; returns it."""
        return append_event(self.folder / EVENTS_NAME, event, step=step, **more)

    def fetch(self) -> None:
        """The files are here: only see that it is a run.

        Raises:
            UserError: there is no run in the folder.
        """
        if not (self.folder / CONFIG_NAME).is_file():
            raise no_run(self.name)

    def steps(self) -> list[int]:
        """See `tokenfree.train.runs.checkpoints.steps`."""
        return steps(self.folder / "checkpoints")

    def newest(self, warn: Warn) -> Checkpoint | None:
        """See `tokenfree.train.runs.checkpoints.newest`."""
        return newest(self.folder / "checkpoints", warn)

    def here(self, checkpoint: Checkpoint) -> Checkpoint:
        """The same checkpoint: all machines reach the folder."""
        return checkpoint

    def at(self, step: int) -> Checkpoint:
        """See `tokenfree.train.runs.checkpoints.read`."""
        return read(self.folder / "checkpoints" / checkpoint_name(step))

    def saved(self, step: int, *, keep: int, best: int | None) -> None:
        """See `tokenfree.train.runs.checkpoints.prune`."""
        prune(self.folder / "checkpoints", step=step, keep=keep, best=best)

    def publish(self) -> None:
        """Nothing to do: others look into the same folder. (A store copies its files and sees that it is not lost.)"""

    def keep(self, source: Path, name: str) -> None:
        """Copy a file into the folder under `name`."""
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


@contextlib.contextmanager
def held_by_worker(folder: Path, name: str) -> Iterator[None]:
    """Hold `folder`, made where it is not there, for one worker of the run `name`.

    A worker of an earlier, killed command may live a moment longer than that command, and one on a machine that is cut
    off until it has noticed that, after 45 seconds at most: it is waited for.

    Raises:
        JobError: it does not end.
    """
    held = JobError(f"another process still trains {name}; end it and run the same command again")
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder / "lock.worker", seconds=120, held=held):
        yield


def trained_by_another(name: str) -> UserError:
    """What a command is told that comes to the run `name` while another trains it."""
    return UserError(f"{name} is being trained by another command; wait for it or give another --output")


T = TypeVar("T")
_NOT_COPIED = ("checkpoints", "ray", LOCK, "lock.worker", "lock.fetch")  # by the general rule


class RunStore:
    """The run at an address; see `tokenfree.train.runs.run.Run` for what its methods promise.

    Args:
        url: such as s3://bucket/run.
        owner: the number under which its lock is held for this process to write, None for readers.

    Raises:
        UserError: there is no file system for such an address.
    """

    def __init__(self, url: str, owner: str | None = None) -> None:
        self.storage = Storage.at(url)
        digest = hashlib.blake2b(self.storage.url.encode(), digest_size=12).hexdigest()
        base = cache_folder() / "runs" / digest / ("read" if owner is None else "train")
        self.name = self.storage.url
        self.folder = base / self.name.rstrip("/").rsplit("/", 1)[-1]
        self._owner = owner
        self._copied: dict[str, tuple[int, int]] = {}

    def open(self, config: RunConfig[Any]) -> None:
        """See `open_run`.

        Raises:
            UserError: it is a run of another recipe or other data, its config is damaged, or it cannot be written.
        """
        names = [name for name in self.storage.names() if name != LOCK]
        if names and CONFIG_NAME not in names:
            raise UserError(f"{self.name} holds other files and no run; give an empty or new address as --output")
        with tempfile.TemporaryDirectory(prefix="tokenfree-") as scratch:
            file = Path(scratch) / CONFIG_NAME
            if names:
                file.write_bytes(self._retry(lambda: self.storage.read_bytes(CONFIG_NAME)))
                CONFIG.from_yaml(file.read_bytes(), f"{self.name}/{CONFIG_NAME}")  # told of by this name, if damaged
            open_run(Path(scratch), config, name=self.name)
            self._retry(lambda: self.storage.write_bytes(CONFIG_NAME, file.read_bytes()))

    def write_config(self, config: RunConfig[Any]) -> None:
        """Put `config` in place of its own.

        Raises:
            JobError: another command took the run over.
        """
        self._check_owner()
        self._retry(lambda: self.storage.write_bytes(CONFIG_NAME, config.text().encode()))

    def reopen(self, config: RunConfig[Any]) -> None:
        """Remove its result, then write its config: killed in between, it is an unfinished run as it was before.

        Raises:
            JobError: another command took the run over.
        """
        self._check_owner()
        self._retry(lambda: self.storage.remove(RESULT_NAME))
        self.write_config(config)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[str]:
        """Held by a lock in the store; yields the number under which it is held.

        Raises:
            UserError: another command trains this run.
        """
        with hold(self.storage, trained_by_another(self.name)) as owner:
            yield owner

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """The folder on this machine is brought to what the store holds, but for the checkpoints; at the end the rest
        is copied to the store, the result last, and nothing is left here.

        Raises:
            JobError: another process of this machine still trains the run, or another command took it over.
        """
        with held_by_worker(self.folder, self.name):
            self._empty_folder()
            self.fetch()
            yield
            self._check_owner()
            self._copy(but=RESULT_NAME)
            self._copy()
            shutil.rmtree(self.folder, ignore_errors=True)

    def result(self) -> dict[str, Any] | None:
        """The content of result.json, None where there is none yet."""
        return self._retry(self._read_result)

    def events(self) -> list[dict[str, Any]]:
        """The lines of events.jsonl; none of a new run."""
        lines = self._retry(self._read_events).splitlines(keepends=True)
        return EVENTS.from_json_lines(lines, f"{self.name}/{EVENTS_NAME}")

    def add_event(self, event: str, *, step: int | None = None, **more: Any) -> dict[str, Any]:
        """Append a line to events.jsonl, which is written anew: stores know no appending; returns it."""
        with tempfile.TemporaryDirectory(prefix="tokenfree-") as scratch:
            path = Path(scratch) / EVENTS_NAME
            path.write_bytes(self._retry(self._read_events))
            line = append_event(path, event, step=step, **more)
            self._retry(lambda: self.storage.put(str(path), EVENTS_NAME))
        return line

    def fetch(self) -> None:
        """Copy the small files of the run from the store into `folder`.

        Raises:
            UserError: there is no run.
        """
        names = self._retry(self._small_files)
        if CONFIG_NAME not in names:
            raise no_run(self.name)
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._retry(lambda name=name, path=path: self.storage.get(name, str(path)))
            self._copied[name] = _version(path)

    def steps(self) -> list[int]:
        """The steps that have a checkpoint in the store, ascending; damaged ones included."""
        return self._retry(self._all_steps)

    def newest(self, warn: Warn) -> Checkpoint | None:
        """The newest sound checkpoint of the store, copied to this machine; `warn` is told of damaged ones."""
        return checkpoints.newest_sound(self._whole_steps(), self._checkpoint, warn)

    def here(self, checkpoint: Checkpoint) -> Checkpoint:
        """The same checkpoint, copied to this machine.

        Raises:
            JobError: it is damaged in the store.
        """
        return self._checkpoint(checkpoint.step)

    def at(self, step: int) -> Checkpoint:
        """That of the store, copied to this machine."""
        return self._checkpoint(step)

    def saved(self, step: int, *, keep: int, best: int | None) -> None:
        """Copy what changed and the checkpoint, its commit mark at the end; remove old checkpoints, here all but this.

        Raises:
            JobError: another command took the run over; the checkpoint then has no commit mark.
        """
        name = f"checkpoints/{checkpoints.checkpoint_name(step)}"
        self._copy(but=EVENTS_NAME)
        self._retry(lambda: self._remove_checkpoint(step))  # an earlier attempt, damaged or cut short
        for path in sorted((self.folder / name).iterdir()):
            if path.name != checkpoints.MARK:
                self._put(f"{name}/{path.name}")
        self._check_owner()
        self._put(f"{name}/{checkpoints.MARK}")
        for old in checkpoints.superfluous(self.steps(), step=step, keep=keep, best=best):
            self._retry(lambda old=old: self._remove_checkpoint(old))
        checkpoints.prune(self.folder / "checkpoints", step=step, keep=1, best=None)

    def publish(self) -> None:
        """Copy the files that changed.

        Raises:
            JobError: another command took the run over.
        """
        self._check_owner()
        self._copy()

    def keep(self, source: Path, name: str) -> None:
        """Copy a file of this machine to the store under `name`."""
        self._retry(lambda: self.storage.put(str(source), name))

    def _empty_folder(self) -> None:
        """Remove what a run before left in the folder, but for the checkpoints, which are compared with the store's."""
        for path in self.folder.iterdir():
            if path.is_dir() and path.name not in _NOT_COPIED:
                shutil.rmtree(path)
            elif path.is_file() and path.name not in _NOT_COPIED:
                path.unlink()

    def _read_result(self) -> dict[str, Any] | None:
        try:
            return RESULT.json(self.storage, RESULT_NAME)
        except FileNotFoundError:
            return None

    def _read_events(self) -> bytes:
        try:
            return self.storage.read_bytes(EVENTS_NAME)
        except FileNotFoundError:  # of a new run
            return b""

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
        self._retry(lambda: self.storage.put(str(self.folder / name), name))

    def _check_owner(self) -> None:
        """A command that was taken for dead, and whose run another goes on with, must not write any more."""
        if self._owner is not None:
            check(self.storage, self._owner)

    def _all_steps(self) -> list[int]:
        return checkpoints.steps_of(self.storage.names("checkpoints"))

    def _whole_steps(self) -> list[int]:
        """The steps whose checkpoints were copied to the end."""
        return [
            step
            for step in self.steps()
            if self.storage.size(f"checkpoints/{checkpoints.checkpoint_name(step)}/{checkpoints.MARK}") is not None
        ]

    def _checkpoint(self, step: int) -> Checkpoint:
        """The checkpoint, on this machine, checked.

        Raises:
            JobError: it is damaged in the store.
        """
        name = f"checkpoints/{checkpoints.checkpoint_name(step)}"
        folder = self.folder / name
        held = JobError(f"another process still copies the checkpoint to {folder}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with lock(self.folder / "lock.fetch", seconds=3600, held=held):
            try:
                mark = self._retry(lambda: self.storage.read_bytes(f"{name}/{checkpoints.MARK}"))
            except FileNotFoundError:
                raise JobError(
                    f"the checkpoint {self.name}/{name} is damaged: cannot read {checkpoints.MARK}"
                ) from None
            with contextlib.suppress(JobError, OSError):
                if (folder / checkpoints.MARK).read_bytes() == mark:
                    return checkpoints.read(folder)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for file in self._retry(lambda: self.storage.names(name)):
                self._retry(lambda file=file: self.storage.get(f"{name}/{file}", str(folder / file)))
            return checkpoints.read(folder, name=f"{self.name}/{name}")

    def _remove_checkpoint(self, step: int) -> None:
        name = f"checkpoints/{checkpoints.checkpoint_name(step)}"
        self.storage.remove(f"{name}/{checkpoints.MARK}")  # first, so that readers find it whole or not at all
        self.storage.remove(name)

    def _retry(self, act: Callable[[], T]) -> T:
        return retry_store(self.storage, act)


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


logger = logging.getLogger("tokenfree")


def run_at(run: str | Path, owner: str | None = None) -> Run:
    """The run at a path or an address; `owner` is what `Run.claimed` gave, None for readers.

    Raises:
        UserError: there is no file system for such an address.
    """
    if "://" not in str(run):
        return RunFolder(Path(run).absolute())
    storage = Storage.at(str(run))
    return RunFolder(Path(storage.path(""))) if storage.is_local else RunStore(str(run), owner)


def checkpoint_of(run: str | Path, step: int | None = None, *, best: bool = False) -> Checkpoint:
    """Return the checkpoint that the run at a path or an address is used with, on this machine.

    By default it is the last one of a run that has ended, or with `best` the best one of a fine-tuned run. Of a run
    that has not ended it is the newest sound one; a warning names each damaged one that is newer.

    Args:
        step: after which another checkpoint was made.

    Raises:
        UserError: there is no checkpoint, or none of `step`.
        JobError: the checkpoint is damaged.
    """
    place = run_at(run)
    steps, result = place.steps(), place.result() or {}
    if not steps:
        raise UserError(f"{run} has no checkpoint; train it first")
    if step is not None and step not in steps:
        raise UserError(f"{run} has no checkpoint of step {step}. Use one of these: {_listed(steps)}.")
    ended = result.get("best_step") if best else None
    wanted = next((each for each in (step, ended, result.get("steps")) if each is not None), None)
    damaged: list[str] = []
    if wanted is None:
        checkpoint = place.newest(damaged.append)
        if checkpoint is None:
            raise JobError(f"{run} has no sound checkpoint; {'; '.join(damaged)}")
        for message in damaged:
            logger.warning(message)
        return dataclasses.replace(checkpoint, damaged=tuple(damaged))
    try:
        return place.at(wanted)
    except JobError as error:
        others = [each for each in steps if each != wanted]
        if not others:
            raise JobError(f"{error}. {run} has no other; put a copy of it back.") from None
        raise JobError(
            f"{error}. Name another one of {run} with --step, or as "
            f"--init-from {run}/checkpoints/{checkpoint_name(others[-1])}. "
            f"Its steps: {_listed(others)}."
        ) from None


def _listed(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps))
