"""The table of a task sweep for a paper."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import UserError
from tokenfree.workflows import cli
from tokenfree.workflows.report.paper_table import paper_table


def cell(*seeds: float, interval: float | None = None) -> dict[str, Any]:
    return {"mean": sum(seeds) / len(seeds), "interval": interval, "seeds": list(seeds)}


def write_sweep(folder: Path, *settings: dict[str, Any], best: int = 0, metric: str = "macro_f1") -> str:
    """The folder of a sweep with these settings, as far as a table is made of it."""
    folder.mkdir()
    (folder / "sweep.yaml").write_text("recipe: {}\n")
    result = {
        "task": "classification",
        "metric": metric,
        "best": {"setting": best, "trials": [f"trial_{best:03d}"]},
        "dev": {metric: 0.5},
        "test": {metric: 0.5},
        "settings": [{"setting": number, "test": None, **setting} for number, setting in enumerate(settings)],
    }
    (folder / "result.json").write_text(json.dumps(result))
    return str(folder)


@pytest.fixture
def sweep(tmp_path: Path) -> str:
    """Two rates, of which the second is the better one."""
    return write_sweep(
        tmp_path / "rates",
        {"values": {"train.learning_rate": 0.001, "task.pooling": "a|b_c"}, "dev": cell(0.5, 0.6, interval=0.0123456)},
        {
            "values": {"train.learning_rate": 0.01, "task.pooling": "50%"},
            "dev": cell(0.75, 0.85, interval=0.05),
            "test": cell(0.7),
        },
        best=1,
    )


def test_markdown_is_even_and_marks_the_best(sweep: str) -> None:
    assert paper_table([sweep], "markdown").splitlines() == [
        "| pooling | learning_rate | seeds |        dev macro_f1 |         test macro_f1 |",
        "| ------- | ------------- | ----- | ------------------: | --------------------: |",
        "| a\\|b_c  | 0.001         | 2     |     0.5500 ± 0.0123 |                     – |",
        "| 50%     | 0.01          | 2     | **0.8000 ± 0.0500** | **0.7000 (one seed)** |",
    ]


def test_latex_escapes_what_it_would_take_for_its_own(sweep: str) -> None:
    lines = paper_table([sweep], "latex").splitlines()
    assert lines[1:4] == [
        r"\begin{tabular}{lllrr}",
        r"\toprule",
        r"pooling & learning\_rate & seeds & dev macro\_f1 & test macro\_f1 \\",
    ]
    assert lines[5:7] == [
        r"a|b\_c & 0.001 & 2 & 0.5500 $\pm$ 0.0123 & -- \\",
        r"50\% & 0.01 & 2 & \textbf{0.8000 $\pm$ 0.0500} & \textbf{0.7000 (one seed)} \\",
    ]
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]


def test_csv_has_whole_keys_and_all_digits(sweep: str) -> None:
    rows = list(csv.DictReader(io.StringIO(paper_table([sweep], "csv"))))
    assert rows[0]["train.learning_rate"] == "0.001"
    assert float(rows[0]["dev_macro_f1"]) == 0.55
    assert float(rows[0]["dev_macro_f1_interval"]) == 0.0123456
    assert [row["best"] for row in rows] == ["", "yes"]
    assert [row["test_macro_f1"] for row in rows] == ["", "0.7"]
    assert rows[1]["test_macro_f1_interval"] == ""


def test_several_sweeps_are_one_table_with_their_names(sweep: str, tmp_path: Path) -> None:
    other = write_sweep(tmp_path / "other", {"values": {"train.warmup": 0.1}, "dev": None})
    lines = paper_table([sweep, other], "markdown").splitlines()
    assert lines[0].split("|")[1:5] == [" sweep ", " pooling ", " learning_rate ", " warmup "]
    assert lines[-1].split() == ["|", "other", "|", "|", "|", "0.1", "|", "0", "|", "–", "|", "–", "|"]
    third = write_sweep(tmp_path / "third", {"values": {}, "dev": cell(1.0)}, metric="accuracy")
    with pytest.raises(UserError, match="judged by macro_f1 and accuracy"):
        paper_table([sweep, third], "csv")


def test_the_command_prints_or_writes_it(sweep: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", sweep, "--format", "csv"]) == 0
    assert capsys.readouterr().out == paper_table([sweep], "csv")
    assert cli.main(["report", sweep, "--format", "latex", "--output", str(tmp_path / "table.tex")]) == 0
    assert (tmp_path / "table.tex").read_text() == paper_table([sweep], "latex")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "latex"], "has no result.json; only a sweep of a fine-tuning recipe"),
        (["--format", "latex", "--output", "/nowhere/table.tex"], "has no result.json"),
        ([], "--output is missing"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.yaml").write_text("recipe: {}\n")
    assert cli.main(["report", str(tmp_path), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert cli.main(["report", str(tmp_path / "nowhere"), "--format", "csv"]) == 2
    assert "is no sweep" in capsys.readouterr().err
