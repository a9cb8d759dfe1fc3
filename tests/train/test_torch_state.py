"""Public functions neither depend on the caller's settings of torch nor change them."""

import contextlib
import hashlib
import itertools
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import deterministic

import tokenfree
from tests.train.finetune.conftest import task_recipe, write_files
from tokenfree.core.errors import JobError, UserError
from tokenfree.train.analyses.attention import attention_distances
from tokenfree.train.analyses.similarity import word_vectors
from tokenfree.train.analyses.subject import load_model, sample_texts
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.torch_state import default_settings, matrix_precision, random_numbers

MakeRecipe = Callable[..., PretrainRecipe]
TEXT = "See the [MASK:4] of it."
PROGRAMS = ("pretrain", "finetune", "evaluate", "predict", "embed", "export", "load", "analyse")


@contextlib.contextmanager
def setting(get: Callable[[], Any], change: Callable[[Any], object], value: Any) -> Iterator[None]:
    before = get()
    change(value)
    try:
        yield
    finally:
        change(before)


def _matmul() -> str:
    return torch.backends.mkldnn.matmul.fp32_precision  # pyright: ignore[reportAttributeAccessIssue]


def _set_matmul(value: str) -> None:
    torch.backends.mkldnn.matmul.fp32_precision = value  # pyright: ignore[reportAttributeAccessIssue]


def _device() -> torch.device | None:
    device = torch.get_default_device()
    return None if device.type == "cpu" else device


def _dtype(kind: torch.dtype) -> AbstractContextManager[None]:
    return setting(torch.get_default_dtype, torch.set_default_dtype, kind)


CALLERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "float64": lambda: _dtype(torch.float64),
    "bfloat16": lambda: _dtype(torch.bfloat16),
    "meta": lambda: setting(_device, torch.set_default_device, "meta"),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
    "deterministic": lambda: setting(
        torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, "error"
    ),
    "low precision": lambda: setting(_matmul, _set_matmul, "bf16"),
}


def state() -> list[Any]:
    """All settings of torch in this thread, and the random states of torch, numpy and Python."""
    return [
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.get_deterministic_debug_mode(),
        deterministic.fill_uninitialized_memory,  # pyright: ignore[reportAttributeAccessIssue]
        torch.backends.cuda.matmul.fp32_precision,
        _matmul(),
        torch.get_num_threads(),
        bytes(torch.get_rng_state().numpy()),
        str(np.random.get_state()),
        random.getstate(),
    ]


class Programs:
    """Calls of public functions. Each returns what depends on weights and arithmetic."""

    def __init__(self, folder: Path, corpus: str, make_recipe: MakeRecipe) -> None:
        self.folder, self.corpus, self.recipe = folder, corpus, make_recipe(steps=2)
        self.files: dict[Any, str] = {"train": write_files(folder)["train"]}
        self.task = task_recipe("classification", steps=2, length=64)
        self._numbers = itertools.count()
        self.run, self.tuned = str(folder / "run"), str(folder / "tuned")
        tokenfree.pretrain(self.recipe, corpus, self.run)
        tokenfree.finetune(self.task, self.files, self.tuned)
        (folder / "texts.txt").write_text("one text\nand two\n")

    def output(self) -> str:
        return str(self.folder / f"output{next(self._numbers)}")

    def pretrain(self) -> Any:
        output = self.output()
        result = tokenfree.pretrain(self.recipe, self.corpus, output, init_from=self.run)
        return result.validation_loss, _losses(output)

    def finetune(self) -> Any:
        output = self.output()
        tokenfree.finetune(self.task, self.files, output, init_from=self.run)
        return _losses(output)

    def evaluate(self) -> Any:
        return tokenfree.evaluate(self.run, self.corpus)

    def predict(self) -> Any:
        return tokenfree.predict(self.run, [TEXT]), tokenfree.predict(self.tuned, ["a day"])

    def embed(self) -> Any:
        output = self.output()
        tokenfree.embed(self.run, str(self.folder / "texts.txt"), output)
        return Path(output, "data-00000.arrow").read_bytes()

    def export(self) -> Any:
        output = self.output()
        tokenfree.export(self.run, output)
        return hashlib.sha256(Path(output, "model.safetensors").read_bytes()).hexdigest()

    def load(self) -> Any:
        encoder = tokenfree.load_encoder(self.run)
        out = encoder(["any text", "日本語"])
        assert next(encoder.encoder.parameters()).requires_grad
        model = tokenfree.load_finetuned(self.tuned)
        assert not any(map(torch.is_inference, [*encoder.encoder.parameters(), *model.model.parameters()]))
        vectors = [out.characters, out.pooled, out.cls, out.mean, out.cls_max]
        windows = [window["text"] for window in tokenfree.load_windows(self.corpus, stop=3)]
        answers = tokenfree.load_predictor(self.run)(TEXT), model.evaluate(self.files["train"]).loss
        return [(str(each.dtype), each.tolist()) for each in vectors], answers, windows

    def analyse(self) -> Any:
        model = load_model(self.run)
        found = attention_distances(model, sample_texts(model, None, 3))
        return found, word_vectors(model, ["one", "two"], "output").tolist()


