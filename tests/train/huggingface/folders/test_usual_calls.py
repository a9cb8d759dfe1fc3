"""The calls by which people use an exported CANINE give our vectors: texts of every length from 1 to 500."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tokenfree import load_encoder
from tokenfree.train.huggingface.folders import export_run, import_folder

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

LENGTHS = range(1, 501)
ALPHABET = "abcdefgh ijklmno.éßжщ日本語\U0001f600"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported CANINE whose weights are large, so that each character changes what is around it."""
    made = tmp_path_factory.mktemp("usual_calls")
    config = transformers.CanineConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=512,
        num_hash_functions=4,
        num_hash_buckets=1024,
    )
    torch.manual_seed(0)
    model = transformers.CanineModel(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn_like(weight)
    model.save_pretrained(made / "weights")
    import_folder(made / "weights", made / "run")
    assert export_run(made / "run", made / "exported").reader == "CanineModel"
    return made


@pytest.fixture(scope="module")
def texts() -> list[str]:
    draw = random.Random(0)
    return ["".join(draw.choices(ALPHABET, k=length)) for length in LENGTHS]


@pytest.fixture(scope="module")
def ours(folder: Path, texts: list[str]) -> list[Tensor]:
    """Our vectors of CLS, the characters and SEP of each text."""
    encoder = load_encoder(folder / "run")
    encoded = [encoder(texts[first : first + 50]) for first in range(0, len(texts), 50)]
    return [rows[mask] for batch in encoded for rows, mask in zip(batch.characters, batch.mask, strict=True)]


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return transformers.CanineModel.from_pretrained(folder / "exported").eval()


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(folder / "cache"))
        yield transformers.AutoTokenizer.from_pretrained(folder / "exported", trust_remote_code=True)


@torch.no_grad()
def differences(model: Any, inputs: Any, ours: list[Tensor]) -> list[float]:
    """By text, the largest difference of a value, over all positions of the text."""
    vectors, masks = model(**inputs).last_hidden_state, inputs["attention_mask"].bool()
    pairs = zip(vectors, masks, ours, strict=True)
    return [float((rows[mask] - wanted).abs().max()) for rows, mask, wanted in pairs]


def test_one_unpadded_text(tokenizer: Any, model: Any, texts: list[str], ours: list[Tensor]) -> None:
    for text, wanted in zip(texts, ours, strict=True):
        (difference,) = differences(model, tokenizer(text, return_tensors="pt"), [wanted])
        assert difference < 1e-4, len(text)


def test_batches_padded_to_the_longest(
    tokenizer: Any, model: Any, texts: list[str], ours: list[Tensor]
) -> None:
    for first in range(0, len(texts), 7):  # of neighbouring lengths: most are nearly as long as the longest
        batch = slice(first, first + 7)
        inputs = tokenizer(texts[batch], padding="longest", return_tensors="pt")
        assert max(differences(model, inputs, ours[batch])) < 1e-4, first
    assert tokenizer(texts[:9], padding=True) == tokenizer(texts[:9], padding="longest")


def test_a_collator_pads_what_was_tokenized_before(
    tokenizer: Any, model: Any, texts: list[str], ours: list[Tensor]
) -> None:
    collate = transformers.DataCollatorWithPadding(tokenizer)
    examples = [tokenizer(text) for text in texts[-20:]]
    inputs = collate(examples)
    # 500 + CLS + SEP + 6: what is padded already is not padded again.
    assert inputs["input_ids"].shape == (20, 508)
    assert max(differences(model, inputs, ours[-20:])) < 1e-4


def test_the_tokenizer_of_transformers_agrees_when_it_pads_to_the_full_length(
    folder: Path, model: Any, texts: list[str], ours: list[Tensor]
) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "exported")
    assert type(tokenizer) is transformers.CanineTokenizer
    batch = slice(4, None, 20)
    inputs = tokenizer(texts[batch], padding="max_length", return_tensors="pt")
    assert max(differences(model, inputs, ours[batch])) < 1e-4
    (difference,) = differences(model, tokenizer(texts[28], return_tensors="pt"), ours[28:29])
    assert difference > 0.1  # what the padding is for


def test_a_text_that_is_cut_leaves_room_for_the_padding(
    tokenizer: Any, model: Any, folder: Path, texts: list[str]
) -> None:
    text = texts[-1] * 2
    wanted = load_encoder(folder / "run")([text[:504]])
    for padding in (False, True, "max_length"):
        inputs = tokenizer([text], padding=padding, truncation=True, return_tensors="pt")
        assert inputs["input_ids"].shape == (1, 512)
        assert max(differences(model, inputs, [wanted.characters[0]])) < 1e-4
    short = tokenizer(text, truncation=True, max_length=100)
    assert sum(short["attention_mask"]) == 100


def test_a_saved_tokenizer_pads_as_before(tokenizer: Any, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=True)
    assert (again.pad_group, again.pad_spare, again.model_max_length) == (4, 6, 512)
    assert again("a")["input_ids"] == [0xE000, ord("a"), 0xE001] + [0] * 9
    assert again("a")["attention_mask"] == [1] * 3 + [0] * 9
