"""What readers see of each construct: wikitext on the left, text on the right."""

from collections.abc import Callable

import pytest

from tokenfree.preprocess.records import Site
from tokenfree.preprocess.wikitext.cleaner import clean
from tokenfree.preprocess.wikitext.markup import wiki_words

ENGLISH = [
    # text and emphasis
    ("'''Bold''' and ''italic'' and '''''both'''''", "Bold and italic and both"),
    ("l'''Aida'' is sung", "l'Aida is sung"),
    ("rock 'n' roll's", "rock 'n' roll's"),
    ("One.\n\n\n\nTwo.  \n", "One.\nTwo."),
    ("== Title ==\ntext", "Title\ntext"),
    ("=== [[Deep]] {{anchor|x}} ===\ntext", "Deep\ntext"),
    ("== Empty ==\n{{reflist}}\n== Full ==\ntext", "Full\ntext"),
    ("== A ==\n=== B ===\ntext\n=== C ===\n", "A\nB\ntext"),
    ("* one\n* [[two]]\n*# three\n; term\n: indented", "one\ntwo\nthree\nterm\nindented"),
    ("a\n----\nb", "a\nb"),
    ("__TOC__ __NOTOC__a __init__", "a __init__"),
    ("__notoc__ __ഉള്ളടക്കംവേണ്ട__ __ไม่มีสารบัญ__ __بی‌فهرست__ __Kein_Index__ ＿＿目次＿＿a", "a"),
    # links
    ("[[Cat]]s and [[Dog|hounds]]", "Cats and hounds"),
    ("[[Mercury (planet)|]] shines", "Mercury shines"),
    ("a [[File:X.jpg|thumb|A [[b]] and [[c|d]]]] e", "a e"),
    ("[[Image:X.jpg|left]]Text", "Text"),
    ("[[Bestand:X.jpg|thumb|caption]]Text", "Text"),
    ("[[Unheard of:Y.png|thumb|caption]]Text", "Text"),
    ("Text\n[[Category:Cats]]\n[[de:Katze]]", "Text"),
    ("see [[:Category:Cats]] and [[:de:Katze|Katze]]", "see Category:Cats and Katze"),
    ("[[wikt:cat|cat]]", "cat"),
    ("[https://a.org The site] and [//b.org b], [http://c.org]", "The site and b,"),
    ("see https://a.org", "see https://a.org"),
    ("[[Special:X|[y] z]]", "[y] z"),
    ("[[ചി:A b|thumb|c]]a [[വിഭാഗം:ഗ്രാമങ്ങൾ]]", "a"),
    (
        "See [[http://a.org the report]]: https://a.org/B.PNG [http://b.org http://c.org/d.gif] x",
        "See the report: x",
    ),
    # dropped
    ("a<!-- b -->c", "ac"),
    ("a<ref>b</ref>c<ref name=x/>d<REF>e</REF>f", "acdf"),
    ("a <math>x^2</math> b <math>x</math> c", "a b x c"),
    ('<pages index="A book.djvu" from="12" to="30" header="1" />\nThe end.', "The end."),
    ('a <syntaxhighlight lang="c" inline>int [[x]]</syntaxhighlight> b', "a int [[x]] b"),
    ("a\n<gallery>\nX.jpg|b\n</gallery>\nc", "a\nc"),
    ("a\n{| class=x\n| b\n{|\n| c\n|}\n|}\nd", "a\nd"),
    ("a<table><tr><td>b</td></tr></table>c", "a\nc"),
    ("{{Infobox x\n| a = {{b|c}}\n| d = [[File:e.jpg]]\n}}\nText", "Text"),
    ("a{{navbox|b}}", "a"),
    ("{{#if:x|y|z}}a", "ya"),
    ("a {{{1|b}}} c", "a b c"),
    # literal and entities
    ("<nowiki>[[a]] ''b'' {{c}}</nowiki>", "[[a]] ''b'' {{c}}"),
    ("a<nowiki/>b", "ab"),
    (
        "&lt;b&gt; &amp;amp; &#65;&#x42; &eacute; &bogus; &#0; &#xD800;",
        "<b> &amp; AB é &bogus; &#0; &#xD800;",
    ),
    ("10&nbsp;km", "10\xa0km"),
    ("a<br>b<br/>c", "a\nb\nc"),
    ("3×10<sup>8</sup>, 10<sup>&minus;3</sup>, 1<sup>st</sup>", "3×10⁸, 10⁻³, 1st"),
    ("The set {{}, {1, 2}} has {{ two }}}} members.", "The set {{}, {1, 2}} has members."),
    ("H<sub>2</sub>O, <small>x</small>, 3 < 4 <y>", "H2O, x, 3 < 4 <y>"),
    # templates with text
    ("{{formatnum:1234567}} people", "1,234,567 people"),
    ("{{convert|10000|ft|km}} high", "10,000 ft high"),
    ("{{convert|5|to|10|km2|sqmi}}", "5 to 10 km²"),
    ("{{convert|6|ft|2|in|m}}", "6 ft 2 in"),
    ("{{convert|100|/km2}}", "100/km²"),
    ("{{val|0.99985|u=A}}", "0.99985 A"),
    ("{{lang|de|Wort}}, {{lang-fr|mot}}, {{transl|ar|ALA|alif}}", "Wort, mot, alif"),
    ("{{nowrap|39° N}} {{abbr|Dr|Doctor}}", "39° N Dr"),
    ("{{frac|3|1|2}} {{sfrac|1|2}} {{frac|2}}", "3 1⁄2 1/2 1⁄2"),
    (
        "{{birth date|1900|1|2}}, {{start date|1900|1|2|df=y}}, {{dts|1900|3}}",
        "January 2, 1900, 2 January 1900, March 1900",
    ),
    ("{{as of|2013}}, {{as of|2013|4|lc=y}}", "As of 2013, as of April 2013"),
    ("a{{snd}}b{{ndash}}c{{'}}d", "a – b–c'd"),
    ("{{circa|1300}}", "c. 1300"),
    ("{{cquote|To be.|Hamlet}}", "To be.\n— Hamlet"),
    ("{{hlist|a|b}}\n{{plainlist|\n* c\n* d\n}}", "a · b\nc\nd"),
    ("{{ill|Name|de|Titel}}", "Name"),
    ("{{HMS|Exeter|68|6}} and {{USS|Maine}}", "HMS Exeter and USS Maine"),
    ("{{nihongo|Tea|茶|cha}}", "Tea (茶, cha)"),
    ("{{lang|de|[[a|b]]|x=y}}", "b"),
    ("{{nowrap|1=a=b}} {{math|a {{=}} b}}", "a=b a = b"),
    ("{{nowrap|a {{small|b {{lang|fr|c}}}}}}", "a b c"),
    ("{{ Nowrap | a }}{{nowrap|x}}", "ax"),
    # nothing left behind
    ("'''A''' ({{IPA-en|x}}; born 1900) is", "A (born 1900) is"),
    ("'''A''' ({{IPAc-en|x}}) is", "A is"),
    ("'''A''' ({{IPAc-en|x}}, {{lang-de|B}}; {{audio|x}}) is", "A (B) is"),
    ("A (German: {{IPA|x}}) is", "A is"),
    ("A (Greek: λόγος; German: {{IPA|x}}) is", "A (Greek: λόγος) is"),
    ("A ({{IPA|x}}, or {{IPA|y}}) is", "A is"),
    ("the sound {{IPA|[x]}} is", "the sound [x] is"),
    ("A （{{IPA-ja|x}}、1900年）は", "A （1900年）は"),
    ("a {{cn}}, b {{cn}}. {{cn}} c", "a, b. c"),
    ("a, {{zz}}, {{zz}}, and b", "a, and b"),
    ("a&nbsp;{{zz}} b {{zz}}&nbsp;c", "a b c"),
    ("* {{cite book|x}}\n* {{cite book|y}}.\n* real", "real"),
    ("f(x) is () here", "f(x) is () here"),
    # broken
    ("{{Infobox\n| a = b\nText [[c]]", "Infobox\nText c"),
    ("a [[b c\n[[d]]", "a b c\nd"),
    ("a }} b ]] c", "a  b  c"),
    ("a <ref>b", "a b"),
    ("{|\n| a\nText", "Text"),
    ("", ""),
]

