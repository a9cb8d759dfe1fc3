"""Whose output directory is it? A job takes a new directory, goes on in its own, and refuses any other."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from preprocess.config import PreprocessConfig
from preprocess.errors import UserError
from preprocess.manifest import MANIFEST, SUCCESS, Manifest, library_versions, load_manifest, mark_success
from preprocess.settings import build, to_mapping
from preprocess.storage import TEMPORARY, Storage
from preprocess.vocabulary import Vocabulary

WORK = "_work"
JOB = f"{WORK}/job.json"
INPUT_FIELDS = ("wikipedia", "books", "hf_dataset")  # where inputs lie; what they hold is compared instead
CUT_FIELDS = ("split_bytes",)  # how the work is cut, on which no byte of a shard depends
READING_FIELDS = (
    "language",
    "text_column",
    "namespaces",
    "filters",
    "validation_fraction",
)  # what decides the bytes of runs
MADE_EARLY = (
    "vocabulary",
    "train",
    "validation",
    "failures",
)  # what a job may have written when it finds that it can have no output


def identity(config: PreprocessConfig, inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What decides the content of the output, as plain values: not where inputs lie, in which order, or how cut."""
    model = config.vocabulary.model
    sha256 = hashlib.sha256(given_model(model)).hexdigest() if model is not None else None
    return {"config": _content(config, sha256), "inputs": named_inputs(inputs), "versions": library_versions()}


def reading_identity(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a job's identity that decides its runs."""
    return {**wanted, "config": {name: wanted["config"][name] for name in READING_FIELDS}}


def named_inputs(inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Name, size and SHA-256 of each input, sorted; where it lies on this machine is left out."""
    named = [{**entry, "path": _name(entry["path"])} for entry in inputs]
    return sorted(named, key=lambda entry: (entry["path"], entry["sha256"]))


def portable_config(config: PreprocessConfig) -> dict[str, Any]:
    """The resolved config for the manifest: with names for paths, so that it is the same wherever inputs lie."""
    settings = to_mapping(config)
    for name in INPUT_FIELDS:
        settings[name] = sorted(map(_name, settings[name]))
    if config.vocabulary.model is not None:
        settings["vocabulary"]["model"] = _name(config.vocabulary.model)
    return settings


def given_model(path: str) -> bytes:
    """The bytes of the SentencePiece model at `path`. Raises UserError where it cannot be read or is none."""
    folder, _, name = path.rpartition("/")
    try:
        model = Storage.at(folder or ("/" if path.startswith("/") else ".")).read_bytes(name)
    except OSError as error:
        said = error.strerror or error
        raise UserError(f"vocabulary.model: cannot read {path} ({said}); give a SentencePiece model") from None
    Vocabulary.load(model)  # before the job reads for hours
    return model


def finished(storage: Storage, wanted: Mapping[str, Any]) -> Manifest | None:
    """The manifest if the job `wanted` (its identity) is complete already; None if it is to be run, or run on.

    Raises:
        UserError: the directory holds another job, other files, or is no directory.
    """
    if storage.size("") is not None:
        raise UserError(f"{storage.url}: is a file; give a directory to --output")
    names = storage.names()
    if MANIFEST in names:
        manifest = load_manifest(storage.url)
        # A finished directory stays good under later versions of the libraries, so these are not compared.
        _refuse_other(storage, _identity_of(manifest), {**wanted, "versions": {}}, "was made with")
        return manifest
    begun = storage.read_json(JOB)
    if begun is not None:
        _refuse_other(storage, begun, wanted, "was begun with")
    elif foreign := sorted(set(names) - {WORK, TEMPORARY}):
        raise UserError(
            f"{storage.url}: holds files that tokenfree did not make ({', '.join(foreign[:3])}); "
            "give an empty or new directory to --output"
        )
    return None


def take(storage: Storage, wanted: Mapping[str, Any]) -> None:
    """Mark the directory as that of the job `wanted`; sweeps what a killed job left half-written."""
    storage.remove(TEMPORARY)
    if storage.read_json(JOB) is None:
        storage.write_json(JOB, dict(wanted))


def release(storage: Storage) -> None:
    """Let another config take the directory: this one proved impossible before any shard was built. Runs are kept."""
    for name in (JOB, *MADE_EARLY):
        storage.remove(name)


def tidy(storage: Storage) -> None:
    """Remove what only a running job needs; for a directory whose manifest is written."""
    if storage.size(SUCCESS) is None:
        mark_success(storage)
    for name in sorted({WORK, TEMPORARY} & set(storage.names())):
        storage.remove(name)


def abandon(storage: Storage) -> None:
    """Leave nothing of a job that can have no output."""
    for name in (WORK, TEMPORARY, *MADE_EARLY):
        storage.remove(name)
    storage.remove_if_empty()


def _name(path: str) -> str:
    return os.path.basename(str(path).rstrip("/"))


def _content(config: PreprocessConfig, model_sha256: str | None) -> dict[str, Any]:
    settings = {key: value for key, value in to_mapping(config).items() if key not in (*INPUT_FIELDS, *CUT_FIELDS)}
    settings["columns"] = sorted(settings["columns"])
    settings["namespaces"] = sorted(settings["namespaces"])
    settings["vocabulary"]["model"] = model_sha256
    return settings


def _identity_of(manifest: Manifest) -> dict[str, Any]:
    config = build(PreprocessConfig, manifest.config, source=MANIFEST)
    model = manifest.vocabulary_sha256 if config.vocabulary.model is not None else None
    return {"config": _content(config, model), "inputs": list(manifest.inputs), "versions": {}}


def _refuse_other(storage: Storage, found: Mapping[str, Any], wanted: Mapping[str, Any], verb: str) -> None:
    changed = _differences(found["config"], wanted["config"]) + _differences(found["versions"], wanted["versions"])
    told = [f"{key} {json.dumps(old)}, not {json.dumps(new)}" for key, old, new in changed]
    told += _input_differences(found["inputs"], wanted["inputs"])
    if told:
        raise UserError(
            f"{storage.url}: {verb} {'; '.join(told)}; give another --output, or remove this one to start afresh"
        )


def _differences(old: Any, new: Any, prefix: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = sorted({*old, *new})
        return [found for key in keys for found in _differences(old.get(key), new.get(key), f"{prefix}.{key}")]
    return [] if old == new else [(prefix.strip("."), old, new)]


def _input_differences(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[str]:
    before = [json.dumps(entry, sort_keys=True) for entry in old]
    now = [json.dumps(entry, sort_keys=True) for entry in new]
    if before == now:
        return []
    gone = {entry["path"] for entry, line in zip(old, before, strict=True) if line not in now}
    come = {entry["path"] for entry, line in zip(new, now, strict=True) if line not in before}
    told = [
        *[f"another content of the input {name}" for name in sorted(gone & come)],
        *[f"the input {name}, which is not given now" for name in sorted(gone - come)],
        *[f"no input {name}" for name in sorted(come - gone)],
    ]
    return told or ["the same inputs, another number of times"]
