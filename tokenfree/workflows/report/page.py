"""Make the page: collect its sections in order and render them into one self-contained HTML file."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
import matplotlib.style

from tokenfree.core.errors import UserError
from tokenfree.core.files import TEMPORARY, write_atomically
from tokenfree.core.locks import exclusive
from tokenfree.core.settings_values import flatten
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import check_finished, rewriting
from tokenfree.train.data.mixture import Data
from tokenfree.train.runs.run import Run
from tokenfree.workflows.report import figures
from tokenfree.workflows.report.load import DataRecord, Record, RunRecord, SweepRecord, load
from tokenfree.workflows.report.parts import Block, Card, Section, Table, count, cut
from tokenfree.workflows.report.runs import (
    comparison_section,
    finetuned_comparison,
    finetuned_section,
    predict_held_out,
    run_section,
)
from tokenfree.workflows.report.sweeps import SweepView, sweep_section
from tokenfree.workflows.terminal.output import printable
from tokenfree.workflows.terminal.results import counted


def write_report(
    folders: Sequence[str],
    output: str,
    *,
    contexts: Mapping[str, Mapping[str, float]] | None = None,
    step: int | None = None,
) -> Path:
    """Write the page about `folders` (runs, sweeps and data directories) to the file `output`, atomically.

    `contexts` has results of `evaluate` by folder. Other runs are evaluated if their data can be found. See
    `checkpoint_of` for the default of `step`. Raises UserError if a folder is none of these, another report
    is written to the file, or the folder is not writable, JobError if a file of a finished run or sweep is
    damaged.
    """
    path = Path(output)
    if path.is_dir():
        raise UserError(f"--output {output}: is a folder. Give a file, such as {path / 'report.html'}.")
    held = UserError(
        f"--output {output}: another report is written to this file. Wait for it or give another file."
    )
    with exclusive(path.with_name(f"{TEMPORARY}_{path.name}.lock"), held):
        records = [load(_local(folder)) for folder in folders]
        page = render(records, contexts or {}, step)
        # What the page needs was checked first.
        for record in records if step is None else ():
            check_finished(record.path)
        with rewriting(Storage.at(str(path.parent)), [path.name]):
            write_atomically(path, page)
    return path


def render(records: Sequence[Record], contexts: Mapping[str, Mapping[str, float]], step: int | None) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tokenfree.workflows.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    with matplotlib.style.context(figures.STYLE):
        page_sections = sections(records, contexts, step)
    title = "tokenfree: " + ", ".join(record.path.name for record in records)
    page = environment.get_template("page.html.jinja").render(title=title, sections=page_sections)
    # Control characters are invalid in HTML.
    return printable(page)


def sections(
    records: Sequence[Record], contexts: Mapping[str, Mapping[str, float]], step: int | None
) -> list[Section]:
    """Return the sections: pretraining runs, sweeps, fine-tuned runs, data.

    A comparison precedes runs of one kind.
    """
    runs = [record for record in records if isinstance(record, RunRecord)]
    data = [record for record in records if isinstance(record, DataRecord)]
    pretrained, finetuned = ([run for run in runs if run.is_finetuned == is_one] for is_one in (False, True))
    data_by_fingerprint: dict[str, Data] = {record.manifest.fingerprint: str(record.path) for record in data}

    of_runs = [
        predict_held_out(run, data_by_fingerprint, context=contexts.get(str(run.path)), step=step)
        for run in pretrained
    ]
    return [
        *([comparison_section(pretrained, of_runs)] if len(pretrained) > 1 else []),
        *map(run_section, pretrained, of_runs),
        *(sweep_section(SweepView(record)) for record in records if isinstance(record, SweepRecord)),
        *([finetuned_comparison(finetuned)] if len(finetuned) > 1 else []),
        *map(finetuned_section, finetuned),
        *map(corpus_section, data),
    ]


def corpus_section(record: DataRecord) -> Section:
    shards = record.manifest.shards
    languages: dict[str, int] = {}
    for shard in shards:
        languages[shard.language] = languages.get(shard.language, 0) + shard.characters
    ranked = sorted(languages.items(), key=lambda item: (-item[1], item[0]))
    sums = {
        name: sum(getattr(shard, name) for shard in shards) for name in ("documents", "rows", "characters")
    }
    cards = [
        Card("Documents", f"{sums['documents']:,}"),
        Card("Windows", f"{sums['rows']:,}", f"In {counted(len(shards), 'shard')}."),
        Card("Characters", count(sums["characters"])),
        Card("Languages", f"{len(languages):,}", cut(", ".join(languages), 60)),
    ]
    tables = [
        Table(
            title,
            header,
            [[name.replace("_", " "), f"{number:,}"] for name, number in rows if number],
            folded=True,
        )
        for title, header, rows in (
            ("Characters by language", ["language", "characters"], ranked),
            ("What became of the pages", ["page", "pages"], flatten(record.manifest.counters)),
        )
    ]
    command = f"tokenfree inspect {shlex.quote(str(record.path))}"
    block = Block("", "Windows with their words, subwords and masks:", command, tables=tables)
    return Section(f"Corpus · {record.path.name}", str(record.path), cards, [block])


def _local(folder: str) -> Path:
    if "://" not in folder:
        return Path(folder)
    run = Run(folder)
    run.fetch()
    return run.folder
