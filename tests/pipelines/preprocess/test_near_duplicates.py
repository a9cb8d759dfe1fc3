"""Near-duplicates: which are removed and reported, with the same bytes on any runner, cut and after a kill."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from tokenfree.core.errors import JobError
from tokenfree.core.locks import LOCK
from tokenfree.core.storage import Storage
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import NearDuplicateConfig, PreprocessConfig
from tokenfree.preprocess.dataset.verify import verify
from tokenfree.preprocess.job import steps
from tokenfree.preprocess.job.read import SKETCHES
from tokenfree.preprocess.records import document_key
from tokenfree.preprocess.shards import sorted_runs

Config = Callable[..., PreprocessConfig]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MIN_SIMILARITY, SHINGLE = 0.8, 5


def almost(text: str, draw: random.Random, share: float) -> str:
    """The text with some of its letters replaced."""
    changed = (draw.choice(LETTERS) if draw.random() < share and letter != " " else letter for letter in text)
    return "".join(changed)


def write_near(path: Path) -> list[dict[str, str]]:
    """Ten texts of letters in two languages, each with two that differ in little and one that differs in much; the
    first of all stands there twice, and in the other language too."""
    draw = random.Random(0)
    rows: list[dict[str, str]] = []
    for number in range(10):
        text = " ".join("".join(draw.choices([*LETTERS, " "], k=2000)).split())
        for share in (0.0, 0.005, 0.01, 0.15):
            row = {
                "id": f"{number}-{share}",
                "language": ("en", "uk")[number % 2],
                "text": almost(text, draw, share),
            }
            rows.append(row)
    rows += [{**rows[0], "id": "again"}, {**rows[0], "id": "other", "language": "uk"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


Near = tuple[Path, list[dict[str, str]]]


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Near:
    path = tmp_path_factory.mktemp("near") / "near.jsonl"
    return path, write_near(path)


@pytest.fixture(scope="module")
def whole(near: Near, make_config: Config, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an undisturbed job makes of them."""
    output = tmp_path_factory.mktemp("whole") / "out"
    run_preprocess(configured(make_config, near[0]), str(output))
    return contents(output)


def configured(make_config: Config, path: Path, **settings: Any) -> PreprocessConfig:
    wanted = NearDuplicateConfig(min_similarity=MIN_SIMILARITY, shingle_characters=SHINGLE)
    return make_config(path, near_duplicates=wanted, **settings)


