"""Tables of `tokenfree analyze`, at most 80 columns wide, and the output of `tokenfree inspect` for embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import RenderableType
from rich.table import Table

from tokenfree.core.errors import UserError, one_line
from tokenfree.core.storage import Storage
from tokenfree.train.analyses.attention import MEASURES as ATTENTION
from tokenfree.train.inference.embed import COUNTS, finished
from tokenfree.workflows.terminal.progress import counted
from tokenfree.workflows.terminal.results import NO_SCRIPT

MOST_HEADS = 12  # their columns fit into 80 characters


MOST_GROUPS = 12  # languages or scripts


_KINDS = ("related", "random", "both")


Row = Mapping[str, Any]


def tables(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the lines and tables of an analysis of any kind."""
    shown = {
        "similarity": _similarity,
        "attention": _attention,
        "ranks": _ranks,
        "collisions": _collisions,
        "noise": _noise,
    }
    if "step" in found:  # the analysis of a run
        yield f"step {found['step']:,}"
    yield from shown[found["analysis"]](found)


def _similarity(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield "Spearman's correlation of the cosine of two words' vectors with their spelling"
    languages = list(dict.fromkeys(row["language"] for row in found["rows"]))
    for language in languages:
        rows = {(row["kind"], row["measure"]): row for row in found["rows"] if row["language"] == language}
        heads = {kind: next(row for (own, _), row in rows.items() if own == kind) for kind in _KINDS}
        words = found["words"][language]
        yield f"\n{language}: {words['usable']:,} of {words['in_file']:,} words have a vector ({found['vectors']})"
        table = _table("", *(f"{kind}: {heads[kind]['pairs']:,} pairs" for kind in _KINDS))
        for measure in dict.fromkeys(measure for _, measure in rows):
            table.add_row(measure.replace("_", "-"), *(_interval(rows[kind, measure]) for kind in _KINDS))
        table.add_row("mean cosine", *(_number(heads[kind]["mean_cosine"], 3) for kind in _KINDS))
        yield table
    yield "\n95% intervals by bootstrap over lemmas; related: two words of one lemma"


def _attention(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield _of_texts(found)
    yield f"attention {found['attention']}; a head that sees all units alike: {found['uniform_distance']:.1f} units"
    table = _table("layer", "distance", "least", "most", "entropy", "itself", "cls", "sep", "strongest")
    for layer, rows in _by_layer(found["rows"]):
        means = {name: _mean(rows, name) for name in ATTENTION}
        distances = [row["distance"] for row in rows if row["distance"] is not None]
        table.add_row(
            layer,
            _number(means["distance"], 2),
            _number(min(distances, default=None), 2),
            _number(max(distances, default=None), 2),
            _number(means["entropy"], 2),
            *(_share(means[name]) for name in ("itself", "cls", "sep")),
            _number(means["strongest"], 2),
        )
    yield table
    if all(row["distance"] is None for row in found["rows"]):
        yield f"the keys of {found['attention']} are mixtures of all units, without a place: only entropy is reported"
        return
    yield from _by_head("\nmean distance by head", found["rows"], "distance", 2)


def _ranks(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield _of_texts(found)
    yield f"attention {found['attention']}, positions {found['positions']}; logits before softmax, means over heads"
    table = _table("layer", "content", "effective", "all logits", "effective")
    for layer, rows in _by_layer(found["rows"]):
        names = ("rank_content", "effective_content", "rank", "effective")
        table.add_row(layer, *(_number(_mean(rows, name), 1) for name in names))
    yield table
    yield from _by_head("\nrank of all logits by head", found["rows"], "rank", 1)
    if all(row["rank_positions"] is None for row in found["rows"]):
        yield f"\npositions {found['positions']}: no term that is the same for all texts"
    else:
        yield f"\nposition terms for {found['units_of_positions']} units, means over heads"
        table = _table("layer", "rank", "effective", "Toeplitz", "without CLS", "shift")
        for layer, rows in _by_layer(found["rows"]):
            shares = (_share(_mean(rows, name)) for name in ("toeplitz", "toeplitz_without_cls"))
            numbers = (_number(_mean(rows, name), 1) for name in ("rank_positions", "effective_positions"))
            table.add_row(layer, *numbers, *shares, _number(_mean(rows, "shift"), 2))
        yield table
        yield from _by_head("\nToeplitz share by head", found["rows"], "toeplitz", 2)
    if any(row["own_segment"] is not None for row in found["rows"]):
        yield from _by_head("\nlogit of the own segment above others, by head", found["rows"], "own_segment", 3)


def _collisions(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield f"{found['hashes']} hashes of {found['buckets']:,} buckets, family {found['family']}; {found['data']}"
    yield "characters that share a bucket with another one of the corpus"
    table = _table("", "characters", "in one hash", "expected", "in all", "expected", "outnumbered")
    for kind in ("all", "language", "script"):
        rows = [row for row in found["rows"] if row["group"] == kind]
        for row in rows[:MOST_GROUPS]:
            shares = (row[name] for name in ("hash", "hash_expected", "all", "all_expected", "outnumbered"))
            name = {"all": "all", "language": row["name"], "script": row["name"] or NO_SCRIPT}[kind]
            table.add_row(name, f"{row['characters']:,}", *map(_share, shares))
        if len(rows) > MOST_GROUPS:
            table.add_row(f"{len(rows) - MOST_GROUPS} more {kind}s")
    yield table
    whole = found["rows"][0]
    yield (
        f"by frequency: {whole['hash_by_frequency']:.1%} of {whole['occurrences']:,} occurrences share in one hash, "
        f"{whole['all_by_frequency']:.1%} in all"
    )
    yield "outnumbered: occurrences whose vector is that of a more frequent character"
    if found["examples"]:
        shown = ", ".join(f"{_code(pair['a'])} and {_code(pair['b'])}" for pair in found["examples"][:2])
        yield f"the most frequent that nothing tells apart: {shown}"


def _noise(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    main = found["main"].replace("_", " ")
    trained = (
        "trained without noise"
        if found["trained_with"] is None
        else f"trained with {_scheme(found['trained_with'])} of {found['trained_rate']:.0%}"
    )
    yield f"{found['task'].replace('_', ' ')}, {found['examples']:,} examples; {trained}"
    table = _table("noise", "struck", main, "95%", "change", "95%")
    for row in found["rows"]:
        is_clean = row["rate"] == 0
        table.add_row(
            _scheme(row["scheme"]),
            "-" if is_clean else _share(row["rate"]),
            _number(row["score"], 3),
            f"{row['low']:.3f} to {row['high']:.3f}",
            "" if is_clean else f"{row['change']:+.3f}",
            "" if is_clean else f"{row['change_low']:+.3f} to {row['change_high']:+.3f}",
        )
    yield table
    yield "struck: share of the characters; intervals by bootstrap over the examples"


def _scheme(name: str) -> str:
    return name.replace("_", " ")


def _of_texts(found: Mapping[str, Any]) -> str:
    cut = f", {found['cut']} of them cut to what the model reads" if found["cut"] else ""
    return f"{found['texts']:,} texts of {found['units']:.1f} units on average{cut}"


def _by_head(title: str, rows: Sequence[Row], name: str, digits: int) -> Iterator[RenderableType]:
    layers = _by_layer(rows)
    heads = max(len(own) for _, own in layers)
    if heads > MOST_HEADS:
        return
    yield title
    digits = digits if heads <= MOST_HEADS // 2 else min(digits, 2 if name == "toeplitz" else 1)
    table = _table("layer", *(str(head + 1) for head in range(heads)))
    table.padding = (0, 0, 0, 1)
    for layer, own in layers:
        table.add_row(layer, *(_number(row[name], digits) for row in own))
    yield table


def _by_layer(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    numbers = dict.fromkeys(row["layer"] for row in rows)
    return [(str(number), [row for row in rows if row["layer"] == number]) for number in numbers]


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _mean(rows: Sequence[Row], name: str) -> float | None:
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) / len(known) if known else None


def _interval(row: Row) -> str:
    if row["spearman"] is None:
        return "-"
    return f"{row['spearman']:.3f} ({row['low']:.2f}, {row['high']:.2f})"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


_FIRST = 4  # numbers of an embedding that are shown


def described(directory: str, *, num_texts: int, width: int) -> dict[str, Any]:
    """Return the contents of a folder of embeddings: counts, columns, and its first texts with their embeddings.

    Args:
        num_texts: Number of texts of the first shard to return.
        width: Number of characters of each text.

    Raises:
        UserError: The folder is not complete.
    """
    storage = Storage.at(directory)
    manifest = finished(storage)
    if manifest is None:
        raise UserError(f"{directory}: not complete; run `tokenfree embed` again, which resumes it")
    with storage.open(manifest["shards"][0]["path"]) as file, pa.ipc.open_stream(file) as stream:
        schema, batch = stream.schema, stream.read_next_batch().slice(0, num_texts)
    return {
        "of": manifest["config"]["vectors"],
        "pooling": manifest["config"]["pooling"],
        "width": manifest["config"]["width"],
        "shards": len(manifest["shards"]),
        **{name: manifest[name] for name in COUNTS},
        "columns": {field.name: str(field.type) for field in schema},
        "sample": [_row(row, width) for row in batch.to_pylist()],
    }


def embedding_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the result of `described` in words."""
    pooling = f" ({found['pooling']})" if found["pooling"] else ""
    yield f"{counted(found['vectors'], 'vector')} of width {found['width']:,}, of {found['of']}{pooling}"
    yield ", ".join(counted(found[name], name.removesuffix("s")) for name in ("texts", "characters", "shards"))
    for name, kind in found["columns"].items():
        yield f"  {name:<12}{kind}"
    for row in found["sample"]:
        yield ""
        yield one_line(f"{row['number']}  {row['text']}")
        first = " ".join(f"{each:.3f}" for each in row["first"])
        yield f"   {counted(row['vectors'], 'vector')}; the first has 2-norm {row['norm']:.3f}: {first} ..."


def _row(row: Mapping[str, Any], width: int) -> dict[str, Any]:
    vectors = np.array([row["vector"]] if "vector" in row else row["vectors"], np.float32)
    text = row["text"] if len(row["text"]) <= width else row["text"][:width] + "…"
    shown = vectors[0] if len(vectors) else np.zeros(0, np.float32)
    norm = float(np.linalg.norm(shown))
    return {
        "number": row["number"],
        "text": text,
        "vectors": len(vectors),
        "norm": norm,
        "first": shown[:_FIRST].tolist(),
    }
