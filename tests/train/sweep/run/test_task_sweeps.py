"""Sweeps of fine-tuning recipes: judged by the score on the development set, tested once, begun and gone on with."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.train.finetune.conftest import MakeTask, splits, task_recipe
from tests.train.sweep.conftest import MakeTaskSweep
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.settings import build, merge, value_at
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe
from tokenfree.train.finetune import finetune
from tokenfree.train.loop import finetuning
from tokenfree.train.runs.hashes import verify_folder
from tokenfree.train.sweep import run
from tokenfree.train.sweep.run import prepare, run_sweep
from tokenfree.train.sweep.subjects import TaskInput
from tokenfree.train.sweep.trial import TrialSession
from tokenfree.workflows import cli

MIRRORED = {
    "model": {
        "width": 10,
        "embedder": {"name": "vectors", "size": 4},
        "downsampler": {"name": "identity"},
        "trunk": {"layers": 1, "heads": 2},
        "upsampler": {"name": "identity"},
    },
    "task": {
        "name": "mirrored_summation", "length": 8, "size": 4, "pairs": 2, "train_examples": 64, "dev_examples": 16,
        "test_examples": 16,
    },
    "train": {
        "steps": 4, "global_batch": 8, "length": 9, "validate_every_steps": 2, "threads": 1, "learning_rate": 0.01,
    },
}  # fmt: skip


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def chosen_files(folder: Path) -> dict[str, bytes]:
    """What a run of fine-tuning comes to."""
    names = ("result.json", "predictions/dev.jsonl", "predictions/test.jsonl")
    return {name: (folder / name).read_bytes() for name in names}


def test_every_setting_has_a_mean_and_the_best_alone_is_tested(
    make_task_sweep: MakeTaskSweep, files: dict[str, str], tmp_path: Path, without_ray: list[str]
) -> None:
    test_set, hidden = tmp_path / "test.tsv", tmp_path / "hidden"
    test_set.write_bytes(Path(files["test"]).read_bytes())

    def hide_from_trials(event: Mapping[str, Any], history: Any) -> None:
        if event["event"] == "begin" and test_set.exists():
            test_set.rename(hidden)
        if history.all_ended:
            hidden.rename(test_set)

    given = TaskInput({**splits(files), "test": str(test_set)})
    train = {"steps": 24, "validate_every_steps": 6}
    sweep = make_task_sweep(train=train, space={"train.learning_rate": {"grid": [0.000001, 0.02]}})
    result = run_sweep(sweep, given, str(tmp_path / "sweep"), progress=hide_from_trials)
    assert len(without_ray) == 4 * sweep.reports == 16
    found = read(tmp_path / "sweep" / "result.json")
    scores = [max(report["validation_accuracy"] for report in trial.reports) for trial in result.trials]
    by_setting = {0: scores[:2], 1: scores[2:]}
    assert [each["dev"]["seeds"] for each in found["settings"]] == [by_setting[0], by_setting[1]]
    means = [sum(scores) / 2 for scores in by_setting.values()]
    assert [each["dev"]["mean"] for each in found["settings"]] == means
    best = found["best"]["setting"]
    assert means[best] == max(means) > min(means)
    assert result.best is not None
    assert result.best.setting == best
    low, high = sorted(by_setting[best])
    assert found["settings"][best]["dev"]["interval"] == pytest.approx(12.7062 * (high - low) / 2, abs=1e-4)
    assert [each["test"] is not None for each in found["settings"]] == [number == best for number in range(2)]
    tested = sorted(
        path.parent.parent.name for path in (tmp_path / "sweep").glob("trials/*/predictions/test.jsonl")
    )
    assert tested == found["best"]["trials"] == [f"trial_{best:03d}_seed_{seed}" for seed in range(2)]
    results = [read(tmp_path / "sweep" / "trials" / name / "result.json") for name in tested]
    assert found["test"]["accuracy"] == sum(each["test"]["accuracy"] for each in results) / 2
    assert verify_folder(str(tmp_path / "sweep")).complete

    test_set.unlink()  # of a sweep that has ended it is not even looked for again
    test_set.write_bytes(Path(files["test"]).read_bytes())
    before = (tmp_path / "sweep" / "result.json").read_bytes()
    assert run_sweep(sweep, given, str(tmp_path / "sweep")).already_complete
    assert (tmp_path / "sweep" / "result.json").read_bytes() == before
    assert len(without_ray) == 16


@pytest.mark.parametrize(
    ("task", "prefix", "start"),
    [("classification", "", "run"), pytest.param("tagging", "tags_", None, marks=pytest.mark.slow)],
)
def test_a_trial_is_what_finetune_makes_of_its_setting(
    task: str,
    prefix: str,
    start: str | None,
    make_task: MakeTask,
    make_task_sweep: MakeTaskSweep,
    files: dict[str, str],
    tmp_path: Path,
    without_ray: list[str],
) -> None:
    init_from = None if start is None else str(tmp_path / start)
    if init_from is not None:
        finetune(make_task("classification", steps=4, seed=5), splits(files), init_from)
    sweep = make_task_sweep(task, overrides={"model": {"trunk": {"dropout": 0.2}}})
    run_sweep(sweep, TaskInput(splits(files, prefix), init_from), str(tmp_path / "sweep"))
    best = read(tmp_path / "sweep" / "result.json")["best"]
    for seed, name in enumerate(best["trials"]):
        train = {"seed": seed, "learning_rate": best["values"]["train.learning_rate"]}
        over = {"train": train, "model": {"trunk": {"dropout": 0.2}}}
        recipe = build(FinetuneRecipe, merge(to_mapping(make_task(task)), over), source="test")
        finetune(
            recipe, splits(files, prefix), str(tmp_path / name), init_from=init_from, model=over["model"]
        )
        assert chosen_files(tmp_path / "sweep" / "trials" / name) == chosen_files(tmp_path / name)


def test_baselines_are_computed_once_per_sweep(
    make_task_sweep: MakeTaskSweep,
    files: dict[str, str],
    tmp_path: Path,
    without_ray: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, score = list[Any](), finetuning.score_baselines
    monkeypatch.setattr(finetuning, "score_baselines", lambda *given: calls.append(given) or score(*given))
    run_sweep(make_task_sweep(), TaskInput(splits(files)), str(tmp_path / "sweep"))
    found = read(tmp_path / "sweep" / "result.json")
    assert (len(calls), len(found["best"]["trials"])) == (1, 2)
    for name in found["best"]["trials"]:
        assert read(tmp_path / "sweep" / "trials" / name / "result.json")["baseline"] == found["baseline"]


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_last_line_says_that_one_seed_shows_little(
    seeds: int,
    files: dict[str, str],
    tmp_path: Path,
    without_ray: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    base, space = to_mapping(task_recipe("classification")), {"train.learning_rate": {"grid": [0.001, 0.02]}}
    recipe = {"base": base, "space": space, "budget": {"steps": 2}, "searcher": "grid", "seeds": seeds}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    given = ["--train", files["train"], "--dev", files["dev"], "--output", str(tmp_path / "sweep")]
    assert cli.main(["sweep", str(tmp_path / "recipe.yaml"), *given]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ("differences between settings may be chance" in lines[-1]) == (seeds == 1)
    assert any(line.startswith("      baseline: accuracy 0.6667 (larger class)") for line in lines)


def test_less_is_better_where_the_score_is_an_error(
    make_task_sweep: MakeTaskSweep, tmp_path: Path, without_ray: list[str]
) -> None:
    """And a task that makes its examples needs no files."""
    space = {"train.learning_rate": {"grid": [0.00001, 0.05]}}
    sweep = make_task_sweep(base=MIRRORED, space=space, seeds=1)
    assert sweep.objectives == ("dev_error",)
    result = run_sweep(sweep, TaskInput(), str(tmp_path / "sweep"))
    found = read(tmp_path / "sweep" / "result.json")
    errors = [each["dev"]["mean"] for each in found["settings"]]
    assert errors[found["best"]["setting"]] == min(errors) < max(errors)
    assert [each["dev"]["interval"] for each in found["settings"]] == [None, None]
    assert errors == [min(report["validation_main"] for report in trial.reports) for trial in result.trials]


def test_what_was_tested_before_a_kill_is_not_tested_again(
    make_task_sweep: MakeTaskSweep,
    files: dict[str, str],
    tmp_path: Path,
    without_ray: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given, tested = TaskInput(splits(files)), list[str]()

    def killed_at_the_second(*arguments: Any, **named: Any) -> Any:
        if len(tested) == 1:
            raise KeyboardInterrupt
        tested.append(Path(arguments[2]).name)
        return finetune(*arguments, **named)

    sweep = make_task_sweep()
    run_sweep(sweep, given, str(tmp_path / "whole"))
    monkeypatch.setattr(run, "finetune", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(sweep, given, str(tmp_path / "killed"))
    assert not (tmp_path / "killed" / "result.json").exists()
    assert not (tmp_path / "killed" / "sweep.csv").exists()

    def again(*arguments: Any, **named: Any) -> Any:
        tested.append(Path(arguments[2]).name)
        return finetune(*arguments, **named)

    monkeypatch.setattr(run, "finetune", again)
    run_sweep(sweep, given, str(tmp_path / "killed"))
    assert tested == read(tmp_path / "whole" / "result.json")["best"]["trials"]
    assert (tmp_path / "killed" / "result.json").read_bytes() == (
        tmp_path / "whole" / "result.json"
    ).read_bytes()
    for name in tested:
        assert chosen_files(tmp_path / "killed" / "trials" / name) == chosen_files(
            tmp_path / "whole" / "trials" / name
        )


@pytest.mark.slow
def test_trials_go_on_bit_for_bit_and_keep_their_best_checkpoint(
    make_task_sweep: MakeTaskSweep,
    files: dict[str, str],
    tmp_path: Path,
    without_ray: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every report is followed by the end of its process, before or after the journal records it."""
    sweep, given = make_task_sweep(train={"steps": 12, "learning_rate": 0.01}), TaskInput(splits(files))
    whole = run_sweep(sweep, given, str(tmp_path / "whole"))
    advance, told = TrialSession.advance, list[Any]()

    def dying(session: TrialSession) -> Any:
        report = advance(session)
        if len(told) % 2 == 0:
            told.append(report)
            session.close()
            raise KeyboardInterrupt
        told.append(report)
        return report

    monkeypatch.setattr(TrialSession, "advance", dying)
    for _ in range(100):
        try:
            killed = run_sweep(sweep, given, str(tmp_path / "killed"))
            break
        except KeyboardInterrupt:
            continue
    assert len(told) > 24
    scores = [
        [[report["dev_score"] for report in trial.reports] for trial in each.trials]
        for each in (whole, killed)
    ]
    assert scores[0] == scores[1]
    assert (tmp_path / "killed" / "result.json").read_bytes() == (
        tmp_path / "whole" / "result.json"
    ).read_bytes()


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"objectives": ["validation_loss"]}, "objectives: this task is judged by dev_score"),
        (
            {"objectives": ["characters_per_second", "dev_score"]},
            "objectives: this task is judged by dev_score",
        ),
        ({"objectives": ["dev_score", "dev_error"]}, "objectives: this task is judged by dev_score"),
        ({"space": {"train.seed": {"grid": [1, 2]}}}, "space: train.seed: the sweep sets it for each trial"),
        (
            {"space": {"train.steps": {"grid": [1, 2]}}},
            "space: train.steps: the sweep sets it .*give budget.steps",
        ),
        ({"space": {"train.rate": {"grid": [1, 2]}}}, "space: train.rate: there is no key 'train.rate'"),
        (
            {"variants": {"other": MIRRORED}},
            "variant other: a recipe of mirrored_summation, where .* classification",
        ),
        (
            {"variants": {"other": {"model": {}}}},
            "variant other: a recipe of pretraining, where .* classification",
        ),
    ],
)
def test_nonsense_is_refused_before_anything_starts(
    over: dict[str, Any], message: str, make_task_sweep: MakeTaskSweep, files: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        run_sweep(make_task_sweep(**over), TaskInput(splits(files)), str(tmp_path / "sweep"))
    assert not (tmp_path / "sweep").exists()


def test_settings_that_read_other_examples_are_not_compared(
    make_task_sweep: MakeTaskSweep, tmp_path: Path
) -> None:
    path = tmp_path / "texts.csv"
    path.write_text("one,two,label\n" + "".join(f"a {n},b {n},{n % 2}\n" for n in range(8)), encoding="utf-8")
    sweep = make_task_sweep(
        {"name": "classification", "text_column": "one"}, space={"task.text_column": {"grid": ["one", "two"]}}
    )
    with pytest.raises(
        UserError, match=r"1 of 2 settings .*task: other values would change what is validated"
    ):
        prepare(sweep, TaskInput({"train": str(path), "dev": str(path)}), str(tmp_path / "sweep"))


def test_data_of_the_other_kind_are_refused(
    make_task_sweep: MakeTaskSweep, files: dict[str, str], tmp_path: Path
) -> None:
    sweep = make_task_sweep()
    with pytest.raises(UserError, match="--dev is missing"):
        run_sweep(sweep, TaskInput({"train": files["train"]}), str(tmp_path / "sweep"))
    with pytest.raises(UserError, match="give --train and --dev"):
        run_sweep(sweep, "data", str(tmp_path / "sweep"))
    bare = make_task_sweep(base={"model": {}})
    with pytest.raises(UserError, match="give --data"):
        run_sweep(bare, TaskInput(splits(files)), str(tmp_path / "sweep"))


def test_weights_that_changed_are_refused(
    make_task: MakeTask,
    make_task_sweep: MakeTaskSweep,
    files: dict[str, str],
    tmp_path: Path,
    without_ray: list[str],
) -> None:
    start, sweep = str(tmp_path / "start"), make_task_sweep()
    finetune(make_task("classification", steps=2), splits(files), start)

    def stop(event: Mapping[str, Any], history: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(sweep, TaskInput(splits(files), start), str(tmp_path / "sweep"), progress=stop)
    os.rename(start, tmp_path / "old")
    finetune(make_task("classification", steps=2, seed=1), splits(files), start)
    with pytest.raises(UserError, match="holds another sweep"):
        run_sweep(sweep, TaskInput(splits(files), start), str(tmp_path / "sweep"))


def test_what_a_recipe_leaves_open_is_taken_from_finetune(make_task_sweep: MakeTaskSweep) -> None:
    sweep = make_task_sweep(train={"steps": 12, "validate_every_steps": 5})
    assert (sweep.budget.steps, sweep.reports) == (12, 3)
    assert (sweep.searcher.name, sweep.scheduler.name) == ("grid", "none")
    over = {
        "budget": {"steps": 20},
        "space": {"train.learning_rate": {"log_uniform": [0.001, 0.1]}},
        "scheduler": "asha",
    }
    sweep = make_task_sweep(train={"validate_every_steps": 5}, **over)
    assert (sweep.reports, sweep.searcher.name, sweep.scheduler.name) == (4, "even", "asha")
    assert value_at(to_mapping(sweep), "base.train.steps") == 8


def test_trials_that_all_fail_say_why(
    make_task_sweep: MakeTaskSweep, files: dict[str, str], tmp_path: Path, without_ray: list[str]
) -> None:
    """Here it is raised as it is, where Ray would make it the failure of a trial."""
    bare = tmp_path / "bare.tsv"
    bare.write_text("text\nsome day\n", encoding="utf-8")
    given = TaskInput({"train": files["train"], "dev": str(bare)})
    with pytest.raises((JobError, UserError), match="the examples of --dev have no labels"):
        run_sweep(make_task_sweep(), given, str(tmp_path / "sweep"))


@pytest.mark.parametrize("start", ["weights", "vocabulary", "data"])
def test_a_sweep_resumes_by_its_folder_alone(
    start: str,
    corpus: str,
    make_recipe: Callable[..., PretrainRecipe],
    files: dict[str, str],
    tmp_path: Path,
    without_ray: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [word for split in ("train", "dev") for word in (f"--{split}", os.path.relpath(files[split]))]
    base, space = to_mapping(task_recipe("classification")), {"train.learning_rate": {"grid": [0.001, 0.02]}}
    if start == "weights":
        finetune(task_recipe("classification", steps=2), splits(files), "first")
        given += ["--init-from", "first", "--overrides", "{model: {trunk: {dropout: 0.2}}}"]
    elif start == "vocabulary":
        base = to_mapping(task_recipe("classification", "subwords"))
        given += ["--vocabulary", os.path.relpath(f"{corpus}/vocabulary/subwords.model")]
    else:
        base, given = to_mapping(make_recipe(steps=2)), ["--data", os.path.relpath(corpus), "--reports", "1"]
        Path("one.yaml").write_text(yaml.safe_dump(base))
        space = {"variant": {"grid": ["one.yaml"]}}
    Path("recipe.yaml").write_text(
        yaml.safe_dump({"base": base, "space": space, "budget": {"steps": 2}, "searcher": "grid"})
    )
    assert cli.main(["sweep", "recipe.yaml", *given, "--output", "sweep"]) == 0
    num_reports, _ = len(without_ray), capsys.readouterr()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for again in ([], ["../sweep/sweep.yaml"]):
        assert cli.main(["sweep", *again, "--output", "../sweep"]) == 0
        assert f"already complete ({2 - (start == 'data')} trial" in capsys.readouterr().out
    assert len(without_ray) == num_reports > 0
    assert cli.main(["sweep", "--output", "sweep"]) == 2
    assert "RECIPE: missing, and sweep has no sweep.yaml to resume" in capsys.readouterr().err
    assert cli.main(["sweep", "--output", "../sweep", "--trials", "1"]) == 2
    assert "holds another sweep (the recipe differs)" in capsys.readouterr().err
