"""Do the work of `tokenfree preprocess`."""

import argparse

from tokenfree.core.errors import UserError
from tokenfree.core.machine import cores
from tokenfree.pipelines.dry_run import VOCABULARY_BYTES, WORKER_BYTES, PlanDescription, describe_plan
from tokenfree.pipelines.preprocess import choose_engine, run_preprocess
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.card import byte_shares, template_line, template_warning
from tokenfree.preprocess.dataset.manifest import Manifest
from tokenfree.preprocess.shards.sorted_runs import DATASET_SPLITS
from tokenfree.preprocess.sources.books import is_book_name
from tokenfree.preprocess.sources.wikipedia import is_dump_name
from tokenfree.workflows.recipes import library
from tokenfree.workflows.terminal.output import one_line
from tokenfree.workflows.terminal.progress import StageLine
from tokenfree.workflows.terminal.results import counted, money, next_command, show_settings, size_of, time_of

# Share of bytes among a language's subwords above which a warning is printed.
MANY_BYTES = 0.05


def run(args: argparse.Namespace) -> int:
    """Run the job with a live line, and print what was made.

    Raises UserError if recipe or inputs are invalid.
    """
    if args.recipe and (is_dump_name(args.recipe) or is_book_name(args.recipe)):
        option = "--wikipedia" if is_dump_name(args.recipe) else "--books"
        raise UserError(f"{args.recipe}: an input, where a recipe is expected; write {option} {args.recipe}")
    config = library.load(
        PreprocessConfig, args, wikipedia=args.wikipedia, books=args.books, hf_dataset=args.hf_dataset
    )
    if not config.wikipedia and not config.books and not config.hf_dataset:
        raise UserError("nothing to read: give --wikipedia PATH, --books PATH or --hf-dataset NAME")
    show_settings(args.verbosity, config)
    if args.price is not None and not (args.dry_run and 0 <= args.price < float("inf")):
        raise UserError(f"--price {args.price:g}: what a worker costs for an hour; it needs --dry-run")
    if args.profile is not None and args.runner != "direct":
        raise UserError(f"--profile {args.profile}: names the runner too; leave out --runner {args.runner}")
    # Refuses wrong ones.
    choose_engine(args.runner, args.workers, args.passed_on, args.profile)
    if args.dry_run:
        workers = cores() if args.workers == 0 else args.workers or 1
        print(estimate(describe_plan(config, args.output), workers, args.price))
        return 0
    with StageLine(verbosity=args.verbosity) as line:
        manifest = run_preprocess(
            config,
            args.output,
            runner=args.runner,
            profile=args.profile,
            workers=args.workers,
            beam_options=args.passed_on,
            check_inputs=args.check_inputs,
            trust_code=args.trust_code,
            progress=line,
            notice=line.message,
        )
    if line.stage == "complete":
        print(f"{args.output}: already complete; nothing to do")
    for name, split in manifest.splits.items():
        documents, windows = counted(split.documents, "document"), counted(split.rows, "window")
        counts = f"{documents}, {windows}, {split.characters:,} characters"
        print(f"  {name:<12}{counts}, {counted(len(split.shards), 'shard')} in {args.output}/{name}")
    subwords = manifest.vocabulary_size
    if subwords is not None and config.vocabulary.model is None:
        small = (
            "" if subwords == config.vocabulary.size else f" (the corpus holds no {config.vocabulary.size:,})"
        )
        print(f"  vocabulary  {subwords:,} subwords{small}")
    _print_byte_shares(manifest)
    for text in filter(None, (template_line(manifest.counters), template_warning(manifest.counters))):
        print(f"  templates   {one_line(text)}")
    if failed := manifest.counters["failed"]:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in failed.items())
        pages = counted(sum(failed.values()), "page")
        print(
            f"  failed      {pages} ({reasons}): see {args.output}/failures, or tokenfree replay {args.output}"
        )
    print(f"  card        {args.output}/README.md")
    empty = [name for name in DATASET_SPLITS if name not in manifest.splits]
    if empty:
        key = f"--validation_fraction (now {config.validation_fraction:g})"
        print(
            f"  note        no text for {' and '.join(empty)}, which pretrain needs: give more text, or another {key}"
        )
    else:
        print(next_command("pretrain", "canine-fast-tiny", "--data", args.output, "--output", "runs/first"))
    return 0


def _print_byte_shares(manifest: Manifest) -> None:
    shares = byte_shares(manifest)
    if shares:
        listed = ", ".join(f"{language} {share:.1%}" for language, share in shares.items())
        print(f"  bytes       {listed} of the subwords")
    if many := [f"{language} {share:.1%}" for language, share in shares.items() if share > MANY_BYTES]:
        coverage = manifest.config["vocabulary"]["character_coverage"]
        print(
            f"  warning     More than {MANY_BYTES:.0%} of the subwords are bytes, which are not targets: "
            f"{', '.join(many)}. Increase --vocabulary.character_coverage (now {coverage:g}) or --vocabulary.size."
        )


def estimate(plan: PlanDescription, workers: int, price: float | None) -> str:
    """Return the plan of a preprocessing job as lines of text. `price` is per worker and hour."""

    # A split is read by one worker.
    seconds = plan.estimated_seconds / min(workers, plan.splits) + plan.vocabulary_seconds
    vocabulary, included, peak_bytes = "", "", WORKER_BYTES + plan.window_bytes
    if plan.vocabulary_characters:
        time = time_of(plan.vocabulary_seconds)
        vocabulary = (
            f"to train    a vocabulary, on about {plan.vocabulary_characters:,} characters: about {time}\n"
        )
        included, peak_bytes = ", that of the vocabulary included", max(peak_bytes, VOCABULARY_BYTES)
    output_size = f"{size_of(plan.estimated_output_bytes)} in about {counted(plan.estimated_shards, 'shard')}"
    paid = "" if price is None else f"\nmoney       about {money(price * workers * seconds / 3600)}"
    return (
        f"to read     {counted(plan.inputs, 'input')}, {counted(plan.splits, 'split')}, {size_of(plan.bytes)}\n"
        f"to write    about {plan.estimated_characters:,} characters of text, {output_size}\n"
        f"{vocabulary}"
        f"time        about {time_of(seconds)} with {counted(workers, 'worker')}{included}\n"
        f"disk        up to about {size_of(plan.estimated_disk_bytes)} while it runs\n"
        f"memory      up to {size_of(peak_bytes)} of the largest process, whatever the input (docs/performance.md)\n"
        f"measured    on its first pages, read here for a second at most; workers count as cores like this one{paid}"
    )
