"""Embed a corpus: write a folder of Arrow shards, in this process or on the nodes of Ray.

A killed job can resume.

config.json              settings that decide the embeddings, written first
data-00000.arrow ...     the shards; each has a sidecar parts/00000.json until the job is complete
dataset_info.json, state.json    for datasets.load_from_disk(DIR)
vectors.json             the manifest with all hashes, including its own
_SUCCESS                 written last

D width, N vectors of a text: 1, its words, or its characters
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import pickle
import queue
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from tokenfree.core.errors import JobError, UserError, first_line, is_utf8
from tokenfree.core.files import TEMPORARY, AnyPath, expand_home
from tokenfree.core.locks import LOCK, HeldStorage, claimed
from tokenfree.core.own_code import working_directory_first
from tokenfree.core.settings import to_mapping
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import check_hashes, hash_of, read_sealed, write_sealed
from tokenfree.preprocess.dataset.manifest import MANIFEST, load_manifest
from tokenfree.preprocess.text.sentences import cut, sentence_starts
from tokenfree.train.batches.words import NOWHERE, NUM_FRAME, text_words
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.inference.text_encoder import Encoded, TextEncoder, load_encoder
from tokenfree.train.ray.child import Link, RayChild
from tokenfree.train.tasks.examples.files import JSON_LINES, base_name, lines_of, opened, parse_json
from tokenfree.train.torch_state import default_settings

VectorsOf = Literal["texts", "words", "characters"]
Pooling = Literal["mean", "cls", "cls_max", "pooled"]
# 200 MB of vectors of width 768.
SHARD_CHARACTERS = {"texts": 1 << 18, "words": 1 << 16, "characters": 1 << 16}
SHARD_TEXTS = 4096
VERSION = 1  # version of the format
COUNTS = ("texts", "vectors", "windows", "characters")  # counted per shard and in total
CONFIG, EMBEDDINGS_MANIFEST, SUCCESS = "config.json", "vectors.json", "_SUCCESS"
STANDARD_INPUT = "-"
_LAYOUT = ("dataset_info.json", "state.json")
_AGAIN = "remove the folder and run the command again"
_BATCH_ROWS = 1000  # rows per record batch, as in data directories
_POSITIONS = 8192  # maximum positions of a batch, padded to its longest window
# Maximum positions of a batch that only its longest window needs; another batch costs as much time.
_PADDING = 256
_MAX_WINDOWS = 64  # maximum windows of a batch
_FOREVER = -1  # unlimited restarts of a Ray worker and retries of its tasks
_LEADER = "tokenfree.train.inference.embed:lead"
_NEXT = "next"  # request for a part


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The embeddings to compute.

    Attributes:
        vectors: Unit that gets a vector: texts, words or characters.
        pooling: Vector of a text, as described in `tokenfree.train.inference.text_encoder.Encoded`.
        windowed: Whether texts longer than the model reads are cut into windows. Otherwise they are an error.
    """

    vectors: VectorsOf = "texts"
    pooling: Pooling = "mean"
    windowed: bool = True


_USUAL = Wanted()


class Part(NamedTuple):
    number: int  # number of the shard, from 0
    first: int  # number of its first text in the corpus, from 0
    texts: list[str]

    @property
    def sha256(self) -> str:
        """Hash of the texts and of the boundaries between them."""
        digest = hashlib.sha256()
        for text in self.texts:
            content = text.encode()
            digest.update(b"%d\n" % len(content) + content)
        return digest.hexdigest()


class TextVectors(NamedTuple):
    vectors_ND: np.ndarray  # float32
    starts_N: np.ndarray  # int64: codepoint offset of the first character of each vector
    ends_N: np.ndarray  # int64: codepoint offset after its last character
    num_windows: int  # number of windows in which the text was read


class ShardRecord(NamedTuple):
    """A committed shard, as its sidecar and the manifest describe it."""

    path: str
    texts: int
    vectors: int
    windows: int
    characters: int
    bytes: int
    sha256: str
    of_texts: str  # SHA-256 of its texts, from `Part.sha256`


@dataclasses.dataclass(frozen=True)
class EmbedResult:
    """The contents of a folder of embeddings, in numbers."""

    texts: int
    vectors: int
    windows: int  # number of windows in which the texts were read
    characters: int
    shards: int
    width: int
    step: int  # step of the checkpoint
    already_complete: bool = False  # whether the folder was complete before this call, which then did nothing


