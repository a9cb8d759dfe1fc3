"""The real files of TOKENFREE_TEST_DATA: how many examples and labels each has, and a few as an editor shows them.

The counts are those of the files' lines (`wc`, `cut | sort | uniq -c`), not of the readers.
"""

from collections import Counter
from pathlib import Path

import pytest

from tokenfree.train.tasks.examples.tagged import read_tagged
from tokenfree.train.tasks.examples.texts import read_texts

BALANCED = {"entailment": 248, "contradiction": 248, "neutral": 247}
TEXTS = {
    "sst/stsa.binary.dev": {"0": 428, "1": 444},
    "sst/stsa.binary.train": {"0": 3309, "1": 3608},
    "sst/stsa.fine.dev": {"0": 139, "1": 289, "2": 229, "3": 279, "4": 165},
    "sst/stsa.fine.train": {"0": 1092, "1": 2217, "2": 1624, "3": 2320, "4": 1288},
    "mtl-16/MR.task.test": {"0": 162, "1": 178},
    "mtl-16/MR.task.train": {"0": 689, "1": 645},
    "mtl-16/baby.task.test": {"0": 200, "1": 200},
    "mtl-16/baby.task.train": {"0": 700, "1": 800},
    "mtl-16/books.task.test": {"0": 198, "1": 202},
    "mtl-16/books.task.train": {"0": 802, "1": 798},
    "mtl-16/camera_photo.task.test": {"0": 206, "1": 194},
    "mtl-16/camera_photo.task.train": {"0": 792, "1": 805},
    "mtl-16/dvd.task.test": {"0": 202, "1": 198},
    "mtl-16/dvd.task.train": {"0": 798, "1": 802},
    "mtl-16/electronics.task.test": {"0": 202, "1": 198},
    "mtl-16/electronics.task.train": {"0": 796, "1": 802},
    "mtl-16/imdb.task.test": {"0": 201, "1": 199},
    "mtl-16/imdb.task.train": {"0": 805, "1": 795},
    "mtl-16/kitchen_housewares.task.test": {"0": 208, "1": 192},
    "mtl-16/kitchen_housewares.task.train": {"0": 792, "1": 808},
    "mtl-16/magazines.task.test": {"0": 183, "1": 217},
    "mtl-16/magazines.task.train": {"0": 787, "1": 783},
    "mtl-16/music.task.test": {"0": 201, "1": 199},
    "mtl-16/music.task.train": {"0": 799, "1": 801},
    "mtl-16/software.task.test": {"0": 188, "1": 212},
    "mtl-16/software.task.train": {"0": 727, "1": 788},
    "mtl-16/video.task.test": {"0": 187, "1": 213},
    "mtl-16/video.task.train": {"0": 813, "1": 787},
    "snli/dev": {"contradiction": 3278, "entailment": 3329, "neutral": 3235},
    "xnli-ko/xnli.dev.ko.tsv": {"contradiction": 830, "entailment": 830, "neutral": 830},
    "americasnli/dev/aym.tsv": BALANCED,
    "americasnli/dev/gn.tsv": BALANCED,
    "americasnli/dev/nah.tsv": {"contradiction": 124, "entailment": 124, "neutral": 128},
    "americasnli/dev/quy.tsv": BALANCED,
    "wisesight-thai/valid.jsonl": {"neg": 637, "neu": 1291, "pos": 434, "q": 42},
}
# Sentences, words, and B- tags by type; I- tags that follow nothing are B- too.
TAGGED: dict[str, tuple[int, int, dict[str, int]]] = {
    "masakhaner/amh/dev.txt": (250, 3749, {"DATE": 59, "LOC": 143, "ORG": 43, "PER": 83}),
    "masakhaner/amh/test.txt": (500, 7449, {"DATE": 106, "LOC": 227, "ORG": 83, "PER": 142}),
    "masakhaner/amh/train.txt": (1750, 25819, {"DATE": 415, "LOC": 1050, "ORG": 277, "PER": 505}),
    "masakhaner/hau/dev.txt": (276, 8301, {"DATE": 99, "LOC": 294, "ORG": 75, "PER": 199}),
    "masakhaner/hau/test.txt": (552, 16841, {"DATE": 164, "LOC": 512, "ORG": 132, "PER": 340}),
    "masakhaner/hau/train.txt": (1912, 55010, {"DATE": 660, "LOC": 1973, "ORG": 560, "PER": 951}),
    "masakhaner/ibo/dev.txt": (320, 6304, {"DATE": 91, "LOC": 172, "ORG": 169, "PER": 168}),
    "masakhaner/ibo/test.txt": (638, 12645, {"DATE": 145, "LOC": 338, "ORG": 351, "PER": 345}),
    "masakhaner/ibo/train.txt": (2235, 42719, {"DATE": 454, "LOC": 1167, "ORG": 772, "PER": 1090}),
    "masakhaner/kin/dev.txt": (302, 6711, {"DATE": 112, "LOC": 109, "ORG": 172, "PER": 225}),
    "masakhaner/kin/test.txt": (605, 14196, {"DATE": 130, "LOC": 374, "ORG": 257, "PER": 207}),
    "masakhaner/kin/train.txt": (2116, 47912, {"DATE": 550, "LOC": 1613, "ORG": 609, "PER": 934}),
    "masakhaner/swa/dev.txt": (300, 7263, {"DATE": 80, "LOC": 303, "ORG": 86, "PER": 205}),
    "masakhaner/swa/test.txt": (604, 15409, {"DATE": 162, "LOC": 463, "ORG": 221, "PER": 333}),
    "masakhaner/swa/train.txt": (2109, 56599, {"DATE": 698, "LOC": 2076, "ORG": 653, "PER": 1164}),
    "masakhaner/wol/dev.txt": (267, 4384, {"DATE": 6, "LOC": 59, "ORG": 11, "PER": 33}),
    "masakhaner/wol/test.txt": (539, 11682, {"DATE": 70, "LOC": 211, "ORG": 55, "PER": 176}),
    "masakhaner/wol/train.txt": (1871, 36805, {"DATE": 130, "LOC": 566, "ORG": 179, "PER": 522}),
    "ner-germeval2014/NER-de-dev.tsv": (
        2200,
        41653,
        {"LOC": 763, "LOCderiv": 235, "LOCpart": 52, "ORG": 496, "ORGderiv": 3, "ORGpart": 91}
        | {"OTH": 269, "OTHderiv": 16, "OTHpart": 18, "PER": 711, "PERderiv": 2, "PERpart": 18},
    ),
    "ner-uner-english-ewt/en_ewt-ud-dev.iob2": (1924, 24980, {"LOC": 399, "ORG": 223, "PER": 316}),
    "ner-wnut17/emerging.dev.conll": (
        1009,
        15733,
        {"corporation": 34, "creative-work": 105, "group": 39, "location": 74, "person": 470, "product": 114},
    ),
}


