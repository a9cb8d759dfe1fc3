"""The two tasks of question answering, from files to scores."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.finetune import finetune, prepare
from tokenfree.train.model.attention.sliding_global import GlobalUnits, SlidingGlobalAttention
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.base import Item
from tokenfree.train.tasks.heads import encode_units
from tokenfree.train.tasks.inputs import text_inputs
from tokenfree.train.tasks.qa_squad import Config as QaSquad
from tokenfree.train.tasks.qa_tydi import Config as QaTydi

NAMES = ("Anna", "Bert", "Carla", "Dmitri", "Emeka", "Fatou", "Goran", "Hanna", "Ivo", "Jana")
CITIES = ("Oulu", "Lahti", "Turku", "Espoo", "Porvoo", "Kemi", "Vaasa", "Rauma", "Kotka", "Pori")
MODEL: dict[str, Any] = {
    "width": 64,
    "embedder": {"name": "codepoint_hash", "buckets": 1024, "max_characters": 256},
    "downsampler": {"block": 32},
    "trunk": {"layers": 2, "heads": 4, "dropout": 0.0},
    "initialisation": "scaled",
}
TRAIN: dict[str, Any] = {
    "global_batch": 20,
    "length": 80,
    "learning_rate": 1e-3,
    "checkpoint_every_steps": 1000,
    "checkpoint_every_seconds": None,
    "threads": 1,
}


def facts(count: int) -> list[tuple[list[str], str, str, int]]:
    """Two sentences, a question, the answer to it and the number of the sentence that has it."""
    draw = random.Random(0)
    found = []
    for _ in range(count):
        names, cities = draw.sample(NAMES, 2), draw.sample(CITIES, 2)
        number = draw.randrange(2)
        sentences = [f"{name} lives in {city}." for name, city in zip(names, cities, strict=True)]
        found.append((sentences, f"Where is {names[number]}?", cities[number], number))
    return found


def tydi_file(path: Path, count: int) -> str:
    lines = []
    for number, (sentences, question, answer, passage) in enumerate(facts(count)):
        article = "\n".join(sentences)
        begins = [0, len(sentences[0]) + 1]
        start = article.index(answer, begins[passage])
        marked = {
            "annotation_id": 0,
            "passage_answer": {"candidate_index": passage},
            "minimal_answer": {"plaintext_start_byte": start, "plaintext_end_byte": start + len(answer)},
            "yes_no_answer": "NONE",
        }
        candidates = [
            {"plaintext_start_byte": begin, "plaintext_end_byte": begin + len(sentence)}
            for begin, sentence in zip(begins, sentences, strict=True)
        ]
        lines.append(
            {
                "example_id": number,
                "language": ("thai", "korean")[number % 2],
                "question_text": question,
                "document_plaintext": article,
                "passage_answer_candidates": candidates,
                "annotations": [marked] * 3,
            }
        )
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


def squad_file(path: Path, count: int, *, unanswerable: int = 0) -> str:
    paragraphs = []
    for number, (sentences, question, answer, _) in enumerate(facts(count)):
        context = " ".join(sentences)
        answers = [{"text": answer, "answer_start": context.index(answer)}] if number >= unanswerable else []
        question = question if answers else "Where is Zoe?"
        paragraphs.append(
            {"context": context, "qas": [{"id": str(number), "question": question, "answers": answers}]}
        )
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "cities", "paragraphs": paragraphs}]}))
    return str(path)


def recipe(task: dict[str, Any], **train: Any) -> FinetuneRecipe:
    sizes = {"max_question": 20, "stride": 16, "max_answer": 10}
    return build(
        FinetuneRecipe, {"model": MODEL, "task": sizes | task, "train": TRAIN | train}, source="test"
    )


def lines_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "predictions" / "dev.jsonl").read_text().splitlines()]


def test_a_run_of_qa_tydi_leaves_official_predictions(tmp_path: Path) -> None:
    file = tydi_file(tmp_path / "dev.jsonl", 6)
    result = finetune(
        recipe({"name": "qa_tydi"}, steps=2, optimizer="adamw_bert", schedule="bert"),
        {"train": file, "dev": file, "test": file},
        str(tmp_path / "run"),
    )
    assert {"minimal_f1", "passage_f1", "minimal_f1/thai", "passage_f1/korean"} <= set(result.dev)
    assert result.dev == result.test
    assert [line["example_id"] for line in lines_of(tmp_path / "run")] == list(range(6))
    for line, (sentences, *_) in zip(lines_of(tmp_path / "run"), facts(6), strict=True):
        answer, article = line["span"], "\n".join(sentences)
        assert article[answer["start"] : answer["end"]] == answer["text"]
        assert line["minimal_answer"] == {
            "start_byte_offset": answer["start_byte"],
            "end_byte_offset": answer["end_byte"],
        }


@pytest.mark.slow
def test_qa_tydi_learns_twenty_questions(tmp_path: Path) -> None:
    file = tydi_file(tmp_path / "train.jsonl", 20)
    result = finetune(
        recipe({"name": "qa_tydi", "other_windows": 1.0}, steps=120, validate_every_steps=120),
        {"train": file, "dev": file},
        str(tmp_path / "run"),
    )
    assert result.dev["minimal_f1"] > 0.9
    assert result.dev["passage_f1"] > 0.9


@pytest.mark.slow
def test_qa_squad_learns_twenty_questions_of_which_some_have_no_answer(tmp_path: Path) -> None:
    file = squad_file(tmp_path / "train.json", 20, unanswerable=5)
    result = finetune(
        recipe({"name": "qa_squad"}, steps=120, validate_every_steps=120),
        {"train": file, "dev": file},
        str(tmp_path / "run"),
    )
    assert result.dev["f1"] > 0.9
    assert result.dev["f1/unanswerable"] > 0.7
    assert result.dev["f1/best_threshold"] >= result.dev["f1"]


BYTE2WORD: dict[str, Any] = {
    "width": 16,
    "embedder": {"name": "byte_table"},
    "downsampler": {"name": "word_pooling"},
    "upsampler": {"name": "subword_queries"},
    "trunk": {"layers": 1, "heads": 2, "inner_width": 32},
}


SUBWORDS: dict[str, Any] = {
    "width": 16,
    "embedder": {"name": "subword_table", "size": 500},
    "downsampler": {"name": "identity"},
    "upsampler": {"name": "identity"},
    "trunk": {"layers": 1, "heads": 2, "inner_width": 32},
}


@pytest.mark.parametrize(
    ("model", "length"),
    [(MODEL, 44), (SUBWORDS, 44), (BYTE2WORD, 132)],
    ids=["characters", "subwords", "words"],
)
def test_every_kind_of_model_reads_windows_and_finds_answers(
    model: dict[str, Any], length: int, corpus: str, tmp_path: Path
) -> None:
    """Each window with the answer says where it is, so that logits which are sure of it give the answer's bytes."""
    config = build(ModelConfig, model, source="test")
    task = build(QaSquad, {"max_question": 8, "stride": 5, "max_answer": 30}, source="test")
    examples = task.examples("dev", squad_file(tmp_path / "dev.json", 8))
    vocabulary = Vocabulary.load(Path(corpus, "vocabulary", "subwords.model").read_bytes())
    collator = task.fitted(examples).collator(text_inputs(config, length, vocabulary), seed=0)
    items = collator.items(examples, training=False)
    assert len(items) > len(examples)
    arrays = collator(items, np.arange(len(items)))
    batch = {name: torch.from_numpy(values) for name, values in arrays.items()}
    if "unit_ends" not in arrays:  # CLS, the question and its SEP come before the text
        assert arrays["global"].sum(axis=1).tolist() == (arrays["starts"] >= 0).argmax(axis=1).tolist()
    encoder, head = config.build().eval(), task.build(config)
    outputs = {name: values.detach().clone() for name, values in head.outputs(encoder, batch).items()}
    assert outputs["start"].shape == arrays["starts"].shape
    assert head.loss(outputs, batch).total.isfinite()
    rows = torch.arange(len(items))
    for name, place in (("start", "first"), ("end", "last")):
        outputs[name][rows, batch[place]] += 100.0
    kept = {name: values.numpy() for name, values in head.kept(outputs, batch).items()}
    of_items = [{name: values[row] for name, values in kept.items()} for row in range(len(items))]
    lines = task.predictions(examples, items, of_items)
    assert all(answer in line["answer"] for line, (_, _, answer, _) in zip(lines, facts(8), strict=True))
    assert all(
        len(line["answer"]) < len(answer) + 4 for line, (_, _, answer, _) in zip(lines, facts(8), strict=True)
    )


