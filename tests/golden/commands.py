"""Command lines of the contract, and what the error of each has to name; they run in a copy of `kept/`."""

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.golden.observe import call

KEPT = Path(__file__).parent / "kept"

# In this order: some read what one before them wrote.
GOOD: str = """
inspect data --json
inspect data --sample 1
verify data --json
verify run --json
verify finetuned --json
verify sweep --json
replay data
model canine-s-tiny --json
model canine-s-tiny --model.trunk.layers 4
model --list
model --show ner
pretrain recipe.yaml --data data --output run
pretrain recipe.yaml --data data --output new --dry-run
pretrain recipe.yaml --data data --output more --init-from run --dry-run
pretrain --help-keys train
finetune tagging.yaml --train examples.tsv --dev examples.tsv --output new --dry-run
finetune tagging.yaml --train examples.tsv --dev examples.tsv --init-from run --output finetuned
evaluate run --data data --json
evaluate finetuned --data examples.tsv --json
predict run rain[MASK]falls --data data --top 2 --json
predict finetuned rain --json
analyze attention run --data data --json
analyze ranks run --data data --json
analyze collisions run --data data --json
embed run texts.txt --output vectors
embed run texts.txt --output vectors
inspect vectors --json
verify vectors --json
plan canine-s-tiny --gpus 2 --nodes 2 --json
pretrain small.yaml --data data --output small
export small --to huggingface exported
import exported --output imported
verify imported --json
report data run finetuned sweep --output page.html
preprocess --books books.jsonl --output new --dry-run
sweep sweep.yaml --data data --output new --dry-run
cluster profiles
cluster submit --help
doctor --json
--version
--help
"""

# Each with a word of its error.
BAD: str = """
nothing: nothing
inspect nowhere: nowhere
inspect data --sample -1: --sample
inspect data --bogus: --bogus
inspect: DIR
verify nowhere: nowhere
verify damaged: data-00000
verify damaged --json: data-00000
verify lost: manifest.json
inspect other: 99
replay nowhere: nowhere
model nothing: nothing
model misspelt.yaml: layrs
model misspelt.yaml --json: layrs
model canine-s-tiny --train.length 99999: max_characters
model canine-s-tiny --train.seed x --train.stpes 3: stpes
model three-knobs-tiny: sweep
demo --workers 0: --workers
demo --dump nowhere.xml.bz2 --output new: nowhere.xml.bz2
preprocess --output new: --books
preprocess --books nowhere --output new: nowhere
preprocess --wikipedia letter.xml --output new: letter.xml
preprocess --books books.jsonl --output data --seed 7: seed
preprocess --books books.jsonl --output new --window.max_characters 99999: window.max_characters
preprocess --books books.jsonl --output new --runner nothing: --runner
preprocess books.jsonl --output new: --books
preprocess --books books.jsonl: --output
pretrain recipe.yaml --data nowhere --output new: nowhere
pretrain recipe.yaml --data lost --output new: manifest.json
pretrain recipe.yaml --data data --output new --workers x: --workers
pretrain recipe.yaml --data data --output run --train.seed 7: seed
pretrain recipe.yaml --data data --output run --extend-to 2: 2
pretrain recipe.yaml --data data --output new --init-from nowhere: nowhere
pretrain misspelt.yaml --data data --output new: layrs
pretrain recipe.yaml --data data --output new --train.learning_rate nan: train.learning_rate
pretrain recipe.yaml --data data: --output
finetune tagging.yaml --train nowhere.tsv --output new: nowhere.tsv
finetune tagging.yaml --train examples.tsv --dev letter.xml --output new: letter.xml
finetune nothing --train examples.tsv --output new: nothing
finetune tagging.yaml --output new: --train
evaluate nowhere --data data: nowhere
evaluate run --data nowhere: nowhere
evaluate run --data data --windows 0: --windows
evaluate broken --data data: broken
evaluate finetuned --data nowhere.tsv: nowhere.tsv
predict run rain --top 0: --top
predict nowhere rain: nowhere
predict run rain --data data: [MASK]
analyze attention nowhere --data data: nowhere
analyze nothing run: nothing
analyze ranks run --data nowhere: nowhere
embed run nowhere.txt --output new: nowhere.txt
embed nowhere texts.txt --output new: nowhere
embed run texts.txt --output new --workers 0: --workers
plan canine-s-tiny: --gpus
plan canine-s-tiny --gpus 3 --nodes 2: --nodes
plan canine-s-tiny --gpus 0: --gpus
export nowhere --to huggingface new: nowhere
export run --to nothing new: --to
export run --to onnx data: data
import nowhere --output new: nowhere
import data --output new: config.json
report nowhere --output page.html: nowhere
report run: --output
sweep canine-s-tiny --data data --output new: sweep
sweep sweep.yaml --data nowhere --output new: nowhere
sweep sweep.yaml --data data --output new --trials 0: trials
sweep sweep.yaml --data data --output sweep --trials 5: trials
cluster nothing: nothing
cluster up nothing: nothing
cluster submit: --
cluster local --nodes 0: --nodes
cluster jobs --address http://127.0.0.1:9: 127.0.0.1:9
doctor nothing: nothing
"""


