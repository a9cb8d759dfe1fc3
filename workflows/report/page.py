"""Puts the sections of folders together into one page."""

from collections.abc import Sequence

import jinja2

from tokenfree.workflows.report.figures.drawing import number_ids
from tokenfree.workflows.report.load import DataRecord, Record, RunRecord, SweepRecord
from tokenfree.workflows.report.samples.sections import sample_sections
from tokenfree.workflows.report.sections.corpus_section import corpus_section
from tokenfree.workflows.report.sections.parts import WIDE
from tokenfree.workflows.report.sections.run_comparison import comparison_section
from tokenfree.workflows.report.sections.run_section import run_section
from tokenfree.workflows.report.sections.sweep_section import sweep_section


def render(records: Sequence[Record]) -> str:
    """The whole page: data first, then runs (compared in one section where there are several), then sweeps."""
    sections = [corpus_section(record) for record in records if isinstance(record, DataRecord)]
    runs = [record for record in records if isinstance(record, RunRecord)]
    if len(runs) > 1:
        sections.append(comparison_section(runs))
    sections += [run_section(run) for run in runs]
    sections += [sweep_section(record) for record in records if isinstance(record, SweepRecord)]
    sections += sample_sections(records)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tokenfree.workflows.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    title = "tokenfree: " + ", ".join(record.name for record in records)
    return number_ids(environment.get_template("page.html.jinja").render(title=title, sections=sections, wide=WIDE))
