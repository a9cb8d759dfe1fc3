"""Prepare a release: python -m tools.docs.release TAG NOTES. The release workflow runs it before it builds.

It checks the tag, writes the changelog's section to NOTES, and turns README.md into the page for the package index,
where links need whole addresses.
"""

import re
import sys
from pathlib import Path

from tools import REPOSITORY
from tools.docs.address import address, project

README = REPOSITORY / "README.md"
CHANGELOG = REPOSITORY / "CHANGELOG.md"


def notes(changelog: str, version: str) -> str:
    """Return the section of a version.

    Raises:
        SystemExit: There is none.
    """
    section = re.search(rf"^## {re.escape(version)} - .*\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)
    return section[1].strip() if section else sys.exit(f"CHANGELOG.md: no section '## {version} - DATE'")


def index_page(readme: str, address: str, tag: str) -> str:
    """Return README with absolute links to the tag, and with the installation from the index."""
    readme = readme.replace('".[all]"', '"tokenfree[all]"')
    readme = re.sub(r"(!\[[^]]*\]\()(?!https?:|#)", rf"\g<1>{address}/raw/{tag}/", readme)
    return re.sub(r"((?<!!)\[[^]]*\]\()(?!https?:|#)", rf"\g<1>{address}/blob/{tag}/", readme)


def main(tag: str, path: str) -> None:
    """Check the tag, then write the notes and the page."""
    if not address():
        sys.exit("pyproject.toml: [project.urls] has no Repository. Add the public address.")
    if tag != f"v{project()['version']}":
        sys.exit(f"{tag}: pyproject.toml has version {project()['version']}")
    Path(path).write_text(notes(CHANGELOG.read_text(encoding="utf-8"), tag[1:]) + "\n", encoding="utf-8")
    page = index_page(README.read_text(encoding="utf-8"), address(), tag)
    README.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
