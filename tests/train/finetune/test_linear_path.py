"""Tasks with a linear path over n-grams and a CRF: they learn, resume, predict and start from pretrained encoders."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.finetune.conftest import MakeTask
from tokenfree.core.errors import UserError
from tokenfree.core.settings import build, merge
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.finetune import finetune
from tokenfree.train.inference.finetuned import load_finetuned
from tokenfree.train.loop.finetuning import TaskSource
from tokenfree.train.runs.checkpoints import RunProgress
from tokenfree.train.runs.config import read_finetuned
from tokenfree.workflows.api import export

Files = Mapping[str, str]
PATH = {"name": "hashed_ngrams", "buckets": 1024, "rate": 50, "epsilon": 0.01}
CHAINED = {"name": "tagging", "scheme": "bio", "targets": "word", "decoder": "crf"}


def with_path(recipe: FinetuneRecipe, **train: Any) -> FinetuneRecipe:
    over = {"model": {"neighbours": PATH}, "train": train}
    return build(FinetuneRecipe, merge(to_mapping(recipe), over), source="test")


def splits(files: Files, prefix: str = "") -> dict[Any, str]:
    return {split: files[f"{prefix}{split}"] for split in ("train", "dev", "test")}


@pytest.fixture(scope="module")
def tagged(make_task: MakeTask, files: Files, tmp_path_factory: pytest.TempPathFactory) -> str:
    run = str(tmp_path_factory.mktemp("tagged") / "run")
    finetune(with_path(make_task(CHAINED, steps=30)), splits(files, "tags_"), run)
    return run


def test_tagger_with_crf_learns_and_predicts_as_it_was_evaluated(tagged: str, files: Files) -> None:
    model = load_finetuned(tagged)
    evaluation = model.evaluate(files["tags_test"])
    assert evaluation.metrics is not None
    assert evaluation.metrics.score > 0.9
    for line in evaluation.predictions[:3]:
        (alone,) = model([" ".join(line["words"])])
        assert alone["tags"] == line["tags"]
        # Probabilities are marginals over all paths, so other sentences of a batch change nothing.
        assert alone["probabilities"] == pytest.approx(line["probabilities"], abs=1e-4)


def test_classifier_learns_frequencies_of_its_training_texts(
    make_task: MakeTask, files: Files, tmp_path: Path
) -> None:
    result = finetune(with_path(make_task("classification", steps=30)), splits(files), str(tmp_path / "run"))
    assert result.test["accuracy"] == 1.0
    head: Any = load_finetuned(tmp_path / "run").model.head
    assert head.neighbours.idf.unique().numel() > 2


def test_classifier_begins_as_a_logistic_regression(
    make_task: MakeTask, files: Files, tmp_path: Path
) -> None:
    """A rate that changes nothing in one step: what is right was fitted before."""
    path = {**PATH, "strengths": [1, 10], "rate": 1e-9}
    for name, neighbours in (("fitted", path), ("zero", {**path, "strengths": []})):
        recipe = with_path(make_task("classification", steps=1, learning_rate=1e-9))
        recipe = build(
            FinetuneRecipe, merge(to_mapping(recipe), {"model": {"neighbours": neighbours}}), source="test"
        )
        accuracy = finetune(recipe, splits(files), str(tmp_path / name)).test["accuracy"]
        assert (accuracy == 1.0) == (name == "fitted")


def test_patience_ends_training_and_resuming_changes_nothing(
    make_task: MakeTask, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validations at steps 2, 4 and so on: the second is the best one, and two worse ones follow."""
    losses = [3.0, 1.0, 2.0, 1.5, 0.0]
    monkeypatch.setattr(TaskSource, "selection_loss", lambda source, validation: losses.pop(0))
    recipe = make_task("classification", patience=2, steps=20)
    result = finetune(recipe, splits(files), str(tmp_path / "run"))
    assert (result.steps, result.best_step) == (8, 4)
    assert losses == [0.0], "no further validation"
    # Killed after the last checkpoint, before the result.
    (tmp_path / "run" / "result.json").unlink()
    again = finetune(recipe, splits(files), str(tmp_path / "run"))
    assert (again.steps, again.best_step, again.test) == (8, 4, result.test)


def test_steps_after_best_are_counted_from_the_best_validation() -> None:
    progress = RunProgress()
    assert progress.steps_after_best(7) == 0
    assert progress.after_validation(4, {}, 1.0).steps_after_best(7) == 3


def test_linear_path_of_the_recipe_joins_a_pretrained_encoder(
    make_task: MakeTask, files: Files, tmp_path: Path
) -> None:
    source = str(tmp_path / "source")
    finetune(make_task("classification", steps=2), splits(files), source)
    recipe = with_path(make_task(CHAINED, steps=2))
    finetune(recipe, splits(files, "tags_"), str(tmp_path / "run"), init_from=source)
    assert read_finetuned(tmp_path / "run").recipe.model.neighbours == recipe.model.neighbours


def test_linear_path_is_exported_but_not_as_a_graph(tagged: str, tmp_path: Path) -> None:
    assert export(tagged, tmp_path / "folder", to="huggingface").reader == "TokenfreeForTokenClassification"
    with pytest.raises(UserError, match="with a linear path, a CRF or vectors of words"):
        export(tagged, tmp_path / "graph", to="onnx")


def test_vectors_of_all_characters_have_no_crf(make_task: MakeTask, files: Files, tmp_path: Path) -> None:
    recipe = make_task({**CHAINED, "targets": "all"})
    with pytest.raises(UserError, match=r"task\.targets: all characters have no CRF"):
        finetune(recipe, splits(files, "tags_"), str(tmp_path / "run"))


def test_vector_of_a_word_is_the_mean_over_its_characters(make_task: MakeTask, files: Files) -> None:
    """A word of three characters, of which padding and neighbours are no part."""
    from tokenfree.train.tasks.heads import mean_of_places

    class Encoder(torch.nn.Module):
        def forward(self, codepoints_BC: torch.Tensor, mask_BC: torch.Tensor) -> Any:
            from tokenfree.train.model.encoder import EncoderOutput

            x_BCD = codepoints_BC[..., None].float()
            return EncoderOutput(x_BCD, x_BCD, x_BCD[:, 0])

    batch = {
        "codepoints": torch.tensor([[9, 1, 2, 6, 9, 5, 0]]),
        "mask": torch.ones(1, 7, dtype=torch.bool),
        "places": torch.tensor([[1, 5, 0]]),
        "place_ends": torch.tensor([[4, 6, 0]]),
    }
    torch.testing.assert_close(mean_of_places(Encoder(), batch), torch.tensor([[[3.0], [5.0], [0.0]]]))
