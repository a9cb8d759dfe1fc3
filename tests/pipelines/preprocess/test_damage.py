"""`verify` names every file of a data directory of which a bit is flipped, or which is emptied or gone."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.storage import Storage
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.dataset.verify import verify
from tokenfree.preprocess.documents import extract as extract_module
from tokenfree.preprocess.job.finish import replay
from tokenfree.workflows.cli import main

HEAD = '<mediawiki version="0.11" xml:lang="en"><siteinfo><dbname>enwiki</dbname></siteinfo>\n'
SMALL = 60  # bytes of a file of which every bit is flipped
SAMPLED = 16  # bits of a larger one


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, make_config: Callable[..., PreprocessConfig]) -> Path:
    """A small data directory with all kinds of files: failed pages and documents from a replay too."""
    folder = tmp_path_factory.mktemp("whole")
    pages = [
        f"<page><title>Goose {n}</title><ns>0</ns><id>{n}</id><revision><id>{n + 100}</id><model>wikitext</model>"
        f"<text>{'bad' if n == 3 else 'good'} goose number {n}. {'It flies over the hills. ' * 9}</text>"
        "</revision></page>\n"
        for n in range(1, 12)
    ]
    (folder / "enwiki-pages.xml").write_text(HEAD + "".join(pages) + "</mediawiki>\n")
    output = folder / "data"

    def buggy_clean(text: str, site: object) -> str:
        if "bad goose" in text:
            raise LookupError("a bug")
        return text

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(extract_module, "clean_page", buggy_clean)
        vocabulary = VocabularyConfig(size=300, required_characters="none", algorithm="bpe")
        wanted = make_config(
            wikipedia=(str(folder / "enwiki-pages.xml"),), vocabulary=vocabulary, validation_fraction=0.3
        )
        run_preprocess(wanted, str(output))
    assert replay(str(output)).documents == 1
    return output


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def files_of(directory: Path) -> Iterator[tuple[Path, str, bytes]]:
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            yield path, path.relative_to(directory).as_posix(), path.read_bytes()


def bits_to_flip(data: bytes, seed: int) -> list[int]:
    bits = range(8 * len(data))
    return list(bits) if len(data) <= SMALL else random.Random(seed).sample(bits, SAMPLED)


def flipped(data: bytes, bit: int) -> bytes:
    other = bytearray(data)
    other[bit // 8] ^= 1 << bit % 8
    return bytes(other)


def test_all_files_are_covered(whole: Path) -> None:
    assert verify(str(whole)) == ()
    kinds = {name.partition("/")[0] for _, name, _ in files_of(whole)}
    assert kinds == {
        *(
            "README.md",
            "_SUCCESS",
            "dataset_dict.json",
            "failures",
            "manifest.json",
            "plots",
            "train",
            "validation",
        ),
        "vocabulary",
    }


def test_every_flipped_bit_is_named(copy: Path) -> None:
    flips = 0
    for path, name, data in files_of(copy):
        for bit in bits_to_flip(data, seed=len(data)):
            path.write_bytes(flipped(data, bit))
            with pytest.raises(JobError) as caught:
                verify(str(copy))
            assert str(caught.value).startswith(f"{name}: "), (name, bit)
            flips += 1
        path.write_bytes(data)
    assert flips > 400
    verify(str(copy))


def test_every_file_that_is_gone_or_emptied_or_cut_is_named(copy: Path) -> None:
    for path, name, data in files_of(copy):
        for damaged in (None, b"", data[:-1], data + b"\n"):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            with pytest.raises((JobError, UserError)) as caught:
                verify(str(copy))
            assert name in str(caught.value)
        path.write_bytes(data)
    verify(str(copy))


def test_the_command_names_damage_of_the_manifest_too(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "manifest.json").write_text("geese")
    assert main(["verify", str(copy)]) == 1
    error = capsys.readouterr().err
    assert "manifest.json: damaged, its SHA-256 is not that of _SUCCESS; copy the directory again" in error
    assert main(["verify", str(copy), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["good"] is False


def test_what_is_put_there_later_has_no_hash(copy: Path) -> None:
    (copy / "notes.txt").write_text("ask the geese")
    assert verify(str(copy)) == ("notes.txt",)


@pytest.mark.parametrize("ids", [["g"] * 40, ["g", "h"] * 20], ids=["all alike", "two in turn"])
def test_ids_may_repeat(
    ids: list[str], tmp_path: Path, make_config: Callable[..., PreprocessConfig], write_rows: Any
) -> None:
    rows = [
        {"id": id, "language": "en", "text": f"Goose {n} eats {n * n} loaves. " * 20}
        for n, id in enumerate(ids)
    ]
    run_preprocess(make_config(write_rows(tmp_path / "geese.jsonl", rows)), str(tmp_path / "data"))
    assert verify(str(tmp_path / "data")) == ()
    assert load_manifest(str(tmp_path / "data")).counters["documents"] == 40


@pytest.mark.parametrize(
    "path",
    ["../x", "train/../../x", "/etc/passwd", "", "train//x", "./x", "C:\\x", "memory://x", "a::b", "x\0"],
)
@pytest.mark.parametrize("kind", ["shard", "file"])
def test_no_path_leads_out_of_a_data_directory(kind: str, path: str, copy: Path) -> None:
    values = json.loads((copy / "manifest.json").read_text())
    if kind == "shard":
        values["splits"]["train"]["shards"][0]["path"] = path
    else:
        values["files"] = {path: "00"}
    (copy / "manifest.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"manifest\.json: names .*, which is not a file of this directory"):
        load_manifest(str(copy))


def test_a_job_given_again_does_not_bless_a_damaged_manifest(
    whole: Path, copy: Path, make_config: Callable[..., PreprocessConfig]
) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["statistics"]["lengths"] = {}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    vocabulary = VocabularyConfig(size=300, required_characters="none", algorithm="bpe")
    source = str(whole.parent / "enwiki-pages.xml")
    run_preprocess(
        make_config(wikipedia=(source,), vocabulary=vocabulary, validation_fraction=0.3), str(copy)
    )
    with pytest.raises(JobError, match=r"^manifest\.json: damaged"):
        verify(str(copy))
    assert Storage.at(str(copy)).size("_SUCCESS")
