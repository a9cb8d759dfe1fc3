"""The site of a dump is read from its head, with the names of its namespaces in its language."""

import dataclasses
import json
import pickle

from tokenfree.core.stored_files import checked
from tokenfree.preprocess.records import Site

HEAD = """<mediawiki xmlns="x" version="0.11" xml:lang="de"><siteinfo><sitename>Wikipedia</sitename>
<dbname>dewiki</dbname><namespaces><namespace key="-2" case="first-letter">Medium</namespace>
<namespace key="0" case="first-letter" /><namespace key="1" case="first-letter">Diskussion</namespace>
<namespace key="6" case="first-letter">Datei</namespace><namespace key="14" case="first-letter">Kategorie</namespace>
<namespace key="102" case="first-letter">Tom &amp; Jerry</namespace></namespaces></siteinfo>"""


def test_names_of_namespaces_are_the_local_ones_then_those_of_every_wiki() -> None:
    site = Site.from_siteinfo(HEAD)
    assert (site.database, site.language) == ("dewiki", "de")
    assert site.namespaces[6] == ("Datei", "File", "Image")
    assert site.namespaces[14] == ("Kategorie", "Category")
    assert site.namespaces[0] == ("",)
    assert site.namespaces[102] == ("Tom & Jerry",)


def test_a_name_given_wins_over_the_head_of_the_dump() -> None:
    site = Site.from_siteinfo(HEAD, database="alswiki", language="gsw")
    assert (site.database, site.language) == ("alswiki", "gsw")


def test_a_dump_without_a_head_has_the_names_of_every_wiki() -> None:
    site = Site.from_siteinfo("<mediawiki>")
    assert (site.database, site.language) == ("wiki", "und")
    assert site.namespaces[10] == ("Template",)


def test_titles_tell_their_namespace() -> None:
    site = Site.from_siteinfo(HEAD)
    assert site.namespace_of("Datei:Katze.jpg") == 6
    assert site.namespace_of("file:Katze.jpg") == 6
    assert site.namespace_of("User_talk:Katze") == 3
    assert site.namespace_of("Katze: ein Roman") == 0
    assert site.namespace_of(":Katze") == 0


def test_it_travels_by_pickle_and_json() -> None:
    site = Site.from_siteinfo(HEAD)
    assert pickle.loads(pickle.dumps(site)) == site
    assert checked(Site, json.loads(json.dumps(dataclasses.asdict(site)))) == site
    assert hash(checked(Site, dataclasses.asdict(site))) == hash(site)
