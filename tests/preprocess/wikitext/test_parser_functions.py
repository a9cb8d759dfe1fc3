"""Parser functions and variables give what MediaWiki's give."""

import pytest

from tokenfree.preprocess.wikitext.cleaner import clean
from tokenfree.preprocess.wikitext.parser_functions import evaluate, plural_form, written


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("1 + 2 * 3 ^ 2", "19"),
        ("(1 + 2) * 3", "9"),
        ("-2 ^ 2", "4"),
        ("7 / 2", "3.5"),
        ("100 / 3", "33.333333333333"),
        ("7 mod 3", "1"),
        ("2.5 round 0", "3"),
        ("-2.5 round 0", "-3"),
        ("1234 round -2", "1200"),
        ("1.005 round 1", "1"),
        ("3e2", "300"),
        ("1e20", "1.0E+20"),
        ("not 0 and 1", "1"),
        ("2 >= 2 or 1 / 2 < 0", "1"),
        ("trunc -2.7", "-2"),
        ("floor(-2.7)", "-3"),
        ("sqrt 9 + abs -1", "4"),
        ("pi round 2", "3.14"),
        ("1 &lt; 2", "1"),
        ("3 \u2212 1", "2"),
    ],
)
def test_evaluate_gives_mediawikis_numbers(expression, text):
    value = evaluate(expression)
    assert value is not None
    assert written(value) == text


@pytest.mark.parametrize(
    "expression", ["1 / 0", "1 +", "(1", "1)", "1 2", "goose", "9^9^9^9", "ln 0", "1 $ 2"]
)
def test_evaluate_refuses_what_has_no_value(expression):
    with pytest.raises(ValueError, match=r"\w"):
        evaluate(expression)


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("{{#if: |a|b}}", "b"),
        ("{{#ifeq: 01 | 1 |same|other}}", "same"),
        ("{{#ifeq:a|A|same|other}}", "other"),
        ("{{#iferror:{{#expr:1/0}}|none|some}}", "none"),
        ("{{#ifexpr:1 > 2|more|less}}", "less"),
        ("{{#ifexist:Template:Goose|is|is not}}", "is not"),
        ("{{#ifexist:Pond|is|is not}}", "is"),
        ("{{#switch: b |a=1|b|c= 2 |3}}", "2"),
        ("{{#switch:x|a=1|#default=4}}", "4"),
        ("{{#switch:x|a=1|5}}", "5"),
        ("{{#titleparts:A/B/C|1|2}}", "B"),
        ("{{#titleparts:A/B/C|-1}}", "A/B"),
        ("{{lc:ABC}} {{uc:abc}} {{lcfirst:ABC}} {{ucfirst:abc}}", "abc ABC aBC Abc"),
        ("{{formatnum:1234567.5}} {{formatnum:1,234|R}}", "1,234,567.5 1234"),
        ("{{padleft:7|3}} {{padright:7|3|xy}}", "007 7xy"),
        ("{{plural:1|goose|geese}} {{plural:2|goose|geese}}", "goose geese"),
        ("{{PAGENAME}} / {{NAMESPACE}} / {{SUBPAGENAME}}", "Pond/Old / / Old"),
        ("{{#tag:nowiki|[[a]]}}", "[[a]]"),
        ("{{#tag:ref|a}}b", "b"),
        ("{{#time:j F Y|2026-11-27}}", "27 November 2026"),
        ("It is {{CURRENTYEAR}} now.", "It is now."),
        ("{{DEFAULTSORT:Goose}}a", "a"),
    ],
)
def test_functions_and_variables_show_what_readers_see(wikitext, text, sites):
    assert clean(wikitext, sites["en"], title="Pond/Old", templates={"Template:Duck": "x"}) == text


def test_plural_form_follows_the_language():
    assert [plural_form(number, "uk") for number in (1, 3, 5, 11, 21)] == [0, 1, 2, 2, 0]
    assert [plural_form(number, "pl") for number in (1, 22, 21)] == [0, 1, 2]
    assert [plural_form(number, "fr") for number in (0, 1, 2)] == [0, 0, 1]
    assert plural_form(5, "ja") == 0
