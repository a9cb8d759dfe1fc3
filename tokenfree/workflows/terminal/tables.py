"""What commands print at their end: tables, plans, results and the next command."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import pyarrow as pa
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tokenfree.core.errors import UserError, one_line
from tokenfree.core.storage import Storage
from tokenfree.pipelines.dry_run import VOCABULARY_BYTES, WORKER_BYTES, PlanDescription
from tokenfree.preprocess.dataset.manifest import Manifest
from tokenfree.preprocess.features.columns import schema
from tokenfree.train.analyses.attention import MEASURES as ATTENTION
from tokenfree.train.inference.embed import COUNTS, finished
from tokenfree.train.model.costs import Memory
from tokenfree.train.planning import Work
from tokenfree.train.sweep.history import Event, History, TrialState
from tokenfree.workflows.inspection import BLOCK, Piece, Window, on_one_line
from tokenfree.workflows.terminal.progress import Frame, SweepPace, Verbosity, counted, frame, news

if TYPE_CHECKING:
    from tokenfree.train.data.mixture import Data
    from tokenfree.train.pretrain import PretrainResult
    from tokenfree.train.sweep.planning import Placement, SweepTime, TrialCost, TrialSpeed
    from tokenfree.train.sweep.recipe import SweepRecipe
    from tokenfree.train.sweep.subjects import TaskInput

FEW = 100  # targets, under which a mean says little: such groups are joined
NO_SCRIPT = "no letters"
_MEANS = ("loss", "accuracy", "without_context")

Groups = Sequence[Mapping[str, Any]]


def breakdown_lines(languages: Groups, scripts: Groups) -> list[str]:
    """A table of the languages and one of the scripts; of what has a single large group no table, but a line of shares.

    Args:
        languages, scripts: as `tokenfree.train.evaluate.by_language_and_script` has them.
    """
    kinds = {"language": languages, "script": [{**group, "name": group["name"] or NO_SCRIPT} for group in scripts]}
    several = {kind: groups for kind, groups in kinds.items() if _is_several(groups)}
    shares = [_shares(groups) for kind, groups in kinds.items() if kind not in several and groups]
    lines = ["hidden targets: " + "; ".join(shares)] if shares else []
    return lines + [line for kind, groups in several.items() for line in _breakdown_table(kind, groups)]


def _is_several(groups: Groups) -> bool:
    return sum(group["targets"] >= FEW and group["name"] != NO_SCRIPT for group in groups) > 1


def _shares(groups: Groups) -> str:
    """`Latin 95.2%, no letters 4.7%, others 0.1%`."""
    total = sum(group["targets"] for group in groups)
    shown = [(group["name"], group["targets"]) for group in groups[:2]]
    if len(groups) > 2:
        shown.append(("others", total - sum(targets for _, targets in shown)))
    return ", ".join(f"{name} {targets / total:.1%}" for name, targets in shown)


def _breakdown_table(kind: str, groups: Groups) -> list[str]:
    lines = [f"{f'masked only, by {kind}':<36}{'targets':>10}{'loss':>8}{'accuracy':>10}{'no context':>12}"]
    for group in _joined(groups):
        loss, accuracy, without_context = (group[name] for name in _MEANS)
        lines.append(f"{group['name']:<36}{group['targets']:>10,}{loss:>8.3f}{accuracy:>10.1%}{without_context:>12.3f}")
    return lines


def _joined(groups: Groups) -> list[Mapping[str, Any]]:
    """The groups with `FEW` targets or more, and where there are several smaller ones, these as one."""
    small = [group for group in groups if group["targets"] < FEW]
    if len(small) < 2:
        return list(groups)
    counts = [group["targets"] for group in small]
    means = {name: float(np.average([group[name] for group in small], weights=counts)) for name in _MEANS}
    large = [group for group in groups if group["targets"] >= FEW]
    return [*large, {"name": f"{len(small)} with under {FEW} each", "targets": sum(counts), **means}]


MOST_HEADS = 12  # whose columns fit into 80 characters
MOST_GROUPS = 12  # languages, scripts
_KINDS = ("related", "random", "both")

Row = Mapping[str, Any]


def tables(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Lines and tables of what an analysis found, whichever it was."""
    shown = {
        "similarity": _similarity,
        "attention": _attention,
        "ranks": _ranks,
        "collisions": _collisions,
        "noise": _noise,
    }
    if "step" in found:  # of a run
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
        yield f"the keys of {found['attention']} are mixtures of all units, without a place: only entropy is told"
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


