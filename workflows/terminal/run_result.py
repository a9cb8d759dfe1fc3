"""What is said of a pretraining run that has ended."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenfree.train.pretrain import PretrainResult


def loss_line(result: "PretrainResult") -> str:
    """The held-out loss beside the unigram entropy of the targets, which a model beats only by reading."""
    means = result.validation_means
    loss = means.get("validation_masked_loss", result.validation_loss)
    line = f"held-out loss {loss:.3f} nats per {result.symbol or 'target'}"
    if "validation_bits_per_character" in means:
        line += f" ({means['validation_bits_per_character']:.3f} bits per character)"
    if result.unigram_entropy is None:
        return line
    below = "below" if loss < result.unigram_entropy else "NOT below"
    return f"{line}, {below} the unigram entropy of the targets, {result.unigram_entropy:.3f}"
