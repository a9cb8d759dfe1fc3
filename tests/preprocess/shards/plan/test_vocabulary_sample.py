"""The quotas and the texts of the sample for the vocabulary."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenfree.core.storage import Storage
from tokenfree.preprocess.config import VocabularyConfig
from tokenfree.preprocess.records import Document, document_key
from tokenfree.preprocess.shards.plan import decide_partitioning, partitions, sample_quotas, sample_texts
from tokenfree.preprocess.shards.sorted_runs import Partition, Partitioning, SortedRun, write_documents


def test_smoothing_lifts_small_languages() -> None:
    sizes = {"en": 1_000_000, "sw": 10_000}
    assert sample_quotas(sizes, 101_000, 1.0) == {"en": 100_000, "sw": 1_000}
    lifted = sample_quotas(sizes, 10_000, 0.5)
    assert lifted == {"en": 9090, "sw": 909}
    assert sample_quotas(sizes, 10_000, 0.0) == {"en": 5000, "sw": 5000}
    assert sample_quotas(sizes, 50_000, 0.0) == {"en": 40_000, "sw": 10_000}
    assert sample_quotas(sizes, 10_000_000, 0.7) == sizes
    assert sample_quotas({"en": 0}, 10, 0.7) == {}


@given(
    st.dictionaries(st.text(min_size=1), st.integers(0, 10**9), max_size=8),
    st.integers(1, 10**9),
    st.floats(0, 1),
)
def test_quotas_are_within_what_there_is_and_what_is_asked(
    sizes: dict[str, int], total: int, smoothing: float
) -> None:
    quotas = sample_quotas(sizes, total, smoothing)
    assert all(0 <= quota <= sizes[language] for language, quota in quotas.items())
    assert sum(quotas.values()) <= total
    assert sum(quotas.values()) >= min(total, sum(sizes.values())) - len(sizes) - total * 1e-9


def test_texts_are_training_texts_in_key_order_up_to_the_quota(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    found = [Document(str(n), "en", "", f"{n:03} " * 25) for n in range(100)]

    def sample(cut: int, **settings: int) -> list[str]:
        files = [
            write_documents(storage, f"runs/{cut + n}.arrow", part, 0.2)[0]
            for n, part in enumerate((found[:cut], found[cut:]))
        ]
        whole = partitions(files, Partitioning(0.2))
        held_out = {key.hex() for key, _ in whole[Partition("validation", "en")].merged(storage)}
        assert held_out
        texts = list(sample_texts(storage, whole, VocabularyConfig(**settings)))  # pyright: ignore[reportArgumentType]
        assert not held_out & {document_key(text).hex() for text in texts}
        return texts

    texts = sample(10, sample_characters=3050)
    assert texts == sample(70, sample_characters=3050)
    assert sum(map(len, texts)) == 3050
    assert [document_key(text) for text in texts[:-1]] == sorted(document_key(text) for text in texts[:-1])
    assert len(sample(40, sample_characters=10**6)) > 60


def test_a_text_that_is_moved_counts_where_it_goes(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    texts = ["duck", "goose", "swan"]
    found = [Document(text, "en", "", text) for text in texts]
    for fraction, num_texts in ((1e-9, 2), (0.999999, 1)):
        written = write_documents(storage, f"runs/{fraction}.arrow", found, fraction)
        rule = decide_partitioning([SortedRun("r", "", 0, {}, 0, *written)], fraction)
        for characters in (100, 6):  # of which a range of positions by its share would miss a single text
            sample = list(
                sample_texts(
                    storage, partitions([written[0]], rule), VocabularyConfig(sample_characters=characters)
                )
            )
            assert 0 < len(sample) <= num_texts
            assert characters == 6 or len(sample) == num_texts
            assert {rule.dataset_split(document_key(text)) for text in sample if text in texts} <= {"train"}


@pytest.mark.parametrize("seed", range(5))
def test_few_long_documents_give_the_quota_too(tmp_path: Path, seed: int) -> None:
    """A range of keys that should hold a thousandth of the text holds none of four documents."""
    storage = Storage.at(str(tmp_path))
    found = [Document(str(n), "en", "", f"{seed} {n} " * 50_000) for n in range(4)]
    file, _, _ = write_documents(storage, "runs/0.arrow", found, 0.0)
    whole = partitions([file], Partitioning(0.0))
    for characters in (100, 1000, 300_000):
        texts = list(sample_texts(storage, whole, VocabularyConfig(sample_characters=characters)))
        assert sum(map(len, texts)) == characters
        keys = [
            document_key(document.text) for document in sorted(found, key=lambda it: document_key(it.text))
        ]
        assert [document_key(text) for text in texts[:-1]] == keys[: len(texts) - 1]