def real(folder: Path, name: str) -> str:
    if not (folder / name).parent.is_dir():
        pytest.skip(f"{folder} has no {Path(name).parent}")
    return str(folder / name)


@pytest.mark.parametrize("name", TEXTS)
def test_texts(test_data: Path, name: str) -> None:
    found = read_texts(real(test_data, name))
    assert Counter(one.label for one in found) == TEXTS[name]
    assert len({one.key for one in found}) == len(found)
    assert {one.second is None for one in found} == {"nli" not in name}


@pytest.mark.parametrize("name", TAGGED)
def test_tagged(test_data: Path, name: str) -> None:
    sentences, words, spans = TAGGED[name]
    found = read_tagged(real(test_data, name))
    assert (len(found), sum(len(one.words) for one in found)) == (sentences, words)
    assert Counter(tag[2:] for one in found for tag in one.tags or () if tag.startswith("B-")) == spans


def test_some_by_hand(test_data: Path) -> None:
    def text(name: str, number: int) -> tuple[str, str, str | None, str | float | None]:
        one = read_texts(real(test_data, name))[number]
        return one.key, one.text, one.second, one.label

    assert text("sst/stsa.fine.dev", 1) == ("stsa.fine.dev:2", "one long string of cliches .", None, "1")
    snli = text("snli/s2.dev", 1)
    first = "Two women are embracing while holding to go packages . "
    assert snli == ("labels.dev:2", first, "Two woman are holding packages . ", "entailment")
    korean = text("xnli-ko/xnli.dev.ko.tsv", 1)
    assert korean[1:] == (
        '그리고 그가 말했다, "엄마, 저 왔어요."',
        "그는 한마디도 하지 않았다.",
        "contradiction",
    )
    aymara = text("americasnli/dev/aym.tsv", 1)
    assert aymara[1:] == ("Jupax sanwa: Mamita, utankastwa.", "Jupax janiw mä ars arskänti", "contradiction")
    assert text("wisesight-thai/valid.jsonl", 0)[1].startswith("วันที่6/3/61 เสียอารมณ์มาเร้ย.")


def test_reviews_that_are_not_utf8(test_data: Path) -> None:
    reviews = read_texts(real(test_data, "mtl-16/MR.task.test"))
    assert sum("–" in one.text for one in reviews) == 2
    assert any("pokémon 4ever is terrifying – like locusts" in one.text for one in reviews)
    reviews = read_texts(real(test_data, "mtl-16/dvd.task.train"))
    assert "clichï¿ '' or" in reviews[904].text  # a letter of which the file has two of three bytes
    assert any("the young protegé who rises" in one.text for one in reviews)


def test_some_tags_by_hand(test_data: Path) -> None:
    def tagged(name: str, number: int) -> list[tuple[str, str]]:
        one = read_tagged(real(test_data, name))[number]
        assert one.tags is not None
        return [(word, tag) for word, tag in zip(one.words, one.tags, strict=True) if tag != "O"]

    assert tagged("masakhaner/amh/dev.txt", 0) == [("ኤለርስ", "B-LOC"), ("የአፍሪቃ", "B-LOC")]
    german = tagged("ner-germeval2014/NER-de-dev.tsv", 0)
    assert german == [("Ecce", "B-OTH"), ("homo", "I-OTH"), ("Jesu", "B-PER")]
    assert tagged("ner-uner-english-ewt/en_ewt-ud-dev.iob2", 0) == [("tampa", "B-LOC"), ("bay", "I-LOC")]
    redondo = tagged("ner-wnut17/emerging.dev.conll", 1)
    assert redondo[:3] == [("Redondo", "B-location"), ("Beach", "I-location"), ("Blvd", "I-location")]
