"""Puts the sections of folders together into one page."""

import re
from collections.abc import Sequence

import jinja2
import markupsafe

from tokenfree.core.errors import printable
from tokenfree.workflows.report.figures.drawing import number_ids
from tokenfree.workflows.report.finetuned.section import finetuned_comparison, finetuned_section
from tokenfree.workflows.report.load import DataRecord, Record, RunRecord, SweepRecord
from tokenfree.workflows.report.opening.findings import findings
from tokenfree.workflows.report.opening.made_with import made_with
from tokenfree.workflows.report.samples.sections import sample_sections
from tokenfree.workflows.report.sections.corpus_section import corpus_section
from tokenfree.workflows.report.sections.parts import WIDE
from tokenfree.workflows.report.sections.run_comparison import comparison_section
from tokenfree.workflows.report.sections.run_section import run_section
from tokenfree.workflows.report.sections.sweep_section import sweep_section
from tokenfree.workflows.report.sections.sweep_view import SweepView


def render(records: Sequence[Record], opening: Sequence[str] = (), step: int | None = None) -> str:
    """The whole page: `opening`, findings, data, runs of pretraining and of fine-tuning (compared in one section where
    there are several of a kind), then sweeps. `step`: see `write_report`.
    """
    data = [record for record in records if isinstance(record, DataRecord)]
    sections = [corpus_section(record) for record in data]
    runs = [record for record in records if isinstance(record, RunRecord)]
    pretrained, finetuned = ([run for run in runs if run.is_finetuned == is_one] for is_one in (False, True))
    if len(pretrained) > 1:
        sections.append(comparison_section(pretrained))
    sections += [run_section(run) for run in pretrained]
    if len(finetuned) > 1:
        sections.append(finetuned_comparison(finetuned))
    sections += [finetuned_section(run) for run in finetuned]
    sweeps = [record for record in records if isinstance(record, SweepRecord)]
    views = [SweepView(record) for record in sweeps]
    sections += [sweep_section(view) for view in views]
    sections += sample_sections(records, step)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tokenfree.workflows.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _breakable
    title = "tokenfree: " + ", ".join(record.name for record in records)
    page = environment.get_template("page.html.jinja").render(
        title=title,
        opening=opening,
        findings=findings(runs, views, data),
        made_with=made_with(runs, sweeps),
        sections=sections,
        wide=WIDE,
    )
    return number_ids(printable(page))  # a page with control characters is no valid HTML


def _breakable(cell: str) -> str:
    """A dotted key, `model.embedder.buckets`, with places after its dots to break it; other cells as they are."""
    is_key = re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", cell)
    return markupsafe.Markup("<wbr>").join(re.split(r"(?<=\.)", cell)) if is_key else cell
