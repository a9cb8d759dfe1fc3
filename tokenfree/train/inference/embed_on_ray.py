"""Parts of a corpus encoded by workers of Ray, each with a copy of the encoder; one that is lost is started again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ray
import torch
from ray.exceptions import RayError, RayTaskError

from tokenfree.core.errors import JobError
from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.inference.vectors import Part, TextVectors, Wanted, text_vectors
from tokenfree.train.ray.cluster import ray_environment, ray_session

_FOR_EVER = -1  # restarts of a worker, and tries of what it was doing


class _Worker:
    """Encodes one part after another with one thread."""

    def __init__(self, device: str) -> None:
        torch.set_num_threads(1)
        self._device = device
        self._encoder: TextEncoder | None = None

    def ready(self) -> None:
        """Returns once the worker stands."""

    def work(self, shared: list[Any], part: Part, wanted: Wanted) -> list[TextVectors]:
        """The vectors of the texts of a part, by the encoder that `shared` refers to."""
        # Not an argument of the constructor: for those Ray prints that a restart of the worker will fail.
        if self._encoder is None:
            encoder: TextEncoder = ray.get(shared[0])
            encoder.encoder.to(self._device)
            self._encoder = encoder
        return text_vectors(self._encoder, part, wanted)


def compute(
    encoder: TextEncoder, corpus: Iterator[Part], wanted: Wanted, workers: int, device: str
) -> Iterator[tuple[Part, list[TextVectors]]]:
    """The vectors of all parts, in the order in which they are ready.

    Workers take part as soon as the cluster has room for them. No more parts are read than there are workers.

    Raises:
        UserError: see `text_vectors`.
        JobError: Ray could not be started, or was lost.
    """
    gpus = 1 if torch.device(device).type == "cuda" else 0
    with ray_environment(), ray_session(num_cpus=workers):
        try:
            shared = [ray.put(encoder)]
            kind: Any = ray.remote(_Worker)
            options = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": _FOR_EVER, "max_task_retries": _FOR_EVER}
            made = [kind.options(**options).remote(device) for _ in range(workers)]
            waiting: dict[Any, tuple[Any, Part | None]] = {worker.ready.remote(): (worker, None) for worker in made}
            while waiting:
                (done,), _ = ray.wait(list(waiting), num_returns=1)
                worker, part = waiting.pop(done)
                found = ray.get(done)
                following = next(corpus, None)
                if following is not None:
                    waiting[worker.work.remote(shared, following, wanted)] = worker, following
                elif not any(each for _, each in waiting.values()):
                    waiting.clear()  # workers that the cluster has no room for are not waited for
                if part is not None:
                    yield part, found
        except RayTaskError as error:
            raise error.cause from None
        except RayError as error:
            said = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise JobError(f"Ray was lost ({said}); run the same command again: it goes on where it stopped") from error
