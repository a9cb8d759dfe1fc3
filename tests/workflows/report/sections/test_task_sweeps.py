"""The page of a sweep of a task: the best setting is the one with the best score, whatever its loss."""

from pathlib import Path

import yaml

from tests.workflows.report.test_report import Page, make_sweep
from tokenfree.train.sweep.results.trial_result import TrialResult
from tokenfree.workflows.report.write import write_report


def test_the_best_is_told_by_its_score(tmp_path: Path) -> None:
    trials = []
    for setting, (score, loss) in enumerate([(0.9, 2.0), (0.6, 1.0)]):
        for seed in range(2):
            reports = [{"report": 1, "step": 10, "validation_loss": loss, "dev_score": score + 0.02 * seed}]
            name = f"trial_{setting:03d}_seed_{seed}"
            values = {"train.learning_rate": 0.001 * (setting + 1)}
            trials.append(TrialResult(name, values, "finished", reports, setting=setting, seed=seed))
    folder = make_sweep(tmp_path / "sweep", trials)
    mapping = yaml.safe_load((folder / "sweep.yaml").read_text())
    mapping["recipe"] |= {"objectives": ["dev_score"], "reports": 1}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(mapping))
    page = Page(write_report([str(folder)], str(tmp_path / "page.html")).read_text(encoding="utf-8"))
    assert "learning_rate = 0.001 is best at step 10: dev score 0.910 ± 0.127 (2 seeds)" in page.text
    assert page.numbers["best dev score"] == "0.910 ± 0.127"
    assert [row[0] for row in page.tables["Settings over seeds"][1:]] == ["setting_000", "setting_001"]
    assert "tokenfree report" in page.text
    assert "Guesses for hidden pieces" not in page.headings
