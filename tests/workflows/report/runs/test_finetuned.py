"""Fine-tuned runs on the page: scores, labels and predictions, of whole, unfinished and damaged runs."""

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.damage import wrong_json, wrong_lines
from tests.workflows.report.test_page import Page, make_run
from tokenfree.core.errors import UserError
from tokenfree.workflows import cli
from tokenfree.workflows.report.load import RunRecord, load, predictions
from tokenfree.workflows.report.page import write_report
from tokenfree.workflows.report.runs import label_block, prediction_block

SMALL = [
    *(
        "--model.width",
        "16",
        "--model.trunk.layers",
        "1",
        "--model.trunk.heads",
        "2",
        "--train.length",
        "120",
    ),
    *(
        "--train.steps",
        "4",
        "--train.global_batch",
        "4",
        "--train.validate_every_steps",
        "2",
        "--train.threads",
        "1",
    ),
]
PAGES = 41  # one of this number of files with a wrong value becomes a page; a page takes long


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of labels, `texts`, and one of names, `names`."""
    folder = tmp_path_factory.mktemp("made")
    lines = [f"{'good' if n % 2 else 'bad'} <day> {n},{'plus' if n % 2 else 'minus'}\n" for n in range(30)]
    (folder / "texts.csv").write_text("text,label\n" + "".join(lines))
    (folder / "names.txt").write_text("Ana B-PER\nRuiz I-PER\nsaw O\nRome B-LOC\n. O\n\n" * 4)
    for recipe, file in (("classification", "texts.csv"), ("ner", "names.txt")):
        splits = [f"--{split}={folder / file}" for split in ("train", "dev")]
        output = ["--output", str(folder / Path(file).stem), "-q"]
        assert cli.main(["finetune", recipe, *splits, *output, *SMALL]) == 0
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy to be changed; the files of its runs are those of the original."""
    copy = Path(shutil.copytree(made, tmp_path / "copy"))
    for path in copy.glob("*/hashes.json"):  # tests edit the runs
        path.unlink()
    return copy


def page(*runs: Path) -> Page:
    path = runs[0].parent / "page.html"
    write_report([str(run) for run in runs], str(path))
    return Page(path.read_text(encoding="utf-8"))


def load_run(run: Path) -> RunRecord:
    found = load(run)
    assert isinstance(found, RunRecord)
    return found


def lines_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "predictions" / "dev.jsonl").read_text().splitlines()]


def test_scores_and_labels_of_texts(folder: Path) -> None:
    found, run = page(folder / "texts"), folder / "texts"
    result = json.loads((run / "result.json").read_text())
    value, note = found.cards["accuracy, development set"]
    assert value == f"{result['dev']['accuracy']:.4f}"
    assert note.startswith(f"At step {result['best_step']}. Baseline: 0.5000 (larger class), ")
    assert found.cards["Step kept"][0] == str(result["best_step"])
    ngrams = result["baseline"]["dev"]["character n-grams"]["accuracy"]
    assert found.tables[f"Scores at step {result['best_step']}, and baselines"][1:] == [
        ["accuracy", f"{result['dev']['accuracy']:.4f}"],
        ["macro f1", f"{result['dev']['macro_f1']:.4f}"],
        ["accuracy, larger class", "0.5000"],
        ["accuracy, character n-grams", f"{ngrams:.4f}"],
    ]
    lines = lines_of(run)
    counts = {row[0]: row[1:3] for row in found.tables["Labels"][1:]}
    for label, of in counts.items():
        assert of == [str(sum(line[key] == label for line in lines)) for key in ("gold", "label")]
    assert found.figures == ["Loss by step", "Scores by step"]


def test_runs_of_both_kinds_are_compared_apart(folder: Path, tmp_path: Path) -> None:
    found = page(folder / "texts", folder / "names", make_run(tmp_path / "pretrained"))
    assert [row[:3] for row in found.tables["Fine-tuned runs"][1:]] == [
        [str(folder / "texts"), "classification", "accuracy"], [str(folder / "names"), "tagging", "f1"]
    ]  # fmt: skip
    assert "Runs compared" not in found.headings
    assert "Fine-tuned runs compared" in found.headings
    assert "Pretraining · pretrained" in found.headings


