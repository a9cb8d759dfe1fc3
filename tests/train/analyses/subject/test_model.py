"""Models of runs and folders, and texts cut to what they read."""

from pathlib import Path

import pytest

from tests.train.analyses.conftest import MakeModel
from tokenfree.core.errors import UserError
from tokenfree.core.settings import build, merge
from tokenfree.train.analyses.attention import attention_distances
from tokenfree.train.analyses.subject import AnalysedModel, load_model, sample_texts
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.huggingface.folders import export_run
from tokenfree.train.inference.text_encoder import WordEncoder
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.pretrain import pretrain
from tokenfree.workflows.recipes import library

SMALL = {
    "model": {"width": 32, "trunk": {"layers": 1, "heads": 2}},
    "train": {"steps": 1, "global_batch": 8, "validation_windows": 8, "threads": 1, "length": 64},
}


@pytest.fixture(scope="module")
def run_of_subwords(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    size = {"model": {"embedder": {"size": 403}}}
    mapping = merge(merge(library.read_based("bert-learned-tiny"), SMALL), size)
    return str(
        pretrain(
            build(PretrainRecipe, mapping, source="test"), corpus, str(tmp_path_factory.mktemp("run"))
        ).run
    )


def test_a_run_and_what_is_exported_of_it_are_analysed_alike(
    run_of_subwords: str, corpus: str, tmp_path: Path
) -> None:
    model = load_model(run_of_subwords)
    assert model.data == corpus
    export_run(run_of_subwords, tmp_path / "exported")
    with pytest.raises(UserError, match="their vocabulary is not known; name the data directory"):
        sample_texts(load_model(tmp_path / "exported"), corpus, 2)
    exported = load_model(tmp_path / "exported", vocabulary=corpus)
    assert exported.data is None
    with pytest.raises(UserError, match="name texts with --data"):
        sample_texts(exported, None, 2)
    path = tmp_path / "text"
    path.write_text("Some words.\n\nMore of them, and more.\n")
    found = [
        attention_distances(each, sample_texts(each, str(path), 2))["rows"] for each in (model, exported)
    ]
    for one, other in zip(*found, strict=True):
        assert one.pop("strongest_counts") == other.pop("strongest_counts")
        assert one == pytest.approx(other, rel=1e-4)
    assert sample_texts(model, None, 3).texts == sample_texts(model, corpus, 3).texts


def test_what_is_wrong_with_a_run_is_told(tmp_path: Path, run_of_subwords: str) -> None:
    with pytest.raises(UserError, match="holds no run"):
        load_model(tmp_path)
    with pytest.raises(UserError, match="has no vocabulary"):
        load_model(run_of_subwords, vocabulary=str(tmp_path))


def test_texts_are_cut_to_what_is_read(make_model: MakeModel, run_of_subwords: str, tmp_path: Path) -> None:
    config = {
        "width": 16,
        "embedder": {"name": "word_bytes"},
        "downsampler": {"name": "word_pooling", "max_words": 64},
        "upsampler": {"name": "subword_queries"},
        "trunk": {"layers": 1, "heads": 2, "inner_width": 16},
    }
    reader = WordEncoder(build(ModelConfig, config, source="test").build(), length=256)
    long = "Wörter und mehr Wörter, " * 60
    for model in (make_model(), AnalysedModel("bytes", reader), load_model(run_of_subwords)):
        short = model.fitting(long)
        assert long.startswith(short)
        assert 0 < len(short) < len(long)
        model.read(short)
        assert model.fitting("kurz") == "kurz"
        more = long[: len(short) + 9]  # a word more
        if model.symbols == "subwords":
            assert model.subwords(short).shape[1] <= model.reader.length < model.subwords(more).shape[1]
        else:
            with pytest.raises(UserError, match="Cut it into parts"):
                model.read(more)
        path = tmp_path / "text"
        path.write_text(f"{long}\nkurz\n", encoding="utf-8")
        sampled = sample_texts(model, str(path), 9)
        assert sampled.texts == [short, "kurz"]
        assert sampled.num_cut == 1


def test_lines_of_a_file_are_spaced_evenly(make_model: MakeModel, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("".join(f"line {number}\n\n" for number in range(11)))
    assert sample_texts(make_model(), str(path), 3).texts == ["line 0", "line 5", "line 10"]
    assert len(sample_texts(make_model(), str(path), 30).texts) == 11
    for content in (b"", b"\n \n"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="this file is empty"):
            sample_texts(make_model(), str(path), 3)
    reasons = {"nothing": "no such file", "text/below": "cannot be read", ".": "this folder has no data"}
    for name, reason in reasons.items():
        with pytest.raises(UserError, match=reason):
            sample_texts(make_model(), str(tmp_path / name), 3)
