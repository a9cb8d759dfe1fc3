"""Three sentences of what was found, from the numbers that the sections below show in full."""

import itertools
from collections.abc import Iterator, Sequence

from tokenfree.train.sweep.results.compare import Setting
from tokenfree.train.sweep.space.targets import LOSS, SPEED
from tokenfree.workflows.report.finetuned.section import best_step, main_score
from tokenfree.workflows.report.load import DataRecord, RunRecord
from tokenfree.workflows.report.sections.parts import count, duration
from tokenfree.workflows.report.sections.run_comparison import names
from tokenfree.workflows.report.sections.run_section import (
    characters,
    median,
    no_context,
    num_restarts,
    recipe_of,
    seconds,
    speeds,
)
from tokenfree.workflows.report.sections.sweep_view import SweepView

MOST = 3
_SAME_LEVEL = 0.05  # nats: losses are compared where what they are to go below is as good as the same


def findings(runs: Sequence[RunRecord], sweeps: Sequence[SweepView], data: Sequence[DataRecord]) -> list[str]:
    """The first sentence about the runs, about each sweep and about the data, then their second ones, three in all."""
    pretrained = [run for run in runs if not run.is_finetuned]
    finetuned = [run for run in runs if run.is_finetuned]
    groups = [_of_runs(pretrained), *map(_of_finetuned, finetuned), *map(_of_sweep, sweeps), *map(_of_data, data)]
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*groups))
    return [sentence for sentence in in_turn if sentence][:MOST]


def _of_runs(runs: Sequence[RunRecord]) -> Iterator[str]:
    if len(runs) == 1:
        yield from _of_run(runs[0])
    elif runs:
        yield from _of_several(runs)


def _of_run(run: RunRecord) -> Iterator[str]:
    if not run.validations:
        yield f"{run.name} has no held-out loss yet."
        return
    result, last, level = run.result or {}, run.validations[-1], no_context(run)
    loss, unit = last["validation_loss"], result.get("symbol") or "target"
    planned = recipe_of(run).get("train", {}).get("steps")
    after = f"{last['step']:,} steps" + ("" if run.result or not planned else f" of {planned:,}")
    beside = "" if level is None else f", {_below(loss, level)}"
    yield f"{run.name} has a held-out loss of {loss:.3f} nats per {unit} after {after}{beside}."
    if run.steps:
        restarts = num_restarts(run)
        told = f", with {restarts} {'restart' if restarts == 1 else 'restarts'}" if restarts else ""
        yield (
            f"{run.name} read {count(characters(run)[-1])} characters in {duration(seconds(run)[-1])} of steps, "
            f"{count(median(speeds(run)))} a second in the median{told}."
        )
    if "validation_accuracy" in last:
        share = f"{100 * last['validation_accuracy']:.1f}%"
        yield f"The first guess of {run.name} is right for {share} of the held-out targets."


def _of_finetuned(run: RunRecord) -> Iterator[str]:
    name, best = main_score(run), best_step(run)
    scored = {line["step"]: line["validation_main"] for line in run.validations if "validation_main" in line}
    if best in scored:
        yield f"{run.name} has {name} {scored[best]:.4f} on its development set at step {best:,}, which is kept."
    elif scored:
        step = max(scored)
        yield f"{run.name} has {name} {scored[step]:.4f} on its development set after {step:,} steps."
    else:
        yield f"{run.name} has no score on a development set."


def _of_several(runs: Sequence[RunRecord]) -> Iterator[str]:
    known = [(name, run) for name, run in zip(names(runs), runs, strict=True) if run.validations]
    if not known:
        yield f"None of the {len(runs)} runs has a held-out loss yet."
        return
    losses = {name: run.validations[-1]["validation_loss"] for name, run in known}
    levels = {name: level for name, run in known if (level := no_context(run)) is not None}
    symbols = {(run.result or {}).get("symbol") for _, run in known}
    of = f"Of {len(known)} runs" if len(known) == len(runs) else f"Of the {len(known)} runs that were validated"
    if _are_comparable([run for _, run in known]):
        first, second = sorted(losses, key=losses.__getitem__)[:2] if len(losses) > 1 else (next(iter(losses)), "")
        at = {name: count(characters(run)[-1]) for name, run in known if run.steps}
        after = {name: f" after {at[name]} characters" if len({*at.values()}) > 1 else "" for name in at}
        behind = f"; {second} is {losses[second] - losses[first]:.3f} behind{after.get(second, '')}" if second else ""
        unit = max(filter(None, symbols), default="target")
        best = f"{losses[first]:.3f} nats per {unit}{after.get(first, '')}"
        yield f"{of} {first} has the lowest held-out loss, {best}{behind}."
    elif len(levels) > 1:
        gains = {name: levels[name] - losses[name] for name in levels}
        first, *_, last = sorted(gains, key=gains.__getitem__, reverse=True)
        yield (
            f"{of}, whose targets are not equally hard, {first} is furthest below what needs no context "
            f"({_signed(gains[first])} nats) and {last} least ({_signed(gains[last])})."
        )
    fast = {name: median(speeds(run)) for name, run in known if run.steps}
    if len(fast) > 1:
        slowest, *_, fastest = sorted(fast, key=fast.__getitem__)
        yield (
            f"{fastest} reads fastest, {count(fast[fastest])} characters a second in the median, and {slowest} "
            f"slowest, {count(fast[slowest])}."
        )
    read = {name: characters(run)[-1] for name, run in known if run.steps}
    if read:
        least, most = count(min(read.values())), count(max(read.values()))
        yield f"The runs read {least if least == most else f'{least} to {most}'} characters each."


