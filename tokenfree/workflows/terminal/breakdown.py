"""Scores by language and by script, as lines for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

FEW = 100  # targets, under which a mean says little: such groups are joined
NO_SCRIPT = "no letters"
_MEANS = ("loss", "accuracy", "without_context")

Groups = Sequence[Mapping[str, Any]]


def breakdown_lines(languages: Groups, scripts: Groups) -> list[str]:
    """A table of the languages and one of the scripts; of what has a single large group no table, but a line of shares.

    Args:
        languages, scripts: as `tokenfree.train.evaluate.by_language_and_script` has them.
    """
    kinds = {"language": languages, "script": [{**group, "name": group["name"] or NO_SCRIPT} for group in scripts]}
    several = {kind: groups for kind, groups in kinds.items() if _is_several(groups)}
    shares = [_shares(groups) for kind, groups in kinds.items() if kind not in several and groups]
    lines = ["hidden targets: " + "; ".join(shares)] if shares else []
    return lines + [line for kind, groups in several.items() for line in _table(kind, groups)]


def _is_several(groups: Groups) -> bool:
    return sum(group["targets"] >= FEW and group["name"] != NO_SCRIPT for group in groups) > 1


def _shares(groups: Groups) -> str:
    """`Latin 95.2%, no letters 4.7%, others 0.1%`."""
    total = sum(group["targets"] for group in groups)
    shown = [(group["name"], group["targets"]) for group in groups[:2]]
    if len(groups) > 2:
        shown.append(("others", total - sum(targets for _, targets in shown)))
    return ", ".join(f"{name} {targets / total:.1%}" for name, targets in shown)


def _table(kind: str, groups: Groups) -> list[str]:
    lines = [f"{f'masked only, by {kind}':<36}{'targets':>10}{'loss':>8}{'accuracy':>10}{'no context':>12}"]
    for group in _joined(groups):
        loss, accuracy, without_context = (group[name] for name in _MEANS)
        lines.append(f"{group['name']:<36}{group['targets']:>10,}{loss:>8.3f}{accuracy:>10.1%}{without_context:>12.3f}")
    return lines


def _joined(groups: Groups) -> list[Mapping[str, Any]]:
    """The groups with `FEW` targets or more, and where there are several smaller ones, these as one."""
    small = [group for group in groups if group["targets"] < FEW]
    if len(small) < 2:
        return list(groups)
    counts = [group["targets"] for group in small]
    means = {name: float(np.average([group[name] for group in small], weights=counts)) for name in _MEANS}
    large = [group for group in groups if group["targets"] >= FEW]
    return [*large, {"name": f"{len(small)} with under {FEW} each", "targets": sum(counts), **means}]
