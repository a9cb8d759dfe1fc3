"""Analyze a trained model: spelling in word vectors, attention, hash collisions, scores under noise.

  similarity  Spearman's correlation of the cosine of word vectors with five
              measures of spelling, on word pairs from UniMorph files (--data),
              with intervals by bootstrap over lemmas
  attention   mean attention distance by layer and head, distance of the key
              with most attention, entropy, and shares of attention on CLS, SEP
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
import math

from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes import options

COLUMNS = {  # of the rows, for people; files have all of them
    "similarity": ("language", "kind", "measure", "pairs", "spearman", "low", "high", "mean_cosine"),
    "attention": ("layer", "distance", "strongest", "entropy", "itself", "cls", "sep"),
    "ranks": ("layer", "rank_content", "rank", "rank_positions", "toeplitz"),
    "collisions": ("group", "name", "characters", "hash", "hash_expected", "all", "all_expected"),
    "noise": ("scheme", "rate", "score", "low", "high", "change", "change_low", "change_high"),
}

ANALYSES = tuple(COLUMNS)

SIZES = {"similarity": 2000, "attention": 64, "ranks": 8, "collisions": None, "noise": None}

_ONLY = {
    "seed": ("similarity", "noise"),
    "vectors": ("similarity",),
    "strengths": ("noise",),
    "vocabulary": ("similarity", "attention", "ranks", "collisions"),
}


ARGUMENTS: options.Arguments = {
    "analysis": {"metavar": "ANALYSIS", "choices": ANALYSES, "help": f"one of: {', '.join(ANALYSES)}"},
    "run_folder": {"metavar": "RUN", "help": "folder of a run, or a transformers folder"},
    "--data": {
        "metavar": "PATH",
        "nargs": "+",
        "help": "data directory or text file; for similarity, UniMorph files; for noise, a file of the task",
    },
    "--size": {
        "metavar": "N",
        "type": int,
        "help": "the sample: pairs of each language (default 2000), texts (attention 64, ranks 8), windows of "
        "each split that are counted for collisions (default all), or examples that get noise (default all)",
    },
    "--seed": {
        "metavar": "N",
        "type": options.at_least(0),
        "help": "seed of similarity's pairs and intervals, or of the noise (default 0)",
    },
    "--vectors": {
        "choices": ("down", "output"),
        "help": "for similarity: embeddings before the trunk (down, default; of subwords the table) or after it",
    },
    "--vocabulary": {
        "metavar": "DIR",
        "help": "the data directory with a model's subwords (default: what it was trained on); similarity then takes "
        "only words that are one of its subwords, for any model",
    },
    "--strengths": {
        "metavar": "X",
        "nargs": "+",
        "type": float,
        "help": "for noise: multiples of the share of changed characters in the paper (default 0.5 1 2)",
    },
    "--output": {
        "metavar": "FILE",
        "nargs": "+",
        "help": "also write .json, .csv (a row per head, ...), .png or .svg",
    },
    **options.STEP,
    **options.trust(),
    **options.JSON,
}


def check(args: argparse.Namespace) -> None:
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
    if args.analysis != "similarity" and args.data is not None and len(args.data) > 1:
        raise UserError(f"--data: {args.analysis} reads one data directory or file, not {len(args.data)}")
    min_size = 10 if args.analysis == "similarity" else 1
    if args.size is not None and args.size < min_size:
        raise UserError(f"--size {args.size}: give at least {min_size}")
