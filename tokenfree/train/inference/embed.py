"""Embed a corpus into a folder of Arrow shards, in this process or on the nodes of Ray."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import pickle
import queue
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from tokenfree.core.child import Link
from tokenfree.core.errors import UserError, first_line
from tokenfree.core.files import TEMPORARY, AnyPath
from tokenfree.core.locks import HeldStorage, claimed
from tokenfree.core.own_code import working_directory_first
from tokenfree.core.settings_values import to_mapping
from tokenfree.core.storage import Storage
from tokenfree.preprocess.text.sentences import cut, sentence_starts
from tokenfree.train.batches.words import NOWHERE, NUM_FRAME, text_words
from tokenfree.train.inference.corpus import Part, VectorsOf, parts, read_texts
from tokenfree.train.inference.folder import (
    COUNTS,
    VERSION,
    ShardRecord,
    TextVectors,
    check_same,
    commit,
    committed,
    finish,
    finished,
    open_folder,
)
from tokenfree.train.inference.text_encoder import Encoded, TextEncoder, load_encoder
from tokenfree.train.ray.child import RayChild
from tokenfree.train.torch_state import default_settings

Pooling = Literal["mean", "cls", "cls_max", "pooled"]
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
            check_same(storage, done["shards"], corpus)
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
    # For an unknown device torch raises RuntimeError, for an absent one AssertionError.
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"--device {device}: cannot be used here ({first_line(error)}). Give cpu, or leave it out."
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
        note(part, commit(storage, part, vectors, spec.vectors), True)

    def missing() -> Iterator[Part]:
        for part in corpus:
            record = committed(storage, part)
            if record is None:
                yield part
            else:
                note(part, record, False)

    waiting = missing()
    if workers is None:
        for part in waiting:
            keep(part, text_vectors(encoder, part, spec))
    else:
        first = next(waiting, None)
        # If nothing is missing, do not start workers.
        if first is not None:
            _on_ray(encoder, itertools.chain([first], waiting), spec, workers, device, keep)
    assert encoder.checkpoint is not None, "it is of a run"
    return finish(
        storage, config, encoder.checkpoint.record(), [records[number] for number in sorted(records)]
    )


class _Worker:
    def __init__(self, device: str) -> None:
        torch.set_num_threads(1)
        self._device = device
        self._encoder: TextEncoder | None = None

    def ready(self) -> None:
        """Return when the worker has started."""

    def work(self, shared: list[Any], part: Part, spec: Wanted) -> list[TextVectors]:
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
    # Here because the import takes seconds.
    from ray.exceptions import RayError, RayTaskError

    from tokenfree.train.ray.cluster import RayLost, ray_environment, ray_session, run_watched

    parts: queue.SimpleQueue[Part | None] = queue.SimpleQueue()
    link.listen(parts.put)

    def following() -> Part | None:
        link.send(_NEXT)
        return parts.get()

    # For custom parts.
    with working_directory_first():
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
            # Do not wait for workers that the cluster has no resources for.
            waiting.clear()
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
    for batch in _batches(
        [window for windows in of_text for window in windows],
        lambda size: encoder.padding.padded([size + NUM_FRAME]),
    ):
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
        # More than a window, because white space follows a full one.
        while edge - edges[-1] > max_characters:
            edges.append(edges[-1] + max_characters)
        if edge > edges[-1]:
            edges.append(edge)
    return list(pairwise(edges))


def _batches(windows: Sequence[_Window], positions_of: Callable[[int], int]) -> Iterator[list[_Window]]:
    """Yield batches of windows of about the same length, the longest first.

    `positions_of` counts their positions.
    """
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