def contents(output: Path) -> dict[str, bytes]:
    return {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*") if path.is_file()}


def shingles(text: str) -> set[str]:
    folded = " ".join(text.casefold().split())
    return {folded[start : start + SHINGLE] for start in range(len(folded) - SHINGLE + 1)}


def by_definition(rows: list[dict[str, str]]) -> dict[tuple[str, str], dict[str, float]]:
    """Language and id of what goes, each with the exact similarity of what stays: in the order of keys, what is near a
    document that stays."""
    gone: dict[tuple[str, str], dict[str, float]] = {}
    for language in {row["language"] for row in rows}:
        ids: dict[str, str] = {}
        for row in rows:
            if row["language"] == language:
                ids[row["text"]] = min(row["id"], ids.get(row["text"], row["id"]))
        stays: dict[str, set[str]] = {}
        for text in sorted(ids, key=document_key):
            mine = shingles(text)
            similar = {name: len(mine & others) / len(mine | others) for name, others in stays.items()}
            if max(similar.values(), default=0) >= MIN_SIMILARITY:
                gone[language, ids[text]] = similar
            else:
                stays[ids[text]] = mine
    return gone


def test_what_is_near_goes_and_is_told(near: Near, tmp_path: Path, make_config: Config) -> None:
    path, rows = near
    output = tmp_path / "out"
    manifest = run_preprocess(configured(make_config, path), str(output))
    lines = (output / "near_duplicates.jsonl").read_text().splitlines()
    told = {(row["language"], row["dropped"].rpartition(":")[2]): row for row in map(json.loads, lines)}
    gone = by_definition(rows)
    assert told.keys() == gone.keys()
    assert len(gone) == len(lines) == 20
    for document, row in told.items():
        assert abs(gone[document][row["kept"].rpartition(":")[2]] - row["similarity"]) < 0.1
        assert row["similarity"] >= MIN_SIMILARITY
    counters = manifest.counters
    assert (counters["pages"], counters["duplicates"], counters["near_duplicates"]) == (42, 1, 20)
    windows: Any = datasets.load_from_disk(str(output))
    found = [
        row for split in windows.values() for row in zip(split["language"], split["document"], strict=True)
    ]
    documents = {(language, name.rpartition(":")[2]) for language, name in found}
    wanted = {(row["language"], row["id"]) for row in rows} - gone.keys()
    assert documents == wanted - {("en", "again")}  # equal texts of a language: the lowest id
    assert counters["documents"] == len(documents) == 21
    assert "| near-duplicate | 20 |" in (output / "README.md").read_text()
    assert verify(str(output)) == ()
    (output / "near_duplicates.jsonl").write_text("\n".join(lines[1:]) + "\n")
    with pytest.raises(JobError, match=r"near_duplicates.jsonl: damaged"):
        verify(str(output))


def test_neither_cut_nor_workers_change_a_byte(
    near: Near, whole: dict[str, bytes], tmp_path: Path, make_config: Config
) -> None:
    many = tmp_path / "many"
    run_preprocess(configured(make_config, near[0], split_bytes=8_000), str(many), workers=2)
    assert len(list(read_runs(many))) == 0  # nothing is left of the work
    assert but_for(whole, "split_bytes") == but_for(contents(many), "split_bytes")


def stored(url: str) -> dict[str, bytes]:
    """Return the files of a directory in a store, except its lock."""
    storage = Storage.at(url)
    return {name: storage.read_bytes(name) for name in storage.find() if not name.startswith(f"{LOCK}/")}


def test_in_a_store_the_bytes_are_those_on_a_disk(
    near: Near, bucket: str, tmp_path: Path, make_config: Config
) -> None:
    # Half as many bands as at a similarity of 0.8, of which each reads all sketches from the store.
    wanted = NearDuplicateConfig(min_similarity=0.93, shingle_characters=SHINGLE)
    config = make_config(near[0], near_duplicates=wanted, split_bytes=20_000, shards=3)
    run_preprocess(config, str(tmp_path / "out"))
    manifest = run_preprocess(config, f"{bucket}/out")
    assert manifest.counters["near_duplicates"] == 9
    assert stored(f"{bucket}/out") == contents(tmp_path / "out")
    assert verify(f"{bucket}/out") == ()


@pytest.mark.slow
def test_in_a_store_a_job_killed_in_it_goes_on(
    near: Near, whole: dict[str, bytes], bucket: str, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, fs = configured(make_config, near[0]), Storage.at(bucket).fs
    put = fs.put_file

    def killed(source: str, target: str, **named: Any) -> None:
        if target.endswith("/near_duplicates.jsonl"):
            raise KeyboardInterrupt
        put(source, target, **named)

    monkeypatch.setattr(fs, "put_file", killed)
    with pytest.raises(KeyboardInterrupt):
        run_preprocess(config, f"{bucket}/out")
    monkeypatch.setattr(fs, "put_file", put)
    run_preprocess(config, f"{bucket}/out")
    assert stored(f"{bucket}/out") == whole


def test_near_duplicates_stay_where_nobody_asks(near: Near, tmp_path: Path, make_config: Config) -> None:
    manifest = run_preprocess(make_config(near[0]), str(tmp_path / "out"))
    assert manifest.counters["documents"] == 41
    assert "near_duplicates" not in manifest.counters
    assert not (tmp_path / "out" / "near_duplicates.jsonl").exists()


@pytest.mark.parametrize("step", ["candidates", "write_dropped", "_extremes"])
def test_a_job_that_failed_in_it_goes_on(
    step: str,
    near: Near,
    whole: dict[str, bytes],
    tmp_path: Path,
    make_config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, output = configured(make_config, near[0]), tmp_path / "out"
    with monkeypatch.context() as patched:
        calls, before = [], getattr(steps, step)
        # of the bands the fourth fails
        last = 3 if step == "candidates" else 0
        patched.setattr(
            steps, step, lambda *args: calls.append(1) or (before(*args) if len(calls) <= last else 1 / 0)
        )
        with pytest.raises(JobError, match="ZeroDivisionError"):
            run_preprocess(config, str(output))
    run_preprocess(config, str(output))
    assert contents(output) == whole


def test_the_texts_are_not_read_again_for_each_band(
    near: Near, tmp_path: Path, make_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    hash_of = sorted_runs.hash_of
    monkeypatch.setattr(
        sorted_runs, "hash_of", lambda storage, name: hashed.append(name) or hash_of(storage, name)
    )

    def texts() -> int:
        return sum(not name.endswith(SKETCHES) for name in hashed)

    run_preprocess(configured(make_config, near[0]), str(tmp_path / "out"))
    with_pairs = texts()
    run_preprocess(make_config(near[0]), str(tmp_path / "without"))
    assert with_pairs == texts() - with_pairs


def test_changed_inputs_are_compared_again(tmp_path: Path, make_config: Config, monkeypatch: Any) -> None:
    path = tmp_path / "near.jsonl"
    rows = write_near(path)
    config, output = configured(make_config, path), tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(steps, "plan_shards", lambda *_: 1 / 0)
        with pytest.raises(JobError):
            run_preprocess(config, str(output))
    assert (output / "near_duplicates.jsonl").stat().st_size
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[3::4]))
    manifest = run_preprocess(config, str(output), notice=lambda _: None)
    assert manifest.counters["near_duplicates"] == 0
    assert (output / "near_duplicates.jsonl").read_bytes() == b""
    run_preprocess(config, str(tmp_path / "fresh"))
    assert contents(output) == contents(tmp_path / "fresh")


@pytest.mark.parametrize("seed", range(2))
def test_each_page_is_accounted_for_in_tiny_shards(seed: int, tmp_path: Path, make_config: Config) -> None:
    """Shards, and whole splits, of which all documents are gone."""
    draw = random.Random(seed)
    text = "".join(draw.choices(LETTERS, k=400))
    texts = [*(almost(text, draw, 0.004) for _ in range(12)), "".join(draw.choices(LETTERS, k=400))]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, texts[0]]))
    manifest = run_preprocess(configured(make_config, path, shards=9), str(tmp_path / "out"))
    counters = manifest.counters
    assert counters["documents"] + counters["near_duplicates"] == len(set(texts))
    assert counters["documents"] == 2
    assert {name: split.documents > 0 for name, split in manifest.splits.items()} == {
        "train": True,
        "validation": True,
    }
    assert all(shard.rows for shard in manifest.shards)


def read_runs(output: Path) -> list[Path]:
    return list(output.rglob("*.sketches.arrow"))


def but_for(files: dict[str, bytes], key: str) -> dict[str, bytes]:
    """Without the lines that say `key`, and what holds hashes of them."""
    lines = {name: data for name, data in files.items() if name not in ("manifest.json", "_SUCCESS")}
    manifest = json.loads(files["manifest.json"])
    manifest["config"].pop(key)
    return {**lines, "manifest.json": json.dumps(manifest).encode()}
