"""Inputs added to a finished directory against a job from nothing, in one run; their files must be equal.

    python -m benchmarks.preprocess.addition [--dump FILE] [--beside FILE] [--changed 0.05]

`newer`: the dump (by default the Ukrainian excerpt of the test data) is added to a directory of an older one, in which
a share of the pages had another text. `beside`: a dump of another wiki (the Bengali excerpt) is added to a directory of
the first. Prints CPU seconds, with a vocabulary that is trained (on a million characters), that is given, and where no
column needs one; and what the kept runs take on the disk.
"""

from __future__ import annotations

import argparse
import bz2
import re
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.preprocess.wiki_pages import data_folder
from tokenfree.pipelines.addition import run_addition
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import COLUMNS, PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.records.window_columns import SUBWORD_COLUMNS

_TEXT_END = re.compile(r"</text>")


def older(xml: str, changed: float) -> str:
    """The dump as it was when a share of its pages ended otherwise, evenly spread."""
    step = round(1 / changed) if changed else 0
    parts, position = [], 0
    for number, match in enumerate(_TEXT_END.finditer(xml), 1):
        if step and number % step == 0:
            parts += [xml[position : match.start()], "\n\nThat was the older end."]
            position = match.start()
    return "".join([*parts, xml[position:]])


def cpu_seconds(job: Callable[[], Any]) -> float:
    """Of this process and its children."""
    before = _used()
    job()
    return _used() - before


def _used() -> float:
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def compare(folder: Path, name: str, before: Path, added: Path, whole: list[Path]) -> None:
    """Print the rows of one case."""
    model = None
    for row in ("trained", "given", "none"):
        given = model if row == "given" else None
        vocabulary = VocabularyConfig(size=8000, sample_characters=1_000_000, model=given)
        columns = tuple(column for column in COLUMNS if row != "none" or column not in SUBWORD_COLUMNS)
        paths = ((str(before),), (str(added),), tuple(map(str, whole)))
        old, new, both = (PreprocessConfig(wikipedia=path, vocabulary=vocabulary, columns=columns) for path in paths)
        output, fresh = folder / f"{name}-{row}", folder / f"{name}-{row}-fresh"
        run_preprocess(old, str(output), keep_runs=True)
        nothing = cpu_seconds(lambda both=both, fresh=fresh: run_preprocess(both, str(fresh), keep_runs=True))
        adding = cpu_seconds(lambda new=new, output=output: run_addition(new, str(output), notice=lambda _: None))
        assert contents(output) == contents(fresh), "the directories differ"
        sizes = {path: path.stat().st_size for path in output.rglob("*") if path.is_file()}
        kept = sum(size for path, size in sizes.items() if "_work" in path.parts)
        saved, share = 1 - adding / nothing, kept / (sum(sizes.values()) - kept)
        print(f"{name:8}{row:12}{nothing:14.1f}{adding:8.1f}{saved:8.0%}{kept / 1e6:9.1f} MB{share:9.0%}", flush=True)
        if row == "trained":
            model = str(fresh / "vocabulary" / "subwords.model")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    dumps = data_folder() / "wiki-dumps"
    parser.add_argument("--dump", type=Path, default=dumps / "ukwiki-20230501-excerpt.xml.bz2", help="a .xml.bz2")
    parser.add_argument("--beside", type=Path, default=dumps / "bnwiki-20230501-excerpt.xml.bz2")
    parser.add_argument("--changed", type=float, default=0.05, help="share of the pages")
    options = parser.parse_args()
    raw = bz2.decompress(options.dump.read_bytes())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = folder / f"{options.dump.name.partition('-')[0]}-20230401-pages-articles.xml.bz2"
        before.write_bytes(bz2.compress(older(raw.decode(), options.changed).encode()))
        print(f"{options.dump.name}: {len(raw) / 1e6:.1f} MB of XML, {options.changed:.0%} of its pages changed")
        print(f"{'':8}{'vocabulary':12}{'from nothing':>14}{'--add':>8}{'saved':>8}{'kept':>12}{'of data':>9}")
        compare(folder, "newer", before, options.dump, [options.dump])
        compare(folder, "beside", options.dump, options.beside, [options.dump, options.beside])


if __name__ == "__main__":
    main()
