"""Results that commands print at their end: losses, scores, predictions, the next command; also times and sizes."""

import importlib.util
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from tokenfree.core.machine import install_command
from tokenfree.core.settings_values import to_mapping
from tokenfree.workflows.terminal.output import Verbosity

if TYPE_CHECKING:
    from tokenfree.train.pretrain import PretrainResult


# Smaller groups are left out, because their means are unreliable.
FEW = 100
Groups = Sequence[Mapping[str, Any]]


def breakdown_lines(languages: Groups, scripts: Groups) -> Iterator[str]:
    """Yield a table of languages and one of scripts, each if it has several groups of at least `FEW` targets."""
    for kind, groups in (("language", languages), ("script", scripts)):
        large = [group for group in groups if group["targets"] >= FEW]
        if len(large) < 2:
            continue
        heading = f"hidden targets, by {kind}"
        yield f"{heading:<32}{'targets':>10}{'loss, nats':>12}{'accuracy':>10}{'no context':>12}"
        for group in large:
            means = f"{group['loss']:>12.3f}{group['accuracy']:>10.1%}{group['without_context']:>12.3f}"
            yield f"{group['name'] or 'no letters':<32}{group['targets']:>10,}{means}"


# Values that only the user knows; not quoted.
_PLACEHOLDERS = {"DIR", "NEW_DIRECTORY", "RECIPE", "RUN"}


def next_command(*arguments: str, program: str = "tokenfree") -> str:
    """Return the line that names `PROGRAM ARGUMENTS` as the next command, quoted for a shell."""
    words = [word if word in _PLACEHOLDERS else shlex.quote(word) for word in arguments]
    lacks_train = arguments[0] in ("pretrain", "report") and importlib.util.find_spec("ray") is None
    install = f"{install_command('train')} && " if lacks_train else ""
    return f"  next        {install}{program} {' '.join(words)}"