def _are_comparable(runs: Sequence[RunRecord]) -> bool:
    """Whether runs are held to the same targets: by objective, data and length, and by what needs no context."""
    asked = [
        [recipe_of(run).get("objective"), run.config.get("manifest"), recipe_of(run).get("train", {}).get("length")]
        for run in runs
    ]
    levels = [level for run in runs if (level := no_context(run)) is not None]
    spread = max(levels, default=0.0) - min(levels, default=0.0)
    return all(each == asked[0] for each in asked) and spread <= _SAME_LEVEL


def _of_sweep(view: SweepView) -> Iterator[str]:
    if not view.ranked:
        yield f"No trial of {view.sweep.name} has come to a held-out loss yet."
        return
    best = view.ranked[0]
    how = "one seed" if best.interval.count == 1 else f"{best.interval.count} seeds"
    ahead = "the only one that got so far"
    if len(view.ranked) > 1 and view.ranked[1].interval.count == best.interval.count and view.targets[0] == LOSS:
        ahead = f"{view.ranked[1].interval.mean - best.interval.mean:.3f} ahead of the next"
    elif len(view.ranked) > 1:
        ahead = f"{len(view.ranked)} settings got so far"
    yield (
        f"Of the settings that {view.sweep.name} tried, {view.described(best.setting.values) or best.setting.name} is "
        f"best at {view.at}: {view.praise(best.setting)} ({how}), {ahead}."
    )
    cheaper = _cheaper(view, best.setting) if view.quality == LOSS else ""
    if cheaper:
        yield cheaper
    real = [item for item in view.importances if item.share > item.chance]
    if real:
        shares = " and ".join(f"{item.knob} ({100 * item.share:.0f}%)" for item in real)
        explain = "explains" if len(real) == 1 else "explain"
        yield f"{shares} {explain} more of the differences between the trials of {view.sweep.name} than chance would."
    elif view.importances:
        yield f"No knob of {view.sweep.name} explains more of the differences between its trials than chance would."


def _cheaper(view: SweepView, best: Setting) -> str:
    """What the fastest setting of the front gives up."""
    leading = [item for item in view.front((LOSS, SPEED)) if view.cost(item.setting).speed]
    own = view.cost(best).speed
    if not leading or not own or view.front_amount is None:
        return ""
    fastest = max(leading, key=lambda item: view.cost(item.setting).speed or 0.0)
    loss, best_loss = (
        setting.interval(LOSS.metric, view.front_amount, view.unit) for setting in (fastest.setting, best)
    )
    ratio = (view.cost(fastest.setting).speed or 0.0) / own
    if fastest.setting.name == best.name or loss is None or best_loss is None:
        return f"At {view.front_at} no setting reads faster than that, {count(own)} characters a second."
    worse = loss.mean - best_loss.mean
    return (
        f"At {view.front_at} of {view.sweep.name} {view.described(fastest.setting.values)} reads {ratio:.2f} times as "
        f"fast as the best, and is {worse:.3f} nats worse."
    )


def _of_data(record: DataRecord) -> Iterator[str]:
    shards = [shard for split in record.manifest.splits.values() for shard in split.shards]
    languages: dict[str, int] = {}
    for shard in shards:
        languages[shard.language] = languages.get(shard.language, 0) + shard.characters
    total = sum(languages.values())
    if not total:
        return
    most = max(languages, key=languages.__getitem__)
    of = (
        most
        if len(languages) == 1
        else f"{len(languages)} languages, {100 * languages[most] / total:.0f}% of them {most}"
    )
    documents, rows = (sum(getattr(shard, what) for shard in shards) for what in ("documents", "rows"))
    yield f"{record.name} holds {count(total)} characters of {of}, in {documents:,} documents and {rows:,} windows."


def _below(loss: float, level: float) -> str:
    where = "below" if loss < level else "above"
    return f"{abs(loss - level):.3f} {where} what needs no context ({level:.3f})"


def _signed(gain: float) -> str:
    return f"{gain:.3f}" if gain >= 0 else f"{-gain:.3f} above it"
