"""What is said of the scores of a task, and of what a fine-tuned model finds in a text."""

from collections.abc import Iterator, Mapping
from typing import Any


def score_lines(scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A line for each split that has scores, the main one first; those of single classes are left out."""
    return [
        f"{split:<6}" + ", ".join(f"{name} {value:.4f}" for name, value in values.items() if "/" not in name)
        for split, values in scores.items()
        if values
    ]


def prediction_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What was found in one text, for people."""
    if "answer" in found:
        span = found["span"]
        yield f"{span['start']:>6}:{span['end']:<6} {found['answer']}" if found["answer"] else "no answer"
    elif "spans" in found:
        yield from (_span(span) for span in found["spans"]) if found["spans"] else ("nothing found",)
    elif "tags" in found:
        yield " ".join(f"{word}/{tag}" for word, tag in zip(found["words"], found["tags"], strict=True))
    elif "probabilities" in found:
        by_share = sorted(found["probabilities"].items(), key=lambda each: -each[1])
        yield ", ".join(f"{label} {100 * share:.1f}%" for label, share in by_share[:5])
    else:
        yield ", ".join(f"{name} {value}" for name, value in found.items())


def _span(span: Mapping[str, Any]) -> str:
    return f"{span['start']:>6}:{span['end']:<6} {span['label']:<8} {span['text']}"
