"""Folders of this machine in which links stand for what they lead to, as they do in a shell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

from fsspec.implementations.local import LocalFileSystem

_OF_THE_FILE_SYSTEM = {"lost+found"}  # at the root of a disk, and closed


class LinksFollowed(LocalFileSystem):
    """Local files for one search of a folder or glob; of itself, fsspec passes over all links that it finds in folders.

    A link to a folder is entered once, and never where it leads back to a folder around it, so the search ends.

    Attributes:
        broken: paths of the links that lead nowhere.
        closed: paths of the folders that may not be looked into, but for those that file systems keep for themselves;
            of itself, fsspec passes over these too.
    """

    cachable: ClassVar[bool] = False  # it remembers one search

    def __init__(self) -> None:
        super().__init__()
        self.broken: list[str] = []
        self.closed: list[str] = []
        self._entered: set[str] = set()

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> list[Any]:
        """What lies in a folder, sorted by name, without links that lead nowhere or back."""
        infos = []
        try:
            there = super().ls(path, detail=True, **kwargs)
        except PermissionError:
            if os.path.basename(path.rstrip("/")) not in _OF_THE_FILE_SYSTEM:
                self.closed.append(path)
            raise
        for info in sorted(there, key=lambda info: info["name"]):
            found = self._followed(info, path) if info["islink"] else info
            if found is not None:
                infos.append(found if detail else found["name"])
        return infos

    def _followed(self, link: dict[str, Any], folder: str) -> dict[str, Any] | None:
        try:
            info = self.info(link["name"])
        except OSError:  # nothing is there, or links lead in a circle
            self.broken.append(link["name"])
            return None
        if info["type"] == "directory":
            target = os.path.realpath(link["name"])
            if target in self._entered or os.path.commonpath([target, os.path.realpath(folder)]) == target:
                return None
            self._entered.add(target)
        return info


def told(broken: Sequence[str], field: str) -> str:
    """Links that lead nowhere, in a line: how many they are, and the first."""
    if len(broken) == 1:
        return f"{field}: {broken[0]} is a link that leads nowhere: left out"
    return f"{field}: {len(broken)} links lead nowhere, the first is {broken[0]}: left out"
