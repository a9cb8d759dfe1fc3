"""What is said of a pretraining run that has ended, and of what its model reads."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenfree.train.pretrain import PretrainResult


def loss_lines(result: "PretrainResult") -> list[str]:
    """The held-out loss, and beside it what needs no context, where the run has counted that."""
    means = result.validation_means
    loss = means.get("validation_masked_loss", result.validation_loss)
    line = f"held-out loss {loss:.3f} nats per {result.symbol or 'target'}"
    if "validation_bits_per_character" in means:
        line += f" ({means['validation_bits_per_character']:.3f} bits per character)"
    line += f", accuracy {100 * result.validation_accuracy:.1f}%"
    masked_only = means.get("validation_masked_only_loss")
    if masked_only is None:
        return [line]
    line += f"; masked only {masked_only:.3f}, {100 * means['validation_masked_only_accuracy']:.1f}%"
    compared = _compared(masked_only, result.baselines, result.clue)
    return [line, compared] if compared else [line]


def loss_of_each(means: Mapping[str, float], paths: Sequence[str]) -> list[str]:
    """A line with the held-out loss on each of several data directories; none of a single one."""
    found = {path: means.get(f"validation_loss_data_{number}") for number, path in enumerate(paths, 1)}
    told = ", ".join(f"{path} {loss:.3f}" for path, loss in found.items() if loss is not None)
    return [f"held-out loss of each: {told}"] if told else []


def _compared(masked_only: float, baselines: Mapping[str, float], clue: str | None) -> str | None:
    """The loss of the hidden targets beside the baselines for the same ones."""
    if "masked_only_unigram" not in baselines:
        return None
    unigram, given = baselines["masked_only_unigram"], baselines["masked_only_clue"]
    line = f"without context, masked only: {unigram:.3f} by frequency"
    if clue is not None:
        line += f", {given:.3f} given {clue}"
    margin = min(unigram, given) - masked_only
    if margin > 0:
        return f"{line}; the model is {margin:.3f} below"
    return f"{line}; the model is NOT below, so no reading is shown"


def context_line(found: Mapping[str, float]) -> str | None:
    """Return in words whether the model uses context, from what `evaluate` found; None without baselines."""
    if "margin" not in found:
        return None
    margin, low, high = (found[f"margin{end}"] for end in ("", "_low", "_high"))
    interval = f"{margin:.2f} nats (95% interval {low:.2f} to {high:.2f})"
    hidden = f"{found['probe']:.2f} nats higher when the context is hidden."
    if low <= 0:
        return (
            f"The model is not yet better than the best guess without context: {interval}. Its loss is {hidden} Train "
            "longer."
        )
    return (
        f"The model uses context: its loss on hidden targets is {interval} below the best guess without context, and "
        f"{hidden}"
    )
