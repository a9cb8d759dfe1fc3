"""Estimate what pretraining a recipe takes: hours, device memory, bytes on disk, money. Nothing is trained.

The time is the recipe's arithmetic divided by the peak of the GPU and the share of it that training reaches
(--utilisation). The last lines list the assumptions.

Examples:
  tokenfree plan canine-s-base --gpus 8 --gpu h100 --price 3
  tokenfree plan canine-s-base --gpus 64 --nodes 8 --utilisation 0.4
"""

import argparse
import json
from typing import TYPE_CHECKING

from tokenfree.core.errors import UserError
from tokenfree.train.devices import ACCELERATORS
from tokenfree.workflows.recipes import options as recipe_options
from tokenfree.workflows.recipes.keys import PRETRAINING
from tokenfree.workflows.recipes.options import add_data_argument, data_of

if TYPE_CHECKING:
    from tokenfree.train.config import PretrainRecipe
    from tokenfree.train.data.mixture import Data
    from tokenfree.workflows.terminal.plans import RunPlan

KIND = PRETRAINING  # kind of recipe that the command reads
_UTILISATION = 0.3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `RECIPE --gpus N [--nodes M] [--gpu KIND] [--data DIR] [--utilisation X] [--price P] [--json]`."""
    recipe_options.add_arguments(parser, KIND)
    parser.add_argument("--gpus", metavar="N", type=int, required=True, help="total number of GPUs, one worker each")
    parser.add_argument("--nodes", metavar="M", type=int, default=1, help="number of machines (default 1)")
    parser.add_argument("--gpu", choices=tuple(ACCELERATORS), default="h100", help="kind of GPU (default h100)")
    add_data_argument(parser, "a data directory, or several as for pretrain; without it windows count as full")
    shown = f"share of the peak that training reaches on GPUs, 0 to 1 (default {_UTILISATION}, assumed)"
    parser.add_argument("--utilisation", metavar="X", type=float, help=shown)
    parser.add_argument("--price", metavar="P", type=float, help="price of a GPU per hour")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    """Print the plan.

    Raises:
        UserError: The recipe does not fit the data or the devices.
    """
    from tokenfree.workflows.terminal.plans import run_plan_lines
    from tokenfree.workflows.terminal.verbosity import show_settings

    recipe, data = _checked(args)
    show_settings(args.verbosity, recipe)
    plan = _plan(recipe, data, args)
    print(json.dumps(plan.numbers()) if args.json else "\n".join(run_plan_lines(plan)))
    return 0


def _checked(args: argparse.Namespace) -> "tuple[PretrainRecipe, Data | None]":
    from tokenfree.train.config import PretrainRecipe, check
    from tokenfree.train.data.mixture import load_data_manifest, load_data_vocabulary
    from tokenfree.train.model.encoder import check as check_model

    if args.gpus < 1:
        raise UserError(f"--gpus {args.gpus}: give 1 or more")
    if args.nodes < 1 or args.gpus % args.nodes:
        raise UserError(f"--nodes {args.nodes}: {args.gpus} GPUs cannot be shared evenly by {args.nodes} machines")
    if args.utilisation is not None and not 0 < args.utilisation <= 1:
        raise UserError(f"--utilisation {args.utilisation:g}: give a share above 0 and at most 1, such as 0.3")
    if args.price is not None and not 0 <= args.price < float("inf"):
        raise UserError(f"--price {args.price:g}: give what a device costs for an hour")
    recipe, data = recipe_options.load(PretrainRecipe, args), data_of(args)
    if data is None:
        problems = check_model(recipe.model, recipe.train.length)
        if not problems and args.gpus > recipe.train.global_batch:
            problems.append(f"--gpus: {args.gpus} workers cannot share train.global_batch {recipe.train.global_batch}")
    else:
        manifest, vocabulary = load_data_manifest(data), load_data_vocabulary(data)
        problems = check(recipe, manifest, workers=(args.gpus, args.gpus), vocabulary=vocabulary)
    if problems:
        raise UserError(recipe_options.source(args), problems)
    return recipe, data


def _plan(recipe: "PretrainRecipe", data: "Data | None", args: argparse.Namespace) -> "RunPlan":
    from tokenfree.train import planning
    from tokenfree.train.model.costs import step_memory
    from tokenfree.train.planning import work_of
    from tokenfree.workflows.terminal.plans import RunPlan

    train = recipe.train
    work = work_of(recipe, data)
    layout = planning.WorkerLayout(args.gpus, args.nodes)
    share = -(-train.global_batch // layout.devices)
    examples = min(share, train.micro_batch or share)
    exchange = planning.exchange_seconds(work, layout)
    gpu, utilisation = ACCELERATORS[args.gpu], args.utilisation or _UTILISATION
    example = work.example_flops / (gpu.peak(train.precision) * utilisation) / layout.devices
    given = "given" if args.utilisation else "no GPU was measured; give --utilisation"
    assumed = [
        f"{utilisation:.0%} of the peak ({given})",
        f"peak {gpu.peak(train.precision) / 1e12:,.4g} TFLOP/s in {train.precision}: {gpu.source}",
        "activations in float32 with all kept, which is more than GPUs need",
    ]
    if layout.nodes > 1:
        assumed.append(f"{planning.NETWORK * 8 / 1e9:.0f} Gbit/s between nodes, nothing hidden behind arithmetic")
    elif layout.devices > 1:
        assumed.append(f"{planning.LINKS / 1e9:.0f} GB/s between GPUs, nothing hidden behind arithmetic")
    shapes = f"shapes: {work.source}"
    step = example * share * layout.devices + exchange
    encoder = step_memory(recipe.model, train.length, examples, recipe.objective.max_predictions)
    return RunPlan(
        recipe=args.recipe,
        steps=train.steps,
        global_batch=train.global_batch,
        work=work,
        where=f"{args.gpus} x {args.gpu}" + (f", {args.nodes} nodes" if args.nodes > 1 else ""),
        devices=args.gpus,
        examples=examples,
        step_seconds=step,
        exchange_seconds=exchange,
        seconds=planning.run_seconds(train, step, example),
        memory=planning.device_memory(train, work, encoder, examples, layout),
        device_bytes=gpu.memory,
        checkpoint_bytes=planning.checkpoint_bytes(train, work),
        num_checkpoints=planning.num_checkpoints(train),
        metrics_bytes=planning.metrics_bytes(train),
        price=args.price,
        measured=() if data is None else (shapes,),
        assumed=(*assumed, shapes) if data is None else tuple(assumed),
    )