@default_settings(threads=1)
def embed(
    run: AnyPath,
    source: AnyPath,
    output: AnyPath,
    *,
    wanted: Wanted = _USUAL,
    field: str = "text",
    workers: int | None = None,
    step: int | None = None,
    device: str = "cpu",
    trust_code: bool = False,
    progress: Callable[[ShardRecord, bool], object] | None = None,
) -> EmbedResult:
    """Write the embeddings of a corpus as Arrow shards, which `datasets.load_from_disk(output)` opens, or resume.

    The bytes depend only on the encoder, the texts and `wanted`. They are the same with any number of
    workers, and after any number of kills. Each worker computes with one thread, because sums depend on how
    threads divide them.

    Args:
        run: Path or address of a run.
        source: File, `-` or data directory, as for `read_texts`.
        output: Path or address of a new, unfinished or complete folder of embeddings.
        wanted: Embeddings to compute.
        field: Field of JSON lines that has the text.
        workers: Number of Ray processes, on the cluster of RAY_ADDRESS or else on this machine; None: this
            process.
        step: Step of the checkpoint to use. `checkpoint_of` chooses the default.
        device: Device of the encoder. A job does not resume on another kind of device, because the last bits
            differ.
        trust_code: Whether to run code outside tokenfree that the run names.
        progress: Function that gets the record of every shard, and whether this call wrote it.

    Raises UserError if there is no such run or corpus, a text is too long and must not be cut, the folder has
    other embeddings, or another command writes to it. Raises JobError if the checkpoint is damaged, or Ray
    could not be started or was lost. After a failure of Ray, the same command resumes.
    """
    storage = Storage.at(output)
    encoder = load_encoder(run, step=step, device=_checked(device, workers), trust_code=trust_code)
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
        raise UserError(f"{source}: there is no text in it. Give one with texts.")
    corpus = itertools.chain([first], corpus)
    done = finished(storage)
    with contextlib.nullcontext() if done else claimed(storage) as number:
        storage = storage if number is None else HeldStorage(storage.url, number)
        open_folder(storage, config)
        done = done or finished(storage)
        if done is not None:
            _check_same(storage, done["shards"], corpus)
        manifest = done or _complete(storage, config, encoder, corpus, wanted, workers, device, progress)
        for name in ("parts", TEMPORARY):
            storage.remove(name)
    return EmbedResult(
        **{name: manifest[name] for name in COUNTS},
        shards=len(manifest["shards"]),
        width=width,
        step=encoder.checkpoint.step,
        already_complete=done is not None,
    )


def _checked(device: str, workers: int | None) -> str:
    if workers is not None:
        return "cpu"
    try:
        torch.empty(0, device=device)
    except (
        RuntimeError,
        AssertionError,
    ) as error:  # raised by torch for an unknown device, and for an absent one
        reason = first_line(error)
        raise UserError(
            f"--device {device}: cannot be used here ({reason}). Give cpu, or leave it out."
        ) from None
    return device


