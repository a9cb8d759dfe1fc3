"""Exported folders of all models by the Auto classes of transformers: our outputs, with any tokenizer's padding."""

import functools
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.conftest import SUBWORDS
from tests.train.finetune.conftest import MODELS, write_files
from tests.train.huggingface.exported_folder.test_finetuned import logits_of
from tests.train.huggingface.onnx.test_finetuned_graph import finetuned
from tokenfree import load_encoder, load_finetuned, load_predictor
from tokenfree.core.settings import build, merge
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.huggingface.folders import export_run
from tokenfree.train.pretrain import pretrain

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

MakeRecipe = Callable[..., PretrainRecipe]
TEXTS = ["any text, häß", "日本語 \U0001f600", "a", "Python is a programming language"]
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering")
FAST = {
    "embedder": {"name": "ngram_hash", "buckets": 64, "max_characters": 64},
    "downsampler": {"name": "strided_conv", "layers": 0},
    "trunk": {"positions": {"name": "t5"}},
}
DIET = {**SUBWORDS, "trunk": {"positions": {"name": "diet_rel"}}}
# An objective, what is laid over its model, and what the folder is a model of.
KINDS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any], str]] = {
    "canine-s": ({"name": "canine_s"}, {}, "CanineModel"),
    "canine-c": ({"name": "canine_c", "heads": 2}, {}, "CanineModel"),
    "canine-fast": ({"name": "canine_s", "output_rows": "spelled"}, FAST, "TokenfreeModel"),
    "multi-scale": ({"name": "masked_characters"}, MODELS["multi_scale"], "TokenfreeModel"),
    "longformer": ({"name": "canine_s"}, MODELS["longformer"], "TokenfreeModel"),
    "byte2word": ({"name": "byte2word"}, {}, "TokenfreeModel"),
    "bert": ({"name": "masked_subwords"}, {}, "BertModel"),
    "diet": ({"name": "masked_subwords"}, DIET, "TokenfreeModel"),
}
# A class of each.
CLASSES = ("canine-s", "canine-fast", "bert", "diet")
each_class = pytest.mark.parametrize("exported", CLASSES, indirect=True)
each_class_and_more = pytest.mark.parametrize(
    "exported",
    [*CLASSES, *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind not in CLASSES)],
    indirect=True,
)


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path_factory.mktemp("cache"))
        )
        yield


@pytest.fixture(scope="module", params=KINDS)
def exported(
    request: pytest.FixtureRequest,
    corpus: str,
    make_recipe_for: MakeRecipe,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Path]:
    """A kind, and the folder with its `run` and the exported folder `out`."""
    made = tmp_path_factory.mktemp("made")
    objective, model, architecture = KINDS[request.param]
    recipe = make_recipe_for(objective, steps=1)
    recipe = build(PretrainRecipe, merge(to_mapping(recipe), {"model": model}), source="test")
    pretrain(recipe, corpus, str(made / "run"))
    assert export_run(made / "run", made / "out").reader == architecture
    return request.param, made


def opened(kind: str, folder: Path) -> Any:
    return getattr(transformers, f"AutoModel{kind}").from_pretrained(folder, trust_remote_code=True).eval()


@functools.cache
def tokenizer_of(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)


@torch.no_grad()
def test_the_vectors_are_those_of_load_encoder(exported: tuple[str, Path]) -> None:
    kind, made = exported
    model, tokenizer, encoder = (
        opened("", made / "out"),
        tokenizer_of(made / "out"),
        load_encoder(made / "run"),
    )
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    found = model(**inputs)
    if kind in ("bert", "diet"):
        ids, mask = inputs["input_ids"], inputs["attention_mask"].bool()
        vocabulary = load_predictor(made / "run").vocabulary
        assert vocabulary is not None
        special = vocabulary.size, vocabulary.size + 1
        for row, real, text in zip(ids, mask, TEXTS, strict=True):
            assert row[real].tolist() == [
                special[0],
                *vocabulary.encode_flat([text]).ids.tolist(),
                special[1],
            ]
        ours = encoder.encoder(ids, mask)
        assert (ours.characters - found.last_hidden_state)[mask].abs().max() < 1e-5
        return
    ours = encoder(TEXTS)
    positions = ours.mask.shape[1]
    assert (ours.characters - found.last_hidden_state[:, :positions])[ours.mask].abs().max() < 1e-5
    assert (ours.mean - found.mean).abs().max() < 1e-5
    assert (ours.pooled - found.pooler_output).abs().max() < 1e-5
    plain = transformers.CanineTokenizer()
    for row, text in enumerate(TEXTS):  # without padding
        alone = model(**plain(text, return_tensors="pt"))
        assert (ours.mean[row] - alone.mean[0]).abs().max() < 1e-5
        assert alone.last_hidden_state.shape[1] == len(text) + 2


@torch.no_grad()
def test_hidden_places_are_filled_as_by_predict(exported: tuple[str, Path]) -> None:
    kind, made = exported
    model, tokenizer, predictor = (
        opened("ForMaskedLM", made / "out"),
        tokenizer_of(made / "out"),
        load_predictor(made / "run"),
    )
    text, mark = "Python is a {} language", "[MASK:1]"
    wanted = {each.text: each.probability for each in predictor(text.format(mark), 5)[0]}
    if kind in ("canine-s", "canine-fast", "longformer", "byte2word"):
        assert tokenizer.mask_token is None  # else the pipeline would take subwords for characters
        inputs = tokenizer(text.format("\ue003"), return_tensors="pt")
        scores = model(**inputs).logits[0, 1 + text.index("{")].softmax(dim=-1)
        assert predictor.vocabulary is not None
        pieces = predictor.vocabulary.pieces
        share = 3 if kind == "byte2word" else 1  # words of one to three subwords count alike there
        for piece, probability in wanted.items():
            if kind != "byte2word" or f"\u2581{piece}" in pieces:
                assert float(scores[pieces.index(f"\u2581{piece}")]) == pytest.approx(
                    probability * share, rel=0.01
                )
        return
    fill = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, device="cpu", top_k=300)
    found = {each["token"]: each["score"] for each in fill(text.format(tokenizer.mask_token))}
    for answer, probability in wanted.items():
        (token,) = tokenizer.convert_tokens_to_ids([answer])
        assert found[token] == pytest.approx(probability, rel=0.01)


