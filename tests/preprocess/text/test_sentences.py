"""Sentences in many scripts, and the cases in which a full stop ends none."""

import itertools
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenfree.preprocess.text.sentences import sentence_starts


def sentences_of(text: str) -> list[str]:
    bounds = [*sentence_starts(text).tolist(), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(bounds)]


@pytest.mark.parametrize(
    "text",
    [
        "It rained. |We stayed in! |Did you? |“Yes.” |(She nodded.) |No… |Well",
        "A title\n\n|Then a paragraph. |And its end.",
        "“Did he?” she asked. |Yahoo! is a name.",
        "He lived in the U.S. Army camp, e.g. Fort Knox, with Dr. A. B. Smith and Mrs. Jones.",
        "Pi is 3.14 and example.com is a site, v. 2.0. |Then came 1945. |The war ended.",
        "Am 3. Mai kam der 1. FC, vgl. Abb. 5, z.B. Köln. |Danach nichts.",
        "Он жил в г. Москве, ул. Ленина, и т.д. и работал. |Потом уехал.",
        "— Нет. |— Почему? |«Так надо». |Конец.",
        "¿Qué tal? |¡Bien! |¿Y tú?",
        "他来了。|你呢？|很好！|再见",
        "真的吗？！|真的！！",
        "「はい。」",
        "「行く。」と彼は言った。|「そう。」|彼女は笑った。",
        "यह एक है। |वह दो है।|तीन॥",
        "هل أنت هنا؟ |نعم. |وداعا.",
        "یہ ہے۔ |وہ ہے۔",
        "እንዴት ነህ። |ደህና።",
        "Բարեւ։ |Ինչպես ես։",
        "သူလာသည်။ |သူသွားသည်။",
        "គាត់មក។ |គាត់ទៅ។",
        "안녕하세요. |저는 학생입니다. |네. |그래요.",
        "พ.ศ. ๒๕๖๐ เขามา เธอไป",
        "It ended badly. |1945 was over. |See no. 5 and fig. 3.",
        "שלום. |מה שלומך?",
        '"这是对的。"他说。|“后来呢？”最小的孩子问。|“来了。”|雨停了。',
        "PT. Telkom dan CV. Karya turut hadir.",
        "Acme Inc. USA is expanding. |It bought Ajax Inc. |The price is secret.",
        "Martin Luther King Jr. Day is a holiday. |So says Smith et al. (2010) and Jones et al. (Oslo 1911).",
        "Tai pvz. Žodis čia.",
        "صرّح د. خالد قائلا إن الخسائر كبيرة. |ثم تابعت اللجنة.",
        "डॉ. शर्मा आए। |वे बैठे।",
        "彼は「はい。そうです。」と言った。|そして帰った。|「はい。|そう。」",
        "Urodził się ok. Krakowa w r. 1900. |Zmarł w 1950 r. w Warszawie.",
        "He left the U.S. |He went to the U.S. Army.",
    ],
)
def test_examples(text: str) -> None:
    assert sentences_of(text.replace("|", "")) == text.split("|")


def test_empty_text_has_no_sentence() -> None:
    assert sentence_starts("").tolist() == []


def test_leading_space_belongs_to_the_first_sentence() -> None:
    assert sentences_of(" \n One. Two.") == [" \n One. ", "Two."]


@settings(max_examples=1000, deadline=None)
@given(st.text(st.sampled_from("aB1. !?…。」と।\n\"'(—\u3000_日")) | st.text())
def test_starts_are_increasing_from_zero_and_not_white_space(text: str) -> None:
    starts = sentence_starts(text).tolist()
    assert starts[:1] == ([0] if text else [])
    assert starts == sorted(set(starts))
    assert all(start < len(text) and not text[start].isspace() for start in starts[1:])
    heads = {match.end() - 1 for match in re.finditer(r"(?:\A|\n)[^\S\n]*\S", text)}
    assert heads - {min(heads, default=0)} <= set(starts)


@pytest.mark.parametrize(
    "unit", [".", '!"', "。", "。」", ". ", "...) ", "\n", " \n", " ", "- ", ". - ", "A.", "A. "]
)
def test_hostile_text_costs_linear_time(unit: str) -> None:
    before = time.process_time()
    starts = sentence_starts(unit * (400_000 // len(unit)) + "x")
    assert len(starts) >= 1
    assert time.process_time() - before < 5  # about 0.2 s; quadratic time would be hours


def test_scripts_of_the_world_have_sentences_of_sensible_length(test_data: Path) -> None:
    for file in sorted(test_data.glob("udhr/*.txt")):
        sentences = sentences_of(file.read_text(encoding="utf-8"))
        assert 60 <= len(sentences) <= 400, file.name