_FIRST = 4  # numbers of a vector that are shown


def described(directory: str, *, num_texts: int, width: int) -> dict[str, Any]:
    """What is in a folder of vectors: counts, columns, and its first texts with how many vectors each has.

    Args:
        num_texts: to show, of the first shard.
        width: characters of each.

    Raises:
        UserError: the folder is not complete.
    """
    storage = Storage.at(directory)
    manifest = finished(storage)
    if manifest is None:
        raise UserError(f"{directory}: not complete; run `tokenfree embed` again, which goes on with it")
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
    """The same in words."""
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


ALTERNATE = ("cyan", "yellow")


def counts(manifest: Manifest) -> Iterator[dict[str, Any]]:
    """Documents, windows, characters, bytes and shards of each split and language."""
    for split, content in manifest.splits.items():
        for language in sorted({shard.language for shard in content.shards}):
            shards = [shard for shard in content.shards if shard.language == language]
            names = {"documents": "documents", "windows": "rows", "characters": "characters", "bytes": "bytes"}
            sums = {name: sum(getattr(shard, key) for shard in shards) for name, key in names.items()}
            yield {"split": split, "language": language, **sums, "shards": len(shards)}


def counts_table(manifest: Manifest) -> Table:
    """The same as a table."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("split", "language"):
        table.add_column(name)
    for name in ("documents", "windows", "characters", "MB", "shards"):
        table.add_column(name, justify="right")
    for row in counts(manifest):
        numbers = [f"{row[name]:,}" for name in ("documents", "windows", "characters")]
        table.add_row(row["split"], row["language"], *numbers, f"{row['bytes'] / 1e6:,.1f}", f"{row['shards']:,}")
    return table


def pages_line(manifest: Manifest) -> Text:
    """What became of the pages that were read."""
    counters = manifest.counters
    parts = [f"{counters['pages']:,} read"]
    for name in ("documents", "redirects", "other_namespaces", "duplicates"):
        parts += [f"{counters[name]:,} {name.replace('_', ' ')}"] if counters[name] else []
    for kind in ("filtered", "failed"):
        parts += [f"{count:,} {kind} ({reason})" for reason, count in sorted(counters[kind].items()) if count]
    return Text.assemble("\n", ("pages", "bold"), "  ", one_line(", ".join(parts)))


def columns(manifest: Manifest) -> dict[str, str]:
    """The columns with their types."""
    return {field.name: str(field.type).replace(" not null", "") for field in schema(manifest.config["columns"])}


def columns_table(manifest: Manifest) -> Table:
    """The same as a table."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("\ncolumn")
    table.add_column("\ntype")
    for name, type in columns(manifest).items():
        table.add_row(name, type)
    return table


def show_window(console: Console, window: Window) -> None:
    """Print a window, with its words, subwords and masks below it."""
    labels = " ".join(window.labels.values())
    heading = ("\n", (f"window {window.number:,}", "bold"), f"  {one_line(labels)}, {window.characters:,} characters")
    console.print(Text.assemble(*heading))
    rest = "…" if window.characters > len(window.text) else ""
    console.print(Text(on_one_line(window.text) + rest))
    if window.words is not None:
        console.print(_marked(console, "words", window.text, window.words, "|"))
    if window.subwords is not None:
        console.print(_marked(console, "subwords", window.text, window.subwords, "·"))
    if window.masked is not None:
        console.print(_with_masks(window.text, window.masked))


