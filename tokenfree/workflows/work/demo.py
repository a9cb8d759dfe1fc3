"""Do the work of `tokenfree demo`."""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.train.evaluate import evaluate
from tokenfree.train.inference.predictor import load_predictor
from tokenfree.train.pretrain import pretrain
from tokenfree.train.sweep.results import ONE_SEED
from tokenfree.train.sweep.run import run_sweep
from tokenfree.workflows.api import Recipe
from tokenfree.workflows.demo_corpus.corpus import write_demo_corpus
from tokenfree.workflows.report.page import write_report
from tokenfree.workflows.terminal.output import Verbosity
from tokenfree.workflows.terminal.progress import LiveLine, ProgressLine, StageLine
from tokenfree.workflows.terminal.results import context_line, loss_lines, next_command
from tokenfree.workflows.terminal.sweep import SweepTable

DATA_RECIPE, MODEL_RECIPE, SWEEP_RECIPE = "wikipedia-tiny", "canine-words-tiny", "three-knobs-tiny"

# Common phrases of docstrings and the piece that each hides, chosen before any model was trained on this
# corpus.
SENTENCES = (
    ("Return the number [MASK:2] items in the list.", "of"),
    ("Return [MASK:4] if the file exists.", "True"),
    ("See the documentation [MASK:3] more information.", "for"),
    ("If the argument is [MASK:4], the default is used.", "None"),
    ("Convert a string [MASK:2] an integer.", "to"),
)


def run(args: argparse.Namespace) -> None:
    output, dump, workers, verbosity = args.output, args.dump, args.workers, args.verbosity
    seconds: dict[str, float] = {}

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        seconds[name] = time.perf_counter() - start

    folder = Path(output)
    data, run, sweep = (str(folder / name) for name in ("data", "run", "sweep"))
    with stage("corpus"):
        inputs = {"wikipedia": (dump,)} if dump else _write_corpus(folder / "corpus", verbosity)
    config = Recipe.for_preprocessing(DATA_RECIPE, **inputs)
    with stage("preprocess"), StageLine(verbosity=verbosity) as line:
        manifest = run_preprocess(config, data, progress=line)
    recipe = Recipe.from_name(MODEL_RECIPE)
    with stage("pretrain"), ProgressLine(steps=recipe.train.steps, verbosity=verbosity) as line:
        result = pretrain(recipe, data, run, workers=(workers, workers), progress=line)
    with stage("sweep"), SweepTable(verbosity=verbosity) as line:
        swept = run_sweep(Recipe.for_sweep(SWEEP_RECIPE), data, sweep, progress=line)
    with stage("evaluate"):
        scores = evaluate(run, data)
        lines = [*filter(None, [context_line(scores)]), *([] if dump else prediction_lines(run))]
    with stage("report"):
        report = str(folder / "report.html")
        write_report([data, run, sweep], report, contexts={run: scores})

    train = manifest.splits["train"]
    counts = f"{train.documents:,} documents, {train.rows:,} windows, {train.characters:,} characters"
    print(f"\ncorpus    {counts} to train on")
    for name, line in zip(("pretrain", ""), loss_lines(result), strict=False):
        print(f"{name:<10}{line}")
    if swept.best is not None:
        values = ", ".join(f"{key.split('.')[-1]} {value}" for key, value in swept.best.values.items())
        loss = swept.best.last["validation_loss"]
        print(f"sweep     best of {len(swept.trials)} trials: {values} (held-out loss {loss:.3f} nats)")
        print(f"          {ONE_SEED}")
    print("seconds   " + ", ".join(f"{name} {elapsed:.0f}" for name, elapsed in seconds.items()))
    print(f"files     {data}, {run}, {sweep}, {report}")
    for line in lines:
        print(line)
    print(next_command("predict", run, SENTENCES[0][0]))


def prediction_lines(run: str) -> Iterator[str]:
    predictor = load_predictor(run)
    for sentence, answer in SENTENCES:
        [guesses] = predictor(sentence, top=3)
        ranking = ", ".join(f"{guess.text} {guess.probability:.0%}" for guess in guesses)
        mark = "\N{CHECK MARK}" if guesses[0].text == answer else "\N{BALLOT X}"
        yield f"{mark} {sentence} {ranking}"


def _write_corpus(folder: Path, verbosity: Verbosity) -> dict[str, tuple[str, ...]]:
    with LiveLine(verbosity=verbosity) as line:
        corpus = write_demo_corpus(folder)
        line.show(
            f"corpus     {corpus.documents:,} documents, {corpus.characters:,} characters, in English",
            final=True,
        )
    return {"wikipedia": tuple(map(str, corpus.wikipedia)), "books": tuple(map(str, corpus.books))}