OTHERS = [
    ("de", "Die {{\"|Welt}} [[Datei:x.jpg|mini|Bild]]ist {{formatnum:12345}} alt", "Die „Welt“ ist 12.345 alt"),
    ("fr", "{{unité|814|km|2}}, {{nombre|130|années}}, {{s-|XVII}}", "814 km², 130 années, XVIIe siècle"),
    ("fr", "le {{date|22 mai 2016}} à {{heure|4|30}}, {{citation|oui}}", "le 22 mai 2016 à 4 h 30, « oui »"),
    ("vi", "{{formatnum:1234}} [[Tập tin:x.png|nhỏ|y]]{{Tính đến|2019|10|21}}", "1.234 Tính đến 21 tháng 10 năm 2019"),
    ("uk", "{{ДН|2|10|1906|19|9}}, {{нп|Стаття|текст|en|Title}}, {{lang-en|x}}", "2 жовтня 1906, текст, x"),
    ("uk", "{{nts|1000000}}{{nbsp}}осіб, 5{{градус Цельсія}}", "1\xa0000\xa0000\xa0осіб, 5°C"),
    ("ja", "{{読み仮名|'''物理学'''|ぶつりがく}}は[[ファイル:x.jpg|thumb|図]]、", "物理学（ぶつりがく）は、"),
    ("ja", "{{仮リンク|甲|en|A|label=乙}}と{{仮リンク|丙|en|C}}", "乙と丙"),
    ("bn", "{{রূপান্তর|1482|km|mi}} [[চিত্র:x.jpg|thumb|y]]দূরে [[বিষয়শ্রেণী:z]]", "১,৪৮২ km দূরে"),
    ("zh", "-{zh-hans:域;zh-hant:體;}-和-{于}-爾班，{{le|甲|A}}", "域和于爾班，甲"),
    ("zh", "a-{H|zh-cn:b;zh-tw:c}-d-{zh-tw:e;}-", "ade"),
    ("en", "a -{b}- c", "a -{b}- c"),
    ("ltg", "'''Lobs''' ({{Vol-lv|a}}; {{vol-ru|б}}) [[Kategoreja:x]]", "Lobs (a; б)"),
    ("xx", "[[Bildfajlo:a.b|c]]x[[Speco:d]] [[bildfajlo : e|f]]", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("wikitext", "text"), ENGLISH)
def test_english(wikitext, text, sites):
    assert clean(wikitext, sites["en"]) == text


@pytest.mark.parametrize(("language", "wikitext", "text"), OTHERS)
def test_other_languages(language, wikitext, text, sites):
    assert clean(wikitext, sites[language]) == text


def test_a_whole_article(sites):
    page = (
        "{{Short description|x}}\n{{Infobox city\n| name = B\n| map = {{map|{{coord|1|2}}}}\n}}\n"
        "[[File:B.jpg|thumb|The [[river]] in {{circa|1900}}<ref>c</ref>]]\n"
        "'''B''' ({{IPAc-en|b|iː}} {{respell|BEE}}; {{lang-de|Beh}}) is a [[city]] of {{formatnum:52000}} "
        "people,<ref>{{cite web|url=x}}</ref> {{convert|5|km|mi}} from [[C (city)|C]].\n\n"
        "== History ==\n{{main|History of B}}\nIt was founded in 1200.{{sfn|A|2000|p=1}}\n\n"
        "== See also ==\n* [[D]]\n\n== References ==\n{{reflist}}\n\n{{Navbox B}}\n[[Category:Cities]]\n[[de:B]]\n"
    )
    expected = (
        "B (Beh) is a city of 52,000 people, 5 km from C.\nHistory\nIt was founded in 1200.\nSee also\nD"
    )
    assert clean(page, sites["en"]) == expected


@pytest.mark.parametrize("change", [str, str.upper, str.title])
def test_switches_of_all_languages_show_nothing(change: Callable[[str], str]) -> None:
    switches = [word for word in wiki_words("switch") if " " not in word]
    assert len(switches) > 1100
    text = "\n".join(f"__{change(word)}__" for word in switches)
    assert clean(f"{text}\nText.", Site.from_siteinfo("")) == "Text."
