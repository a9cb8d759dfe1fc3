"""A run in a folder or an object store: its write lock, checkpoints and result.

    <run>/config.yaml     recipe, data path and manifest fingerprint, written before anything starts; and its
    attempts <run>/checkpoints/    see train/runs/checkpoints.py <run>/metrics.jsonl   events.jsonl
    tensorboard/      see train/runs/metrics.py <run>/result.json     written last: the run is complete
    <run>/ray/            storage and logs of Ray, if it was used

A run in a store, such as s3://bucket/run, is trained in a local folder and copied to the store with each
checkpoint. The store is authoritative: a resumed run begins with its content. The commit mark of a checkpoint
is copied last. A killed run therefore leaves complete checkpoints with the metrics up to them. A partly
copied checkpoint is ignored.
"""

import contextlib
import dataclasses
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tokenfree.core.errors import JobError, UserError, logger
from tokenfree.core.files import AnyPath, cache_folder, expand_home, is_half_written, lock, write_atomically
from tokenfree.core.locks import LOCK, check, hold
from tokenfree.core.storage import Storage, retry_store
from tokenfree.core.stored_files import HASHES, check_finished, rewriting
from tokenfree.train.config import R
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.checkpoints import Checkpoint, Warn, checkpoint_name
from tokenfree.train.runs.config import RunConfig, no_run, open_run
from tokenfree.train.runs.formats import CONFIG, CONFIG_NAME, EVENTS, EVENTS_NAME, RESULT, RESULT_NAME
from tokenfree.train.runs.metrics import append_event

T = TypeVar("T")
STARTS = ("start", "resume")  # events of workers that begin to train
_NOT_COPIED = ("checkpoints", "ray", LOCK, "lock.worker", "lock.fetch")  # by `_copy`


