"""The values that fill page.md, the template of docs/results.md: each comes from a line of results."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.results.verdicts import (
    BETTER,
    EQUAL,
    NATS_MARGIN,
    SCORE_MARGIN,
    WORSE,
    compare,
)

Line = dict[str, Any]
Lines = Mapping[str, Line]


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:]])


def pretraining_values(lines: Lines, earlier: Lines) -> dict[str, str]:
    """Return the values of the sections on pretraining.

    Args:
        lines: Lines of the queue, by run.
        earlier: Lines of runs outside the queue, by run.
    """
    english = earlier["english-baseline"]["scores"]
    long, gpu = lines["text-long-0"], lines["all-gpu-0"]
    corpus, part = earlier["all-corpus"]["scores"], earlier["all-gpu-0-english"]["scores"]
    canine_s = [line["evaluation"]["margin"] for line in lines.values() if line["row"] == "canine-s"]
    sweep = earlier["parts-sweep"]["scores"]
    return {
        "english_millions": f"{english['characters'] / 1e6:.1f}",
        "english_targets": f"{english['targets']:,}",
        "english_baseline": f"{english['loss']:.2f}",
        "pretraining": _pretraining(earlier),
        "canine_s_margin": f"{statistics.fmean(canine_s):.2f}",
        "canine_s_minutes": f"{earlier['canine-s-minutes']['scores']['cpu_minutes']:.0f}",
        "long_minutes": f"{long['cpu_seconds'] / 60:.0f}",
        "long_margin": _nats(long["evaluation"]),
        "long_losses": _losses(earlier["text-long-0-losses"]),
        "linear_path": _linear_path(earlier),
        "linear_path_verdict": compare(
            [earlier["linear-path-words-0"]["scores"]["margin"]],
            [earlier["linear-path-fast-0"]["scores"]["margin"]],
            NATS_MARGIN,
        ).verdict,
        "gpu_device": gpu["device"],
        "gpu_steps": f"{gpu['evaluation']['step']:,}",
        "gpu_batch": _option(gpu, "train.global_batch"),
        "gpu_millions": f"{gpu['characters'] / 1e6:.0f}",
        "gpu_seconds": f"{gpu['seconds']:.0f}",
        "gpu_margin": _nats(gpu["evaluation"]),
        "gpu_english": f"{part['margin']:.2f}",
        "gpu_probe": f"{gpu['evaluation']['probe']:.2f}",
        "gpu_losses": _losses(earlier["all-gpu-0-losses"]),
        "corpus_millions": f"{corpus['characters'] / 1e6:.0f}",
        "sweep_hyperparameters": str(sweep["hyperparameters"]),
        "sweep_trials": str(sweep["trials"]),
        "sweep_limit": str(sweep["limit_cpu_seconds"]),
        "sweep_completed": str(sweep["completed"]),
        "sweep_hidden": f"{sweep['mask_fraction']:.0%}",
        "sweep": _sweep(earlier),
        "sweep_verdict": _sweep_verdict(earlier),
        "nats_margin": f"{NATS_MARGIN}",
        "score_margin": f"{100 * SCORE_MARGIN:g}",
        "concatenation": _concatenation(lines),
        "mirrored_length": _option(lines["mirrored-2-0"], "task.length"),
    }


def of_run(lines: Lines, start: str) -> list[Line]:
    """Return the lines whose runs begin with a text."""
    return [line for run, line in lines.items() if run.startswith(start)]


def _pretraining(earlier: Lines) -> str:
    head = ["steps", "seed", "CPU minutes", "loss"]
    head += ["below the best guess without context (95% interval)", "context probe"]
    rows = []
    for line in of_run(earlier, "fast-"):
        scores = line["scores"]
        start = [f"{scores['steps']:,}", str(line["seed"]), f"{scores['cpu_minutes']:.1f}"]
        rows.append([*start, f"{scores['loss']:.2f}", _margin(scores), f"{scores['probe']:.2f}"])
    return markdown_table(head, rows)


def _linear_path(earlier: Lines) -> str:
    head = ["recipe", "steps", "loss", "below the best guess", "context probe"]
    head.append("F1 of names after fine-tuning: EWT, Swahili")
    rows = []
    for run in ("linear-path-fast-0", "linear-path-words-0"):
        line, scores = earlier[run], earlier[run]["scores"]
        names = ", ".join(f"{earlier[f'{run}-{name}']['scores']['f1']:.3f}" for name in ("ewt", "swa"))
        cells = [f"`{line['model']}`", f"{scores['steps']:,}", f"{scores['loss']:.2f}"]
        rows.append([*cells, _margin(scores), f"{scores['probe']:.2f}", names])
    counts = earlier["linear-path-counts"]
    rows.append([counts["model"], "", f"{counts['scores']['loss']:.2f}", "", "", ""])
    return markdown_table(head, rows)


def _sweep(earlier: Lines) -> str:
    rows = []
    for start, label in (("parts-default-", "`canine-fast-tiny`"), ("parts-best-", "the best trial")):
        scores = [line["scores"] for line in of_run(earlier, start)]
        seconds = _joined([f"{values['cpu_seconds']:.0f}" for values in scores])
        rows.append([label, seconds, _joined([f"{values['margin']:.2f}" for values in scores])])
    seeds = [line["seed"] for line in of_run(earlier, "parts-best-")]
    margin = f"nats below the best guess without context, seeds {min(seeds)} to {max(seeds)}"
    return markdown_table(["settings", "CPU seconds", margin], rows)


def _sweep_verdict(earlier: Lines) -> str:
    """Return how the best trial of the sweep compares, in words that the recipe's name follows."""
    best, default = (
        [line["scores"]["margin"] for line in of_run(earlier, start)]
        for start in ("parts-best-", "parts-default-")
    )
    words = {BETTER: "better than", WORSE: "worse than", EQUAL: "as good as"}
    return words.get(compare(best, default, NATS_MARGIN).verdict, "not clearly different from")


def _concatenation(lines: Lines) -> str:
    """Return by how many nats the loss is lower if UP receives the characters."""
    base, without = (
        [line["evaluation"]["validation_masked_only_loss"] for line in lines.values() if line["row"] == row]
        for row in ("claim-base", "claim-no-concatenation")
    )
    return f"{statistics.fmean(without) - statistics.fmean(base):.3f}"


def _losses(line: Line) -> str:
    return markdown_table(
        [f"{int(step):,}" for step in line["scores"]],
        [[f"{loss:.2f}" for loss in line["scores"].values()]],
    )


def _margin(scores: Mapping[str, float]) -> str:
    return f"{scores['margin']:.2f} ({scores['margin_low']:.2f} to {scores['margin_high']:.2f})"


def _nats(scores: Mapping[str, float]) -> str:
    return f"{scores['margin']:.2f} nats ({scores['margin_low']:.2f} to {scores['margin_high']:.2f})"


def _joined(texts: Sequence[str]) -> str:
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def _option(line: Line, key: str) -> str:
    words = line["command"].split()
    return words[words.index(f"--{key}") + 1]
