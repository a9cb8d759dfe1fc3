"""The vectors of a corpus as one call: a new folder, or one that goes on, in this process or over Ray's nodes."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.settings import to_mapping
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.store_lock import HeldStorage, claimed
from tokenfree.train.embeddings import folder
from tokenfree.train.embeddings.folder import ShardRecord
from tokenfree.train.embeddings.parts import Part, parts
from tokenfree.train.embeddings.texts import read_texts
from tokenfree.train.embeddings.vectors import TextVectors, Wanted, text_vectors, width_of
from tokenfree.train.inference.text_encoder import TextEncoder, load_encoder

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
        source: a file, `-` or a data directory, see `tokenfree.train.embeddings.texts.read_texts`.
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
        "version": folder.VERSION,
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
    with contextlib.nullcontext() if folder.finished(storage) else claimed(storage) as number:
        storage = storage if number is None else HeldStorage(storage.url, number)
        folder.open_folder(storage, config)
        done = folder.finished(storage)
        if done is not None:
            _check_same(storage, done["shards"], corpus)
        manifest = done or _complete(storage, config, encoder, corpus, wanted, workers, device, progress)
        folder.tidy(storage)
    return EmbedResult(
        **{name: manifest[name] for name in folder.COUNTS},
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
            record = folder.committed(storage, part)
            if record is None:
                yield part
            else:
                note(part, record, made=False)

    def note(part: Part, record: ShardRecord, *, made: bool) -> None:
        records[part.number] = record
        if progress is not None:
            progress(record, made)

    for part, found in _compute(encoder, missing(), wanted, workers, device):
        note(part, folder.commit(storage, part, found, wanted), made=True)
    assert encoder.checkpoint is not None, "it is of a run"
    used = encoder.checkpoint.record()
    return folder.finish(storage, config, used, [records[number] for number in sorted(records)])


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
        from tokenfree.train.embeddings.on_ray import compute  # imports Ray, in seconds

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
        folder.refuse_other_texts(storage, part, shards[count]["of_texts"] if count < len(shards) else None)
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
