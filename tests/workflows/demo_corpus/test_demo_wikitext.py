"""Plain documentation text as wikitext."""

from textwrap import indent

import pytest

from tokenfree.workflows.demo_corpus.repeats import Repeats
from tokenfree.workflows.demo_corpus.wikitext import escape, to_wikitext

CODE = "owl = Owl()\nowl.hoot()"
HIGHLIGHTED = f'<syntaxhighlight lang="python">\n{CODE}\n</syntaxhighlight>'
FORMS = {
    "Owls\n====\n\nThey hunt\nat night.": "== Owls ==\n\nThey hunt at night.",
    "* feathers\n* two wings,\n  both soft": "* feathers\n* two wings, both soft",
    "Owls have\n- feathers\n- wings": "Owls have\n\n* feathers\n* wings",
    "1. fly\n2. land": "# fly\n# land",
    '"hoot()" is *soft* or **loud**.': "<code>hoot()</code> is ''soft'' or '''loud'''.",
    "Use ``a < b`` or `c`.": "Use <code>a &lt; b</code> or <code>c</code>.",
    'Equal: "==" and "!=".': "Equal: <code>==</code> and <code>!=</code>.",
    "[[this]] & {{that}}": "&#91;&#91;this]] &amp; &#123;&#123;that}}",
    "See PEP 8.": "See [https://peps.python.org/pep-0008/ PEP 8].",
    "See RFC 822.": "See [https://www.rfc-editor.org/rfc/rfc822 RFC 822].",
    ">>> 1 + 1\n2": '<syntaxhighlight lang="pycon">\n>>> 1 + 1\n2\n</syntaxhighlight>',
    CODE: HIGHLIGHTED,
    f"For example:\n\n{indent(CODE, '   ')}": f"For example:\n\n{HIGHLIGHTED}",
    "bird ::= owl | mouse": "bird ::= owl | mouse",
    "As in\n\n   bird ::= owl": "As in\n\n<pre>\nbird ::= owl\n</pre>",
    "owl.hoot(times)\n\n   Calls into the night.": "; owl.hoot(times)\n\n: Calls into the night.",
    "wings\n   Two of them.": "; wings\n\n: Two of them.",
    "=": "&#61;",
}


@pytest.mark.parametrize(("text", "wikitext"), FORMS.items())
def test_each_form(text: str, wikitext: str) -> None:
    assert to_wikitext(text) == wikitext


def test_a_grid_table_becomes_a_wikitable() -> None:
    grid = "+-----+-------+\n| Owl | Voice |\n|=====|=======|\n| eagle | deep |\n|  | calm |\n+-----+-------+"
    assert to_wikitext(grid) == '{| class="wikitable"\n|-\n! Owl !! Voice\n|-\n| eagle || deep calm\n|}'


def test_a_footnote_becomes_a_reference_at_its_first_mark() -> None:
    text = "Owls see well [1]. Mice know [1].\n\n-[ Footnotes ]-\n\n[1] In the dark,\n    too."
    assert to_wikitext(text) == (
        'Owls see well <ref name="note1">In the dark, too.</ref>. Mice know <ref name="note1" />.\n\n'
        "== Footnotes ==\n<references />"
    )


def test_a_known_name_is_linked_once() -> None:
    links = {"json": "Json (Python module)", "Value comparisons": "Value comparisons"}
    text = '"json" and "json"; see Value comparisons.'
    linked = "[[Json (Python module)|<code>json</code>]] and <code>json</code>; see [[Value comparisons]]."
    assert to_wikitext(text, links=links) == linked


def test_levels_of_titles_follow_their_first_appearance() -> None:
    text = "One\n---\n\nTwo\n~~~\n\nThree\n-----"
    assert to_wikitext(text, top_level=3) == "=== One ===\n\n==== Two ====\n\n=== Three ==="


def test_escaped_text_holds_no_markup() -> None:
    assert not set(escape("[[a]] {{b}} {|c|} ''d'' <e>")) & set("<>")
    assert "''" not in escape("''''")


def test_a_long_paragraph_is_kept_once() -> None:
    repeats = Repeats(min_characters=10)
    assert repeats.new_part("Owls hunt at night.\n\nYes.") == "Owls hunt at night.\n\nYes."
    assert repeats.new_part("New words here.\n\n  Owls hunt\n  at night.\n\nYes.") == "New words here.\n\nYes."