class Run:
    """A run in a folder that all workers can access, or in an object store.

    A process that writes to a run in a store has the `owner` that `claimed` yields. `folder` is where the
    worker of rank 0 reads and writes: the run itself, or its copy on this machine.
    """

    def __init__(self, run: AnyPath, owner: str | None = None) -> None:
        path = expand_home(run)
        self.storage = Storage.at(path if "://" in path else Path(path).absolute())
        self._local = self.storage.is_local
        self._owner = owner
        self._copied: dict[str, tuple[int, int]] = {}
        if self._local:
            self.folder = Path(self.storage.path(""))
            self.name = str(self.folder)
        else:
            self.name = self.storage.url
            digest = hashlib.blake2b(self.name.encode(), digest_size=12).hexdigest()
            base = cache_folder() / "runs" / digest / ("read" if owner is None else "train")
            self.folder = base / self.name.rstrip("/").rsplit("/", 1)[-1]

    def open(self, config: RunConfig[R]) -> RunConfig[R]:
        """Create a new run, or check an existing one. Return its config.

        Raises UserError if recipe or data differ, or it is read-only.
        """
        if self._local:
            return open_run(self.folder, config)
        names = [name for name in self.storage.names() if name != LOCK]
        if names and CONFIG_NAME not in names:
            raise UserError(
                f"{self.name} holds other files and no run; give an empty or new address as --output"
            )
        with tempfile.TemporaryDirectory(prefix="tokenfree-") as scratch:
            file = Path(scratch) / CONFIG_NAME
            old = self._retry(lambda: self.storage.read_bytes(CONFIG_NAME)) if names else b""
            if names:
                file.write_bytes(old)
                # Errors show this name.
                CONFIG.from_yaml(old, f"{self.name}/{CONFIG_NAME}")
            config = open_run(Path(scratch), config, name=self.name)
            if file.read_bytes() != old:
                with rewriting(self.storage, [CONFIG_NAME]):
                    self.write(CONFIG_NAME, file.read_bytes())
        return config

    def write(self, name: str, data: bytes) -> None:
        if self._local:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)
        else:
            self._retry(lambda: self.storage.write_bytes(name, data))

    def write_config(self, config: RunConfig[Any]) -> None:
        self._check_owner()
        self.write(CONFIG_NAME, config.text().encode())

    def reopen(self, config: RunConfig[Any]) -> None:
        """Remove the result of the run, then write its config. A kill in between leaves an unfinished run."""
        self._check_owner()
        self._retry(lambda: self.storage.remove(RESULT_NAME))
        self.write_config(config)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[str | None]:
        """Lock the run, and yield the owner that workers need in a store.

        Raises UserError if it is already trained.
        """
        held = UserError(
            f"{self.name} is being trained by another command; wait for it or give another --output"
        )
        local = lock(self.folder / "lock", seconds=0, held=held)
        with local if self._local else hold(self.storage, held) as owner:
            yield owner

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """Give the worker of rank 0 exclusive access to the run in `folder` within the block.

        For a run in a store, `folder` begins with the store's content without checkpoints. At the end the
        other files are copied back, the result last, and the local copy is removed. This waits for a worker
        that outlives an earlier command; on a machine that is cut off, it takes up to 45 seconds. Raises
        JobError if it stays.
        """
        held = JobError(f"another process still trains {self.name}; end it and run the same command again")
        self.folder.mkdir(parents=True, exist_ok=True)
        with lock(self.folder / "lock.worker", seconds=120, held=held):
            if self._local:
                yield
                return
            # Remove files of an earlier start. Checkpoints stay, because `at` compares them with the store's.
            for path in self.folder.iterdir():
                if path.name not in _NOT_COPIED:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            self.fetch()
            yield
            self._check_owner()
            self._copy(but=RESULT_NAME)
            self._copy()
            shutil.rmtree(self.folder, ignore_errors=True)

    def result(self) -> dict[str, Any] | None:
        """Return the result of a complete run, else None. Raise UserError if its file is damaged."""

        def read() -> dict[str, Any] | None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                return RESULT.json(self.storage, RESULT_NAME)

        return self._retry(read)

    def events(self) -> list[dict[str, Any]]:
        """Return the lines of events.jsonl; none for a new run. Raise UserError if one is damaged."""
        return self._retry(lambda: EVENTS.json_lines(self.storage, EVENTS_NAME))

    def num_restarts(self) -> int:
        """Return how often workers were restarted; -1 for a run that has not started."""
        return sum(event["event"] in STARTS for event in self.events()) - 1

    def add_event(self, event: str, *, step: int | None = None, **more: Any) -> dict[str, Any]:
        if self._local:
            return append_event(self.folder / EVENTS_NAME, event, step=step, **more)
        # Stores cannot append.
        with tempfile.TemporaryDirectory(prefix="tokenfree-") as scratch:
            path = Path(scratch) / EVENTS_NAME
            path.write_bytes(self._read(EVENTS_NAME) or b"")
            line = append_event(path, event, step=step, **more)
            self.keep(path, EVENTS_NAME)
        return line

    def fetch(self) -> None:
        """Copy the small files of an existing run to `folder`. Raise UserError if there is no run."""
        if self._local:
            if not (self.folder / CONFIG_NAME).is_file():
                raise no_run(self.name)
            return
        # The hashes cover files that are not copied.
        left_out = (*_NOT_COPIED, "tensorboard", "profile", HASHES)
        names = [name for name in self._retry(self.storage.find) if name.split("/")[0] not in left_out]
        if CONFIG_NAME not in names:
            raise no_run(self.name)
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._retry(lambda name=name, path=path: self.storage.get(name, str(path)))
            self._copied[name] = _version(path)

    def steps(self) -> list[int]:
        return checkpoints.steps_of(self._retry(lambda: self.storage.names("checkpoints")))

    def newest(self, warn: Warn) -> Checkpoint | None:
        """Return the newest valid checkpoint, on this machine.

        `warn` gets a message about each damaged one.
        """
        steps = self.steps()
        # Without a mark the copy is incomplete.
        if not self._local:
            steps = [
                step for step in steps if self.storage.size(f"{_name(step)}/{checkpoints.MARK}") is not None
            ]
        return checkpoints.newest_sound(steps, self.at, warn)

    def here(self, checkpoint: Checkpoint) -> Checkpoint:
        return checkpoint if self._local else self.at(checkpoint.step)

    def at(self, step: int) -> Checkpoint:
        """Return the checkpoint of a step, on this machine.

        Raises JobError if it is damaged or does not exist.
        """
        name = _name(step)
        folder = self.folder / name
        if self._local:
            return checkpoints.read(folder)
        held = JobError(f"another process still copies the checkpoint to {folder}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with lock(self.folder / "lock.fetch", seconds=3600, held=held):
            mark = self._read(f"{name}/{checkpoints.MARK}")
            if mark is None:
                raise JobError(
                    f"the checkpoint {self.name}/{name} is damaged: cannot read {checkpoints.MARK}"
                )
            with contextlib.suppress(JobError, OSError):
                if (folder / checkpoints.MARK).read_bytes() == mark:
                    return checkpoints.read(folder)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for file in self._retry(lambda: self.storage.names(name)):
                self._retry(lambda file=file: self.storage.get(f"{name}/{file}", str(folder / file)))
            return checkpoints.read(folder, name=f"{self.name}/{name}")

    def saved(self, step: int, *, keep: int, best: int | None) -> None:
        """Add the checkpoint of `step` in `folder` to the run, and remove old ones as `prune` does.

        In a store, its commit mark is copied last. The local folder then keeps only this checkpoint.
        """
        if self._local:
            checkpoints.prune(self.folder / "checkpoints", step=step, keep=keep, best=best)
            return
        self._copy(but=EVENTS_NAME)
        # Of an earlier attempt: damaged or incomplete.
        self._remove_checkpoint(step)
        for path in sorted((self.folder / _name(step)).iterdir()):
            if path.name != checkpoints.MARK:
                self.keep(path, f"{_name(step)}/{path.name}")
        self._check_owner()
        mark = f"{_name(step)}/{checkpoints.MARK}"
        self.keep(self.folder / mark, mark)
        for old in checkpoints.steps_to_prune(self.steps(), step=step, keep=keep, best=best):
            self._remove_checkpoint(old)
        checkpoints.prune(self.folder / "checkpoints", step=step, keep=1, best=None)

    def publish(self) -> None:
        """Copy changed files to a store, so that others see them before the next checkpoint."""
        if not self._local:
            self._check_owner()
            self._copy()

    def keep(self, source: Path, name: str) -> None:
        if not self._local:
            self._retry(lambda: self.storage.put(str(source), name))
            return
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)

    def _copy(self, *, but: str = "") -> None:
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if name.split("/")[0] in (*_NOT_COPIED, but) or is_half_written(path) or not path.is_file():
                continue
            version = _version(path)
            if self._copied.get(name) != version:
                self.keep(path, name)
                self._copied[name] = version

    def _check_owner(self) -> None:
        if self._owner is not None:
            check(self.storage, self._owner)

    def _remove_checkpoint(self, step: int) -> None:
        # The mark goes first, so that readers find a checkpoint whole or not at all.
        self._retry(lambda: self.storage.remove(f"{_name(step)}/{checkpoints.MARK}"))
        self._retry(lambda: self.storage.remove(_name(step)))

    def _read(self, name: str) -> bytes | None:

        def read() -> bytes | None:
            with contextlib.suppress(FileNotFoundError):
                return self.storage.read_bytes(name)

        return self._retry(read)

    def _retry(self, act: Callable[[], T]) -> T:
        return act() if self._local else retry_store(self.storage, act)


