"""Fine-tuned runs to the classes of transformers for their tasks: the same logits, and what has no class there."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard

from tests.train.conftest import RECIPE
from tests.train.finetune.conftest import MODELS, TRAIN, write
from tokenfree import load_finetuned
from tokenfree.core.errors import UserError
from tokenfree.core.settings import build, merge
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.finetune import finetune
from tokenfree.train.huggingface.exported_folder import folder_head, port_model, write_folder
from tokenfree.train.huggingface.folders import export_run, read_folder
from tokenfree.train.inference.finetuned import FinetunedModel
from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.loop.step import on_device
from tokenfree.train.runs.run import Run
from tokenfree.train.tasks.examples.tagged import TaggedExample
from tokenfree.train.tasks.inputs import text_inputs
from tokenfree.workflows import cli

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

LENGTHS = [*range(1, 16), *range(118, 133)]  # at 125 and 126 UP reads into a block of padding alone
ALPHABET = "abcdefgh ijklmno.éßжщ日本語\U0001f600"
TASKS = {
    "texts": {"name": "classification", "representation": "pooled"},
    "numbers": {"name": "classification", "regression": True, "representation": "pooled"},
    "pairs": {"name": "pairs", "representation": "pooled"},
    "tags": {"name": "tagging", "scheme": "words"},
}
HEADS = dict(zip(TASKS, ["Sequence", "Sequence", "Sequence", "Token"], strict=True))
OVER = {"canine": {"embedder": {"buckets": 256}}}  # as many as positions at least, as transformers has it
KINDS = {"canine": "Canine", "subwords": "Bert"}


@pytest.fixture(scope="module")
def texts() -> list[str]:
    draw = random.Random(0)
    return ["".join(draw.choices(ALPHABET, k=length)) for length in LENGTHS]


def recipe(task: str | Mapping[str, Any], model: str = "canine") -> FinetuneRecipe:
    mapping = {
        "model": merge(MODELS[model], OVER.get(model, {})),
        "task": task,
        "train": {**TRAIN, "length": 512 if model == "subwords" else 144},
    }
    return build(FinetuneRecipe, merge({"model": RECIPE["model"]}, mapping), source="test")


def finetuned(folder: Path, kind: str, corpus: str, model: str = "canine", **task: Any) -> Path:
    """A run of eight steps that begins with large weights, so that each character changes what is around it."""
    signs = {"numbers": ("2.5", "-1")}.get(kind, ("größer|gleich", "less"))
    if kind == "tags":
        lines = [f"{'good' if n % 3 else 'bad'} ADJ\n{n} NUM\n. PUNCT\n" for n in range(24)]
        path = write(folder / "tags.txt", "", lines)
    elif kind == "pairs":
        lines = [f"day {n}\t{'good' if n % 3 else 'bad'}\t{signs[n % 3 == 0]}" for n in range(24)]
        path = write(folder / "pairs.tsv", "sentence1\tsentence2\tlabel", lines)
    else:
        lines = [f"{'good' if n % 3 else 'bad'} day {n}\t{signs[n % 3 == 0]}" for n in range(24)]
        path = write(folder / "texts.tsv", "text\tlabel", lines)
    vocabulary = f"{corpus}/vocabulary/subwords.model" if model == "subwords" else None
    made = recipe(TASKS[kind] | task, model)
    begin = large_weights(folder / "begin", made)
    finetune(made, {"train": path, "dev": path}, str(folder / "run"), init_from=begin, vocabulary=vocabulary)
    return folder / "run"


def large_weights(folder: Path, made: FinetuneRecipe) -> str:
    folder.mkdir()
    torch.manual_seed(0)
    encoder = made.model.build()
    with torch.no_grad():
        for weight in encoder.parameters():
            weight += 0.2 * torch.randn_like(weight)
    write_folder(folder, *port_model(encoder, None), TextEncoder(encoder, length=made.train.length), "")
    return str(folder)


def halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


@torch.no_grad()
def logits_of(found: FinetunedModel, run: Path, texts: Sequence[str]) -> tuple[list[torch.Tensor], list[Any]]:
    """Our logits of each text, and the arrays that were read."""
    config = found.recipe
    vocabulary = load_vocabulary(str(run)) if config.model.embedder.symbols == "subwords" else None
    collator = config.task.collator(text_inputs(config.model, config.train.length, vocabulary), 0)
    is_pair = config.task.name == "pairs"
    if config.task.name == "tagging":
        examples: list[Any] = [TaggedExample(text, tuple(text.split())) for text in texts]
    else:
        examples = [config.task.raw(text, "\t".join(halves(text)) if is_pair else text) for text in texts]
    head: Any = found.model.head
    logits, arrays = list[torch.Tensor](), list[Any]()
    for item in collator.items(examples, training=False):
        batch = on_device(collator([item], np.zeros(1, dtype=np.int64)), torch.device("cpu"))
        logits.append(head.outputs(found.model.encoder, batch)["logits"][0])
        arrays.append(batch)
    assert len(logits) == len(texts)
    return logits, arrays


@pytest.mark.parametrize("model", KINDS)
@pytest.mark.parametrize("kind", TASKS)
def test_the_logits_are_the_same(
    kind: str, model: str, texts: list[str], corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "cache"))
    run, out = finetuned(tmp_path, kind, corpus, model), tmp_path / "out"
    name = f"{KINDS[model]}For{HEADS[kind]}Classification"
    assert export_run(run, out).reader == name
    found = load_finetuned(run)
    if kind == "tags":
        texts = [" ".join(text.split()) or "a" for text in texts]
    ours, arrays = logits_of(found, run, texts)
    port, told = getattr(transformers, name).from_pretrained(out, output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    tokenizer: Any = None
    if model == "canine":
        tokenizer = transformers.AutoTokenizer.from_pretrained(out, trust_remote_code=True)
        read_texts = zip(*map(halves, texts), strict=True) if kind == "pairs" else [texts]
        batch = tokenizer(*map(list, read_texts), padding="longest", return_tensors="pt")
    spread = torch.cat([each.reshape(-1, each.shape[-1]) for each in ours]).std(dim=0).max()
    assert spread > 1e-3  # of a fresh head of small weights; less would let any model agree
    most = min(1e-5, float(spread) / 500)
    for row, (mine, read) in enumerate(zip(ours, arrays, strict=True)):
        if tokenizer is not None:
            inputs = {key: values[row : row + 1] for key, values in batch.items()}
        else:
            inputs = {"input_ids": read["codepoints"], "attention_mask": read["mask"].long()}
            inputs |= {"token_type_ids": read["segments"]} if "segments" in read else {}
        with torch.no_grad():
            theirs = port.eval()(**inputs).logits[0]
        if kind == "tags":
            theirs = theirs[read["places"][0]]
        assert (mine - theirs).abs().max() < most, (row, len(texts[row]))
    fields = json.loads((out / "config.json").read_text())
    assert fields["classifier_dropout"] == 0.1
    labels = getattr(found.task, "labels", ())
    if kind == "numbers":
        assert (port.config.num_labels, port.config.problem_type) == (1, "regression")
    else:
        assert port.config.id2label == dict(enumerate(labels))
        assert port.config.label2id == {label: number for number, label in enumerate(labels)}


def test_the_labels_are_those_that_predict_gives(
    texts: list[str], corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the pipeline that people use; the card tells the labels and the scores."""
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "cache"))
    run, out = finetuned(tmp_path, "texts", corpus), tmp_path / "out"
    assert cli.main(["export", str(run), "--to", "huggingface", str(out)]) == 0
    pipe = transformers.pipeline(
        "text-classification",
        model=transformers.CanineForSequenceClassification.from_pretrained(out),
        tokenizer=transformers.AutoTokenizer.from_pretrained(out, trust_remote_code=True),
        device="cpu",
    )
    for mine, theirs in zip(load_finetuned(run)(texts), pipe(texts), strict=True):
        assert mine["label"] == theirs["label"]
        assert mine["probabilities"][mine["label"]] == pytest.approx(theirs["score"], abs=1e-5)
    card = ModelCard.load(out / "README.md")
    front: Any = card.data
    assert (front.pipeline_tag, front.library_name) == ("text-classification", "transformers")
    result = json.loads((run / "result.json").read_text())
    assert f"| dev: accuracy, step {result['best_step']} | {result['dev']['accuracy']:.4f} |" in card.text
    assert r"| labels | größer\|gleich, less |" in card.text
    assert "CanineForSequenceClassification.from_pretrained" in card.text
    assert "AutoModelForSequenceClassification.from_pretrained" in card.text
    assert str(tmp_path) not in card.text
    again = read_folder(out)  # and the encoder serves to begin with
    assert all(
        torch.equal(tensor, load_finetuned(run).model.encoder.state_dict()[name])
        for name, tensor in again.encoder.state_dict().items()
    )


