"""The step beside reading: the SHA-256 of each input, for the manifest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from tokenfree.preprocess.common.errors import JobError
from tokenfree.preprocess.common.stored.file_hashes import read_sealed, write_sealed
from tokenfree.preprocess.job.identity import portable_name
from tokenfree.preprocess.job.preprocess_job import HASHES, PreprocessJob
from tokenfree.preprocess.job.step_errors import notes_errors
from tokenfree.preprocess.sources.input_splits import hash_input
from tokenfree.preprocess.sources.inputs.files import InputFile


def input_line(file: InputFile) -> str:
    """An input as a line of JSON."""
    return json.dumps(asdict(file), ensure_ascii=False, sort_keys=True)


def num_inputs(job: PreprocessJob) -> int:
    """How many inputs there are."""
    return len(job.input_lines())


@notes_errors("hash")
def hash_one_input(job: PreprocessJob, index: int) -> str:
    """Hash one input, unless an earlier attempt did; its name.

    Raises:
        OSError: it cannot be read.
        JobError: it changed since the job found it.
        UserError: the output directory cannot be written to.
    """
    line = job.input_lines()[index]
    file = InputFile(**json.loads(line))
    if _known(job, line) is None:
        size, sha256 = hash_input(file)
        write_sealed(job.storage, hash_sidecar(line), {"input": line, "size": size, "input_sha256": sha256})
    return file.name


def hashed_inputs(job: PreprocessJob) -> list[dict[str, Any]]:
    """Name, size in bytes and SHA-256 of each input, sorted; where it lies on this machine is left out.

    Raises:
        JobError: an input was not hashed.
    """
    named = []
    for line in job.input_lines():
        known = _known(job, line)
        if known is None:
            raise JobError(f"{job.url}/{hash_sidecar(line)}: gone or damaged; run the job again")
        path = portable_name(json.loads(line)["path"])
        named.append({"path": path, "size": known["size"], "sha256": known["input_sha256"]})
    return sorted(named, key=lambda entry: (entry["path"], entry["sha256"]))


def _known(job: PreprocessJob, line: str) -> dict[str, Any] | None:
    """What was written of an input; None where nothing was, or it is damaged or another's."""
    known = read_sealed(job.storage, hash_sidecar(line))
    return known if known is not None and known.get("input") == line else None


def hash_sidecar(line: str) -> str:
    """The name of the file with the hash of an input, by its line."""
    return f"{HASHES}/{hashlib.blake2b(line.encode(), digest_size=16).hexdigest()}.json"
