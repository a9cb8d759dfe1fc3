"""The dataset card: counts, plots, the same bytes every time."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.dataset.card import card, draw_bars, dropped, plot_data
from tokenfree.preprocess.dataset.manifest import load_manifest


def test_the_card_tells_counts_and_shows_plots_that_are_there(made: Path) -> None:
    text = (made / "README.md").read_text()
    manifest = load_manifest(str(made))
    assert f"{manifest.counters['documents']:,} documents in 3 languages" in text
    assert "| duplicate | 6 |" in text
    for name in ("lengths", "languages", "scripts", "dropped", "characters_per_subword"):
        assert f"(plots/{name}.svg)" in text
        assert ElementTree.parse(made / "plots" / f"{name}.svg").getroot().tag.endswith("svg")
    assert card(manifest, list(plot_data(manifest))) == text


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
    assert draw_bars("Geese", "geese", {"a": 1.0, "b": 2e6}) == draw_bars("Geese", "geese", {"a": 1.0, "b": 2e6})