def _marked(console: Console, title: str, shown: str, pieces: Sequence[Piece], separator: str) -> Text:
    """The text with its pieces in alternating colours, or parted by `separator` where there are no colours."""
    text = Text(f"{title:<9}", style="bold")
    coloured = console.is_terminal and console.color_system is not None and not console.no_color
    before = 0
    for index, piece in enumerate(pieces):
        gap = shown[before : piece.start] if coloured else separator if index else ""
        text.append(on_one_line(gap), style="not bold dim")
        text.append(piece.text, style=f"not bold {ALTERNATE[index % 2]}")
        before = piece.end
    return text


def _with_masks(before: str, masked: str) -> Text:
    """Blocks coloured, replaced characters underlined."""
    text = Text("masks    ", style="bold")
    for old, new in zip(before, masked, strict=True):
        style = "" if old == new else " magenta" if new == BLOCK else " underline magenta"
        text.append(new.replace("\n", "⏎"), style=f"not bold{style}")
    return text


_PLACEHOLDERS = {"DIR", "NEW_DIRECTORY", "RECIPE", "RUN"}  # for what only the user knows; not quoted


def next_command(*arguments: str, program: str = "tokenfree") -> str:
    """The line that names `PROGRAM ARGUMENTS` as the next command, quoted as a shell needs it."""
    words = [word if word in _PLACEHOLDERS else shlex.quote(word) for word in arguments]
    return f"  next        {program} {' '.join(words)}"


def time_of(seconds: float) -> str:
    """`40 seconds`, `12 minutes`, `3.4 hours`, `12.5 days`."""
    if seconds < 120:
        return counted(max(1, round(seconds)), "second")
    if seconds < 7200:
        return counted(round(seconds / 60), "minute")
    return f"{seconds / 3600:,.1f} hours" if seconds < 72 * 3600 else f"{seconds / 86400:,.1f} days"


def size_of(num_bytes: float) -> str:
    """`512 MB`, `3.4 GB`, `21.0 TB`."""
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes / 1e6:,.3g} MB" if num_bytes < 1e7 else f"{num_bytes / 1e6:,.0f} MB"


def money(amount: float) -> str:
    """`681.31`, `0.0012`: in whatever currency the price was."""
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.2g}"


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


@dataclass(frozen=True)
class RunPlan:
    """A planned run.

    Attributes:
        recipe: its name.
        steps, global_batch: of the recipe.
        work: of the run.
        where: the devices, in words.
        devices: how many are paid for.
        examples: that a device holds at once.
        step_seconds: of a step, with the exchange of gradients.
        exchange_seconds: of the exchange alone.
        seconds: of the run.
        memory: of a device.
        device_bytes: that a device has.
        checkpoint_bytes: of a checkpoint.
        num_checkpoints: kept at the end.
        metrics_bytes: of the metrics.
        price: of a device for an hour; None where it was not given.
        measured, assumed: what the figures rest on, a line each.
    """

    recipe: str
    steps: int
    global_batch: int
    work: Work
    where: str
    devices: int
    examples: int
    step_seconds: float
    exchange_seconds: float
    seconds: float
    memory: Memory
    device_bytes: float
    checkpoint_bytes: int
    num_checkpoints: int
    metrics_bytes: int
    price: float | None
    measured: tuple[str, ...]
    assumed: tuple[str, ...]

    @property
    def cost(self) -> float | None:
        """Of the whole run, in the currency of the price."""
        return None if self.price is None else self.price * self.devices * self.seconds / 3600

    def numbers(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "steps": self.steps,
            "flops": self.work.example_flops * self.global_batch * self.steps,
            "parameters": self.work.parameters,
            "devices": self.devices,
            "step_seconds": self.step_seconds,
            "exchange_seconds": self.exchange_seconds,
            "seconds": self.seconds,
            "device_hours": self.devices * self.seconds / 3600,
            "memory_bytes": {**self.memory._asdict(), "total": self.memory.total},
            "checkpoint_bytes": self.checkpoint_bytes,
            "checkpoints": self.num_checkpoints,
            "metrics_bytes": self.metrics_bytes,
            "data_bytes": self.work.data_bytes,
            "cost": self.cost,
            "measured": self.measured,
            "assumed": self.assumed,
        }


