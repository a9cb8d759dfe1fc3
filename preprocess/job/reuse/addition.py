"""What a job that adds inputs to a finished directory reads, and how its directory takes the place of the old one."""

from __future__ import annotations

import dataclasses
import os
import shutil

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.success_mark import SUCCESS
from tokenfree.preprocess.job.reuse.kept import Kept, absolute
from tokenfree.preprocess.sources.input_splits import plan_splits

NEXT, PREVIOUS = ".next", ".previous"  # behind the name of the directory: the one to come, and the one that was


def with_kept_inputs(config: PreprocessConfig, kept: Kept) -> tuple[PreprocessConfig, tuple[str, ...]]:
    """The settings of the whole job, and the names of the dumps that go.

    A dump takes the place of those of the same wiki: of a wiki that comes in several files all are to be given. All
    else comes beside what was there.

    Raises:
        UserError: an input that is added is none.
    """
    added = _databases(config)
    stays = [dump.path for dump in kept.wikipedia if dump.database not in added.values()]
    replaced = [dump.path for dump in kept.wikipedia if dump.path not in (*stays, *added)]
    whole = dataclasses.replace(
        config,
        wikipedia=(*stays, *config.wikipedia),
        books=absolute((*kept.books, *config.books)),
        hf_dataset=absolute((*kept.hf_dataset, *config.hf_dataset)),
    )
    return whole, tuple(map(os.path.basename, replaced))


def _databases(config: PreprocessConfig) -> dict[str, str]:
    """The database of each dump that is added, by its path."""
    if not config.wikipedia:
        return {}
    alone = dataclasses.replace(config, books=(), hf_dataset=())
    return {split.inputs[0]: split.site.database for split in plan_splits(alone) if split.site is not None}


def recover(output: str) -> None:
    """Bring a directory on a disk to its place whose predecessor was moved away when the command was killed.

    Raises:
        UserError: it may not be moved.
    """
    with Storage.at(output).explained():
        if not os.path.exists(output) and _is_finished(output + NEXT):
            os.rename(output + NEXT, output)
        if _is_finished(output):
            shutil.rmtree(output + PREVIOUS, ignore_errors=True)


def take_place(output: str) -> None:
    """Put the finished directory beside `output`, on a disk, in its place, and remove the old one then.

    Between two renamings there is none for a moment; whoever is killed there has both under their other names, and the
    next command for this directory goes on (`recover`).

    Raises:
        UserError: one may not be moved.
    """
    with Storage.at(output).explained():
        os.rename(output, output + PREVIOUS)
        os.rename(output + NEXT, output)
        shutil.rmtree(output + PREVIOUS, ignore_errors=True)


def _is_finished(path: str) -> bool:
    return os.path.exists(f"{path}/{SUCCESS}")
