"""A page about folders with a damaged file is written, or refused in one line that names the file."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.damage import damaged_bytes, put, wrong_json, wrong_lines, wrong_yaml
from tests.workflows.report.test_page import ATTEMPT, make_run, make_sweep, make_trial, record
from tokenfree.core.errors import JobError, UserError
from tokenfree.workflows.report.load import load
from tokenfree.workflows.report.page import write_report

Damage = Callable[[bytes], Iterator[bytes | None]]
STEP = 17  # of the cuts of a file
PAGES = 23  # one of this number of files with a wrong value becomes a page; a page takes long


def shortened(run: Path) -> Path:
    """A run of so few steps that each value of its metrics can be wrong in turn."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()[:102]]
    kept = [line for line in lines if line["step"] in (1, 2, 50)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    return run


def written_or_refused(folder: Path, name: str, page: Path | None) -> None:
    """`page` is written about `folder`, or loading it is tried where there is none."""
    try:
        if page is None:
            load(folder)
        else:
            write_report([str(folder)], str(page))
    except (UserError, JobError) as error:
        message = str(error)
        assert str(folder / name) in message, message
        assert "\n" not in message
        assert len(message) < 1000


def attack(folder: Path, name: str, content: bytes, wrong: Damage, page: Path, *, is_optional: bool) -> None:
    """Every damage of the file `name`, whose content is `content`; one that `is_optional` may also be absent."""
    for damaged in damaged_bytes(content, step=STEP):
        put(folder / name, damaged)
        if is_optional or damaged is not None:
            written_or_refused(folder, name, None)
    for number, damaged in enumerate(wrong(content)):
        put(folder / name, damaged)
        written_or_refused(folder, name, None if number % PAGES else page)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("config.yaml", wrong_yaml),
        ("result.json", wrong_json),
        ("events.jsonl", wrong_lines),
        ("metrics.jsonl", wrong_lines),
    ],
)
def test_a_run(name: str, wrong: Damage, tmp_path: Path) -> None:
    run = shortened(record(make_run(tmp_path / "run", lost=True), ATTEMPT))
    content = (run / name).read_bytes()
    attack(run, name, content, wrong, tmp_path / "page.html", is_optional=name != "metrics.jsonl")


@pytest.mark.parametrize(("name", "wrong"), [("sweep.yaml", wrong_yaml), ("journal.jsonl", wrong_lines)])
def test_a_sweep(name: str, wrong: Damage, tmp_path: Path) -> None:
    sweep = make_sweep(
        tmp_path / "sweep", [make_trial(0, 10, 4.0), make_trial(1, 5, 4.2, "running")], {"no": 1}
    )
    content = (sweep / name).read_bytes()
    if name == "sweep.yaml":
        content = yaml.safe_dump(
            {**yaml.safe_load(content), "fingerprints": {"sweep": "0", "data": "1"}}
        ).encode()
    attack(sweep, name, content, wrong, tmp_path / "page.html", is_optional=name != "sweep.yaml")