def _name(step: int) -> str:
    return f"checkpoints/{checkpoint_name(step)}"


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def checkpoint_of(run: AnyPath, step: int | None = None, *, best: bool = False) -> Checkpoint:
    """Return the checkpoint to use a run with. Raises UserError if it has none, JobError if it is damaged.

    By default it is the last one of a finished run, or with `best` the best one of a fine-tuned run. For an
    unfinished run it is the newest valid one; a warning names each damaged one that is newer. Any other
    damaged file of a finished run raises JobError too, except other checkpoints if `step` is given or the run
    is in a store.
    """
    place = Run(run)
    check_finished(place.name, lambda name: not name.startswith("checkpoints/"))
    steps, result = place.steps(), place.result() or {}
    if not steps:
        raise UserError(f"{run} has no checkpoint; train it first")
    if step is not None and step not in steps:
        raise UserError(f"{run} has no checkpoint of step {step}. Use one of these: {_listed(steps)}.")
    ended = result.get("best_step") if best else None
    chosen = next(
        (candidate for candidate in (step, ended, result.get("steps")) if candidate is not None), None
    )
    damaged: list[str] = []
    if chosen is None:
        checkpoint = place.newest(damaged.append)
        if checkpoint is None:
            raise JobError(f"{run} has no sound checkpoint; {'; '.join(damaged)}")
        for message in damaged:
            logger.warning(message)
        return dataclasses.replace(checkpoint, damaged=tuple(damaged))
    try:
        checkpoint = place.at(chosen)
    except JobError as error:
        others = [candidate for candidate in steps if candidate != chosen]
        raise JobError(
            f"{error}. Put a copy of it back, or name another one with --step, or as --init-from "
            f"{run}/checkpoints/step_N. Its steps: {_listed(others)}."
        ) from None
    if step is None and place.storage.is_local:
        others = [f"{_name(candidate)}/" for candidate in steps if candidate != chosen]
        check_finished(place.name, lambda name: name.startswith(tuple(others)))
    return checkpoint


def _listed(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps))
