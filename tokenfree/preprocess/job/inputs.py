"""The identity of a job (its settings, inputs and library versions), and whether the job is done already.

Nothing is read if `_SUCCESS` has the same names, sizes and times. Otherwise inputs are hashed and compared.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenfree.core.errors import UserError
from tokenfree.core.files import TEMPORARY
from tokenfree.core.locks import LOCK
from tokenfree.core.machine import version_of
from tokenfree.core.settings import DECIDES_RUNS, OPERATIONAL, build, marked_keys, merge, nest, value_at
from tokenfree.core.settings_values import code_hashes, flatten, is_custom, to_mapping
from tokenfree.core.storage import Storage, check_is_stored
from tokenfree.preprocess.config import INPUT, PreprocessConfig, steps_of
from tokenfree.preprocess.dataset.completion import library_versions, mark_success, marked_inputs
from tokenfree.preprocess.dataset.manifest import MANIFEST, Manifest, load_manifest
from tokenfree.preprocess.job.job import WORK, read_job_identity
from tokenfree.preprocess.sources.files import InputFile
from tokenfree.preprocess.sources.splits import Inputs, hash_input, plan_splits

FORMAT = 3  # version of the files under _work/
# Keys that were added after the release of 0.3. A job or directory that lacks one keeps its earlier value,
# which is the default or, where that has changed, the one of EARLIER_VALUES.
LATER_FIELDS: tuple[str, ...] = (
    "expand_templates",
    "encoding",
    "readers",
    "cleaner",
    "filters.also",
    "keep_dropped",
)
EARLIER_VALUES: Mapping[str, Any] = {"expand_templates": False}


def identity(config: PreprocessConfig, inputs: Iterable[InputFile]) -> dict[str, Any]:
    """Return what decides the content of the output. Where inputs lie, their order and their splits do not.

    Inputs are identified by name, size in bytes and what the store reports about their last change, so none
    is read. The files of custom steps are identified by their content, next to the versions of libraries.
    """
    model = config.vocabulary.model
    sha256 = hashlib.sha256(read_given_model(model)).hexdigest() if model is not None else None
    entries = [
        {"path": portable_name(file.path), "size": file.size, "modified": file.modified} for file in inputs
    ]
    entries.sort(key=lambda entry: (entry["path"], entry["size"], entry["modified"]))
    return {
        "format": FORMAT,
        "config": _content(config, sha256),
        "inputs": entries,
        "versions": {**library_versions(), **_versions_of_steps(config)},
    }


def _versions_of_steps(config: PreprocessConfig) -> dict[str, str]:
    steps = steps_of(config)
    packages = {name for step in (*steps.filters, *steps.readers) for name in step.packages}
    if steps.cleaner is not None:
        packages.update(steps.cleaner.packages)
    return {**{name: version_of(name) for name in sorted(packages)}, **code_hashes(steps)}


def reading_identity(job_identity: Mapping[str, Any]) -> dict[str, Any]:
    config, names = job_identity["config"], marked_keys(PreprocessConfig(), DECIDES_RUNS)
    return {
        "format": job_identity["format"],
        "config": {name: config[name] for name in names if name in config},
        "versions": job_identity["versions"],
    }


def manifest_config(manifest: Manifest) -> dict[str, Any]:
    """Return the config of a finished job as in its identity.

    Raises UserError if it has an unknown setting.
    """
    config = build(PreprocessConfig, merge(EARLIER_VALUES, manifest.config), source=MANIFEST)
    return _content(config, manifest.vocabulary_sha256 if config.vocabulary.model is not None else None)


def portable_config(config: PreprocessConfig) -> dict[str, Any]:
    """Return the resolved config for the manifest, with names for paths, so it is the same wherever inputs lie."""
    settings = to_mapping(config)
    for name in marked_keys(config, INPUT):
        settings[name] = sorted(map(portable_name, settings[name]))
    if config.vocabulary.model is not None:
        settings["vocabulary"]["model"] = portable_name(config.vocabulary.model)
    return settings


def portable_name(path: str) -> str:
    return os.path.basename(str(path).rstrip("/"))


def read_given_model(path: str) -> bytes:
    """Return the bytes of a SentencePiece model. Raises UserError if it cannot be read."""
    check_is_stored(path, "vocabulary.model")
    folder, _, name = path.rpartition("/")
    try:
        return Storage.at(folder or ("/" if path.startswith("/") else ".")).read_bytes(name)
    except OSError as error:
        raise UserError(
            f"vocabulary.model: cannot read {path} ({error.strerror or error}); give a SentencePiece model"
        ) from None


def differing_settings(recorded: Mapping[str, Any], requested: Mapping[str, Any]) -> list[str]:
    later = {
        key: value for key, value in flatten(to_mapping(PreprocessConfig())) if key.startswith(LATER_FIELDS)
    }
    later.update(flatten(EARLIER_VALUES))
    return changed_settings({**later, **dict(flatten(recorded))}, {**later, **dict(flatten(requested))})


def changed_settings(recorded: Mapping[str, Any], requested: Mapping[str, Any]) -> list[str]:
    """Return the values that differ between two flat mappings, with their keys: `seed 0, not 1`."""
    values = [(key, recorded.get(key), requested.get(key)) for key in sorted({*recorded, *requested})]
    return [f"{key} {json.dumps(old)}, not {json.dumps(new)}" for key, old, new in values if old != new]


def changed_inputs(
    recorded: Sequence[Mapping[str, Any]], requested: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the inputs that differ between two sorted lists of entries with a `path`, in words and by name."""
    if list(recorded) == list(requested):
        return []
    removed = {entry["path"] for entry in recorded if entry not in requested}
    added = {entry["path"] for entry in requested if entry not in recorded}
    differences = [
        *[f"another content of the input {name}" for name in sorted(removed & added)],
        *[f"the input {name}, which is not given now" for name in sorted(removed - added)],
        *[f"no input {name}" for name in sorted(added - removed)],
    ]
    return differences or ["the same inputs, another number of times"]


