"""The lines of docs/formats.md with which other libraries open a shard."""

import importlib
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "formats.md").read_text(encoding="utf-8")
LINES = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL).group(1).splitlines()  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=pytest.mark.slow if line.startswith("ray") else ()) for line in LINES],
    ids=lambda line: line.partition("(")[0],
)
def test_a_line_of_the_page_reads_a_shard(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(REPOSITORY / "tests" / "golden" / "kept" / "data", tmp_path / "data" / "simple")
    shard = tmp_path / "data" / "simple" / "train" / "data-00000-of-00003.arrow"
    shutil.copy(shard, shard.with_name("data-00000-of-00001.arrow"))
    monkeypatch.chdir(tmp_path)
    library = line.partition(".")[0]
    module: Any = pytest.importorskip("pyarrow" if library == "pa" else library)
    if library == "ray":
        importlib.import_module("ray.data")
        monkeypatch.setenv("RAY_ADDRESS", "local")  # not the cluster of another program on this machine
    rows = eval(line, {library: module, "pa": importlib.import_module("pyarrow")})
    try:
        assert (rows.count() if library == "ray" else len(rows)) > 0
    finally:
        if library == "ray":
            module.shutdown()
