"""Is the job done already? A finished directory is recognised by its settings and by what its inputs look like.

Names, sizes and times of the inputs stand in `_SUCCESS`, so nothing is read where they are the same. Only an input
whose time is another one, or that has none, is hashed and compared with the manifest.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.local_files import TEMPORARY
from tokenfree.preprocess.common.settings import value_at
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.store_lock import LOCK
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.manifest import MANIFEST, Manifest, load_manifest
from tokenfree.preprocess.dataset.success_mark import mark_success, marked_inputs
from tokenfree.preprocess.job.identity import (
    BEFORE,
    FORMAT,
    changed_inputs,
    changed_settings,
    differing_settings,
    manifest_config,
    portable_name,
)
from tokenfree.preprocess.job.identity import refuse as refuse_changes
from tokenfree.preprocess.job.preprocess_job import WORK, begun_job
from tokenfree.preprocess.sources.input_splits import Inputs, hash_input, plan_splits

Entries = Sequence[Mapping[str, Any]]  # of inputs, each with its `path` (a name), sorted


def with_earlier_values(config: PreprocessConfig, storage: Storage, notice: Callable[[str], None]) -> PreprocessConfig:
    """The settings, with the earlier value of `vocabulary.required_characters` where the directory records none.

    Raises:
        UserError: the directory is damaged.
    """
    if storage.size("") is not None:  # a file, which `finished` refuses
        return config
    begun = load_manifest(storage.url).config if MANIFEST in storage.names() else _begun_config(storage)
    if begun is None or value_at(begun, "vocabulary.required_characters") is not None:
        return config
    vocabulary = dataclasses.replace(config.vocabulary, **BEFORE["vocabulary"])
    if vocabulary != config.vocabulary and vocabulary.model is None:
        notice(f"{storage.url}: keeps vocabulary.required_characters=none, with which it was begun")
    return dataclasses.replace(config, vocabulary=vocabulary)


def _begun_config(storage: Storage) -> Mapping[str, Any] | None:
    begun = begun_job(storage)
    return begun["config"] if begun is not None and begun.get("format") == FORMAT else None


def finished(
    storage: Storage, wanted: Mapping[str, Any], config: PreprocessConfig, inputs: Inputs, *, check_inputs: bool = False
) -> Manifest | None:
    """The manifest if the job `wanted` (its identity) is complete already; None if it is to be run, or run on.

    With `check_inputs` all inputs are hashed, whatever their times say.

    Raises:
        UserError: the directory holds another job, other files, or is no directory; the config or the inputs that
            differ are named.
        JobError: an input changed while it was hashed.
    """
    if storage.size("") is not None:
        raise UserError(f"{storage.url}: is a file; give a directory to --output")
    names = storage.names()
    if MANIFEST not in names:
        _refuse_foreign(storage, names, wanted)
        return None
    manifest = load_manifest(storage.url)
    # A finished directory stays good under later versions of the libraries, so these are not compared.
    refuse_changes(storage, "was made with", differing_settings(manifest_config(manifest), wanted["config"]))
    marked, found = marked_inputs(storage), wanted["inputs"]
    if marked is not None:
        refuse_changes(storage, "was made with", changed_inputs(_sizes(marked), _sizes(found)))
    unsure = {entry["path"] for entry in found}
    if marked is not None and not check_inputs:
        unsure = _of_other_times(marked, found)
    if unsure:
        _compare_contents(storage, manifest, config, inputs, unsure)
        if marked != found:
            with contextlib.suppress(UserError):  # it may be somebody else's, or on a disk that is only read
                mark_success(storage, found)  # so that nothing is hashed the next time
    return manifest


def _refuse_foreign(storage: Storage, names: Sequence[str], wanted: Mapping[str, Any]) -> None:
    """Refuse an unfinished directory that is another job's, or no job's, or whose job cannot be told any more."""
    begun = begun_job(storage)
    if begun is not None:
        told = differing_settings(begun["config"], wanted["config"])
        if begun.get("format") == FORMAT:  # otherwise nothing of it will be used
            told += changed_settings(begun["versions"], wanted["versions"])
            told += changed_inputs(_only(begun["inputs"], "path"), _only(wanted["inputs"], "path"))
        refuse_changes(storage, "was begun with", told)
    elif foreign := sorted(set(names) - {WORK, TEMPORARY, LOCK}):
        raise UserError(
            f"{storage.url}: holds files that tokenfree did not make ({', '.join(foreign[:3])}); "
            "give an empty or new directory to --output"
        )


def _compare_contents(
    storage: Storage, manifest: Manifest, config: PreprocessConfig, inputs: Inputs, unsure: set[str]
) -> None:
    """Refuse inputs of another content than the manifest tells, of those with the names `unsure`."""
    read = {path for split in plan_splits(config, inputs) for path in split.inputs}  # others have nothing in them
    files = [(portable_name(file.path), file) for file in inputs if file.path in read]
    datasets = {portable_name(file.path) for file in inputs.datasets}  # of which the manifest has another kind of size
    before = _sizes({**entry, **({"size": 0} if entry["path"] in datasets else {})} for entry in manifest.inputs)
    now = _sizes({"path": name, "size": 0 if name in datasets else file.size} for name, file in files)
    refuse_changes(storage, "was made with", changed_inputs(before, now))
    found = [dict(entry) for entry in manifest.inputs if entry["path"] not in unsure]
    for name, file in files:
        if name in unsure:
            size, sha256 = hash_input(file)
            found.append({"path": name, "size": size, "sha256": sha256})
    found.sort(key=lambda entry: (entry["path"], entry["sha256"]))
    refuse_changes(storage, "was made with", changed_inputs(manifest.inputs, found))


def _of_other_times(marked: Entries, found: Entries) -> set[str]:
    """The names of inputs whose times are others than those in the mark, or of which the store tells none."""
    before, now = _times(marked), _times(found)
    return {name for name, times in now.items() if times != before[name] or "" in times}


def _times(entries: Entries) -> dict[str, list[str]]:
    times: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        times[entry["path"]].append(entry["modified"])
    return {name: sorted(of_name) for name, of_name in times.items()}


def _sizes(entries: Iterable[Mapping[str, Any]]) -> Entries:
    return sorted(_only(entries, "path", "size"), key=lambda entry: (entry["path"], entry["size"]))


def _only(entries: Iterable[Mapping[str, Any]], *names: str) -> list[Mapping[str, Any]]:
    return [{name: entry[name] for name in names} for entry in entries]
