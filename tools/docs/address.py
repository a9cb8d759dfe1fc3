"""Write the repository's address into README and the pages: python -m tools.docs.address. `make docs` runs it.

The address is `Repository` in `[project.urls]` of pyproject.toml, and nowhere else by hand.
"""

import re
import tomllib

from tools import REPOSITORY

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
FOLDER = "the folder with `pyproject.toml`"


def project() -> dict:
    """Return the table `[project]` of pyproject.toml."""
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def address() -> str:
    """Return the address of the repository, or "" while it has none."""
    return project().get("urls", {}).get("Repository", "").rstrip("/")


def with_address(text: str, address: str) -> str:
    """Return a page that says how to get a checkout: by cloning the address, or as the folder that the reader has."""
    checkout = f"`git clone {address}`" if address else FOLDER
    return re.sub(rf"{re.escape(FOLDER)}|`git clone [^`]+`", checkout, text)


def main() -> None:
    """Rewrite the pages in place."""
    for path in PAGES:
        path.write_text(with_address(path.read_text(encoding="utf-8"), address()), encoding="utf-8")


if __name__ == "__main__":
    main()