def refuse(storage: Storage, verb: str, differences: Sequence[str]) -> None:
    """Raise UserError if `changed_settings` or `changed_inputs` found that the directory belongs to another job."""
    if differences:
        raise UserError(
            f"{storage.url}: {verb} {'; '.join(differences)}; give another --output, or remove this one to start again"
        )


def _content(config: PreprocessConfig, model_sha256: str | None) -> dict[str, Any]:
    excluded = {*marked_keys(config, INPUT), *marked_keys(config, OPERATIONAL)}
    settings = {key: value for key, value in to_mapping(config).items() if key not in excluded}
    settings["columns"] = sorted(settings["columns"])
    settings["namespaces"] = sorted(settings["namespaces"])
    settings["vocabulary"]["model"] = model_sha256
    if model_sha256 is not None:
        # Nothing is trained.
        settings["vocabulary"]["required_characters"] = "none"
    earlier = merge(to_mapping(PreprocessConfig()), EARLIER_VALUES)
    for key in LATER_FIELDS:
        if value_at(settings, key) == value_at(earlier, key):
            group, _, name = key.rpartition(".")
            del (value_at(settings, group) if group else settings)[name]
    return settings


def with_earlier_values(config: PreprocessConfig, storage: Storage) -> PreprocessConfig:
    """Return the settings, with the earlier values of fields that a finished directory does not record."""
    if MANIFEST not in storage.names():
        return config
    recorded = load_manifest(storage.url).config
    missing = [
        (key, json.dumps(value)) for key, value in flatten(EARLIER_VALUES) if value_at(recorded, key) is None
    ]
    return (
        build(PreprocessConfig, merge(to_mapping(config), nest(missing)), source=MANIFEST)
        if missing
        else config
    )


def finished(
    storage: Storage,
    job_identity: Mapping[str, Any],
    config: PreprocessConfig,
    inputs: Inputs,
    *,
    check_inputs: bool = False,
) -> Manifest | None:
    """Return the manifest if the job `job_identity` (its identity) is complete, or None if it is to be run or resumed.

    Inputs are hashed if their times differ from those of `_SUCCESS`, if the store reports none, or to
    `check_inputs`. Raises UserError if the directory holds another job or other files, and JobError if an
    input changed while it was hashed.
    """
    if storage.size("") is not None:
        raise UserError(f"{storage.url}: is a file; give a directory to --output")
    names = storage.names()
    if MANIFEST not in names:
        _refuse_foreign(storage, names, job_identity)
        return None
    manifest = load_manifest(storage.url)
    # A finished directory stays valid under later versions of the libraries, so these are not compared.
    refuse(storage, "was made with", differing_settings(manifest_config(manifest), job_identity["config"]))
    custom_code = [
        {name: version for name, version in versions.items() if is_custom(name)}
        for versions in (manifest.versions, job_identity["versions"])
    ]
    refuse(storage, "was made with", changed_settings(*custom_code))
    marked, entries = marked_inputs(storage), job_identity["inputs"]
    if marked is not None:
        refuse(
            storage,
            "was made with",
            changed_inputs(_only(marked, "path", "size"), _only(entries, "path", "size")),
        )
    if marked != entries or check_inputs or not all(entry["modified"] for entry in entries):
        _compare_contents(storage, manifest, config, inputs)
    if marked != entries:
        # The directory may belong to someone else or be read-only.
        with contextlib.suppress(UserError):
            # So that nothing is hashed the next time.
            mark_success(storage, entries)
    return manifest


def _refuse_foreign(storage: Storage, names: Sequence[str], job_identity: Mapping[str, Any]) -> None:
    recorded_job = read_job_identity(storage)
    if recorded_job is not None:
        differences = differing_settings(recorded_job["config"], job_identity["config"])
        # Otherwise none of its work is used.
        if recorded_job.get("format") == FORMAT:
            differences += changed_settings(recorded_job["versions"], job_identity["versions"])
            differences += changed_inputs(
                _only(recorded_job["inputs"], "path"), _only(job_identity["inputs"], "path")
            )
        refuse(storage, "was begun with", differences)
    elif foreign := sorted(set(names) - {WORK, TEMPORARY, LOCK}):
        raise UserError(
            f"{storage.url}: holds files that tokenfree did not make ({', '.join(foreign[:3])}); "
            "give an empty or new directory to --output"
        )


def _compare_contents(storage: Storage, manifest: Manifest, config: PreprocessConfig, inputs: Inputs) -> None:
    # Others are empty.
    read = {path for split in plan_splits(config, inputs) for path in split.inputs}
    read |= {file.path for file in inputs.templates}
    files = [(portable_name(file.path), file) for file in inputs if file.path in read]
    names = [{"path": name} for name, _ in files]
    refuse(storage, "was made with", changed_inputs(_only(manifest.inputs, "path"), _only(names, "path")))
    entries = []
    for name, file in files:
        size, sha256 = hash_input(file)
        entries.append({"path": name, "size": size, "sha256": sha256})
    refuse(
        storage, "was made with", changed_inputs(manifest.inputs, _only(entries, "path", "size", "sha256"))
    )


def _only(entries: Iterable[Mapping[str, Any]], *names: str) -> list[dict[str, Any]]:
    chosen = [{name: entry[name] for name in names} for entry in entries]
    return sorted(chosen, key=lambda entry: (entry["path"], entry[names[-1]]))
