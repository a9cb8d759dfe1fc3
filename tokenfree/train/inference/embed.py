"""Embed a corpus: a folder of sharded Arrow files, resumable, in this process or on Ray's nodes.

config.json              what decides the vectors, written first
data-00000.arrow ...     the shards, and parts/00000.json beside each until the end
dataset_info.json, state.json    datasets.load_from_disk(DIR) opens the folder
vectors.json             the manifest, with all hashes; its own is in it
_SUCCESS                 written last
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import TEMPORARY
from tokenfree.core.locks import LOCK, HeldStorage, claimed
from tokenfree.core.settings import to_mapping
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import check_hash, hash_of, read_sealed, write_sealed
from tokenfree.train.inference.text_encoder import TextEncoder, load_encoder
from tokenfree.train.inference.vectors import (
    Part,
    TextVectors,
    Wanted,
    parts,
    read_texts,
    text_vectors,
    width_of,
    write,
)

VERSION = 1  # of the format
COUNTS = ("texts", "vectors", "windows", "characters")  # of each shard and of all
CONFIG, EMBEDDINGS_MANIFEST, SUCCESS = "config.json", "vectors.json", "_SUCCESS"
_LAYOUT = ("dataset_info.json", "state.json")
_AGAIN = "remove the folder and run the command again"


class ShardRecord(NamedTuple):
    """A shard that is committed, as its sidecar and the manifest have it."""

    path: str
    texts: int
    vectors: int
    windows: int
    characters: int
    bytes: int
    sha256: str
    of_texts: str  # SHA-256 of its texts, see `Part.sha256`


def is_vectors_folder(names: list[str]) -> bool:
    """Whether a folder with these files is one of vectors, finished or not."""
    return EMBEDDINGS_MANIFEST in names or (CONFIG in names and "parts" in names)


def open_folder(storage: Storage, config: Mapping[str, Any]) -> None:
    """Begin a new folder, or see that an existing one is of the same vectors.

    Raises:
        UserError: it is of others (what differs is named), or holds other files.
    """
    names = [name for name in storage.names() if name not in (TEMPORARY, LOCK)]
    if not names:
        write_sealed(storage, CONFIG, config)
        return
    before = read_sealed(storage, CONFIG)
    if before is None:
        what = f"its {CONFIG} is damaged" if CONFIG in names else "it holds other files"
        raise UserError(f"{storage.url}: no folder of vectors ({what}); give a new or empty folder as --output")
    keys = [key for key in dict.fromkeys([*before, *config]) if before.get(key) != config.get(key)]
    if keys:
        shown = "; ".join(f"{key} {before.get(key)!r}, now {config.get(key)!r}" for key in keys)
        raise UserError(f"{storage.url} has other vectors ({shown}); give the same command, or another --output")


def committed(storage: Storage, part: Part) -> ShardRecord | None:
    """The record of a part whose shard stands already, None where it does not.

    Raises:
        UserError: it stands with other texts.
    """
    values = read_sealed(storage, _sidecar(part.number))
    if values is None:
        return None
    record = ShardRecord(**values["shard"])
    refuse_other_texts(storage, part, record.of_texts)
    return record if storage.size(record.path) == record.bytes else None


def commit(storage: Storage, part: Part, found: Sequence[TextVectors], wanted: Wanted) -> ShardRecord:
    """Write the shard of a part, then its sidecar.

    Raises:
        UserError: the folder cannot be written to, or is full.
    """
    name = f"data-{part.number:05d}.arrow"
    with storage.new_file(name) as new:
        write(new.path, part, found, wanted.vectors)
    record = ShardRecord(
        path=name,
        texts=len(part.texts),
        vectors=sum(len(each.vectors_ND) for each in found),
        windows=sum(each.num_windows for each in found),
        characters=sum(map(len, part.texts)),
        bytes=new.size,
        sha256=new.sha256,
        of_texts=part.sha256,
    )
    write_sealed(storage, _sidecar(part.number), {"shard": record._asdict()})
    return record


def finish(
    storage: Storage, config: Mapping[str, Any], used: Mapping[str, Any], records: Sequence[ShardRecord]
) -> dict[str, Any]:
    """Write the manifest and the mark of success; returns the manifest. `used`: see `Checkpoint.record`.

    Raises:
        UserError: the folder cannot be written to, or is full.
    """
    storage.write_json("dataset_info.json", {"description": f"Vectors of {config['vectors']}."})
    state = {
        "_data_files": [{"filename": record.path} for record in records],
        "_fingerprint": records[0].sha256[:32],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    storage.write_json("state.json", state)
    manifest = {
        "version": VERSION,
        "config": dict(config),
        **used,
        "shards": [record._asdict() for record in records],
        "files": {name: hash_of(storage, name) for name in (CONFIG, *_LAYOUT)},
        **{name: sum(getattr(record, name) for record in records) for name in COUNTS},
    }
    write_sealed(storage, EMBEDDINGS_MANIFEST, manifest)
    storage.write_json(SUCCESS, {EMBEDDINGS_MANIFEST: hash_of(storage, EMBEDDINGS_MANIFEST)})
    return manifest


def tidy(storage: Storage) -> None:
    """Remove from a finished folder what only one in the making needs."""
    for name in ("parts", TEMPORARY):
        storage.remove(name)


def finished(storage: Storage) -> dict[str, Any] | None:
    """The manifest of a folder that is complete, else None."""
    manifest, mark = read_sealed(storage, EMBEDDINGS_MANIFEST), storage.read_json(SUCCESS)
    if (
        manifest is None
        or not isinstance(mark, dict)
        or mark.get(EMBEDDINGS_MANIFEST) != hash_of(storage, EMBEDDINGS_MANIFEST)
    ):
        return None
    return manifest


def verify(directory: str) -> dict[str, Any]:
    """Check every hash of a complete folder; returns its manifest.

    Raises:
        JobError: it is not complete, or a file is missing or damaged, which is named.
    """
    storage = Storage.at(directory)
    manifest = finished(storage)
    if manifest is None:
        raise JobError(
            f"{directory}: not complete, or its {EMBEDDINGS_MANIFEST} or {SUCCESS} is damaged; "
            "run the command that makes it again"
        )
    hashes = {shard["path"]: shard["sha256"] for shard in manifest["shards"]}
    for name, sha256 in {**manifest["files"], **hashes}.items():
        check_hash(storage, name, sha256, source=EMBEDDINGS_MANIFEST, remedy=_AGAIN)
    return manifest


def refuse_other_texts(storage: Storage, part: Part, of_texts: str | None) -> None:
    """See that a part has the texts that a shard of its number was made of; None: there was none.

    Raises:
        UserError: it has others.
    """
    if of_texts != part.sha256:
        raise UserError(
            f"{storage.url}: texts {part.first + 1} to {part.first + len(part.texts)} are not those that it was begun "
            "with; give the same input, or another --output"
        )


def _sidecar(number: int) -> str:
    return f"parts/{number:05d}.json"


_USUAL = Wanted()


@dataclasses.dataclass(frozen=True)
class EmbedResult:
    """What a folder of vectors holds."""

    texts: int
    vectors: int
    windows: int  # in which the texts were read
    characters: int
    shards: int
    width: int
    step: int  # of the checkpoint
    already_complete: bool = False  # before this call, which then did nothing


def embed(
    run: str,
    source: str,
    output: str,
    *,
    wanted: Wanted = _USUAL,
    field: str = "text",
    workers: int | None = None,
    step: int | None = None,
    device: str = "cpu",
    trust_code: bool = False,
    progress: Callable[[ShardRecord, bool], object] | None = None,
) -> EmbedResult:
    """Write the vectors of a corpus as Arrow shards, which `datasets.load_from_disk(output)` opens, or go on with it.

    The bytes are a function of the encoder, the texts and `wanted`: the same with any number of workers, and after any
    number of kills. All arithmetic is done by one thread of each worker, since sums depend on how threads share them.

    Args:
        run: path or address of a run, see `load_encoder`.
        source: a file, `-` or a data directory, see `tokenfree.train.inference.vectors.read_texts`.
        output: path or address of a new, unfinished or complete folder of vectors.
        wanted: which vectors.
        field: of JSON lines, that holds the text.
        workers: processes of Ray, on the cluster of RAY_ADDRESS or on this machine alone; None: this process, no Ray.
        step: use the checkpoint of this step; see `checkpoint_of` for the default.
        device: of the encoder, such as "cpu" or "cuda". On another kind the last bits differ, so it does not go on.
        trust_code: run the code outside tokenfree that the run names.
        progress: gets the record of every shard, and whether it is made now or stood already.

    Raises:
        UserError: there is no such run or corpus, a text is too long where that is refused, the folder is of others, or
            another command writes into it.
        JobError: the checkpoint is damaged; or Ray could not be started, or was lost: the same command goes on.
    """
    storage = Storage.at(output)
    device_here = _checked(device) if workers is None else "cpu"
    encoder = load_encoder(run, step=step, device=device_here, trust_code=trust_code)
    assert encoder.checkpoint is not None, "it is of a run"
    width = width_of(encoder, wanted)
    config = {
        "version": VERSION,
        "encoder": _fingerprint(encoder),
        "vectors": wanted.vectors,
        "pooling": wanted.pooling if wanted.vectors == "texts" else None,
        "long": "windows" if wanted.windowed else "refuse",
        "width": width,
        "device": device.partition(":")[0],
    }
    corpus = parts(read_texts(source, field), wanted.vectors)
    first = next(corpus, None)
    if first is None:
        raise UserError(f"{source}: there is no text in it")
    corpus = _chained(first, corpus)
    with contextlib.nullcontext() if finished(storage) else claimed(storage) as number:
        storage = storage if number is None else HeldStorage(storage.url, number)
        open_folder(storage, config)
        done = finished(storage)
        if done is not None:
            _check_same(storage, done["shards"], corpus)
        manifest = done or _complete(storage, config, encoder, corpus, wanted, workers, device, progress)
        tidy(storage)
    return EmbedResult(
        **{name: manifest[name] for name in COUNTS},
        shards=len(manifest["shards"]),
        width=width,
        step=encoder.checkpoint.step,
        already_complete=done is not None,
    )


def _complete(
    storage: Storage,
    config: dict[str, Any],
    encoder: TextEncoder,
    corpus: Iterator[Part],
    wanted: Wanted,
    workers: int | None,
    device: str,
    progress: Callable[[ShardRecord, bool], object] | None,
) -> dict[str, Any]:
    """Make the shards that are missing; returns the manifest."""
    records: dict[int, ShardRecord] = {}

    def missing() -> Iterator[Part]:
        for part in corpus:
            record = committed(storage, part)
            if record is None:
                yield part
            else:
                note(part, record, made=False)

    def note(part: Part, record: ShardRecord, *, made: bool) -> None:
        records[part.number] = record
        if progress is not None:
            progress(record, made)

    for part, found in _compute(encoder, missing(), wanted, workers, device):
        note(part, commit(storage, part, found, wanted), made=True)
    assert encoder.checkpoint is not None, "it is of a run"
    used = encoder.checkpoint.record()
    return finish(storage, config, used, [records[number] for number in sorted(records)])


def _checked(device: str) -> str:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # what torch says of an unknown one, and of one that is not there
        said = str(error).strip().split("\n")[0]
        raise UserError(f"--device {device}: cannot be used here ({said}); give cpu, or leave it out") from None
    return device


def _compute(
    encoder: TextEncoder, corpus: Iterator[Part], wanted: Wanted, workers: int | None, device: str
) -> Iterator[tuple[Part, list[TextVectors]]]:
    first = next(corpus, None)
    if first is None:
        return
    corpus = _chained(first, corpus)
    if workers is not None:
        from tokenfree.train.inference.embed_on_ray import compute  # imports Ray, in seconds

        yield from compute(encoder, corpus, wanted, workers, device)
        return
    with _one_thread():
        for part in corpus:
            yield part, text_vectors(encoder, part, wanted)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _chained(first: Part, rest: Iterator[Part]) -> Iterator[Part]:
    yield first
    yield from rest


def _check_same(storage: Storage, shards: list[dict[str, str]], corpus: Iterator[Part]) -> None:
    """See that a complete folder is of these texts.

    Raises:
        UserError: it is of others.
    """
    count = 0
    for part in corpus:
        refuse_other_texts(storage, part, shards[count]["of_texts"] if count < len(shards) else None)
        count += 1
    if count < len(shards):
        raise UserError(f"{storage.url} has the vectors of more texts; give the same input, or another --output")


def _fingerprint(encoder: TextEncoder) -> str:
    """32 hex digits of the weights, the settings of the model and how it reads texts."""
    settings = {"model": to_mapping(encoder.encoder.config), "length": encoder.length, "kind": type(encoder).__name__}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in sorted(encoder.encoder.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]
