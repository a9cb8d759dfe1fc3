"""Torch's settings of a process: those of the caller, random numbers, precision of products, and freed memory.

Public functions neither depend on the caller's settings and random numbers nor have an effect on them. The
number of threads is the exception: it is a limit, as OMP_NUM_THREADS is, and is only restored.
"""

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

import torch
from torch.utils import deterministic


def set_determinism(mode: int) -> None:
    """Allow any kernels (0), prefer deterministic ones (1), or require them (2), also in compiled code."""
    # Filling new tensors with NaN shows reads of uninitialized memory, but takes 15% of a small model's step.
    deterministic.fill_uninitialized_memory = False  # pyright: ignore[reportAttributeAccessIssue]
    if "torch._inductor" in sys.modules:
        torch.use_deterministic_algorithms(mode > 0, warn_only=mode == 1)
    else:
        torch.set_deterministic_debug_mode(mode)


class _ProcessSettings(NamedTuple):
    """Settings that all threads share. The defaults are those of torch."""

    dtype: torch.dtype = torch.float32
    deterministic_mode: int = 0
    fills_memory: bool = False
    # None: torch refuses to read it, because it was set separately for each backend.
    matmul: str | None = "highest"
    matmul_cuda: str = "ieee"
    matmul_cpu: str = "ieee"

    @classmethod
    def current(cls) -> Self:
        matmul = None
        with contextlib.suppress(RuntimeError):
            matmul = torch.get_float32_matmul_precision()
        return cls(
            torch.get_default_dtype(),
            torch.get_deterministic_debug_mode(),
            deterministic.fill_uninitialized_memory,  # pyright: ignore[reportAttributeAccessIssue]
            matmul,
            str(torch.backends.cuda.matmul.fp32_precision),
            torch.backends.mkldnn.matmul.fp32_precision,  # pyright: ignore[reportAttributeAccessIssue]
        )

    def use(self) -> None:
        torch.set_default_dtype(self.dtype)
        set_determinism(self.deterministic_mode)
        deterministic.fill_uninitialized_memory = self.fills_memory  # pyright: ignore[reportAttributeAccessIssue]
        if self.matmul is not None:
            torch.set_float32_matmul_precision(self.matmul)
        torch.backends.cuda.matmul.fp32_precision = self.matmul_cuda
        torch.backends.mkldnn.matmul.fp32_precision = self.matmul_cpu  # pyright: ignore[reportAttributeAccessIssue]


class _Blocks:
    """The blocks that are open in any thread, each with whether it prefers deterministic kernels.

    The last one to end restores the caller's settings, so that no block changes those of another one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deterministic: list[bool] = []
        self._before = _ProcessSettings()

    def enter(self, deterministic: bool) -> None:
        with self._lock:
            if not self._deterministic:
                self._before = _ProcessSettings.current()
            self._deterministic.append(deterministic)
            self._use()

    def leave(self, deterministic: bool) -> None:
        with self._lock:
            self._deterministic.remove(deterministic)
            self._use()

    def _use(self) -> None:
        needed = _ProcessSettings(deterministic_mode=int(any(self._deterministic)))
        (needed if self._deterministic else self._before).use()


_blocks = _Blocks()


@contextlib.contextmanager
def default_settings(*, threads: int | None = None, prefer_deterministic: bool = False) -> Iterator[None]:
    """Compute with torch's default settings within the block or the decorated function, then restore the caller's.

    Blocks can be nested, and open in several threads. `threads` is the number of threads of a block, by
    default the caller's.
    """
    with contextlib.ExitStack() as stack:
        _blocks.enter(prefer_deterministic)
        stack.callback(_blocks.leave, prefer_deterministic)
        stack.callback(_set_threads, torch.get_num_threads())
        if threads is not None:
            torch.set_num_threads(threads)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        # A default device makes every call slower.
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


def _set_threads(number: int) -> None:
    # Setting it, even to the same number, changes MKL in all threads.
    if torch.get_num_threads() != number:
        torch.set_num_threads(number)


_drawing = threading.RLock()


@contextlib.contextmanager
def random_numbers(device: torch.device | None = None) -> Iterator[Callable[[int], object]]:
    """Restore the random state of the CPU and of `device` after the block. Yield a function that seeds both.

    Torch has one random state for all threads, so only one thread at a time is in such a block.
    """
    generators = [torch.default_generator]
    if device is not None and device.type == "cuda":
        number = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[number])
    with _drawing:
        states = [generator.get_state() for generator in generators]
        try:
            # `torch.manual_seed` would also seed GPUs that are not in use.
            yield lambda seed: [generator.manual_seed(seed) for generator in generators]
        finally:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)


@contextlib.contextmanager
def matrix_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Compute matrix products within the block in `train.precision`. Stored tensors stay float32."""
    enabled = uses_bfloat16(precision, device)
    try:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled, cache_enabled=True):
            yield
    finally:
        # Inside an autocast of the caller, copies of weights would stay, and the next step would use the old
        # weights.
        torch.clear_autocast_cache()


def uses_bfloat16(precision: str, device: torch.device) -> bool:
    """Return True if `train.precision` means bfloat16 products. `auto` does on devices with instructions for them.

    Without these, a step of canine-fast-tiny takes seven times as long in bfloat16 as in float32 (on Zen 3).
    """
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported()


def inference_precision(precision: str) -> str:
    """Return the precision in which a trained run is used: bfloat16 only if it was trained so and `auto` chooses it."""
    return "auto" if precision == "bfloat16" else precision


_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # parameters of mallopt(3)


def keep_freed_memory() -> None:
    """Let this process keep freed memory, if it uses glibc.

    That saves 11% of a bfloat16 step of CANINE base.
    """
    with contextlib.suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, -1)