def with_windows(**attention: Any) -> dict[str, Any]:
    """`MODEL` with one layer whose units see two to each side."""
    pattern = {"name": "sliding_global", "one_sided_window": 2, **attention}
    return {**MODEL, "trunk": {**MODEL["trunk"], "layers": 1, "attention": pattern}}


def batch_of_questions(path: Path) -> tuple[QaTydi, list[str], dict[str, torch.Tensor]]:
    """The task, the questions as they are read and a window of each: a short question, a usual and one that is cut."""
    task = build(QaTydi, {"max_question": 20, "stride": 16, "max_answer": 10}, source="test")
    questions = ["Who?", "Where is Anna?", "Where in all of Finland is Anna?"]
    lines = [json.loads(line) for line in Path(tydi_file(path, 3)).read_text().splitlines()]
    asked = [line | {"question_text": text} for line, text in zip(lines, questions, strict=True)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in asked))
    examples = task.examples("dev", str(path))
    collator = task.collator(text_inputs(build(ModelConfig, MODEL, source="test"), 80, None), seed=0)
    items = {item.example: item for item in reversed(collator.items(examples, training=False))}
    arrays = collator([items[number] for number in range(3)], np.arange(3))
    return (
        task,
        [text[-20:] for text in questions],
        {name: torch.from_numpy(of) for name, of in arrays.items()},
    )