# Of a shape that transformers' CANINE has.
SMALL = {
    "base": "canine-s-tiny",
    "model": {
        "width": 8,
        "embedder": {"buckets": 64, "hashes": 4, "max_characters": 64},
        "downsampler": {"block": 16},
        "trunk": {"layers": 1, "heads": 2},
    },
    "train": {"steps": 1, "global_batch": 4, "length": 64, "validation_windows": 4},
}


def prepare(folder: Path) -> None:
    """Copy the kept folders into `folder`, which is the working directory of all commands, and damage some."""
    shutil.copytree(KEPT, folder, dirs_exist_ok=True)
    shutil.copytree(KEPT / "data", folder / "damaged")
    shard = sorted((folder / "damaged" / "train").glob("*.arrow"))[0]
    shard.write_bytes(shard.read_bytes()[:-9] + b"x" * 9)
    shutil.copytree(KEPT / "data", folder / "lost")
    (folder / "lost" / "manifest.json").unlink()
    shutil.copytree(KEPT / "data", folder / "other")
    manifest = json.loads((folder / "other" / "manifest.json").read_text())
    (folder / "other" / "manifest.json").write_text(json.dumps({**manifest, "schema_version": 99}))
    shutil.copytree(KEPT / "run", folder / "broken")
    for file in (folder / "broken").rglob("model.safetensors"):
        file.write_bytes(file.read_bytes()[:-9])
    recipes = {"recipe": "run/config.yaml", "tagging": "finetuned/config.yaml", "sweep": "sweep/sweep.yaml"}
    for name, source in recipes.items():
        (folder / f"{name}.yaml").write_text(
            yaml.safe_dump(yaml.safe_load((KEPT / source).read_text())["recipe"])
        )
    (folder / "small.yaml").write_text(yaml.safe_dump(SMALL))
    (folder / "misspelt.yaml").write_text("base: canine-s-tiny\nmodel: {trunk: {layrs: 3}}\n")
    (folder / "letter.xml").write_text("Dear Ann,\nall is well.\n")
    (folder / "texts.txt").write_text("rain falls\nthe sun is out\n")
    (folder / "books.jsonl").write_text(
        json.dumps({"id": "a", "text": "Rain falls on the hills. " * 9}) + "\n"
    )


def observed(line: str) -> dict[str, Any]:
    """Run one command in the working directory; return its status, its problems, and the shape of its JSON."""
    status, out, errors = call(*line.split())
    found: dict[str, Any] = {"status": status}
    if status:
        assert "Traceback" not in errors, errors
        found["error"] = out + errors
        found["problems"] = errors.count("\n")
        found["is_unexpected"] = "unexpected failure" in errors
    if "--json" in line.split() and out:
        found["json"] = _shape(json.loads(out.splitlines()[0]))
    return found


def _shape(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _shape(each) for key, each in sorted(value.items())}
    if isinstance(value, list):
        return [_shape(each) for each in value[:1]]
    return {bool: "bool", int: "number", float: "number", str: "text"}.get(type(value), "null")


def good() -> list[str]:
    """Return the commands that succeed."""
    return GOOD.strip().splitlines()


def bad() -> dict[str, str]:
    """Return the commands that fail, with the word that the error names."""
    pairs = (line.rpartition(": ") for line in BAD.strip().splitlines())
    return {line: word for line, _, word in pairs}
