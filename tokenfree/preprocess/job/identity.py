"""What makes a job the same job: its settings, its inputs and the versions of the libraries, as plain values."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenfree.preprocess.common.addresses import check_is_stored
from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.settings import build, flatten, merge, to_mapping, value_at
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.manifest import MANIFEST, Manifest, library_versions
from tokenfree.preprocess.sources.inputs.files import InputFile

FORMAT = 3  # of what lies under _work/; 1 hashed its inputs before it read them, 2 had one run for each input split
INPUT_FIELDS = ("wikipedia", "books", "hf_dataset")  # where inputs lie; what they hold is compared instead
CUT_FIELDS = ("split_bytes",)  # how the work is cut, on which no byte of a shard depends
# What decides runs.
READING_FIELDS = (
    *("language", "text_column", "id_column", "language_column"),
    *("namespaces", "filters", "near_duplicates", "validation_fraction"),
)
# Settings that came later. They are left out where they are as before, so that a job begun before goes on.
LATER_FIELDS = (
    *("id_column", "language_column", "filters.languages", "filters.scripts", "filters.min_script_share"),
    *("filters.max_symbol_share", "filters.max_repeated_line_share", "near_duplicates"),
    "vocabulary.required_characters",
)
BEFORE = {"vocabulary": {"required_characters": "none"}}  # the values before, where these are not the defaults


def identity(config: PreprocessConfig, inputs: Iterable[InputFile]) -> dict[str, Any]:
    """What decides the content of the output: not where inputs lie, in which order, or how cut.

    Inputs are told by name, size in bytes and what the store says of their last change, so nothing of them is read.

    Raises:
        UserError: the given SentencePiece model cannot be read.
    """
    model = config.vocabulary.model
    sha256 = hashlib.sha256(read_given_model(model)).hexdigest() if model is not None else None
    found = [{"path": portable_name(file.path), "size": file.size, "modified": file.modified} for file in inputs]
    found.sort(key=lambda entry: (entry["path"], entry["size"], entry["modified"]))
    return {"format": FORMAT, "config": _content(config, sha256), "inputs": found, "versions": library_versions()}


def reading_identity(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a job's identity that decides, with an input split, a sorted run."""
    config = {name: wanted["config"][name] for name in READING_FIELDS if name in wanted["config"]}
    return {"format": wanted["format"], "config": config, "versions": wanted["versions"]}


def manifest_config(manifest: Manifest) -> dict[str, Any]:
    """The config of a finished job, as it stands in the identity of one.

    Raises:
        UserError: this version does not know a setting of it.
    """
    config = build(PreprocessConfig, merge(BEFORE, manifest.config), source=MANIFEST)
    return _content(config, manifest.vocabulary_sha256 if config.vocabulary.model is not None else None)


def portable_config(config: PreprocessConfig) -> dict[str, Any]:
    """The resolved config for the manifest: with names for paths, so that it is the same wherever inputs lie."""
    settings = to_mapping(config)
    if settings["vocabulary"]["required_characters"] == BEFORE["vocabulary"]["required_characters"]:
        del settings["vocabulary"]["required_characters"]  # so that a job of before is known again
    for name in INPUT_FIELDS:
        settings[name] = sorted(map(portable_name, settings[name]))
    if config.vocabulary.model is not None:
        settings["vocabulary"]["model"] = portable_name(config.vocabulary.model)
    return settings


def portable_name(path: str) -> str:
    """The name of an input, without the folders above it."""
    return os.path.basename(str(path).rstrip("/"))


def read_given_model(path: str) -> bytes:
    """The bytes of the SentencePiece model at `path`.

    Raises:
        UserError: it cannot be read.
    """
    check_is_stored(path, "vocabulary.model")
    folder, _, name = path.rpartition("/")
    try:
        return Storage.at(folder or ("/" if path.startswith("/") else ".")).read_bytes(name)
    except OSError as error:
        said = error.strerror or error
        raise UserError(f"vocabulary.model: cannot read {path} ({said}); give a SentencePiece model") from None


def differing_settings(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Which settings of two identities differ, in the words of `changed_settings`."""
    defaults = flatten(to_mapping(PreprocessConfig()))
    later = {key: value for key, value in defaults if key.startswith(LATER_FIELDS)}
    later.update(flatten(BEFORE))
    return changed_settings({**later, **dict(flatten(found))}, {**later, **dict(flatten(wanted))})


def changed_settings(found: Any, wanted: Any, prefix: str = "") -> list[str]:
    """Which values of two nested mappings differ, in words, with their dotted keys: `seed 0, not 1`."""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        keys = sorted({*found, *wanted})
        return [text for key in keys for text in changed_settings(found.get(key), wanted.get(key), f"{prefix}.{key}")]
    return [] if found == wanted else [f"{prefix.strip('.')} {json.dumps(found)}, not {json.dumps(wanted)}"]


def changed_inputs(found: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which inputs differ between two sorted lists of entries with a `path`, in words, by their names."""
    before = [json.dumps(entry, sort_keys=True) for entry in found]
    now = [json.dumps(entry, sort_keys=True) for entry in wanted]
    if before == now:
        return []
    gone = {entry["path"] for entry, line in zip(found, before, strict=True) if line not in now}
    come = {entry["path"] for entry, line in zip(wanted, now, strict=True) if line not in before}
    told = [
        *[f"another content of the input {name}" for name in sorted(gone & come)],
        *[f"the input {name}, which is not given now" for name in sorted(gone - come)],
        *[f"no input {name}" for name in sorted(come - gone)],
    ]
    return told or ["the same inputs, another number of times"]


def refuse(storage: Storage, verb: str, told: Sequence[str]) -> None:
    """Refuse the directory of another job, in the words of `changed_settings` and `changed_inputs`, if there are any.

    Raises:
        UserError: there are.
    """
    if told:
        raise UserError(
            f"{storage.url}: {verb} {'; '.join(told)}; give another --output, or remove this one to start afresh"
        )


def _content(config: PreprocessConfig, model_sha256: str | None) -> dict[str, Any]:
    settings = {key: value for key, value in to_mapping(config).items() if key not in (*INPUT_FIELDS, *CUT_FIELDS)}
    settings["columns"] = sorted(settings["columns"])
    settings["namespaces"] = sorted(settings["namespaces"])
    settings["vocabulary"]["model"] = model_sha256
    if model_sha256 is not None:
        settings["vocabulary"]["required_characters"] = "none"  # as before: nothing is trained
    before = merge(to_mapping(PreprocessConfig()), BEFORE)
    for key in LATER_FIELDS:
        if value_at(settings, key) == value_at(before, key):
            group, _, name = key.rpartition(".")
            del (value_at(settings, group) if group else settings)[name]
    return settings
