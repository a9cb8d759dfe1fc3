"""The repository's address in README and the pages."""

from tools.docs.address import FOLDER, PAGES, address, with_address


def test_pages_have_the_address_of_pyproject() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PAGES]
    assert [with_address(text, address()) for text in texts] == texts, "write it again: make docs"
    checkout = f"git clone {address()}" if address() else FOLDER
    assert sum(checkout in text for text in texts) >= 2


def test_with_address_replaces_the_folder_and_an_earlier_address() -> None:
    text = f"Install it from a checkout ({FOLDER})."
    cloned = with_address(text, "https://host.example/a/tokenfree")
    assert cloned == "Install it from a checkout (`git clone https://host.example/a/tokenfree`)."
    assert with_address(cloned, "https://other.example") == cloned.replace(
        "host.example/a/tokenfree", "other.example"
    )
    assert with_address(cloned, "") == text