def short(number: float) -> str:
    """Return a number in a few characters: 950, 1.2k, 3.4M."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{suffix}"
    return f"{number:.0f}"


def clock(seconds: float) -> str:
    """Return a time as 0:07 or 1:02:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def counted(number: int, noun: str) -> str:
    """Return `1 shard`, `2 shards`, `1,000 shards`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def time_of(seconds: float) -> str:
    """Return `40 seconds`, `12 minutes`, `3.4 hours` or `12.5 days`."""
    if seconds < 120:
        return counted(max(1, round(seconds)), "second")
    if seconds < 7200:
        return counted(round(seconds / 60), "minute")
    return f"{seconds / 3600:,.1f} hours" if seconds < 72 * 3600 else f"{seconds / 86400:,.1f} days"


def size_of(num_bytes: float) -> str:
    """Return `512 MB`, `3.4 GB` or `21.0 TB`."""
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes / 1e6:,.3g} MB" if num_bytes < 1e7 else f"{num_bytes / 1e6:,.0f} MB"


def money(amount: float) -> str:
    """Return `681.31` or `0.0012`, in the currency of the price."""
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.2g}"


def loss_lines(result: "PretrainResult") -> list[str]:
    """Return the held-out loss.

    A second line compares it with context-free baselines, if the run has counted them.
    """
    means = result.validation_means
    loss = means.get("validation_masked_loss", result.validation_loss)
    line = f"held-out loss {loss:.3f} nats per {result.symbol or 'target'}"
    if "validation_bits_per_character" in means:
        line += f" ({means['validation_bits_per_character']:.3f} bits per character)"
    line += f", accuracy {100 * result.validation_accuracy:.1f}%"
    masked_only = means.get("validation_masked_only_loss")
    if masked_only is None:
        return [line]
    line += (
        f"; on hidden targets {masked_only:.3f} nats, {100 * means['validation_masked_only_accuracy']:.1f}%"
    )
    compared = _compared(masked_only, result)
    return [line, compared] if compared else [line]


def loss_of_each(means: Mapping[str, float], paths: Sequence[str]) -> list[str]:
    """Return a line with the held-out loss on each of several data directories, or no line for a single one."""
    loss_by_path = {path: means.get(f"validation_loss_data_{number}") for number, path in enumerate(paths, 1)}
    losses = ", ".join(f"{path} {loss:.3f}" for path, loss in loss_by_path.items() if loss is not None)
    return [f"held-out loss of each: {losses}"] if losses else []


def _compared(masked_only: float, result: "PretrainResult") -> str | None:
    if "masked_only_unigram" not in result.baselines:
        return None
    unigram, clue_loss = result.baselines["masked_only_unigram"], result.baselines["masked_only_clue"]
    line = f"best guess without context: {unigram:.3f} nats by the frequency of a {result.symbol or 'target'}"
    if result.clue is not None:
        line += f", {clue_loss:.3f} nats given {result.clue}"
    margin = min(unigram, clue_loss) - masked_only
    if margin > 0:
        return f"{line}; the model is {margin:.3f} nats below{_against_counts(masked_only, result)}"
    return f"{line}; the model is {-margin:.3f} nats above. It does not use context yet: train longer"


def _against_counts(masked_only: float, result: "PretrainResult") -> str:
    counts = result.baselines.get("masked_only_neighbours")
    if counts is None:
        return ""
    side = "below" if masked_only < counts else "above"
    return f". It is {abs(counts - masked_only):.3f} nats {side} the counts of both neighbours, {counts:.3f}"


_METRICS = {
    "validation_loss": "held-out loss, nats",
    "validation_accuracy": "held-out accuracy",
    "validation_masked_only_loss": "loss on hidden targets, nats",
    "validation_masked_only_accuracy": "accuracy on hidden targets",
    "validation_targets": "held-out targets",
    "baseline_unigram": "baseline by frequency, nats",
    "baseline_clue": "baseline by frequency and length, nats",
    "baseline_copied": "the same, and visible targets known, nats",
    "baseline_masked_only_unigram": "hidden: by frequency, nats",
    "baseline_masked_only_clue": "hidden: by frequency and length, nats",
    "baseline_masked_only_neighbours": "hidden: counts of both neighbours, nats",
    "margin": "below the best baseline, nats",
    "margin_neighbours": "below the counts of neighbours, nats",
    "probe_blank": "rise without the context, nats",
    "probe_other": "rise with another context, nats",
    "probe": "rise, the smaller of the two, nats",
}


def metric_lines(metrics: Mapping[str, float]) -> Iterator[str]:
    for name, value in metrics.items():
        if name.endswith(("_low", "_high")):
            continue
        text = f"{value:,.4f}" if isinstance(value, float) else f"{value:,}"
        if f"{name}_low" in metrics:
            text += f"  (95% interval {metrics[f'{name}_low']:.4f} to {metrics[f'{name}_high']:.4f})"
        yield f"{_METRICS.get(name, name.replace('_', ' ')):<42}{text}"


def margin_text(margin: float, low: float | None, high: float | None, per: str = "") -> str:
    """Return `0.59 nats (95% interval 0.45 to 0.74) below`.

    Of a loss above, margin and interval change their signs.
    """
    sign, side = (1, "below") if margin > 0 else (-1, "above")
    first, last = (None, None) if low is None or high is None else sorted((sign * low, sign * high))
    interval = "" if first is None else f" (95% interval {first:z.2f} to {last:z.2f})"
    return f"{abs(margin):.2f} nats{per}{interval} {side}"


def context_line(metrics: Mapping[str, float]) -> str | None:
    """Return a sentence on whether the model uses context, given the results of `evaluate`; None without baselines."""
    if "margin" not in metrics:
        return None
    low, best = metrics.get("margin_low"), "the best guess without context"
    margin = margin_text(metrics["margin"], low, metrics.get("margin_high"))
    hidden = f"{metrics['probe']:z.2f} nats higher when the context is hidden or replaced."
    if low is None:
        return f"One window does not show whether the model uses context: its loss is {margin} {best}, and {hidden}"
    if low <= 0:
        return f"The model is not yet better than {best}: {margin}. Its loss is {hidden} Train longer."
    return f"The model uses context: its loss on hidden targets is {margin} {best}, and {hidden}"


def score_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each split with its scores, the main one first, and one with the baselines' main score.

    `result` is the content of a result.json. Scores of single classes are omitted.
    """
    from tokenfree.train.runs.formats import main_baselines

    for split in ("dev", "test"):
        scores = result.get(split)
        if scores:
            values = ", ".join(f"{name} {value:.4f}" for name, value in scores.items() if "/" not in name)
            yield f"{split:<6}{values}"
            baseline_scores = ", ".join(
                f"{value:.4f} ({name})" for name, value in main_baselines(result, split).items()
            )
            if baseline_scores:
                yield f"      baseline: {next(iter(scores))} {baseline_scores}{_sampled(result, split)}"


def _sampled(result: Mapping[str, Any], split: str) -> str:
    lines = result.get("baseline_lines") or {}
    parts = [
        (what, lines[name]) for what, name in (("fitted to", "train"), ("scored on", split)) if name in lines
    ]
    return "".join(f", {what} {used:,} of {whole:,} lines" for what, (used, whole) in parts)


def prediction_lines(prediction: Mapping[str, Any]) -> Iterator[str]:
    if "answer" in prediction:
        span = prediction["span"]
        yield (
            f"{span['start']:>6}:{span['end']:<6} {prediction['answer']}"
            if prediction["answer"]
            else "no answer"
        )
    elif "spans" in prediction:
        yield from (
            (_span(span) for span in prediction["spans"]) if prediction["spans"] else ("nothing found",)
        )
    elif "tags" in prediction:
        yield " ".join(
            f"{word}/{tag}" for word, tag in zip(prediction["words"], prediction["tags"], strict=True)
        )
    elif "probabilities" in prediction:
        by_share = sorted(prediction["probabilities"].items(), key=lambda item: -item[1])
        yield ", ".join(f"{label} {100 * share:.1f}%" for label, share in by_share[:5])
    else:
        yield ", ".join(f"{name} {value}" for name, value in prediction.items())


def _span(span: Mapping[str, Any]) -> str:
    return f"{span['start']:>6}:{span['end']:<6} {span['label']:<8} {span['text']}"


def show_settings(verbosity: Verbosity, settings: Any) -> None:
    if verbosity == "verbose":
        print(
            f"settings\n{yaml.safe_dump(to_mapping(settings), sort_keys=False, allow_unicode=True)}",
            file=sys.stderr,
        )