def _losses(run: str) -> list[float]:
    lines = Path(run, "metrics.jsonl").read_text().splitlines()
    return [line["loss"] for line in map(json.loads, lines) if "loss" in line]


@pytest.fixture(scope="module")
def programs(corpus: str, make_recipe: MakeRecipe, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(tmp_path_factory.mktemp("programs"), corpus, make_recipe)


@pytest.fixture(scope="module")
def expected(programs: Programs) -> dict[str, str]:
    return {name: repr(getattr(programs, name)()) for name in PROGRAMS}


@pytest.mark.parametrize(
    ("name", "callers"),
    [*(("pretrain", [caller]) for caller in CALLERS), *((name, list(CALLERS)) for name in PROGRAMS)],
)
def test_public_functions_ignore_and_keep_the_callers_settings(
    name: str, callers: list[str], programs: Programs, expected: dict[str, str]
) -> None:
    with contextlib.ExitStack() as stack:
        for caller in callers:
            stack.enter_context(CALLERS[caller]())
        before = state()
        found = repr(getattr(programs, name)())
        assert state() == before
    assert found == expected[name]


def test_threads_do_not_change_each_others_settings(programs: Programs, expected: dict[str, str]) -> None:
    found = []
    with _dtype(torch.float64):
        before = state()
        calls = [programs.pretrain, programs.load, programs.pretrain]
        threads = [threading.Thread(target=lambda call=call: found.append(repr(call()))) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert state() == before
    assert sorted(found) == sorted([expected["pretrain"], expected["pretrain"], expected["load"]])


@pytest.mark.parametrize("caller", ["float64", "meta", "inference_mode", "autocast"])
def test_errors_restore_the_callers_settings(
    caller: str, programs: Programs, make_recipe: MakeRecipe
) -> None:
    def interrupt(line: object) -> None:
        raise JobError("interrupted")

    def fail_to_write(*shard: object) -> None:
        raise JobError("full disk")

    source, output = str(programs.folder / "texts.txt"), programs.output()
    with CALLERS[caller]():
        before = state()
        with pytest.raises(JobError, match="interrupted"):
            tokenfree.pretrain(programs.recipe, programs.corpus, programs.output(), progress=interrupt)
        # Holds the frames, and with them open generators.
        with pytest.raises(JobError, match="full disk") as raised:
            tokenfree.embed(programs.run, source, output, progress=fail_to_write)
        with pytest.raises(UserError, match="holds no run"):
            tokenfree.load_encoder(str(programs.folder))
        assert state() == before, raised


def test_default_settings_nest() -> None:
    with _dtype(torch.float64), torch.no_grad():
        with default_settings(prefer_deterministic=True), default_settings():
            assert torch.get_deterministic_debug_mode() == 1
            assert torch.ones(1, requires_grad=True).sum().requires_grad
        assert torch.get_deterministic_debug_mode() == 0
        assert torch.get_default_dtype() == torch.float64


def test_random_numbers_seeds_and_restores() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with random_numbers() as seed:
        seed(7)
        drawn = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(7)))


def test_matrix_precision_sees_changed_weights_inside_an_autocast() -> None:
    layer, ones = torch.nn.Linear(1, 1, bias=False), torch.ones(1, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for value in (1.0, 2.0):
            layer.weight.data.fill_(value)
            with matrix_precision("bfloat16", torch.device("cpu")):
                assert layer(ones).item() == value