def _fingerprint(encoder: TextEncoder) -> str:
    settings = {
        "model": to_mapping(encoder.encoder.config),
        "length": encoder.length,
        "kind": type(encoder).__name__,
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in sorted(encoder.encoder.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def read_texts(source: AnyPath, field: str = "text") -> Iterator[str]:
    """Return the texts of a file (a path or any fsspec address), of standard input (`-`), or of a data directory.

    A file has one text per line; an empty line is an empty text. A file whose name ends in .jsonl or .ndjson
    has one JSON object per line, with the text in `field`. Both may be compressed (.gz, .bz2, .xz). Of a data
    directory, all windows are read in order. Raises UserError if there is no readable file, or a line is not
    UTF-8 or has no such field.
    """
    source = expand_home(source)
    if source == STANDARD_INPUT:
        return lines_of(sys.stdin.buffer, "standard input")
    with contextlib.suppress(NotADirectoryError):
        if Storage.at(source).size(MANIFEST) is not None:
            return _texts_of_windows(source)
    lines = _file_lines(source)
    return (
        _texts_of_objects(lines, source, field) if base_name(source).lower().endswith(JSON_LINES) else lines
    )


def _file_lines(path: str) -> Iterator[str]:
    with opened(path) as file:
        yield from lines_of(file, path)


def _texts_of_objects(lines: Iterable[str], path: str, field: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{path}: line {number}"
        values = parse_json(line, place)
        text = values.get(field) if isinstance(values, dict) else None
        if not isinstance(text, str):
            has = f"has {', '.join(map(repr, values))}" if isinstance(values, dict) else "is not an object"
            raise UserError(
                f"{place}: no text in the field {field!r} (the line {has}). Name another with --field."
            )
        if not is_utf8(text):
            raise UserError(f"{place}: half of a surrogate pair, which is not a character. Remove it.")
        yield text


def _texts_of_windows(data: str) -> Iterator[str]:
    for split in load_manifest(data).splits:
        reader = ShardReader(data, split)
        for number, entry in enumerate(reader.shards):
            shard = reader.shard(number)
            for row in range(entry.rows):
                yield bytes(shard.row("text", row)).decode()


def parts(texts: Iterable[str], vectors: VectorsOf) -> Iterator[Part]:
    """Yield parts of consecutive texts. A part is full when it has enough characters or enough texts."""
    number = first = size = 0
    held: list[str] = []
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= SHARD_CHARACTERS[vectors] or len(held) == SHARD_TEXTS:
            yield Part(number, first, held)
            number, first, size, held = number + 1, first + len(held), 0, []
    if held:
        yield Part(number, first, held)


def is_vectors_folder(names: list[str]) -> bool:
    """Return True if a folder with these files has embeddings, complete or not."""
    return EMBEDDINGS_MANIFEST in names or (CONFIG in names and "parts" in names)


def finished(storage: Storage) -> dict[str, Any] | None:
    """Return the manifest of a complete folder, whose hashes are checked, else None.

    Raises JobError for damage.
    """
    if hash_of(storage, SUCCESS) is None:
        return None
    manifest, mark = read_sealed(storage, EMBEDDINGS_MANIFEST), storage.read_json(SUCCESS)
    if manifest is None:
        raise JobError(f"{storage.url}/{EMBEDDINGS_MANIFEST}: damaged; {_AGAIN}")
    if mark != {EMBEDDINGS_MANIFEST: hash_of(storage, EMBEDDINGS_MANIFEST)}:
        raise JobError(f"{storage.url}/{SUCCESS}: damaged; {_AGAIN}")
    hashes = {**manifest["files"], **{shard["path"]: shard["sha256"] for shard in manifest["shards"]}}
    check_hashes(storage, hashes, source=EMBEDDINGS_MANIFEST, action=_AGAIN)
    return manifest


def verify(directory: AnyPath) -> dict[str, Any]:
    """Check all hashes of a folder and return its manifest.

    Raises JobError if it is incomplete or damaged.
    """
    manifest = finished(Storage.at(directory))
    if manifest is None:
        raise JobError(f"{directory}: not complete; run the command that makes it again")
    return manifest


def open_folder(storage: Storage, config: Mapping[str, Any]) -> None:
    """Begin a new folder, or resume one.

    Raises UserError if it has other settings, which are named, or other files.
    """
    names = [name for name in storage.names() if name not in (TEMPORARY, LOCK)]
    if not names:
        write_sealed(storage, CONFIG, config)
        return
    previous = read_sealed(storage, CONFIG)
    if previous is None:
        what = f"its {CONFIG} is damaged" if CONFIG in names else "it holds other files"
        raise UserError(
            f"{storage.url}: no folder of vectors ({what}). Give a new or empty folder as --output."
        )
    keys = [key for key in dict.fromkeys([*previous, *config]) if previous.get(key) != config.get(key)]
    if keys:
        changes = "; ".join(f"{key} {previous.get(key)!r}, now {config.get(key)!r}" for key in keys)
        raise UserError(
            f"{storage.url} has other vectors ({changes}). Give the same command, or another --output."
        )


def _complete(
    storage: Storage,
    config: dict[str, Any],
    encoder: TextEncoder,
    corpus: Iterator[Part],
    spec: Wanted,
    workers: int | None,
    device: str,
    progress: Callable[[ShardRecord, bool], object] | None,
) -> dict[str, Any]:
    records: dict[int, ShardRecord] = {}

    def note(part: Part, record: ShardRecord, is_new: bool) -> None:
        records[part.number] = record
        if progress is not None:
            progress(record, is_new)

    def keep(part: Part, vectors: Sequence[TextVectors]) -> None:
        note(part, commit(storage, part, vectors, spec), True)

    def missing() -> Iterator[Part]:
        for part in corpus:
            record = committed(storage, part)
            if record is None:
                yield part
            else:
                note(part, record, False)

    waiting = missing()
    first = next(waiting, None)
    if first is not None:  # if nothing is missing, do not start workers
        waiting = itertools.chain([first], waiting)
        if workers is None:
            for part in waiting:
                keep(part, text_vectors(encoder, part, spec))
        else:
            _on_ray(encoder, waiting, spec, workers, device, keep)
    assert encoder.checkpoint is not None, "it is of a run"
    return _finish(
        storage, config, encoder.checkpoint.record(), [records[number] for number in sorted(records)]
    )


def committed(storage: Storage, part: Part) -> ShardRecord | None:
    """Return the record of a part already written, else None.

    Raises UserError if it was written with other texts.
    """
    values = read_sealed(storage, _sidecar(part.number))
    if values is None:
        return None
    record = ShardRecord(**values["shard"])
    _refuse_other_texts(storage, part, record.of_texts)
    return record if storage.size(record.path) == record.bytes else None


def commit(storage: Storage, part: Part, embeddings: Sequence[TextVectors], spec: Wanted) -> ShardRecord:
    """Write the shard of a part, then its sidecar."""
    name = f"data-{part.number:05d}.arrow"
    with storage.new_file(name) as new:
        write(new.path, part, embeddings, spec.vectors)
    record = ShardRecord(
        path=name,
        texts=len(part.texts),
        vectors=sum(len(embedding.vectors_ND) for embedding in embeddings),
        windows=sum(embedding.num_windows for embedding in embeddings),
        characters=sum(map(len, part.texts)),
        bytes=new.size,
        sha256=new.sha256,
        of_texts=part.sha256,
    )
    write_sealed(storage, _sidecar(part.number), {"shard": record._asdict()})
    return record


def _sidecar(number: int) -> str:
    return f"parts/{number:05d}.json"


def write(path: str, part: Part, embeddings: Sequence[TextVectors], vectors: VectorsOf) -> None:
    """Write the rows of a part of the corpus as an Arrow stream.

    The columns are `number` (of the text in the corpus), `text`, `windows`, and `vector` for texts, else
    `vectors`. Words add `word_starts` and `word_ends`, codepoint offsets.
    """
    all_ND = np.concatenate([embedding.vectors_ND for embedding in embeddings])
    flat = pa.FixedSizeListArray.from_arrays(
        pa.array(np.ascontiguousarray(all_ND).reshape(-1)), all_ND.shape[1]
    )
    offsets = pa.array(np.cumsum([0, *(len(embedding.vectors_ND) for embedding in embeddings)]), pa.int32())

    def listed(values: pa.Array) -> pa.Array:
        return pa.ListArray.from_arrays(offsets, values)

    columns: dict[str, pa.Array] = {
        "number": pa.array(range(part.first, part.first + len(part.texts)), pa.int64()),
        "text": pa.array(part.texts, pa.string()),
        "windows": pa.array([embedding.num_windows for embedding in embeddings], pa.int32()),
    }
    if vectors == "words":
        starts, ends = (
            np.concatenate(edges) for edges in zip(*((f.starts_N, f.ends_N) for f in embeddings), strict=True)
        )
        columns["word_starts"] = listed(pa.array(starts, pa.int32()))
        columns["word_ends"] = listed(pa.array(ends, pa.int32()))
    columns |= {"vector": flat} if vectors == "texts" else {"vectors": listed(flat)}
    table = pa.table(columns)
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=_BATCH_ROWS)


def _finish(
    storage: Storage, config: Mapping[str, Any], used: Mapping[str, Any], records: Sequence[ShardRecord]
) -> dict[str, Any]:
    """Write the manifest and the success mark, and return the manifest. `used` comes from `Checkpoint.record`."""
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


def _check_same(storage: Storage, shards: list[dict[str, str]], corpus: Iterator[Part]) -> None:
    for part, shard in itertools.zip_longest(corpus, shards):
        if part is None:
            raise UserError(
                f"{storage.url} has the vectors of more texts. Give the same input, or another --output."
            )
        _refuse_other_texts(storage, part, None if shard is None else shard["of_texts"])


def _refuse_other_texts(storage: Storage, part: Part, of_texts: str | None) -> None:
    if of_texts != part.sha256:
        raise UserError(
            f"{storage.url}: texts {part.first + 1} to {part.first + len(part.texts)} are not those that it was begun "
            "with. Give the same input, or another --output."
        )


class _Worker:
    def __init__(self, device: str) -> None:
        torch.set_num_threads(1)
        self._device = device
        self._encoder: TextEncoder | None = None

    def ready(self) -> None:
        """Return when the worker has started."""

    def work(self, shared: list[Any], part: Part, spec: Wanted) -> list[TextVectors]:
        """Return the embeddings of the texts of a part, computed by the encoder that `shared` refers to."""
        # As an argument of the constructor, the encoder would make Ray warn that restarting the worker will
        # fail.
        if self._encoder is None:
            import ray

            encoder: TextEncoder = ray.get(shared[0])
            encoder.encoder.to(self._device)
            self._encoder = encoder
        return text_vectors(self._encoder, part, spec)


def _on_ray(
    encoder: TextEncoder,
    corpus: Iterator[Part],
    spec: Wanted,
    workers: int,
    device: str,
    keep: Callable[[Part, Sequence[TextVectors]], None],
) -> None:
    """Call `keep` with the embeddings of all parts as they become ready. Lost workers are restarted."""
    sent: dict[int, Part] = {}

    def take(message: tuple[int, list[TextVectors]] | str) -> None:
        if not isinstance(message, str):
            keep(sent.pop(message[0]), message[1])
            return
        part = next(corpus, None)
        if part is not None:
            sent[part.number] = part
        child.send(part)

    child = RayChild(_LEADER, take=take, keep=lambda errors: None, stops=False)
    loss = child.call(pickle.dumps(encoder), spec, workers, device)
    if loss is not None:
        raise loss.final("with the shards that are missing")


def lead(link: Link, encoder: bytes, wanted: Wanted, workers: int, device: str) -> str | None:
    """Embed the parts that `link` brings on request, as the function of a `RayChild`.

    Workers may join late.
    """
    from ray.exceptions import RayError, RayTaskError  # here because the import takes seconds

    from tokenfree.train.ray.cluster import RayLost, ray_environment, ray_session, run_watched

    parts: queue.SimpleQueue[Part | None] = queue.SimpleQueue()
    link.listen(parts.put)

    def following() -> Part | None:
        link.send(_NEXT)
        return parts.get()

    with working_directory_first():  # for custom parts
        shared = pickle.loads(encoder)
    with ray_environment():
        try:
            with ray_session(num_cpus=workers) as session:
                link.send(pickle.dumps(session))
                run_watched(
                    lambda: _embed(link, shared, iter(following, None), wanted, workers, device), session
                )
        except RayTaskError as error:
            raise error.cause from None
        except RayLost as error:
            return str(error)
        except RayError:
            return ""
    return None


def _embed(
    link: Link, encoder: TextEncoder, corpus: Iterator[Part], wanted: Wanted, workers: int, device: str
) -> None:
    import ray

    gpus = 1 if torch.device(device).type == "cuda" else 0
    shared = [ray.put(encoder)]
    kind: Any = ray.remote(_Worker)
    options = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": _FOREVER, "max_task_retries": _FOREVER}
    actors = [kind.options(**options).remote(device) for _ in range(workers)]
    waiting: dict[Any, tuple[Any, Part | None]] = {actor.ready.remote(): (actor, None) for actor in actors}
    while waiting:
        (done,), _ = ray.wait(list(waiting), num_returns=1)
        actor, part = waiting.pop(done)
        vectors = ray.get(done)
        following = next(corpus, None)
        if following is not None:
            waiting[actor.work.remote(shared, following, wanted)] = actor, following
        elif not any(other for _, other in waiting.values()):
            waiting.clear()  # do not wait for workers that the cluster has no resources for
        if part is not None:
            link.send((part.number, vectors))


class _Window(NamedTuple):
    text: int  # number in the part
    start: int
    end: int


def width_of(encoder: TextEncoder, spec: Wanted) -> int:
    """Return the width of the embeddings.

    Raises UserError if the encoder cannot compute those that are wanted.
    """
    encoded = encoder(["a"])
    if spec.vectors == "texts" and spec.pooling == "pooled" and not encoded.pooled_is_trained:
        raise UserError(
            "--pooling pooled: this run did not train that layer, a random projection. Give mean or cls."
        )
    return _of_window(encoded, 0, "a", spec)[0].shape[1]


def text_vectors(encoder: TextEncoder, part: Part, spec: Wanted) -> list[TextVectors]:
    """Return the embeddings of each text of a part. The batches, of similar windows, depend only on the part.

    Raises UserError if a text is longer than the model reads and must not be cut into windows.
    """
    limit, of_text = encoder.max_characters, list[list[_Window]]()
    for number, text in enumerate(part.texts):
        if len(text) > limit and not spec.windowed:
            raise UserError(
                f"text {part.first + number + 1} has {len(text):,} characters and this model reads {limit:,}. Cut it, "
                "or leave out --long refuse to read it in windows."
            )
        of_text.append([_Window(number, start, end) for start, end in spans(text, limit)])
    by_window: dict[_Window, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
    every = [window for windows in of_text for window in windows]
    for batch in _batches(every, lambda size: encoder.padding.padded([size + NUM_FRAME])):
        texts = [part.texts[window.text][window.start : window.end] for window in batch]
        encoded = encoder(texts)
        for row, (window, text) in enumerate(zip(batch, texts, strict=True)):
            vectors, starts, ends = _of_window(encoded, row, text, spec)
            by_window[window] = vectors, starts + window.start, ends + window.start
    return [_joined([by_window[window] for window in windows], spec) for windows in of_text]


def spans(text: str, max_characters: int) -> list[tuple[int, int]]:
    """Return spans of at most `max_characters` codepoints that begin at sentences if possible, else at words."""
    if len(text) <= max_characters:
        return [(0, len(text))]
    starts = [start for start, _ in cut(text, sentence_starts(text).astype(np.int64), max_characters)]
    edges = [0]
    for edge in [*starts[1:], len(text)]:
        while edge - edges[-1] > max_characters:  # more than a window, because white space follows a full one
            edges.append(edges[-1] + max_characters)
        if edge > edges[-1]:
            edges.append(edge)
    return list(pairwise(edges))


def _batches(windows: Sequence[_Window], positions_of: Callable[[int], int]) -> Iterator[list[_Window]]:
    """Yield batches of windows of about the same length, the longest first. `positions_of` counts their positions."""
    by_length = sorted((-positions_of(window.end - window.start), window) for window in windows)
    batch: list[_Window] = []
    longest = padding = 0
    for negative, window in by_length:
        padding += longest + negative
        if batch and (
            padding > _PADDING or (len(batch) + 1) * longest > _POSITIONS or len(batch) == _MAX_WINDOWS
        ):
            yield batch
            batch = []
        if not batch:
            longest, padding = -negative, 0
        batch.append(window)
    if batch:
        yield batch


def _of_window(
    encoded: Encoded, row: int, text: str, spec: Wanted
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the vectors of one row of a batch, the first character of each, and the character after its last one."""
    if spec.vectors == "texts":
        pooled = getattr(encoded, spec.pooling)[row : row + 1].float().cpu().numpy()
        return pooled, np.zeros(1, np.int64), np.array([len(text)])
    characters = encoded.characters[row, 1 : 1 + len(text)].float().cpu().numpy()
    if spec.vectors == "characters":
        return characters, np.arange(len(text)), np.arange(1, len(text) + 1)
    word_of = text_words(text).word_of
    inside = np.flatnonzero(word_of != NOWHERE)
    names, first = np.unique(word_of[inside], return_index=True)
    last = np.searchsorted(word_of[inside], names, side="right") - 1
    starts, ends = inside[first], inside[last] + 1
    if encoded.words is not None:
        return encoded.words[row, 1 : 1 + len(starts)].float().cpu().numpy(), starts, ends
    means = [characters[start:end].mean(axis=0) for start, end in zip(starts, ends, strict=True)]
    return np.array(means, np.float32).reshape(-1, characters.shape[1]), starts, ends


def _joined(windows: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], spec: Wanted) -> TextVectors:
    """Return the vectors of a text from its windows.

    For texts, it is the mean over windows, weighted by characters.
    """
    vectors, starts, ends = (np.concatenate(part) for part in zip(*windows, strict=True))
    if spec.vectors == "texts" and len(windows) > 1:
        share = ((ends - starts) / (ends - starts).sum()).astype(np.float32)
        vectors, starts, ends = (vectors * share[:, None]).sum(axis=0, keepdims=True), starts[:1], ends[-1:]
    return TextVectors(vectors, starts, ends, len(windows))
