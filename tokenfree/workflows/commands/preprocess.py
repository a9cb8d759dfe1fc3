"""Turn Wikipedia dumps and books into sharded Arrow windows.

Reads dumps (.xml, .bz2, .gz, .xz, .zst; multistream in parallel) and books (.txt and .jsonl, compressed or
not, and .parquet), cleans them, trains a subword vocabulary (or uses --vocabulary.model), and writes shards
that `datasets.load_from_disk` opens. Run the same command again to resume a job that was killed. Paths are
files, folders (including their links), globs or fsspec URLs (s3://, gs://, memory://).

Examples:
  tokenfree preprocess --wikipedia enwiki-latest-pages-articles-multistream.xml.bz2 --output data/en
  tokenfree preprocess --wikipedia dumps/*.bz2 --books books/ --output data/many --vocabulary.size 64000
  tokenfree preprocess --books corpus/*.jsonl --text_column body --language_column lang --output data/own
  tokenfree preprocess --hf-dataset saved/ wikimedia/wikipedia:20231101.sw --output data/sw
  tokenfree preprocess --wikipedia gs://dumps/*.bz2 --output gs://data/en --runner dataflow -- --project=ours
  tokenfree preprocess --wikipedia dumps/*.bz2 --output /mnt/data/en --profile our-flink.yaml --workers 16
  tokenfree cluster submit -- preprocess --wikipedia s3://dumps/*.bz2 --output s3://data/en --runner ray
"""

import argparse
from typing import TYPE_CHECKING

from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes import library, options
from tokenfree.workflows.terminal.results import counted, money, next_command, size_of, time_of
from tokenfree.workflows.terminal.verbosity import show_settings

if TYPE_CHECKING:
    from tokenfree.pipelines.dry_run import PlanDescription
    from tokenfree.preprocess.dataset.manifest import Manifest

KIND = library.PREPROCESSING  # kind of recipe that the command reads
PASSES_ON = True  # options after `--` go to Beam
MANY_BYTES = 0.05  # share of bytes among a language's subwords above which a warning is printed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_recipe_arguments(parser, KIND, optional=True)
    parser.add_argument(
        "--wikipedia", metavar="PATH", nargs="+", action="extend", help="dump files, globs or URLs"
    )
    parser.add_argument(
        "--books",
        metavar="PATH",
        nargs="+",
        action="extend",
        help="files or folders of text, JSON lines (both also .gz, .bz2, .xz, .zst) or Parquet",
    )
    help_text = "Hugging Face datasets: NAME[:CONFIG][@SPLIT]"
    parser.add_argument("--hf-dataset", metavar="NAME", nargs="+", action="extend", help=help_text)
    parser.add_argument("--output", metavar="DIR", required=True, help="data directory to write")
    engine = parser.add_mutually_exclusive_group()
    runners = ("direct", "ray", "flink", "spark", "dataflow", "prism")
    where = f"where to run: {', '.join(runners)} (default: direct, this machine)"
    engine.add_argument("--runner", metavar="RUNNER", choices=runners, default="direct", help=where)
    engine.add_argument(
        "--profile",
        metavar="FILE",
        help="file with options of a runner, as in pipelines/beam_profiles/*.yaml",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=int,
        help="number of processes (default 1), or of tasks at a time on a cluster; 0: one per CPU",
    )
    parser.add_argument(
        "--check-inputs", action="store_true", help="hash all inputs of a complete job, whatever their times"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show splits, shards, bytes and time, and exit"
    )
    parser.add_argument(
        "--price", metavar="P", type=float, help="price of a worker per hour, for the cost in --dry-run"
    )


def run(args: argparse.Namespace) -> int:
    """Run the job with a live line, and print what was made.

    Raises UserError if recipe or inputs are invalid.
    """
    from tokenfree.core.machine import cores
    from tokenfree.pipelines.dry_run import describe_plan
    from tokenfree.pipelines.preprocess import choose_engine, run_preprocess
    from tokenfree.preprocess.config import PreprocessConfig
    from tokenfree.preprocess.shards.sorted_runs import DATASET_SPLITS
    from tokenfree.preprocess.sources.books import is_book_name
    from tokenfree.preprocess.sources.wikipedia import is_dump_name
    from tokenfree.workflows.terminal.progress import StageLine

    if args.recipe and (is_dump_name(args.recipe) or is_book_name(args.recipe)):
        option = "--wikipedia" if is_dump_name(args.recipe) else "--books"
        raise UserError(f"{args.recipe}: an input, where a recipe is expected; write {option} {args.recipe}")
    config = options.load(
        PreprocessConfig, args, wikipedia=args.wikipedia, books=args.books, hf_dataset=args.hf_dataset
    )
    if not config.wikipedia and not config.books and not config.hf_dataset:
        raise UserError("nothing to read: give --wikipedia PATH, --books PATH or --hf-dataset NAME")
    show_settings(args.verbosity, config)
    if args.price is not None and not (args.dry_run and 0 <= args.price < float("inf")):
        raise UserError(f"--price {args.price:g}: what a worker costs for an hour; it needs --dry-run")
    choose_engine(args.runner, args.workers, args.passed_on, args.profile)  # refuses wrong ones
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


def _print_byte_shares(manifest: "Manifest") -> None:
    from tokenfree.preprocess.dataset.card import byte_shares

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


def estimate(plan: "PlanDescription", workers: int, price: float | None) -> str:
    """Return the plan of a preprocessing job as lines of text. `price` is per worker and hour."""
    from tokenfree.pipelines.dry_run import VOCABULARY_BYTES, WORKER_BYTES

    reading = plan.estimated_seconds / min(workers, plan.splits)  # a split is read by one worker
    seconds = reading + plan.vocabulary_seconds
    vocabulary, included, peak_bytes = "", "", WORKER_BYTES
    if plan.vocabulary_characters:
        time = time_of(plan.vocabulary_seconds)
        vocabulary = (
            f"to train    a vocabulary, on about {plan.vocabulary_characters:,} characters: about {time}\n"
        )
        included, peak_bytes = ", that of the vocabulary included", VOCABULARY_BYTES
    output_size = f"{size_of(plan.estimated_output_bytes)} in about {counted(plan.estimated_shards, 'shard')}"
    paid = "" if price is None else f"\nmoney       about {money(price * workers * seconds / 3600)}"
    return (
        f"to read     {counted(plan.inputs, 'input')}, {counted(plan.splits, 'split')}, {size_of(plan.bytes)}\n"
        f"to write    about {plan.estimated_characters:,} characters of text, {output_size}\n"
        f"{vocabulary}"
        f"time        about {time_of(seconds)} with {counted(workers, 'worker')}{included}\n"
        f"memory      up to {size_of(peak_bytes)} of the largest process, whatever the input (docs/performance.md)\n"
        f"measured    on its first pages, read here for a second at most; workers count as cores like this one{paid}"
    )