@each_class_and_more
@pytest.mark.parametrize("head", HEADS)
def test_fresh_heads_learn(head: str, exported: tuple[str, Path]) -> None:
    _, made = exported
    sizes = {} if head == "QuestionAnswering" else {"num_labels": 3}
    auto = getattr(transformers, f"AutoModelFor{head}")
    model = auto.from_pretrained(made / "out", trust_remote_code=True, **sizes).train()
    inputs = tokenizer_of(made / "out")(TEXTS, ["b"] * len(TEXTS), padding=True, return_tensors="pt")
    labels: dict[str, Any] = {
        "SequenceClassification": {"labels": torch.tensor([0, 1, 2, 0])},
        "TokenClassification": {"labels": torch.ones_like(inputs["input_ids"])},
        "QuestionAnswering": {
            name: torch.ones(4, dtype=torch.int64) for name in ("start_positions", "end_positions")
        },
    }
    model(**inputs, **labels[head]).loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())
    assert any(name.startswith("head.") and gradient.abs().sum() > 0 for name, gradient in gradients.items())


def test_sentence_transformers_give_the_mean(exported: tuple[str, Path]) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="it is not installed")
    kind, made = exported
    if kind in ("bert", "diet"):
        pytest.skip("load_encoder takes no texts for models of subwords")
    model = sentence_transformers.SentenceTransformer(str(made / "out"), trust_remote_code=True, device="cpu")
    found = torch.from_numpy(model.encode(TEXTS))
    assert (found - load_encoder(made / "run")(TEXTS).mean).abs().max() < 1e-5


@each_class_and_more
def test_the_trainer_trains(exported: tuple[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate, which is not installed")
    _, made = exported
    auto = transformers.AutoModelForSequenceClassification
    model, tokenizer = auto.from_pretrained(made / "out", trust_remote_code=True), tokenizer_of(made / "out")
    rows = [{**tokenizer(text), "labels": number % 2} for number, text in enumerate(TEXTS)]
    arguments = transformers.TrainingArguments(
        str(tmp_path / "trained"), max_steps=2, per_device_train_batch_size=2, report_to=[], use_cpu=True
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    again = auto.from_pretrained(tmp_path / "saved", trust_remote_code=True).eval()
    inputs = tokenizer_of(tmp_path / "saved")(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        assert (again(**inputs).logits - model.eval()(**inputs).logits).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("kind", "model"), [("texts", "words"), ("tags", "words"), ("tags", "multi_scale"), ("pairs", "canine")]
)
def test_finetuned_models_without_a_class_of_transformers(
    kind: str, model: str, corpus: str, tmp_path: Path
) -> None:
    """`pairs` of CANINE read the mean, which CanineForSequenceClassification cannot."""
    run = finetuned(tmp_path, kind, model, write_files(tmp_path), corpus)
    head = "ForTokenClassification" if kind == "tags" else "ForSequenceClassification"
    assert export_run(run, tmp_path / "out").reader == f"Tokenfree{head}"
    found, texts = load_finetuned(run), ["a good day no 3", "Ana saw 日 bad", "x"]
    port, tokenizer = opened(head, tmp_path / "out"), tokenizer_of(tmp_path / "out")
    assert list(port.config.id2label.values()) == list(getattr(found.task, "labels", ()))
    ours, _ = logits_of(found, run, texts)
    pairs = [text[: len(text) // 2] for text in texts], [text[len(text) // 2 :] for text in texts]
    inputs = tokenizer(*(pairs if kind == "pairs" else (texts,)), padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = port(**inputs).logits
    for text, mine, theirs in zip(texts, ours, logits, strict=True):
        if kind == "tags":
            firsts = [
                1 + place
                for place in range(len(text))
                if text[place] != " " and text[place - 1 : place] in ("", " ")
            ]
            theirs = theirs[firsts]
        assert (mine - theirs).abs().max() < 1e-5
    if kind == "tags":
        pipe = transformers.pipeline("token-classification", model=port, tokenizer=tokenizer, device="cpu")
        assert {each["entity"] for each in pipe(texts[0])} <= set(port.config.id2label.values())


@each_class
@torch.no_grad()
def test_a_folder_on_the_hub_opens_by_its_name(exported: tuple[str, Path], tmp_path: Path) -> None:
    """Uploaded with `hf upload me/NAME FOLDER`, and downloaded to the hub's cache."""
    kind, made = exported
    downloaded = tmp_path / f"models--me--{kind}"
    shutil.copytree(made / "out", downloaded / "snapshots" / ("0" * 40))
    (downloaded / "refs").mkdir()
    (downloaded / "refs" / "main").write_text("0" * 40)
    cached = {"cache_dir": str(tmp_path), "local_files_only": True, "trust_remote_code": True}
    tokenizer = transformers.AutoTokenizer.from_pretrained(f"me/{kind}", **cached)
    model = transformers.AutoModel.from_pretrained(f"me/{kind}", **cached).eval()
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    found = model(**inputs).last_hidden_state
    assert torch.equal(found, opened("", made / "out")(**inputs).last_hidden_state)
