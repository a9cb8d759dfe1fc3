"""Templates are expanded by the definitions of their wiki, with MediaWiki's semantics and within limits."""

import pytest

from tokenfree.preprocess.wikitext.cleaner import clean, clean_page, page_of
from tokenfree.preprocess.wikitext.templates import Definitions

GOOSE = {
    "Template:Goose": "{{{1}}} the {{{kind|grey}}} goose",
    "Template:Flock": "{{Goose|{{{1|Ada}}}}} and {{ goose |Bo|kind= white }}",
    "Template:Gander": "#REDIRECT [[Template:Goose]]",
    "Template:Honk": "<noinclude>How to honk.</noinclude><includeonly>honk</includeonly>!",
    "Template:Only": "before <onlyinclude>nest</onlyinclude> after",
    "Template:Egg": "{{#if:{{{1|}}}|{{{1}}} eggs|no egg}}",
    "Template:Loop": "a{{Loop}}b",
    "Template:Box": '{| class="infobox"\n| {{{1}}}\n|}',
    "Template:Note": '<div class="hatnote">See the pond.</div>',
    "Template:Verse": "<div>{{{1}}}</div>",
    "Template:Cite": '<sup class="noprint">[who?]</sup>',
    "Template:List": "* one\n* two",
    "Template:Count": "{{#expr:{{{1}}}*2}} feet",
    "Template:Lua": "{{#invoke:Goose|honk}}",
    "Template:Outer": "({{Lua}}; grey)",
    "Template:Nowiki": "<nowiki>{{{1}}}</nowiki>",
    "Help:Pond": "A pond is small.",
}
EXPANDED = [
    ("{{Goose|Ada}} honks.", "Ada the grey goose honks."),
    ("{{goose|1=Ada|kind=white}} honks.", "Ada the white goose honks."),
    ("{{Template:goose|Ada|Bo}}", "Ada the grey goose"),
    ("{{Gander|Ada}}", "Ada the grey goose"),
    ("{{Flock}}", "Ada the grey goose and Bo the white goose"),
    ("A {{Honk}}", "A honk!"),
    ("The {{Only}}.", "The nest."),
    ("It has {{Egg}} or {{Egg|7}}.", "It has no egg or 7 eggs."),
    ("It says {{Loop}}.", "It says ab."),
    ("{{Box|A}}\nText.", "Text."),
    ("{{Note}}\nText.", "Text."),
    ("{{Verse|Honk.}}\nText.", "Honk.\nText."),
    ("It flew{{Cite}} away.", "It flew away."),
    ("Birds: {{List}}", "Birds:\none\ntwo"),
    ("It has {{Count|1}}.", "It has 2 feet."),
    ("It is {{Nowiki|x}}.", "It is {{{1}}}."),
    ("{{:Help:Pond}}", "A pond is small."),
    ("{{Goose|[[Ada|Ada Goose]]}}", "Ada Goose the grey goose"),
    ("{{Goose}}", "1 the grey goose"),
]


@pytest.mark.parametrize(("wikitext", "text"), EXPANDED)
def test_clean_expands_definitions(wikitext, text, sites):
    assert clean(wikitext, sites["en"], templates=GOOSE) == text


def test_clean_finds_templates_by_local_names(sites):
    site = sites["de"]
    names = {**site.namespaces, 10: ("Vorlage", "Template")}
    local = type(site)(site.database, site.language, names)
    assert clean("Die {{gans}}.", local, templates={"Vorlage:Gans": "Gans"}) == "Die Gans."


def counted(wikitext, site, templates):
    page = page_of(site, "Pond", Definitions.of_titles(templates, site))
    return clean_page(wikitext, page), dict(page.outcomes), dict(page.dropped)


def test_calls_in_running_text_are_counted_by_what_gave_their_text(sites):
    wikitext = "The {{Goose|Ada}} is {{convert|5|km|mi}} from {{pond|Bo}}{{sfx}} and {{Lua}}.\n\n{{Box|A}}"
    text, outcomes, dropped = counted(wikitext, sites["en"], GOOSE)
    assert text == "The Ada the grey goose is 5 km from Bo and."
    assert outcomes == {"definition": 1, "rule": 1, "fallback": 1, "dropped": 2}
    assert dropped == {"sfx": 1, "Lua": 1}


def test_a_definition_that_needs_lua_gives_way_to_a_rule(sites):
    templates = {"Template:Convert": "{{#invoke:Convert|convert}}"}
    assert counted("It is {{convert|5|km|mi}} long.", sites["en"], templates)[:2] == (
        "It is 5 km long.",
        {"rule": 1},
    )


CHAIN = {f"Template:T{n}": f"{{{{T{n + 1}|{{{{{{1}}}}}}{{{{{{1}}}}}}}}}}" for n in range(60)}


@pytest.mark.parametrize(
    "templates",
    [
        {**CHAIN, "Template:T60": "end"},  # deeper than 40 templates
        {**CHAIN, "Template:T30": "{{{1}}}"},  # 2^30 characters
        {"Template:T0": "{{T1}}" * 400, "Template:T1": "{{T2}}" * 400, "Template:T2": "x"},  # 160,000 nodes
        {"Template:T0": "{{#if:1|" * 200 + "x" + "}}" * 200},
    ],
)
def test_a_call_beyond_the_limits_is_dropped_and_counted(templates, sites):
    text, outcomes, dropped = counted("It says {{T0|12345678}} here.", sites["en"], templates)
    assert (text, outcomes, dropped) == ("It says here.", {"limit": 1}, {"T0": 1})


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("Il borgo sorge a 812 {{m s.l.m.}} sul monte.", "Il borgo sorge a 812 m s.l.m. sul monte."),
        ("La tour du XIX{{e}} siècle.", "La tour du XIXe siècle."),
        ("Název {{cizojazyčně|en|''Old Town''}} je starší.", "Název Old Town je starší."),
        ("{{refnec|La ville fut détruite}} en 1703.", "La ville fut détruite en 1703."),
        ("A sentence.{{unknown|Ada|2000}} Another.", "A sentence. Another."),
        ("A {{unknown|https://pond.example}} link.", "A link."),
    ],
)
def test_unknown_templates_show_an_argument_or_their_name(wikitext, text, sites):
    assert clean(wikitext, sites["xx"]) == text


def test_rules_run_in_their_own_language_only(sites):
    assert clean("XIX{{e}} siècle", sites["fr"]) == "XIXe siècle"
    assert clean("3{{e|8}} m", sites["en"]) == "3 × 108 m"
