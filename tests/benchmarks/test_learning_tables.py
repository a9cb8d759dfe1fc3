"""The rows and claims fit the recipes, and the tables say what the lines of results say."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning.claims import CLAIMS, UNTOLD, Claim
from benchmarks.learning.page import BEGIN, END, replaced, write
from benchmarks.learning.plan import CHARACTER_STEPS, ROWS, Row
from benchmarks.learning.results import Line, Results
from benchmarks.learning.tables import claims, commands, comparisons, models, shown_to_read, tables
from tests.conftest import REPOSITORY
from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.settings import build, merge, nest
from tokenfree.train.config import PretrainRecipe
from tokenfree.workflows.recipes import library

BY_NAME = {row.name: row for row in ROWS}


def recipe(row: Row) -> PretrainRecipe:
    """The whole recipe of a row."""
    mapping = merge(library.read_based(row.recipe), nest(list(row.overrides.items())))
    return build(PretrainRecipe, mapping, source=row.name)


def line(model: str, seed: int, loss: float, **numbers: Any) -> Line:
    """The line of a run that reads well, but for `numbers`."""
    evaluation = {
        "validation_masked_only_loss": loss,
        "baseline_masked_only_unigram": 6.0,
        "baseline_masked_only_clue": 5.5,
        "margin": 5.5 - loss,
        "margin_low": 5.4 - loss,
        "margin_high": 5.6 - loss,
        "probe": 0.9,
        "probe_blank": 1.5,
        "probe_blank_low": 1.4,
        "probe_blank_high": 1.6,
        "probe_other": 0.9,
        "probe_other_low": 0.8,
        "probe_other_high": 1.0,
        **numbers,
    }
    return {
        "name": f"{model}-{seed}",
        "model": model,
        "seed": seed,
        "evaluation": evaluation,
        "recipe": f"{model}-tiny",
        "data": "en",
        "overrides": {},
        "characters": 20_000_000,
        "subwords": 6_600_000,
        "targets": 1_000_000,
        "seconds": 1800.0,
        "plateau": {"level": 5.6, "step": 500, "characters": 2_000_000, "subwords": 660_000},
        "curve": [[100, loss + 1], [200, loss]],
    }


def cells(rows: list[str], first: str) -> list[str]:
    """The cells of the row of a table that begins with `first`."""
    return next(row.strip("| ").split(" | ") for row in rows if row.startswith(f"| {first} |"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_is_a_recipe_that_can_be_trained(row: Row) -> None:
    assert recipe(row).train.steps == row.steps


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.better}-{claim.worse}-{claim.measure}")
def test_both_sides_of_a_claim_have_one_budget_and_the_same_targets(claim: Claim) -> None:
    rows = [BY_NAME[name] for name in (claim.better, claim.worse)]
    one, other = map(recipe, rows)
    assert rows[0].data == rows[1].data
    assert one.train == other.train
    assert type(one.objective) is type(other.objective)


def test_there_are_claims_enough_and_none_is_made_twice() -> None:
    assert len(CLAIMS) >= 14
    assert len({(claim.better, claim.worse, claim.measure) for claim in CLAIMS}) == len(CLAIMS)
    used = {name for claim in CLAIMS for name in (claim.better, claim.worse)}
    assert used == {row.name for row in ROWS if row.stage == "comparisons"}


def test_a_model_reads_if_every_seed_does() -> None:
    good = [line("canine-s", seed, 4.0) for seed in range(3)]
    assert shown_to_read(good) == "yes"
    assert shown_to_read(good[:2]) == UNTOLD
    assert shown_to_read([*good[:2], line("canine-s", 2, 5.35)]) == "no: 2 of 3 seeds"  # 0.15 nats
    assert shown_to_read([*good[:2], line("canine-s", 2, 4.0, probe=0.4)]) == "no: 2 of 3 seeds"
    assert shown_to_read([*good[:2], line("canine-s", 2, 4.0, margin_low=-0.1)]) == "no: 2 of 3 seeds"
    assert shown_to_read([*good[:2], line("canine-s", 2, 4.0, probe=None)]) == "no: 2 of 3 seeds"


def test_the_table_of_models_has_the_worst_seed_and_the_mean() -> None:
    found = [line("canine-s", seed, loss) for seed, loss in enumerate((4.0, 4.3, 4.1))]
    found[1]["plateau"] = None
    row = cells(models(found), "CANINE-S")
    assert row[1:5] == ["3", "5.500 (clue)", "4.300", "4.133"]
    assert row[5:7] == ["1.20 (1.10 to 1.30)", "0.90 (0.80 to 1.00)"]
    assert row[7:9] == ["2.0; 1 never", "0.7; 1 never"]
    found[2]["plateau"] = {"characters": 2_500_000, "subwords": 700_001}
    assert cells(models(found), "CANINE-S")[7:9] == ["2.0 to 2.5; 1 never", "0.7; 1 never"]
    assert row[9:] == ["20.0", "1.5", "yes"]


def test_the_table_of_claims_has_our_difference_and_the_verdict() -> None:
    claim = Claim("paper", "one beats two", "3 against 2", "s-base", "s-rate-5")
    found = [line("s-base", seed, 4.0 + seed / 100) for seed in range(3)]
    assert claims(found, [claim]) == ["", "Of 1 more in `benchmarks/learning/claims.py` a side has no run yet."]
    found += [line("s-rate-5", seed, 4.3 + seed / 100) for seed in range(2)]
    assert cells(claims(found, [claim]), "1")[6:] == ["2", "3 of 3, 2 of 2", UNTOLD]  # two seeds of it
    found += [line("s-rate-5", 2, 4.32, probe=0.4)]
    row = cells(claims(found, [claim]), "1")
    assert row[3:6] == ["3 against 2", "+0.300", "+0.277 to +0.323"]
    assert row[6:] == ["3", "3 of 3, 2 of 3", "agrees"]
    assert claims(found, [claim])[-1] == "Of 1 claims: 1 agrees, 0 disagrees, 0 cannot be told."
    turned = Claim("paper", "two beats one", "none", "s-rate-5", "s-base", measure="curve")
    assert cells(claims(found, [turned]), "1")[-1] == "disagrees"
    alike = Claim("paper", "as good", "none", "s-rate-5", "s-base", within=0.5)
    assert cells(claims(found, [alike]), "1")[-1] == "agrees"


def test_claims_without_a_run_are_only_counted() -> None:
    made = [Claim("paper", "one beats two", "3 against 2", better, "s-rate-5") for better in ("s-base", "ms-base")]
    assert claims([], made) == ["", "Of 2 more in `benchmarks/learning/claims.py` a side has no run yet."]
    found = claims([line("s-base", 0, 4.0), line("s-rate-5", 0, 4.0)], made)
    assert found[0].endswith("| seeds | seeds that read | verdict |")
    assert found[-1] == (
        "Of 1 claims: 0 agrees, 0 disagrees, 1 cannot be told. "
        "Of 1 more in `benchmarks/learning/claims.py` a side has no run yet."
    )
    assert comparisons([])[0].startswith("All 0 runs")


def test_the_table_of_comparisons_has_budget_losses_and_the_least_probe() -> None:
    found = [line("ms-base", 0, 4.0), line("ms-base", 1, 4.2, probe=0.4, probe_other=0.4)]
    found[1]["plateau"] = None
    rows = comparisons(found)
    assert cells(rows, "`ms-base`")[1:5] == ["multi-scale, alpha 0.5", f"{CHARACTER_STEPS:,}", "20.0", "4.100"]
    assert cells(rows, "`ms-base`")[5:] == ["4.000, 4.200", "0.40 (0.80 to 1.00)", "2.0; 1 never", "1.0"]
    assert rows[-1] == "All 2 runs of this page: 1.0 thread-hours of training."


def test_the_commands_are_those_of_the_runs() -> None:
    found = [line("canine-s", seed, 4.0) for seed in (0, 1)] + [line("ms", 0, 4.0)]
    for each, rate in zip(found, ("0.1", "0.1", "0.2"), strict=True):
        own = {"train.threads": "1", "train.learning_rate": rate}
        each.update(recipe=f"{each['model']}-tiny", data="en", overrides=own)
    assert commands(found) == [
        "```",
        'O="--train.threads 1"',
        "tokenfree pretrain canine-s-tiny --data data/en --output runs/canine-s-SEED $O --train.learning_rate 0.1 "
        "--train.seed SEED",
        "tokenfree pretrain ms-tiny --data data/en --output runs/ms-SEED $O --train.learning_rate 0.2 "
        "--train.seed SEED",
        "```",
    ]


def test_the_page_of_results_has_the_marks_and_between_them_what_the_results_say() -> None:
    page, lines = REPOSITORY / "docs" / "results.md", Results(REPOSITORY / "docs" / "learning.jsonl").lines()
    assert BEGIN in replaced(page, "")
    if lines:
        assert page.read_text(encoding="utf-8") == replaced(page, tables(lines))


def test_the_page_keeps_what_stands_around_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    page.write_text(f"# Results\n\n{BEGIN}\nwritten before\n{END}\n\nafter\n")
    write(page, tables([line("canine-s", 0, 4.0)]))
    text = page.read_text()
    assert text.startswith(f"# Results\n\n{BEGIN}\n\n## Models shown to read\n")
    assert text.endswith(f"\n\n{END}\n\nafter\n")
    assert "written before" not in text
    page.write_text(f"# Results\n{END}\n{BEGIN}\n")
    with pytest.raises(UserError, match="has not the marks"):
        write(page, "text")
    with pytest.raises(UserError, match="No such file"):
        write(tmp_path / "none.md", "text")
