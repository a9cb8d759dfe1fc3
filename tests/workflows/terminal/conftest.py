"""A terminal for the tests of what is drawn."""

import io


class Terminal(io.StringIO):
    """A terminal that keeps what is written, also piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.pieces.append(text)
        return super().write(text)