def run_plan_lines(plan: RunPlan) -> Iterator[str]:
    """The plan, a line each."""
    work = plan.work
    yield f"{plan.recipe} on {plan.where}: an estimate"
    yield f"work      {counted(plan.steps, 'step')} of {counted(plan.global_batch, 'example')}, " + (
        f"{work.example_flops * plan.global_batch:.3g} FLOPs a step"
    )
    yield f"model     {work.parameters:,} parameters, head of the objective included"
    exchange = f", {_seconds(plan.exchange_seconds)} of it for gradients" if plan.exchange_seconds else ""
    yield f"step      {_seconds(plan.step_seconds)}{exchange}"
    yield f"time      {time_of(plan.seconds)}, {plan.devices * plan.seconds / 3600:,.3g} device-hours"
    sizes = ", ".join(f"{name} {size_of(size)}" for name, size in plan.memory._asdict().items())
    yield f"memory    {size_of(plan.memory.total)} a device with {counted(plan.examples, 'example')} at once"
    yield f"          ({sizes})"
    if plan.memory.total > 0.9 * plan.device_bytes:
        yield f"          more than a device of {size_of(plan.device_bytes)} holds: lower train.micro_batch"
    total = plan.num_checkpoints * plan.checkpoint_bytes + plan.metrics_bytes
    yield f"disk      {size_of(total)}: {counted(plan.num_checkpoints, 'checkpoint')} of " + (
        f"{size_of(plan.checkpoint_bytes)}, metrics {size_of(plan.metrics_bytes)}"
    )
    if work.data_bytes is not None:
        yield f"data      {size_of(work.data_bytes)} of shards, read {work.epochs:.3g} times"
    cost = "give --price, of a device for an hour" if plan.cost is None else money(plan.cost)
    yield f"money     {cost}"
    yield from (f"measured  {line}" for line in plan.measured)
    yield from (f"assumed   {line}" for line in plan.assumed)


def _seconds(seconds: float) -> str:
    return f"{seconds:,.3g} s" if seconds < 1000 else time_of(seconds)


def loss_lines(result: PretrainResult) -> list[str]:
    """The held-out loss, and beside it what needs no context, where the run has counted that."""
    means = result.validation_means
    loss = means.get("validation_masked_loss", result.validation_loss)
    line = f"held-out loss {loss:.3f} nats per {result.symbol or 'target'}"
    if "validation_bits_per_character" in means:
        line += f" ({means['validation_bits_per_character']:.3f} bits per character)"
    line += f", accuracy {100 * result.validation_accuracy:.1f}%"
    masked_only = means.get("validation_masked_only_loss")
    if masked_only is None:
        return [line]
    line += f"; masked only {masked_only:.3f}, {100 * means['validation_masked_only_accuracy']:.1f}%"
    compared = _compared(masked_only, result.baselines, result.clue)
    return [line, compared] if compared else [line]


def loss_of_each(means: Mapping[str, float], paths: Sequence[str]) -> list[str]:
    """A line with the held-out loss on each of several data directories; none of a single one."""
    found = {path: means.get(f"validation_loss_data_{number}") for number, path in enumerate(paths, 1)}
    told = ", ".join(f"{path} {loss:.3f}" for path, loss in found.items() if loss is not None)
    return [f"held-out loss of each: {told}"] if told else []


def _compared(masked_only: float, baselines: Mapping[str, float], clue: str | None) -> str | None:
    """The loss of the hidden targets beside the baselines for the same ones."""
    if "masked_only_unigram" not in baselines:
        return None
    unigram, given = baselines["masked_only_unigram"], baselines["masked_only_clue"]
    line = f"without context, masked only: {unigram:.3f} by frequency"
    if clue is not None:
        line += f", {given:.3f} given {clue}"
    margin = min(unigram, given) - masked_only
    if margin > 0:
        return f"{line}; the model is {margin:.3f} below"
    return f"{line}; the model is NOT below, so no reading is shown"