def test_the_units_of_the_question_are_global_and_those_of_the_passage_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, questions, batch = batch_of_questions(tmp_path / "dev.jsonl")
    chosen: list[GlobalUnits | None] = []
    choose = SlidingGlobalAttention._choose

    def recorded(self: SlidingGlobalAttention, heads: Any) -> GlobalUnits | None:
        chosen.append(choose(self, heads))
        return chosen[-1]

    monkeypatch.setattr(SlidingGlobalAttention, "_choose", recorded)
    model = task.adapted(build(ModelConfig, with_windows(), source="test"))
    task.build(model).outputs(model.build().eval(), batch)
    (found,) = chosen
    assert found is not None
    units = [flags.nonzero()[:, 0].tolist() for flags in found.among_units()]
    # CLS is unit 0, and unit 1 + i holds characters 4 i to 4 i + 3: of [CLS], the marker, the question and
    # [SEP].
    assert units == [[0, *range(1, 1 + -(-(len(question) + 3) // 4))] for question in questions]
    assert [len(each) for each in units] == [3, 6, 7]
    assert model.trunk.attention.global_units == found.index_BG.shape[1] == 7
    assert batch["mask"].sum(dim=1).min() > 4 * 8  # there are units of the passage


@pytest.mark.parametrize(("max_question", "rate"), [(20, 4), (21, 4), (22, 4), (23, 4), (20, 5), (7, 1)])
def test_the_room_is_that_of_the_longest_question(max_question: int, rate: int) -> None:
    down: dict[str, Any] = {"rate": rate} if rate > 1 else {"name": "identity"}
    model = build(ModelConfig, {**with_windows(), "downsampler": down}, source="test")
    framed = max_question + 3  # [CLS], the marker, the question and [SEP]
    assert QaTydi(max_question=max_question).adapted(model).trunk.attention.global_units == 1 + -(
        -framed // rate
    )


def test_a_passage_sees_the_question_in_one_layer_from_beyond_its_window(tmp_path: Path) -> None:
    task, _, batch = batch_of_questions(tmp_path / "dev.jsonl")
    # Of the units, `beyond` is out of the window of `far` as well.
    row, of_question, far, beyond = 1, 3, 13, 9

    def gradients(model: ModelConfig) -> torch.Tensor:
        """How unit `far` behind the stack depends on each unit before it, [U]."""
        torch.manual_seed(0)
        encoder = model.build().eval()
        before: list[torch.Tensor] = []

        def detached(module: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
            before.append(given[0].detach().requires_grad_())
            return before[0], *given[1:]

        encoder.trunk.register_forward_pre_hook(detached)
        units_BUD, _ = encode_units(encoder, batch)
        units_BUD[row, far].square().sum().backward()
        assert before[0].grad is not None
        return before[0].grad[row].abs().sum(dim=-1)

    before = build(ModelConfig, with_windows(), source="test")
    alone, together = gradients(before), gradients(task.adapted(before))
    assert (alone[of_question], alone[beyond]) == (0, 0)
    assert together[of_question] > 0
    assert together[beyond] == 0
    assert alone[0] > 0
    assert alone[far - 2] > 0


def test_a_pretrained_model_gets_room_for_the_question_unless_told_otherwise(tmp_path: Path) -> None:
    file = squad_file(tmp_path / "train.json", 2)
    sizes = {"max_question": 20, "stride": 16, "max_answer": 10}
    mapping = {"task": {"name": "qa_squad", **sizes}, "train": {**TRAIN, "steps": 1}}
    plain = build(FinetuneRecipe, {"model": MODEL, **mapping}, source="test")

    def room(first: str, over: dict[str, Any] | None = None, run: str = "new") -> int:
        model = {"trunk": {"attention": over}} if over else None
        prepared = prepare(plain, {"train": file}, str(tmp_path / run), init_from=first, model=model)
        return prepared.recipe.model.trunk.attention.global_units

    runs = {name: str(tmp_path / name) for name in ("windows", "none", "full", "before")}
    for name, model in {
        "windows": with_windows(), "none": with_windows(global_units=0), "full": MODEL
    }.items():  # fmt: skip
        finetune(
            build(FinetuneRecipe, {"model": model, **mapping}, source="test"), {"train": file}, runs[name]
        )
    assert room(runs["windows"]) == 7
    assert room(runs["windows"], {"global_units": 1}) == 1
    assert room(runs["none"]) == 0
    assert room(runs["full"], {"name": "sliding_global"}) == 7
    alone = {"trunk": {"attention": {"global_units": 1}}}
    finetune(plain, {"train": file}, runs["before"], init_from=runs["windows"], model=alone)
    assert room(runs["windows"], run="before") == 1  # a run that is there keeps what it has


def answered(
    examples: Sequence[Any], *outputs: tuple[float, int, int]
) -> tuple[list[Item], list[dict[str, Any]]]:
    """An item and its output for each of the examples."""
    items = [Item(number, 1, None) for number in range(len(examples))]
    names = ("score", "begin", "end")
    return items, [
        {name: np.array(value) for name, value in zip(names, each, strict=True)} for each in outputs
    ]


def test_offsets_are_characters_and_bytes(tmp_path: Path) -> None:
    context = "Äiti asuu 🙂 Kemissä."
    begin = len("Äiti asuu 🙂 ".encode())
    example = QaSquad().raw("stdin:1", f"Missä äiti asuu?\t{context}")
    (line,) = QaSquad().predictions([example], *answered([example], (2.0, begin, begin + 9)))
    assert (line["key"], line["answer"]) == ("stdin:1", "Kemissä.")
    assert line["span"] == {
        "text": "Kemissä.",
        "start": 12,
        "end": 20,
        "start_byte": begin,
        "end_byte": begin + 9,
    }
    assert "gold" not in line
    assert QaSquad().scores([example], [line]) is None
    raw = QaTydi().raw("stdin:1", f"Missä äiti asuu?\t{context}")
    (line,) = QaTydi().predictions([raw], *answered([raw], (2.0, begin, begin + 9)))
    assert (line["passage_answer_index"], line["answer"]) == (0, "Kemissä.")
    assert QaTydi().scores([raw], [line]) is None


@pytest.mark.parametrize("text", ["no tab", "\tonly a text", "only a question\t", "\t"])
def test_raw_questions_have_a_text(text: str) -> None:
    for task in (QaSquad(), QaTydi()):
        with pytest.raises(UserError, match=r"stdin:4: no question and text\. Give a question, a tab"):
            task.raw("stdin:4", text)


def test_nothing_is_answered_below_zero_where_that_may_be_right(tmp_path: Path) -> None:
    for unanswerable, expected in ((0, "Anna"), (1, "")):
        examples = QaSquad().examples("train", squad_file(tmp_path / "a.json", 2, unanswerable=unanswerable))
        task = QaSquad().fitted(examples)
        lines = task.predictions(examples, *answered(examples, (-1.0, 0, 4), (-np.inf, -1, -1)))
        assert lines[0]["answer"] == (examples[0].context[:4] if not unanswerable else "")
        assert (lines[1]["answer"], lines[1]["span"]) == ("", None)
        scores = task.scores(examples, lines)
        assert scores is not None
        assert ("f1/unanswerable" in scores.values) == bool(unanswerable), expected
        json.dumps(lines, allow_nan=False)


def test_gold_passages_are_averaged_over_languages_without_english(tmp_path: Path) -> None:
    path = squad_file(tmp_path / "dev.json", 4)
    text = Path(path).read_text()
    for number, language in enumerate(("english", "finnish", "finnish", "thai")):
        text = text.replace(f'"id": "{number}"', f'"id": "{language}-{number}"')
    Path(path).write_text(text)
    examples = QaSquad().examples("dev", path)
    gold = [answer for example in examples for answer in example.answers or ()]
    outputs = [(1.0, answer["answer_start"], answer["answer_start"] + len(answer["text"])) for answer in gold]
    outputs[0] = outputs[1] = (1.0, 0, 1)
    scores = QaSquad().scores(examples, QaSquad().predictions(examples, *answered(examples, *outputs)))
    assert scores is not None
    assert (scores.main, scores.values["f1"]) == ("f1", 0.75)
    assert {name: scores.values[f"f1/{name}"] for name in ("english", "finnish", "thai")} == {
        "english": 0.0,
        "finnish": 0.5,
        "thai": 1.0,
    }


def test_of_english_alone_the_mean_is_english(tmp_path: Path) -> None:
    path = tydi_file(tmp_path / "dev.jsonl", 2)
    Path(path).write_text(Path(path).read_text().replace("thai", "english").replace("korean", "english"))
    examples = QaTydi().examples("dev", path)
    outputs = [(1.0, *example.annotations[0].span) for example in examples if example.annotations]
    scores = QaTydi().scores(examples, QaTydi().predictions(examples, *answered(examples, *outputs)))
    assert scores is not None
    assert (scores.main, scores.score, scores.values["minimal_f1/english"]) == ("minimal_f1", 1.0, 1.0)


def test_a_question_without_its_answer_is_left_out_of_training_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = squad_file(tmp_path / "train.json", 3)
    document = json.loads(Path(path).read_text())
    document["data"][0]["paragraphs"][1]["qas"][0]["answers"][0]["answer_start"] = 1
    Path(path).write_text(json.dumps(document))
    task = build(QaSquad, {"max_question": 20}, source="test")
    examples = task.examples("train", path)
    collator = task.collator(text_inputs(build(ModelConfig, MODEL, source="test"), 200, None), seed=0)
    assert [item.example for item in collator.items(examples, training=True)] == [0, 2]
    (told,) = caplog.messages
    assert told.startswith("1 of 3 questions are left out: train.json: data[0].paragraphs[1].qas[0]: '")
    items = collator.items(examples, training=False)
    assert [item.example for item in items] == [0, 1, 2]
    assert collator(items, np.arange(3))["target_mask"][:, 0].tolist() == [True, False, True]
