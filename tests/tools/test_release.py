"""What a release is made from: one version everywhere, notes, and the page for the package index."""

import re

import pytest
import yaml

from tests.conftest import REPOSITORY
from tools.docs import release
from tools.docs.address import project


def test_all_files_have_the_version_of_pyproject() -> None:
    version = project()["version"]
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version
    paths = [path for name in ("infra", "docs", "tokenfree") for path in (REPOSITORY / name).rglob("*")]
    texts = [path for path in paths if path.suffix in (".yaml", ".md", ".Dockerfile")]
    tags = {
        (str(path.relative_to(REPOSITORY)), tag)
        for path in texts
        for tag in re.findall(
            r"(?:tokenfree[a-z-]*[:-]|newTag: )(\d+\.\d+\.\d+)", path.read_text(encoding="utf-8")
        )
    }
    assert len(tags) > 10
    assert {(name, tag) for name, tag in tags if tag != version} == set()


def test_notes_are_the_section_of_the_version() -> None:
    changelog = (
        "## Unreleased\n\n- new\n\n## 0.3.0 - 2026-11-28\n\n### Added\n\n- a\n\n## 0.2.0 - 2026-11-25\n"
    )
    assert release.notes(changelog, "0.3.0") == "### Added\n\n- a"
    assert release.notes(changelog, "0.2.0") == ""
    with pytest.raises(SystemExit, match=r"no section '## 0\.4\.0 - DATE'"):
        release.notes(changelog, "0.4.0")


def test_the_index_page_has_whole_addresses_that_are_files() -> None:
    readme = release.README.read_text(encoding="utf-8")
    page = release.index_page(readme, "https://host.example/a/tokenfree", "v1.2.3")
    targets = re.findall(r"\]\(([^)]+)\)", page)
    assert len(targets) == len(re.findall(r"\]\(([^)]+)\)", readme))
    assert [target for target in targets if not target.startswith("https://")] == []
    ours = [target for target in targets if target.startswith("https://host.example/")]
    for target in ours:
        kind, tag, path = target.removeprefix("https://host.example/a/tokenfree/").split("#")[0].split("/", 2)
        assert (kind, tag) == ("raw" if path.endswith(".png") else "blob", "v1.2.3")
        assert (REPOSITORY / path).is_file()
    assert 'pip install "tokenfree[all]"' in page
    assert '".[all]"' not in page


def test_a_release_without_an_address_or_with_another_tag_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "address", str)
    with pytest.raises(SystemExit, match="no Repository"):
        release.main("v0.3.0", "notes.md")
    monkeypatch.setattr(release, "address", lambda: "https://host.example")
    with pytest.raises(SystemExit, match=r"v9\.9\.9: pyproject\.toml has version"):
        release.main("v9.9.9", "notes.md")