def context_line(found: Mapping[str, float]) -> str | None:
    """Return in words whether the model uses context, from what `evaluate` found; None without baselines."""
    if "margin" not in found:
        return None
    margin, low, high = (found[f"margin{end}"] for end in ("", "_low", "_high"))
    interval = f"{margin:.2f} nats (95% interval {low:.2f} to {high:.2f})"
    hidden = f"{found['probe']:.2f} nats higher when the context is hidden."
    if low <= 0:
        return (
            f"The model is not yet better than the best guess without context: {interval}. Its loss is {hidden} Train "
            "longer."
        )
    return (
        f"The model uses context: its loss on hidden targets is {interval} below the best guess without context, and "
        f"{hidden}"
    )


_MOST = 40  # settings that are listed


def describe(sweep: SweepRecipe, data: Data | TaskInput, output: str) -> Iterator[str]:
    """The lines of a dry run; for the hours some steps are trained, or a sweep in `output` is asked for its speed.

    Raises:
        UserError: the sweep cannot be run.
    """
    from tokenfree.train.sweep.planning import CostEstimator, measure, time_left
    from tokenfree.train.sweep.run import prepare

    proposer, plan = prepare(sweep, data, output)
    sweep = proposer.sweep
    placement = _placement(sweep, plan.settings)
    estimator = CostEstimator(sweep, proposer.subject)
    costs = [estimator.estimate(values) for values in plan.settings]
    runs = plan.num_settings * sweep.seeds
    seeds = f", each with {counted(sweep.seeds, 'seed')}: {counted(runs, 'trial')}" if sweep.seeds > 1 else ""
    yield f"{counted(plan.num_settings, 'setting')}{seeds}"
    for number, (values, cost) in enumerate(zip(plan.settings[:_MOST], costs, strict=False)):
        shown = ", ".join(f"{key} = {value}" for key, value in values.items())
        yield f"  {number:>3}  {shown}  ({cost.parameters:,} parameters, {cost.step_flops:.3g} FLOPs a step)"
    if len(plan.settings) > _MOST:
        yield f"  and {len(plan.settings) - _MOST} more"
    if plan.num_settings > len(plan.settings):
        more = plan.num_settings - len(plan.settings)
        yield f"  {more} more are chosen by {sweep.searcher.name} when trials have reported"
    yield f"{counted(len(plan.impossible), 'setting')} cannot be run" + (":" if plan.impossible else "")
    yield from (f"  {count} x {reason}" for reason, count in sorted(plan.skipped.items()))
    yield str(placement)
    yield from _budget(sweep, costs, runs)
    history = _begun(sweep, plan.settings, output)
    speed = measure(sweep, plan.settings[0], costs[0], proposer.subject, placement, history)
    left = time_left(sweep, costs, runs, speed, placement.concurrent, history)
    yield _hours(left, speed, placement.concurrent, begun=bool(history.trials))


def _placement(sweep: SweepRecipe, settings: tuple[dict, ...]) -> Placement:
    import torch

    from tokenfree.train.ray.cluster import cores, ray_session
    from tokenfree.train.sweep.planning import Node, cluster_nodes, find_placement

    if "RAY_ADDRESS" in os.environ:
        with ray_session():
            return find_placement(sweep, settings, cluster_nodes())
    return find_placement(sweep, settings, [Node(cores(), torch.cuda.device_count())])


def _begun(sweep: SweepRecipe, settings: tuple[dict, ...], output: str) -> History:
    """What is known of this sweep in its folder; nothing where that holds another one, or none."""
    from tokenfree.train.sweep.history import History, read_history

    none = History(sweep.seeds, sweep.reports, sweep.quality)
    if "://" in output:
        return none
    found = read_history(Path(output), seeds=sweep.seeds, reports=sweep.reports, target=sweep.quality)
    both = min(len(found.proposed), len(settings))
    return found if found.proposed[:both] == settings[:both] else none


def _hours(left: SweepTime, speed: TrialSpeed, concurrent: int, *, begun: bool) -> str:
    least, most = _time(left.least), _time(left.most)
    time = f"about {most}" if least == most else f"{least} to {most}"
    side = f"{concurrent} trials side by side" if concurrent > 1 else "one trial after another"
    return f"time{' left' if begun else ''}: {time} on this machine, {side}, validations included ({speed.source})"


