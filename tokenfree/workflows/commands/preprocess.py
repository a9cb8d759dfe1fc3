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

from tokenfree.workflows.recipes import options
from tokenfree.workflows.recipes.kinds import PREPROCESSING as KIND

PASSES_ON = True  # options after `--` go to Beam


_RUNNERS = ("direct", "ray", "beam", "flink", "spark", "dataflow", "prism")
ARGUMENTS: options.Arguments = {
    **options.recipe(KIND, optional=True),
    "--wikipedia": {
        "metavar": "PATH",
        "nargs": "+",
        "action": "extend",
        "help": "dump files, globs or URLs",
    },
    "--books": {
        "metavar": "PATH",
        "nargs": "+",
        "action": "extend",
        "help": "files or folders of text, JSON lines (both also .gz, .bz2, .xz, .zst) or Parquet",
    },
    "--hf-dataset": {
        "metavar": "NAME",
        "nargs": "+",
        "action": "extend",
        "help": "Hugging Face datasets: NAME[:CONFIG][@SPLIT]",
    },
    "--output": {"metavar": "DIR", "required": True, "help": "data directory to write"},
    "--runner": {
        "metavar": "RUNNER",
        "choices": _RUNNERS,
        "default": "direct",
        "help": f"where to run: {', '.join(_RUNNERS)} (default: direct, this machine)",
    },
    "--profile": {
        "metavar": "FILE",
        "help": "file with options of a runner; docs/engines.md has examples",
    },
    "--workers": {
        "metavar": "N",
        "type": int,
        "help": "number of processes (default 1), or of tasks at a time on a cluster; 0: one per CPU",
    },
    "--check-inputs": {
        "action": "store_true",
        "help": "hash all inputs of a complete job, whatever their times",
    },
    "--dry-run": {"action": "store_true", "help": "show splits, shards, bytes and time, and exit"},
    "--price": {
        "metavar": "P",
        "type": float,
        "help": "price of a worker per hour, for the cost in --dry-run",
    },
}
