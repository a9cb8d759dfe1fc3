"""Analyze a trained model: spelling in word vectors, attention, hash collisions, scores under noise.

  similarity  Spearman's correlation of the cosine of word vectors with five
              measures of spelling, on word pairs from UniMorph files (--data),
              with intervals by bootstrap over lemmas
  attention   mean attention distance by layer and head, entropy, and shares of
              attention on CLS and SEP
  ranks       ranks of attention matrices before softmax, and the part of a
              position code that depends on i - j
  collisions  characters of a corpus that share buckets of a hash embedder, by
              language and script, compared with the number expected by chance
  noise       scores of a fine-tuned run on a file of examples (--data, by
              default its --dev) with characters dropped, repeated, upper-cased
              or of random case, for several shares of the characters
              (--strengths)

RUN is the folder of a run, or a folder written by `tokenfree export --to huggingface` or transformers.
`attention` and `ranks` examine the trunk on held-out windows of a data directory or on lines of a text file
(--data). By default they and `collisions` use the data that the run was pretrained on.

Examples:
  tokenfree analyze similarity runs/byte2word --data unimorph/eng --output similarity.csv
  tokenfree analyze attention runs/tiny --output distances.svg
  tokenfree analyze ranks runs/diet --data texts.txt --json
  tokenfree analyze collisions runs/tiny --data data/ja
  tokenfree analyze noise runs/sst --data sst/stsa.binary.dev --output noise.csv noise.png
"""

import argparse
import json
import math
from typing import Any

from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes.options import add_step_argument, add_trust_argument

