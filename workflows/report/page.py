"""Puts the sections of folders together into one page."""

from collections.abc import Sequence

import jinja2

from workflows.report.corpus_section import corpus_section
from workflows.report.drawing import number_ids
from workflows.report.load import DataFolder, Folder, RunFolder, SweepFolder
from workflows.report.parts import WIDE
from workflows.report.run_comparison import comparison_section
from workflows.report.run_section import run_section
from workflows.report.sweep_section import sweep_section


def render(folders: Sequence[Folder]) -> str:
    """The whole page: data first, then runs (compared in one section where there are several), then sweeps."""
    sections = [corpus_section(folder) for folder in folders if isinstance(folder, DataFolder)]
    runs = [folder for folder in folders if isinstance(folder, RunFolder)]
    if len(runs) > 1:
        sections.append(comparison_section(runs))
    sections += [run_section(folder) for folder in runs]
    sections += [sweep_section(folder) for folder in folders if isinstance(folder, SweepFolder)]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("workflows.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    title = "tokenfree: " + ", ".join(folder.name for folder in folders)
    return number_ids(environment.get_template("page.html.jinja").render(title=title, sections=sections, wide=WIDE))
