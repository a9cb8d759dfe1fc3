"""The page about folders: its sections in order, made into one HTML file that needs nothing else."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

from tokenfree.core.errors import printable
from tokenfree.core.files import write_atomically
from tokenfree.preprocess.dataset.manifest import Manifest
from tokenfree.train.data.mixture import Data
from tokenfree.train.runs.hashes import HASHES, rewritten
from tokenfree.workflows.report import figures
from tokenfree.workflows.report.load import DataRecord, Record, RunRecord, SweepRecord, load, made_with
from tokenfree.workflows.report.parts import Block, Card, Section, Table, count, cut
from tokenfree.workflows.report.runs import comparison_section, finetuned_comparison, finetuned_section, run_section
from tokenfree.workflows.report.samples import Asked, Model, ask, data_of, model_of
from tokenfree.workflows.report.sweeps import SweepView, best_model, sweep_section

MOST_LANGUAGES = 16


def write_report(
    folders: Sequence[str],
    output: str,
    *,
    contexts: Mapping[str, Mapping[str, float]] | None = None,
    sentences: Sequence[tuple[str, str]] = (),
    step: int | None = None,
) -> Path:
    """Write the page about `folders` (each a run, a sweep or a data directory) to the file `output`.

    Args:
        folders: paths or addresses.
        output: the page, written whole or not at all.
        contexts: what `evaluate` found for some of the folders. Other runs are evaluated if their data are there.
        sentences: with a mark each, and what it hides, for runs to predict; by default words of held-out windows.
        step: use the checkpoints of this step of runs; see `checkpoint_of` for the default.

    Raises:
        UserError: a folder is none of these.
        JobError: a checkpoint is damaged.
        OSError: the file cannot be written.
    """
    page = render([load(_local(folder)) for folder in folders], contexts or {}, sentences, step)
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page)
    if (path.parent / HASHES).is_file():  # a finished run or sweep, whose files are all under a hash
        rewritten(str(path.parent), [path.name])
    return path


def render(
    records: Sequence[Record],
    contexts: Mapping[str, Mapping[str, float]],
    sentences: Sequence[tuple[str, str]],
    step: int | None,
) -> str:
    """Return the page: runs of pretraining, sweeps, fine-tuned runs, then data.

    Several runs of a kind are compared before each has its section.
    """
    runs = [record for record in records if isinstance(record, RunRecord)]
    views = [SweepView(record) for record in records if isinstance(record, SweepRecord)]
    pretrained, finetuned = ([run for run in runs if run.is_finetuned == is_one] for is_one in (False, True))
    data: dict[str, Data] = {
        record.manifest.fingerprint: str(record.path) for record in records if isinstance(record, DataRecord)
    }

    def asked(model: Model | None, context: Mapping[str, float] | None, step: int | None = None) -> Asked:
        if model is None:
            return Asked()
        return ask(model, data_of(model, data), context=context, sentences=sentences, step=step)

    of_runs = [asked(model_of(run), contexts.get(str(run.path)), step) for run in pretrained]
    sections = [comparison_section(pretrained, of_runs)] if len(pretrained) > 1 else []
    sections += map(run_section, pretrained, of_runs)
    sections += [sweep_section(view, asked(best_model(view), {})) for view in views]
    sections += [finetuned_comparison(finetuned)] if len(finetuned) > 1 else []
    sections += map(finetuned_section, finetuned)
    sections += [corpus_section(record) for record in records if isinstance(record, DataRecord)]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tokenfree.workflows.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("page.html.jinja").render(
        title="tokenfree: " + ", ".join(record.name for record in records),
        made_with=made_with([*runs, *(view.sweep for view in views)]),
        sections=sections,
    )
    return printable(page)  # a page with control characters is no valid HTML


def corpus_section(record: DataRecord) -> Section:
    """Return the section of one data directory, by its manifest."""
    manifest = record.manifest
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    languages: dict[str, int] = {}
    for shard in shards:
        languages[shard.language] = languages.get(shard.language, 0) + shard.characters
    ranked = sorted(languages.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(number for _, number in ranked[MOST_LANGUAGES:])
    shown = [*ranked[:MOST_LANGUAGES], *([(f"{len(ranked) - MOST_LANGUAGES} more", rest)] if rest else [])]
    drawn, tables = [], []
    for title, x, bars, rows in (
        ("Characters by language", "characters", shown, ranked),
        ("What became of the pages", "pages", _fates(manifest), _fates(manifest)),
    ):
        if len(bars) > 1:
            drawn.append(figures.inline(figures.bars(bars, title=title, x=x), title))
        if rows:
            cells = [[name, f"{number:,}"] for name, number in rows]
            tables.append(Table(title, [title.split()[-1].rstrip("s"), x], cells, folded=True))
    sums = {name: sum(getattr(shard, name) for shard in shards) for name in ("documents", "rows", "characters")}
    cards = [
        Card("Documents", f"{sums['documents']:,}"),
        Card("Windows", f"{sums['rows']:,}", f"In {len(shards):,} shards."),
        Card("Characters", count(sums["characters"])),
        Card("Languages", f"{len(languages):,}", cut(", ".join(name for name, _ in ranked), 60)),
    ]
    command = f"tokenfree inspect {shlex.quote(str(record.path))}"
    block = Block("", "Windows with their words, subwords and masks:", command, drawn, tables)
    return Section(f"Corpus · {record.name}", str(record.path), cards, [block])


def _fates(manifest: Manifest) -> list[tuple[str, int]]:
    """Return how many pages came to what; the sum is that of all pages."""
    counters = manifest.counters
    kept = ("documents", "redirects", "other_namespaces", "duplicates")
    rows = [(name.replace("_", " "), counters.get(name, 0)) for name in kept]
    for kind in ("filtered", "failed"):
        reasons = sorted(counters.get(kind, {}).items())
        rows += [(f"{kind}: {reason.replace('_', ' ')}", number) for reason, number in reasons]
    return [(name, number) for name, number in rows if number]


def _local(folder: str) -> Path:
    """Return the folder, or a copy of the small files of a run in a store."""
    if "://" not in folder:
        return Path(folder)
    from tokenfree.train.runs.run import run_at  # imports torch

    run = run_at(folder)
    run.fetch()
    return run.folder
