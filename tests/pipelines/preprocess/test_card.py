"""The dataset card: counts, plots, the same bytes every time."""

from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import datasets
import pytest
from huggingface_hub import DatasetCard

from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.dataset.card import byte_shares, card, draw_bars, dropped, plot_data
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.workflows.cli import main


def test_the_card_tells_counts_and_shows_plots_that_are_there(made: Path) -> None:
    text = (made / "README.md").read_text()
    manifest = load_manifest(str(made))
    assert f"{manifest.counters['documents']:,} documents in 3 languages" in text
    assert "| duplicate | 6 |" in text
    for name in ("lengths", "languages", "scripts", "dropped"):
        assert f"(plots/{name}.svg)" in text
        assert ElementTree.parse(made / "plots" / f"{name}.svg").getroot().tag.endswith("svg")
    assert card(manifest, list(plot_data(manifest))) == text


def test_bytes_are_counted_by_language(made: Path) -> None:
    manifest = load_manifest(str(made))
    pieces = (made / "vocabulary" / "subwords.vocab").read_text().splitlines()
    bytes_of: Counter[str] = Counter()
    subwords_of: Counter[str] = Counter()
    opened: Any = datasets.load_from_disk(str(made))
    for split in opened.values():
        for row in split.to_list():
            subwords_of[row["language"]] += len(row["subword_ids"])
            bytes_of[row["language"]] += sum(pieces[id].startswith("<0x") for id in row["subword_ids"])
    shares = byte_shares(manifest)
    assert shares == {language: bytes_of[language] / count for language, count in sorted(subwords_of.items())}
    assert manifest.counters["byte_pieces"] == sum(bytes_of.values()) > 0
    assert f"| {shares['ja']:.1%} |" in (made / "README.md").read_text()


def test_many_bytes_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "The river flows to the sea and the rain falls on the land. "
    for name, given in (("few", text * 50), ("many", text * 50 + "".join(map(chr, range(0x3400, 0x3437))))):
        (tmp_path / "en").mkdir(exist_ok=True)
        (tmp_path / "en" / "book.txt").write_text(given)
        options = ["--vocabulary.size", "400", "--vocabulary.character_coverage", "0.98", "--output"]
        assert main(["preprocess", "--books", str(tmp_path / "en"), *options, str(tmp_path / name)]) == 0
        out = capsys.readouterr().out
        share = byte_shares(load_manifest(str(tmp_path / name)))["en"]
        assert ("More than 5% of the subwords are bytes" in out) == (name == "many")
        assert (f": en {share:.1%}. Increase" in out) == (name == "many")


def test_the_plots_tell_the_truth(made: Path) -> None:
    manifest = load_manifest(str(made))
    plots = plot_data(manifest)
    assert sum(plots["lengths"][2].values()) == manifest.counters["documents"]
    assert sum(plots["languages"][2].values()) == manifest.counters["characters"]
    scripts = plots["scripts"][2]
    assert set(scripts) == {"Latin", "Cyrillic", "Han", "Hiragana", "Katakana"}
    assert abs(sum(scripts.values()) - 100) < 1e-9
    assert dropped(manifest.counters) == {"duplicate": 6}


def test_card_and_plots_are_the_same_bytes_for_the_same_data(
    made: Path, corpus: Path, tmp_path: Path, make_config: Any
) -> None:
    run_preprocess(make_config(corpus, split_bytes=3_000), str(tmp_path / "out"))
    for file in [made / "README.md", *(made / "plots").iterdir()]:
        assert (tmp_path / "out" / file.relative_to(made)).read_bytes() == file.read_bytes()
    assert draw_bars("Geese", "geese", {"a": 1.0, "b": 2e6}) == draw_bars(
        "Geese", "geese", {"a": 1.0, "b": 2e6}
    )


def test_the_hub_reads_the_front_matter(made: Path) -> None:
    card_data: Any = DatasetCard.load(made / "README.md").data
    assert card_data.language == ["en", "ja", "uk"]
    assert card_data.task_categories == ["fill-mask"]
    files = [{"split": name, "path": f"{name}/*.arrow"} for name in ("train", "validation")]
    assert card_data.configs == [{"config_name": "default", "data_files": files}]


def test_load_dataset_goes_by_the_front_matter(made: Path, tmp_path: Path) -> None:
    loaded = datasets.load_dataset(str(made), cache_dir=str(tmp_path))
    saved: Any = datasets.load_from_disk(str(made))
    assert sorted(loaded) == ["train", "validation"]
    for name in ("train", "validation"):
        assert loaded[name].features == saved[name].features
        assert loaded[name].to_dict() == saved[name].to_dict()