def _time(seconds: float) -> str:
    if seconds < 60:
        return counted(round(seconds), "second")
    return counted(round(seconds / 60), "minute") if seconds < 3600 else f"{seconds / 3600:,.1f} hours"


def _budget(sweep: SweepRecipe, costs: list[TrialCost], runs: int) -> Iterator[str]:
    budget = sweep.budget
    most = "at most " if sweep.scheduler.name != "none" else ""
    unit = budget.unit.replace("_", " ").replace("train ", "")
    yield f"budget of a trial: {budget.amount:,.6g} {unit}{'' if unit.endswith('s') else 's'}, {sweep.reports} reports"
    if budget.seconds is not None:
        return
    share = runs / len(costs)  # settings not known yet count as the mean of those that are
    steps = share * sum(cost.steps or 0 for cost in costs)
    characters = share * sum(cost.characters or 0 for cost in costs)
    flops = share * sum(cost.flops or 0 for cost in costs)
    yield f"all trials: {most}{steps:,.0f} steps, {characters:,.3g} characters, {flops:.3g} FLOPs"


TICK = 1.0  # seconds between two drawings of the clock


class SweepTable:
    """Shows the trials of a sweep: `with SweepTable() as table: run_sweep(..., progress=table)`.

    Of a sweep that goes on, the trials that have ended are shown before anything starts.

    In a terminal a frame is written over the last one in a single piece, cut to the terminal's width and height; where
    the table is higher, trials that train stand first, then the best ones.

    Args:
        stream: standard error by default.
        verbosity: `quiet` shows nothing, `verbose` writes lines as in a log file.
    """

    def __init__(self, stream: TextIO | None = None, *, verbosity: Verbosity = "normal") -> None:
        self._stream = sys.stderr if stream is None else stream
        self._frame = Frame(self._stream)
        self._live = self._frame.live and verbosity == "normal"
        self._quiet = verbosity == "quiet"
        self._pace = SweepPace(time.monotonic())
        self._history = History(seeds=1, reports=1)  # after the last event
        self._states: dict[str, str] = {}  # of the trials, as the log says
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __call__(self, event: Event, history: History) -> None:
        """Show an event, with what is known after it."""
        with self._lock:
            self._history = history
            if event["event"] == "lost":
                self._tell(event["message"])
                return
            self._pace.hear(event, history, time.monotonic())
            if self._live:
                self._frame.draw(self._lines_that_fit())
            elif self._quiet:
                return
            elif event["event"] == "resume":
                self._log_ended(history)
            elif "trial" in event:
                self._log(event, history)

    def lines(self, width: int, height: int) -> list[str]:
        """The frame as it stands, at most `height` lines of at most `width` characters."""
        return frame(self._history, self._pace, time.monotonic(), width, height)

    def __enter__(self) -> SweepTable:
        if self._live:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        with self._lock:
            if self._live and self._history.trials:
                self._frame.finish("\n".join(self._lines_that_fit()))

    def _tell(self, message: str) -> None:
        """What the trials do not tell, above the table or as a line of its own."""
        if self._live:
            self._frame.above(one_line(message))
        elif not self._quiet:
            self._stream.write(one_line(message) + "\n")
            self._stream.flush()

    def _log(self, event: Event, history: History) -> None:
        """A line for what begins or reports, and for a trial that came into another state by something else."""
        trial = history.trials[event["trial"]]
        told = self._states.get(trial.name)
        if event["event"] in ("begin", "report") or (trial.ended and trial.state != told):
            self._write(trial, history)

    def _log_ended(self, history: History) -> None:
        """A line for each trial that ended in earlier commands."""
        for trial in history.trials.values():
            if trial.ended:
                self._write(trial, history)

    def _write(self, trial: TrialState, history: History) -> None:
        self._states[trial.name] = trial.state
        self._stream.write(one_line(news(trial, history, self._pace, time.monotonic())) + "\n")
        self._stream.flush()

    def _lines_that_fit(self) -> list[str]:
        columns, rows = self._frame.size
        return self.lines(columns - 1, rows - 1)

    def _tick(self) -> None:
        while not self._done.wait(TICK):
            with self._lock:
                self._frame.draw(self._lines_that_fit())


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