EXAMPLES = "Right (✓) and wrong predictions"


def test_right_and_wrong_predictions_are_shown_with_their_texts(folder: Path) -> None:
    run = folder / "texts"
    rows = page(run).tables[EXAMPLES][1:]
    lines = {line["key"]: line for line in lines_of(run)}
    of_file = [line.split(",") for line in (folder / "texts.csv").read_text().splitlines()]
    texts = {label: [text for text, other in of_file if other == label] for label in ("plus", "minus")}
    for key, text, correct, predicted in rows:
        assert (lines[key]["gold"], lines[key]["label"]) == (correct, predicted.removeprefix("✓ "))
        assert predicted.startswith("✓ ") == (lines[key]["gold"] == lines[key]["label"])
        assert text in texts[correct]  # with its <day>, which is no tag
    rights = [line["gold"] == line["label"] for line in lines.values()]
    assert len(rows) == min(5, rights.count(True)) + min(5, rights.count(False))


def test_texts_of_a_file_that_has_changed_are_left_out(folder: Path) -> None:
    run = folder / "texts"
    (folder / "other").mkdir()
    copy = folder / "other" / "texts.csv"  # of the same name, so that the keys of its examples are the same
    copy.write_text((folder / "texts.csv").read_text().replace("good", "bad"))
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["files"]["dev"] = str(copy)
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    assert {row[1] for row in page(run).tables[EXAMPLES][1:]} == {""}


def test_a_model_that_predicts_one_label_is_named(folder: Path) -> None:
    path = folder / "texts" / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "only_label": {"dev": "plus"}}))
    note = page(folder / "texts").cards["accuracy, development set"][1]
    assert note.endswith("The model predicts one label only: plus.")


def test_runs_are_compared_with_their_best_baseline(folder: Path) -> None:
    result = json.loads((folder / "texts" / "result.json").read_text())
    (row,) = page(folder / "texts", folder / "texts").tables["Fine-tuned runs"][1:2]
    best = max(scores["accuracy"] for scores in result["baseline"]["dev"].values())
    assert row[3:8] == [
        f"{result['dev']['accuracy']:.4f}", f"{best:.4f}", "–", "–", str(result["best_step"])
    ]  # fmt: skip


def test_a_run_that_has_not_ended(folder: Path) -> None:
    run = folder / "texts"
    (run / "result.json").unlink()
    shutil.rmtree(run / "predictions")
    found = page(run)
    assert found.cards["accuracy, development set, so far"][1] == "At step 4."
    (run / "metrics.jsonl").write_text("")
    assert "No step has been made yet." in page(run).text


def test_without_a_development_set(folder: Path) -> None:
    run, texts = folder / "bare", str(folder / "texts.csv")
    assert (
        cli.main(
            [
                "finetune",
                "classification",
                "--train",
                texts,
                "--test",
                texts,
                "--output",
                str(run),
                "-q",
                *SMALL,
            ]
        )
        == 0
    )
    found = page(run)
    assert "It has no development set: the last checkpoint counts." in found.text
    assert "accuracy, test set" in found.cards
    assert "Labels in the test set" in found.headings


@pytest.mark.parametrize("content", ["{\n", "[1]\n", '{"label": "plus"}\n', "\xff\n"])
def test_damaged_predictions_are_told(content: str, folder: Path) -> None:
    (folder / "texts" / "predictions" / "dev.jsonl").write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=r"predictions/dev\.jsonl"):
        page(folder / "texts")