def test_the_best_checkpoint_is_exported(corpus: str, tmp_path: Path) -> None:
    """Though a later one is there."""
    run = finetuned(tmp_path, "texts", corpus)
    result = json.loads((run / "result.json").read_text())
    steps = [int(path.name.removeprefix("step_")) for path in (run / "checkpoints").iterdir()]
    assert len(steps) > 1
    (run / "result.json").write_text(json.dumps(result | {"best_step": min(steps)}))
    (run / "hashes.json").unlink()
    export_run(run, tmp_path / "out")
    weights = transformers.CanineForSequenceClassification.from_pretrained(tmp_path / "out").state_dict()
    at_best = Run(run).at(min(steps)).weights()
    assert torch.equal(weights["classifier.weight"], at_best["head.classifier.output.weight"])
    assert f"| steps | {min(steps)} |" in (tmp_path / "out" / "README.md").read_text()


def test_pairs_that_are_read_apart_are_refused(
    corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finetuned(tmp_path, "pairs", corpus, encode="apart")
    capsys.readouterr()
    assert cli.main(["export", str(run), "--to", "huggingface", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pairs with task.encode: together can be" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("multi_scale", r"model\.trunk\.layer\.name must be 'bert', not 'multi_scale'"),
        ("words", r"model\.embedder\.name must be 'codepoint_hash', not 'word_bytes'"),
        ("diet", r"model\.trunk\.positions\.name must be 'none', not 'diet_rel'"),
        ("longformer", r"model\.trunk\.attention\.name must be 'full', not 'sliding_global'"),
        ("character_bert", r"model\.embedder\.name must be 'codepoint_hash', not 'character_vocabulary'"),
    ],
)
def test_encoders_that_have_no_equal(model: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        port_model(recipe("classification", model).model.build(), None)


def test_a_head_of_the_users_own_has_no_equal() -> None:
    made = recipe({**TASKS["texts"], "labels": ["a", "b"]})
    head = made.task.build(made.model)
    assert folder_head(made.task, head).kind == "ForSequenceClassification"
    head.__class__ = type("OwnHead", (type(head),), {})
    with pytest.raises(
        UserError, match=r"classification with these settings has a head that cannot be exported"
    ):
        folder_head(made.task, head)
