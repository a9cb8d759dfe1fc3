"""Any text is cleaned without an error, in time and memory that grow with its length only."""

import gc
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenfree.preprocess.documents.extract import MAX_WIKITEXT_CHARACTERS
from tokenfree.preprocess.wikitext.cleaner import clean

N = 50_000
HOSTILE = {
    "unclosed templates": "{{" * N,
    "unclosed kept templates": "{{lang|de|" * N,
    "nested templates": "{{a|" * N + "}}" * N,
    "nested kept templates": "{{nowrap|" * N + "x" * 1_000_000 + "}}" * N,
    "nested kept templates that are expanded": ("{{nowrap|" * 39 + "x" * 1_000_000 + "}}" * 39),
    "run of braces": "{" * 5 * N,
    "nested parameters": "{{{" * N + "a" + "}}}" * N,
    "closings only": "}}" * N + "]]" * N,
    "nested tables": "\n{|\n| a" * 5000 + "\n|}" * 5000,
    "unclosed tables": "\n{|\n| a" * N,
    "unclosed links": "[[a|" * N,
    "nested links": "[[" * N + "a" + "]]" * N,
    "nested files": "[[File:a.jpg|thumb|" * N + "]]" * N,
    "single brackets in a link": "[[a" + "[a" * 5 * N,
    "unclosed external links": "[http://a b " * N,
    "unclosed external link, long address": "[http://" + "a" * N + "[//" + "a" * N,
    "unclosed external link, long label": "[http://a" + " " * N + "b" * N + "[//a" + " " * N + "b" * N,
    "pipe trick": "[[a" + " " * 1_000_000 + "(|]]",
    "unclosed references": "<ref>" * N,
    "unfinished reference tags": "<ref name=" * N,
    "unclosed comments": "<!--" * N,
    "unclosed literals": "<nowiki>" * N,
    "many literals": "<nowiki>[[</nowiki>" * N,
    "unfinished tags": "<b " * N,
    "angle brackets": "<" * 5 * N,
    "apostrophes": "'" * 5 * N,
    "elisions": "l'''a" * N,
    "equals signs": "\n" + "=" * 5 * N + "x",
    "title of spaces": "\n=" + " " * 5 * N + "x",
    "titles": "\n==a==\n===b===" * N,
    "ampersands": "&#" * N + "&a" * N,
    "brackets": "(" * N + "{{zz}}" + ")" * N,
    "emptied brackets": "({{zz}}: " * N + ")" * N,
    "dropped pieces of a bracket": "(" + "{{zz}}, a" * N + ")",
    "labels": "(" + "a:{{zz}} " * N + ")",
    "dropped templates": "{{zz}}, " * N + "y",
    "list marks": "\n" + "*" * 5 * N,
    "underscores": "__A" * N + "_" * N,
    "arguments": "{{hlist" + "|a=b|c" * N + "}}",
    "ranges": "{{convert|" + "5|to|" * N + "km}}",
    "long number": "{{formatnum:" + "9" * 1_000_000 + "}}",
    "variants": "-{" * N + "a" + "}-" * N,
    "NULs": "a\0" * 5 * N,
    "lone surrogates": "\ud800a[[\udfff]]" * N,
    "mixed": "{{lang|[[a|<ref>{|\n-{(" * 50_000,
    "white space": (" " * 1000 + "\n" + "\t" * 1000 + "\xa0") * 1000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pages_take_bounded_time(name, sites):
    gc.collect()  # what other tests left is not to be counted
    start = time.process_time()
    text = clean(HOSTILE[name], sites["zh"])
    assert time.process_time() - start < 3  # at most 0.4 s were measured; quadratic time would be minutes
    assert len(text) <= len(HOSTILE[name])


def test_the_longest_line(sites):
    line = "lorem ipsum, [[dolor]] (sit) " * (MAX_WIKITEXT_CHARACTERS // 29)
    start = time.process_time()
    text = clean(line, sites["en"])
    assert time.process_time() - start < 2  # 0.1 to 0.3 s: as fast per character as ordinary pages
    assert text.startswith("lorem ipsum, dolor (sit) lorem")


@pytest.mark.parametrize(
    "name", ["unclosed kept templates", "nested links", "dropped templates", "mixed", "ranges"]
)
def test_work_is_linear(name, sites, monkeypatch):
    """Twice the page, at most twice the calls of a function written in Python (and some for the rest)."""

    def calls(wikitext: str) -> int:
        count = 0

        def profile(frame, event, argument):
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(profile)
        try:
            clean(wikitext, sites["en"])
        finally:
            sys.setprofile(None)
        return count

    page = HOSTILE[name][:20_000]
    calls(page)
    assert calls(page * 2) <= 2 * calls(page) + 100


MARKS = [
    "{{", "}}", "{{{", "}}}", "[[", "]]", "[", "]", "{|", "|}", "\n|-", "|", "=", "\n==", "==\n", "''", "'''",
    "\n*", "\n#", ":", ";", "<ref>", "</ref>", "<ref name=a />", "<nowiki>", "</nowiki>", "<!--", "-->", "<br>",
    "<math>", "</math>", "<table>", "</table>", "-{", "}-", "zh-hans:", "__TOC__", "&nbsp;", "&#65;", "&lt;",
    "File:a.jpg", "Category:", "de:", "http://a.b", "(", ")", "\uff08", "\uff09", "lang|de|", "convert|1|",
    "nowrap|", "IPA|", "formatnum:", "birth date|1900|", "as of|", "quote|", "frac|", "val|", "\x00", "\x02",
    "\x05", "\n", " ", ",", "a", "bc", "1", "\u00e9", "\u5b57", "\u0995\u09cd\u09b7", "\xa0", "\ud800",
]  # fmt: skip
wikitexts = st.one_of(st.text(), st.lists(st.sampled_from(MARKS), max_size=60).map("".join))


@settings(max_examples=1000, deadline=None)
@given(wikitext=wikitexts, language=st.sampled_from(["en", "zh", "fr", "uk", "ja"]))
def test_any_text_is_cleaned_to_tidy_lines(wikitext, language, sites):
    text = clean(wikitext, sites[language])
    assert text == clean(wikitext, sites[language])
    lines = text.split("\n")
    assert text == "" or all(lines)
    assert all(line == line.strip() for line in lines)
    assert not any(control in text for control in "\x00\x02\x03\x04\x05\x06\x07")


# Plain words, and marks that are put around what is already balanced.
PARTS = ["goose", " ", "Two ducks", "x"]
AROUND = [
    "[[{}]]", "[[Target|{}]]", "[[File:a.jpg|thumb|{}]]", "{{{{box|{}}}}}", "{{{{nowrap|{}}}}}", "<small>{}</small>",
    "'''{}'''", "a<ref>{}</ref>", "\n{{|\n| {}\n|}}\n", "\n== {} ==\n",
]  # fmt: skip


def balanced(steps: list[int]) -> str:
    """Return the text of a stack, where each step adds a part, puts marks around the last one or joins the last two."""
    stack = ["a"]
    for step in steps:
        if step < len(PARTS):
            stack.append(PARTS[step])
        elif step < len(PARTS) + len(AROUND):
            stack.append(AROUND[step - len(PARTS)].format(stack.pop()))
        elif len(stack) > 1:
            last = stack.pop()
            stack.append(stack.pop() + last)
    return "".join(stack)


# Three of the numbers join.
_balanced = st.lists(st.integers(0, len(PARTS) + len(AROUND) + 2), max_size=40).map(balanced)


@settings(max_examples=200, deadline=None)
@given(wikitext=_balanced)
def test_balanced_marks_leave_nothing(wikitext, sites):
    text = clean(wikitext, sites["en"])
    assert not any(
        mark in text for mark in ("{{", "}}", "[[", "]]", "{|", "|}", "<ref", "</ref", "'''", "<small")
    )


@settings(max_examples=200, deadline=None)
@given(literal=st.text(alphabet="[]{}|'<>=*#:;ab &", max_size=30).filter(lambda text: "</nowiki" not in text))
def test_literal_text_comes_back_as_it_was(literal, sites):
    assert clean(f"x<nowiki>{literal}</nowiki>y", sites["en"]) == f"x{literal}y"