_COLUMNS = {  # of the rows, for people; files have all of them
    "similarity": ("language", "kind", "measure", "pairs", "spearman", "low", "high", "mean_cosine"),
    "attention": ("layer", "distance", "entropy", "itself", "cls", "sep"),
    "ranks": ("layer", "rank_content", "rank", "rank_positions", "toeplitz"),
    "collisions": ("group", "name", "characters", "hash", "hash_expected", "all", "all_expected"),
    "noise": ("scheme", "rate", "score", "low", "high", "change", "change_low", "change_high"),
}
_MAX_ROWS = 40
ANALYSES = tuple(_COLUMNS)
SIZES = {"similarity": 2000, "attention": 64, "ranks": 8, "collisions": None, "noise": None}
_ONLY = {
    "seed": ("similarity", "noise"),
    "vectors": ("similarity",),
    "strengths": ("noise",),
    "vocabulary": ("similarity", "attention", "ranks", "collisions"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "analysis", metavar="ANALYSIS", choices=ANALYSES, help=f"one of: {', '.join(ANALYSES)}"
    )
    parser.add_argument("run_folder", metavar="RUN", help="folder of a run, or a transformers folder")
    parser.add_argument(
        "--data",
        metavar="PATH",
        nargs="+",
        help="data directory or text file; for similarity, UniMorph files; for noise, a file of the task",
    )
    parser.add_argument(
        "--size",
        metavar="N",
        type=int,
        help="the sample: pairs of each language (default 2000), texts (attention 64, ranks 8), windows of each split "
        "that are counted for collisions (default all), or examples that get noise (default all)",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=int,
        help="seed of similarity's pairs and intervals, or of the noise (default 0)",
    )
    parser.add_argument(
        "--vectors",
        choices=("down", "output"),
        help="for similarity: embeddings before the trunk (down, default; of subwords the table) or after it",
    )
    parser.add_argument(
        "--vocabulary",
        metavar="DIR",
        help="the data directory with a model's subwords (default: what it was trained on); similarity then takes only "
        "words that are one of its subwords, for any model",
    )
    parser.add_argument(
        "--strengths",
        metavar="X",
        nargs="+",
        type=float,
        help="for noise: multiples of the share of changed characters in the paper (default 0.5 1 2)",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        nargs="+",
        help="also write .json, .csv (a row per head, ...), .png or .svg",
    )
    add_step_argument(parser)
    add_trust_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    from tokenfree.workflows.report.analyses import check_output, write_analysis

    _check(args)
    for path in args.output or ():
        check_output(path)
    results = _analyse(args)
    for path in args.output or ():
        write_analysis(results, path)
    if args.json:
        print(json.dumps(results, ensure_ascii=False))
        return 0
    _show(results)
    for path in args.output or ():
        print(f"written to {path}")
    return 0


def _analyse(args: argparse.Namespace) -> dict[str, Any]:
    from tokenfree.train.analyses.attention import attention_distances, attention_ranks
    from tokenfree.train.analyses.collisions import collisions
    from tokenfree.train.analyses.similarity import similarity
    from tokenfree.train.analyses.subject import load_model, load_named_vocabulary, sample_texts

    if args.analysis == "noise":
        return _noise(args)
    model = load_model(
        args.run_folder, step=args.step, vocabulary=args.vocabulary, trust_code=args.trust_code
    )
    size = SIZES[args.analysis] if args.size is None else args.size
    if args.analysis == "similarity":
        only = None if args.vocabulary is None else load_named_vocabulary(args.vocabulary)
        place = args.vectors or "down"
        return similarity(model, args.data, size, seed=args.seed or 0, place=place, vocabulary=only)
    data = None if args.data is None else args.data[0]
    if args.analysis == "collisions":
        return collisions(model, data, size)
    analysis = attention_distances if args.analysis == "attention" else attention_ranks
    return analysis(model, sample_texts(model, data, size))


def _noise(args: argparse.Namespace) -> dict[str, Any]:
    from tokenfree.train.analyses.noise import STRENGTHS, noise_scores
    from tokenfree.train.inference.finetuned import load_finetuned
    from tokenfree.train.runs.config import read_finetuned

    model = load_finetuned(args.run_folder, step=args.step, trust_code=args.trust_code)
    files = read_finetuned(args.run_folder, trust_code=args.trust_code).files
    data = files.get("dev") if args.data is None else args.data[0]
    strengths = args.strengths or STRENGTHS
    return noise_scores(
        model, args.run_folder, data, strengths=strengths, seed=args.seed or 0, max_examples=args.size
    )


def _show(results: dict[str, Any]) -> None:
    """Print the facts of an analysis, and a table of its rows: means over the heads of a layer, or all rows."""
    from rich.table import Table

    from tokenfree.core.settings import flatten
    from tokenfree.workflows.terminal.progress import console

    facts = {key: value for key, value in flatten(results) if isinstance(value, (str, int, float))}
    rows = results["rows"]
    if "layer" in rows[0]:
        layers = dict.fromkeys(row["layer"] for row in rows)
        rows = [_mean([row for row in rows if row["layer"] == layer]) for layer in layers]
    names = [name for name in _COLUMNS[results["analysis"]] if any(row[name] is not None for row in rows)]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in names:
        table.add_column(
            name.replace("_", "\n"), justify="left" if isinstance(rows[0][name], str) else "right"
        )
    for row in rows[:_MAX_ROWS]:
        table.add_row(*(_cell(row[name]) for name in names))
    out = console()
    out.print(", ".join(f"{key.replace('_', ' ')} {_cell(value)}" for key, value in facts.items()))
    out.print(table)
    if len(rows) > _MAX_ROWS:
        out.print(f"and {len(rows) - _MAX_ROWS} more; --output writes all")


def _mean(rows: list[dict[str, Any]]) -> dict[str, Any]:
    columns = {name: [row[name] for row in rows if row[name] is not None] for name in rows[0]}
    return {name: sum(values) / len(values) if values else None for name, values in columns.items()}


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _check(args: argparse.Namespace) -> None:
    """Raise UserError for options that the analysis does not use, and for sizes that are too small."""
    if args.analysis == "similarity" and args.data is None:
        raise UserError("similarity needs --data with UniMorph files, such as --data unimorph/eng")
    for name, analyses in _ONLY.items():
        if args.analysis not in analyses and getattr(args, name) is not None:
            raise UserError(
                f"--{name} is for {' and '.join(analyses)} alone; leave it out of {args.analysis}"
            )
    if args.strengths is not None and not all(0 < strength < math.inf for strength in args.strengths):
        raise UserError(
            f"--strengths {' '.join(f'{value:g}' for value in args.strengths)}: give numbers above 0"
        )
    if args.seed is not None and args.seed < 0:
        raise UserError(f"--seed {args.seed}: give 0 or more")
    if args.analysis != "similarity" and args.data is not None and len(args.data) > 1:
        raise UserError(f"--data: {args.analysis} reads one data directory or file, not {len(args.data)}")
    min_size = 10 if args.analysis == "similarity" else 1
    if args.size is not None and args.size < min_size:
        raise UserError(f"--size {args.size}: give at least {min_size}")
