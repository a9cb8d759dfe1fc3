"""What tokenfree does, seen from outside: through its command line and the files that design promises."""

import contextlib
import hashlib
import io
import json
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from safetensors.torch import load_file

from tests.golden.inputs import write_inputs, write_rows
from tokenfree.workflows import cli
from tokenfree.workflows.recipes import library

FOLDER = Path(__file__).parent
VOCABULARY = FOLDER / "kept" / "data" / "vocabulary" / "subwords.model"
STEPS = 20


def load(name: str) -> dict[str, Any]:
    """Return the golden values `data`, `recipes` or `commands`."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def shown(values: dict[str, Any]) -> str:
    """Return the values as JSON with a line for each name of the two upper levels, for short differences."""

    def lines(value: Any, depth: int) -> str:
        if not isinstance(value, dict) or depth == 0 or not value:
            return json.dumps(value, ensure_ascii=False)
        inner = (
            f"{' ' * (3 - depth)}{json.dumps(key)}: {lines(each, depth - 1)}" for key, each in value.items()
        )
        return "{\n" + ",\n".join(inner) + "\n" + " " * (2 - depth) + "}"

    return lines(values, 3 if "small" in values else 2) + "\n"


def call(*argv: str) -> tuple[int, str, str]:
    """Run `tokenfree` in this process; return exit status, standard output and standard error."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            status = cli.main(list(argv))
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, out.getvalue(), errors.getvalue()


def _done(*argv: str) -> None:
    status, _, errors = call(*argv)
    assert status == 0, errors


@contextlib.contextmanager
def inputs(folder: Path) -> Iterator[dict[str, list[str]]]:
    """Write the inputs of preprocessing and make `folder` the working directory; yields the arguments of each."""
    with contextlib.chdir(folder):
        yield write_inputs(folder)


def real_inputs(test_data: Path) -> dict[str, list[str]]:
    """Return the arguments of `tokenfree preprocess` for real dumps and books."""
    dumps = test_data / "wiki-dumps"
    return {
        "single stream": [
            "--wikipedia",
            str(dumps / "ltgwiki-pages-articles.xml.bz2"),
            "--vocabulary.size",
            "2000",
        ],
        "plain dump": ["--wikipedia", str(dumps / "zhwiki-excerpt.xml"), "--vocabulary.size", "8000"],
        "books": [
            "--books",
            str(test_data / "books" / "de"),
            "--language",
            "de",
            "--vocabulary.size",
            "2000",
        ],
    }


def directory(arguments: Sequence[str], output: str, workers: int) -> dict[str, Any]:
    """Preprocess; return the hashes of the directory, of each shard, and of each column of each split."""
    _done("preprocess", *arguments, "--output", output, "--workers", str(workers))
    manifest = json.loads(Path(output, "manifest.json").read_text())
    columns: dict[str, Any] = {}
    for split, of in manifest["splits"].items():
        digests: dict[str, Any] = {}
        for shard in of["shards"]:
            with pa.ipc.open_stream(f"{output}/{shard['path']}") as reader:
                for batch in reader:
                    for name, column in zip(batch.schema.names, batch.columns, strict=True):
                        digests.setdefault(name, hashlib.sha256()).update(
                            json.dumps(column.to_pylist()).encode()
                        )
        columns[split] = {name: digest.hexdigest()[:16] for name, digest in digests.items()}
    return {
        "fingerprint": manifest["fingerprint"],
        "vocabulary": manifest["vocabulary_sha256"],
        "counters": manifest["counters"],
        "shards": {
            shard["path"]: shard["sha256"] for of in manifest["splits"].values() for shard in of["shards"]
        },
        "columns": columns,
    }


def machine() -> str:
    """Return what the last digits of a loss depend on."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model")]
    model = " ".join(name.split(":")[1].strip() for name in names[:2])
    return (
        f"torch {torch.__version__}, {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, {model}"
    )


def tiny_recipes() -> list[str]:
    """Return the names of the tiny recipes that train a model."""
    tiny = [name for name in library.names() if name.endswith("-tiny")]
    return [
        name for name in tiny if "model" in library.read_based(name) and "space" not in library.read(name)
    ]


def training_data(folder: Path) -> str:
    """Make the data that the recipes train on; their subwords do not depend on the training of vocabularies."""
    write_rows(folder / "rows.jsonl", 60)
    windows = [
        "--vocabulary.model",
        str(VOCABULARY),
        "--window.max_characters",
        "200",
        "--validation_fraction",
        "0.2",
    ]
    _done("preprocess", "--books", str(folder / "rows.jsonl"), *windows, "--output", str(folder / "data"))
    return str(folder / "data")


def trained(recipe: str, data: str, run: str) -> dict[str, Any]:
    """Train a recipe for 20 steps of two examples; return the losses and the hash of the last checkpoint."""
    steps = str(STEPS)
    settings = {"steps": steps, "global_batch": "2", "micro_batch": "null", "streams": "1", "threads": "1"}
    settings |= {"validate_every_steps": steps, "validation_windows": "4", "checkpoint_every_steps": steps}
    settings |= {"precision": "float32"}  # bfloat16 differs more from machine to machine
    options = [word for key, value in settings.items() for word in (f"--train.{key}", value)]
    _done("pretrain", recipe, "--data", data, "--output", run, *options)
    lines = [json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines()]
    checkpoint = hashlib.sha256()
    for name in ("model", "optimizer"):
        tensors = load_file(f"{run}/checkpoints/step_{STEPS:08d}/{name}.safetensors")
        for key, tensor in sorted(tensors.items()):
            checkpoint.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
            checkpoint.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return {
        "losses": [line["loss"] for line in lines if "loss" in line],
        "validation_loss": next(line["validation_loss"] for line in lines if "validation_loss" in line),
        "checkpoint": checkpoint.hexdigest(),
    }