@pytest.mark.parametrize(("name", "wrong"), [("metrics.jsonl", wrong_lines), ("result.json", wrong_json)])
def test_whatever_is_wrong_there_is_a_page_or_one_line(
    name: str, wrong: Callable[[bytes], Any], folder: Path
) -> None:
    path = folder / "texts" / name
    if name == "metrics.jsonl":
        path.write_text(path.read_text().splitlines(keepends=True)[-1])
    for damaged in list(wrong(path.read_bytes()))[::PAGES]:
        path.write_bytes(damaged)
        try:
            page(folder / "texts")
            problem = ""
        except UserError as error:
            problem = str(error)
        assert not problem or (str(path) in problem and "\n" not in problem)


def test_whatever_is_wrong_with_predictions_a_table_is_made(folder: Path) -> None:
    run = folder / "names"
    path, record = run / "predictions" / "dev.jsonl", load_run(run)
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    for damaged in list(wrong_lines(path.read_bytes()))[::17]:
        path.write_bytes(damaged)
        with contextlib.suppress(UserError):
            label_block("", predictions(record, "dev"))
            prediction_block("", predictions(record, "dev"), {})


def labels(lines: Sequence[Mapping[str, Any]]) -> list[Sequence[str]]:
    return [row for table in label_block("", lines).tables for row in table.rows]


def test_scores_of_labels_by_hand() -> None:
    pairs = ["aa", "aa", "ab", "bb", "ba", "cb"]
    assert labels([{"gold": gold, "label": found} for gold, found in pairs]) == [
        ["a", "3", "3", "0.667", "0.667", "0.667"],
        ["b", "2", "3", "0.333", "0.500", "0.400"],
        ["c", "1", "0", "0.000", "0.000", "0.000"],
    ]
    tags = [{"gold": ["N", "V"], "tags": ["N", "N"]}, {"gold": ["N"], "tags": ["N"]}]
    assert labels(tags) == [
        ["N", "2", "3", "0.667", "1.000", "0.800"],
        ["V", "1", "0", "0.000", "0.000", "0.000"],
    ]
    assert (
        labels([{"gold": 1.5, "label": 2.0}])
        == labels([{"answer": "x", "gold": ["x"]}])
        == labels([{"key": "x"}])
        == []
    )


def test_of_many_labels_the_most_frequent_are_shown() -> None:
    lines = [{"gold": f"label {number}", "label": "label 1"} for number in range(50)]
    assert label_block("", lines).tables[0].caption == "The 40 most frequent of 50 labels"


def examples(lines: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    block = prediction_block("", [{"key": f"{number}", **line} for number, line in enumerate(lines)], {})
    return [[re.sub("<[^>]*>", "", cell) for cell in row] for table in block.tables for row in table.rows]


def test_answers_of_all_kinds_of_predictions() -> None:
    tags = {"words": ["Ana", "<b>", "Rome"], "gold": ["B-PER", "O", "B-LOC"]}
    assert examples([
        {**tags, "tags": ["B-PER", "O", "O"]},
        {**tags, "tags": tags["gold"]},
        {"answer": "Rome", "gold": ["in Rome", "Rome"]},
        {"answer": "", "gold": ["Rome"]},
        {"answer": "", "gold": []},
        {"label": "a", "gold": "b"},
        {"label": 1.5, "gold": 1.5},
        {"label": "a"},
        {"squared_error": [0.5]},
    ]) == [
        ["1", "", "Ana/B-PER &lt;b&gt; Rome/B-LOC", "✓ Ana/B-PER &lt;b&gt; Rome/B-LOC"],
        ["2", "", "Rome", "✓ Rome"],
        ["4", "", "no answer", "✓ no answer"],
        ["0", "", "Ana/B-PER &lt;b&gt; Rome/B-LOC", "Ana/B-PER &lt;b&gt; Rome"],
        ["3", "", "Rome", "no answer"],
        ["5", "", "b", "a"],
    ]  # fmt: skip


def test_some_predictions_of_each_kind_are_shown_evenly_spaced() -> None:
    lines = [{"gold": "a", "label": "a" if number < 20 else "b"} for number in range(23)]
    assert [row[0] for row in examples(lines)] == ["0", "4", "8", "12", "16", "20", "21", "22"]
