"""Do the work of `tokenfree plan`."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from tokenfree.core.errors import SettingsError
from tokenfree.train import planning
from tokenfree.train.checks import check
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.mixture import Data
from tokenfree.train.data.shards import load_data_manifest, load_data_vocabulary
from tokenfree.train.model.costs import step_memory
from tokenfree.train.model.encoder import check as check_model
from tokenfree.train.planning import Work, work_of
from tokenfree.workflows.commands.plan import ACCELERATORS, UTILISATION
from tokenfree.workflows.recipes import library
from tokenfree.workflows.recipes.training import data_of
from tokenfree.workflows.terminal.results import counted, money, show_settings, size_of, time_of


def run(args: argparse.Namespace) -> None:
    recipe, data = _checked(args)
    show_settings(args.verbosity, recipe)
    work = work_of(recipe, data)
    plan = _plan(recipe, work, args, has_data=data is not None)
    print(json.dumps(plan) if args.json else "\n".join(_lines(recipe, work, args, plan)))


def _plan(recipe: PretrainRecipe, work: Work, args: argparse.Namespace, *, has_data: bool) -> dict[str, Any]:
    """Return the numbers of the plan.

    Bytes of memory are per device; seconds are per step or for the whole run.
    """

    train = recipe.train
    share, examples = _examples(recipe, args)
    exchange = planning.exchange_seconds(work, args.gpus, args.nodes)
    gpu, utilisation = ACCELERATORS[args.gpu], args.utilisation or UTILISATION
    example = work.example_flops / (gpu.peak(train.precision) * utilisation) / args.gpus
    step = example * share * args.gpus + exchange
    hours = planning.run_seconds(train, step, example) * args.gpus / 3600
    encoder = step_memory(recipe.model, train.length, examples, recipe.objective.max_predictions)
    memory = planning.device_memory(train, work, encoder, examples, args.gpus)
    utilisation_source = "given" if args.utilisation else "a compiled model on an H200; give --utilisation"
    assumed = [
        f"{utilisation:.0%} of the peak ({utilisation_source})",
        f"peak {gpu.peak(train.precision) / 1e12:,.4g} TFLOP/s in {train.precision}: {gpu.source}",
        "activations in float32 with all kept, which is more than GPUs need",
    ]
    if args.nodes > 1:
        assumed.append(
            f"{planning.NETWORK * 8 / 1e9:.0f} Gbit/s between nodes, nothing hidden behind arithmetic"
        )
    elif args.gpus > 1:
        assumed.append(f"{planning.LINKS / 1e9:.0f} GB/s between GPUs, nothing hidden behind arithmetic")
    shapes = f"shapes: {work.source}"
    return {
        "steps": train.steps,
        "flops": work.example_flops * train.global_batch * train.steps,
        "parameters": work.parameters,
        "devices": args.gpus,
        "step_seconds": step,
        "exchange_seconds": exchange,
        "seconds": hours * 3600 / args.gpus,
        "device_hours": hours,
        "memory_bytes": {**memory._asdict(), "total": memory.total},
        "checkpoint_bytes": planning.checkpoint_bytes(train, work),
        "checkpoints": planning.num_checkpoints(train),
        "metrics_bytes": planning.metrics_bytes(train),
        "data_bytes": work.data_bytes,
        "cost": None if args.price is None else args.price * hours,
        "measured": [shapes] if has_data else [],
        "assumed": assumed if has_data else [*assumed, shapes],
    }


def _examples(recipe: PretrainRecipe, args: argparse.Namespace) -> tuple[int, int]:
    """Return the number of examples of a step that one device has, and how many of them it holds at once."""
    share = -(-recipe.train.global_batch // args.gpus)
    return share, min(share, recipe.train.micro_batch or share)


def _lines(
    recipe: PretrainRecipe, work: Work, args: argparse.Namespace, plan: dict[str, Any]
) -> Iterator[str]:
    where = f"{args.gpus} x {args.gpu}" + (f", {args.nodes} nodes" if args.nodes > 1 else "")
    yield f"{args.recipe} on {where}: an estimate"
    examples = counted(recipe.train.global_batch, "example")
    flops = plan["flops"] / plan["steps"]
    yield f"work      {counted(plan['steps'], 'step')} of {examples}, {flops:.3g} FLOPs a step"
    yield f"model     {plan['parameters']:,} parameters, head of the objective included"
    yield f"step      {plan['step_seconds']:,.3g} s, {plan['exchange_seconds']:,.3g} s of it to exchange gradients"
    yield f"time      {time_of(plan['seconds'])}, {plan['device_hours']:,.3g} device-hours"
    memory = dict(plan["memory_bytes"])
    total, device = memory.pop("total"), ACCELERATORS[args.gpu].memory
    yield f"memory    {size_of(total)} a device with {counted(_examples(recipe, args)[1], 'example')} at once"
    yield f"          ({', '.join(f'{name} {size_of(size)}' for name, size in memory.items())})"
    if total > 0.9 * device:
        yield f"          more than a device of {size_of(device)} holds: lower train.micro_batch"
    count, size, metrics = (plan[name] for name in ("checkpoints", "checkpoint_bytes", "metrics_bytes"))
    kept = f"{counted(count, 'checkpoint')} of {size_of(size)}, metrics {size_of(metrics)}"
    yield f"disk      {size_of(count * size + metrics)}: {kept}"
    if work.data_bytes is not None:
        yield f"data      {size_of(work.data_bytes)} of shards, read {work.epochs:.3g} times"
    yield "money     " + (
        "give --price, of a device for an hour"
        if plan["cost"] is None
        else f"{money(plan['cost'])}, in the currency of --price"
    )
    yield from (f"measured  {line}" for line in plan["measured"])
    yield from (f"assumed   {line}" for line in plan["assumed"])


def _checked(args: argparse.Namespace) -> tuple[PretrainRecipe, Data | None]:
    recipe, data = library.load(PretrainRecipe, args), data_of(args)
    if data is None:
        problems = check_model(recipe.model, recipe.train.length)
        if not problems and args.gpus > recipe.train.global_batch:
            problems.append(
                f"--gpus: {args.gpus} workers cannot share train.global_batch {recipe.train.global_batch}"
            )
    else:
        manifest, vocabulary = load_data_manifest(data), load_data_vocabulary(data)
        problems = check(
            recipe, manifest, workers=(args.gpus, args.gpus), vocabulary=vocabulary, trains_here=False
        )
    if problems:
        raise SettingsError(library.source(args), problems)
    return recipe, data
