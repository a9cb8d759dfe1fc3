"""What `tokenfree preprocess --dry-run` says of a job."""

from __future__ import annotations

from tokenfree.pipelines.dry_run import VOCABULARY_BYTES, WORKER_BYTES, PlanDescription
from tokenfree.workflows.terminal.plans.quantities import money, size_of, time_of
from tokenfree.workflows.terminal.stage_line import counted


def told(plan: PlanDescription, workers: int, price: float | None) -> str:
    """What a job would do, a line each; `price` is that of a worker for an hour."""
    reading = plan.estimated_seconds / min(workers, plan.splits)  # a split is read by one worker
    seconds = reading + plan.vocabulary_seconds
    vocabulary, included, most = "", "", WORKER_BYTES
    if plan.vocabulary_characters:
        time = time_of(plan.vocabulary_seconds)
        vocabulary = f"to train    a vocabulary, on about {plan.vocabulary_characters:,} characters: about {time}\n"
        included, most = ", that of the vocabulary included", VOCABULARY_BYTES
    made = f"{size_of(plan.estimated_output_bytes)} in about {counted(plan.estimated_shards, 'shard')}"
    paid = "" if price is None else f"\nmoney       about {money(price * workers * seconds / 3600)}"
    return (
        f"to read     {counted(plan.inputs, 'input')}, {counted(plan.splits, 'split')}, {size_of(plan.bytes)}\n"
        f"to write    about {plan.estimated_characters:,} characters of text, {made}\n"
        f"{vocabulary}"
        f"time        about {time_of(seconds)} with {counted(workers, 'worker')}{included}\n"
        f"memory      up to {size_of(most)} of the largest process, whatever the input (docs/performance.md)\n"
        f"measured    on its first pages, read here for a second at most; workers count as cores like this one{paid}"
    )
