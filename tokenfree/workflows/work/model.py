"""Do the work of `tokenfree model`."""

import argparse
import json

from rich.table import Column, Table

from tokenfree.core.errors import SettingsError, UserError
from tokenfree.workflows.recipes import library
from tokenfree.workflows.terminal.progress import console
from tokenfree.workflows.terminal.results import next_command, show_settings, size_of


def run(args: argparse.Namespace) -> None:
    """Print the parts, and memory and speed of a training step. Raises UserError if the recipe is invalid."""
    if args.list:
        names = library.names()
        print("\n".join(f"{name:{max(map(len, names)) + 2}}{library.about(name)}" for name in names))
    elif args.show is not None:
        print(library.resolved_text(args.show), end="")
    elif args.recipe is None and args.config is None:
        raise UserError("RECIPE: missing; tokenfree model --list shows the names")
    else:
        _show(args)


def _show(args: argparse.Namespace) -> None:
    # Here because machines without torch can list and show recipes.
    from tokenfree.train.config import PretrainRecipe
    from tokenfree.train.model.costs import costs, step_memory
    from tokenfree.train.model.encoder import check
    from tokenfree.train.objectives.base import head_cost
    from tokenfree.train.planning import advice, bfloat16_speed, bfloat16_summary

    recipe = library.load(PretrainRecipe, args)
    problems = check(recipe.model, recipe.train.length)
    if problems:
        raise SettingsError(library.source(args), problems)
    show_settings(args.verbosity, recipe)
    length = recipe.train.length
    targets = recipe.objective.max_predictions
    parts = costs(recipe.model, length, targets)
    head = head_cost(recipe.objective, recipe.model, targets)
    parts += [] if head is None else [head]
    total = sum(part.multiply_accumulates for part in parts)
    batch = recipe.train.micro_batch or recipe.train.global_batch
    memory = step_memory(recipe.model, length, batch, targets)
    speed = bfloat16_speed(recipe.model.dimensions)
    if args.json:
        summary = {
            "parts": [part._asdict() for part in parts],
            "parameters": sum(part.parameters for part in parts),
            "multiply_accumulates": total,
            "length": length,
            "targets": targets,
            "head_is_counted": head is not None,
            "examples": batch,
            "memory_bytes": {**memory._asdict(), "total": memory.total},
            "bfloat16_speed": speed,
        }
        print(json.dumps(summary))
        return
    columns = (
        Column("part", "all"),
        Column("shape after it"),
        Column("parameters", f"{sum(part.parameters for part in parts):,}", justify="right"),
        Column("multiply-accumulates", f"{total:,}", justify="right"),
        Column("share", justify="right"),
    )
    table = Table(
        *columns, box=None, header_style="bold", pad_edge=False, show_footer=True, footer_style="bold"
    )
    for part in parts:
        macs = part.multiply_accumulates
        table.add_row(
            part.name,
            " x ".join(map(str, part.shape)),
            f"{part.parameters:,}",
            f"{macs:,}",
            f"{macs / total:.1%}",
        )
    sizes = ", ".join(f"{name} {size_of(size)}" for name, size in memory._asdict().items())
    out = console()
    out.print(table)
    symbols = recipe.model.embedder.symbols
    without = "; the head of the objective, which grows with the data's vocabulary, is not counted"
    out.print(f"\n{length:,} {symbols}, {targets} targets{without if head is None else ''}")
    out.print(f"memory of a step with {batch} examples: {size_of(memory.total)} ({sizes})")
    out.print(
        f"precision: {', '.join(filter(None, [bfloat16_summary(speed), advice(speed, recipe.train.precision)]))}"
    )
    print(
        next_command(
            "pretrain", args.recipe or "RECIPE", "--data", "DIR", "--output", "RUN", *library.trust_of(recipe)
        )
    )
