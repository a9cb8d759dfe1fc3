"""Inputs that are added to a finished data directory: a job of all inputs beside it, which then takes its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.pipelines.progress import Progress
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.store_lock import HeldStorage, claimed
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.manifest import Manifest, load_manifest
from tokenfree.preprocess.dataset.success_mark import marked_inputs
from tokenfree.preprocess.job.identity import differing_settings, identity, manifest_config, refuse
from tokenfree.preprocess.job.output_directory import tidy
from tokenfree.preprocess.job.recognition import with_earlier_values
from tokenfree.preprocess.job.reuse import store_swap
from tokenfree.preprocess.job.reuse.addition import NEXT, recover, take_place, with_kept_inputs
from tokenfree.preprocess.job.reuse.kept import the_kept
from tokenfree.preprocess.sources.input_splits import find_inputs


def run_addition(
    config: PreprocessConfig,
    output: str,
    *,
    progress: Callable[[Progress], None] | None = None,
    notice: Callable[[str], None] = print,
    **options: Any,
) -> Manifest:
    """Add the inputs of `config` to the finished data directory `output`, which was made with `keep_runs`.

    The directory becomes, byte for byte, that of a job from nothing with all inputs: a dump takes the place of those of
    the same wiki, anything else comes beside what was there. Runs of inputs that did not change are used again, and so
    are the texts of pages that did not. All of it is made in a directory beside this one, named with `.next`; the old
    one stays as it is until that is complete. Killed at any moment and called again, it goes on. A store renames
    nothing: there the files are copied then, and until the last one the directory counts as unfinished.

    Args:
        config: the settings with which the directory was made, with the paths of the inputs to add.
        output: the data directory.
        progress: see `run_preprocess`.
        notice: see `run_preprocess`.
        options: runner, workers and others of `run_preprocess`.

    Raises:
        UserError: as `run_preprocess`; or nothing was kept, or the settings are others.
        JobError: as `run_preprocess`.
    """
    storage = Storage.at(output)
    new = Storage(storage.url + NEXT)
    if storage.is_local:
        recover(storage.url)
    if storage.is_local or not store_swap.is_half_swapped(storage, new):
        load_manifest(storage.url)  # before the lock, which would leave something where nothing is
    with claimed(storage) as number:
        if number is not None:
            store_swap.go_on(HeldStorage(storage.url, number), new)
        manifest = load_manifest(storage.url)
        tidy(storage)
        whole, replaced = with_kept_inputs(with_earlier_values(config, storage, notice), the_kept(storage))
        wanted = identity(whole, find_inputs(whole, storage.url, lambda _: None))  # `run_preprocess` tells
        refuse(storage, "was made with", differing_settings(manifest_config(manifest), wanted["config"]))
        if marked_inputs(storage) == wanted["inputs"]:
            shards = len(manifest.shards)
            (progress or (lambda _: None))(Progress("complete", shards, shards, 0, manifest.counters["characters"]))
            return manifest
        if replaced:
            notice(f"{storage.url}: a newer dump takes the place of {', '.join(replaced)}")
        made = run_preprocess(
            whole,
            new.url,
            keep_runs=True,
            reuse=storage.url,
            progress=progress,
            notice=notice,
            **options,
        )
        if number is None:
            take_place(storage.url)
        else:
            store_swap.swap(HeldStorage(storage.url, number), new)
    return made
