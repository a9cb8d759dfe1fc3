"""Weights from runs and from folders of transformers, at paths and addresses, whole and damaged."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
import torch

from tokenfree.core.errors import JobError, UserError
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.huggingface.folders import export_run, import_folder
from tokenfree.train.jobs.init_from import read_weights
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs.run import checkpoint_of

MakeRecipe = Callable[..., PretrainRecipe]


@pytest.fixture(scope="module")
def exported(first_run: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("exported")
    export_run(first_run, folder)
    return str(folder)


def test_a_run(first_run: str) -> None:
    given, checkpoint = read_weights(first_run), checkpoint_of(first_run)
    expected = checkpoint.tensors("model")
    assert given.tensors.keys() == expected.keys()
    assert all(torch.equal(given.tensors[name], expected[name]) for name in expected)
    assert (given.path, given.what) == (first_run, "step 8 of a run")
    assert given.vocabulary == checkpoint.state.vocabulary is not None
    assert given.objective is not None
    assert given.objective.name == "canine_s"
    assert read_weights(f"file://{first_run}").sha256 == given.sha256


def test_the_hash_is_of_names_shapes_and_values(first_run: str) -> None:
    given = read_weights(first_run)
    hashes = {given.sha256}
    name = "encoder.pooler.bias"
    for changed in (
        {name: given.tensors[name] + 1e-6},
        {name: given.tensors[name][None]},
        {"head.x": torch.ones(1)},
    ):
        hashes.add(dataclasses.replace(given, tensors={**given.tensors, **changed}).sha256)
    assert len(hashes) == 4
    backwards = dict(sorted(given.tensors.items(), reverse=True))
    assert dataclasses.replace(given, tensors=backwards).sha256 == given.sha256


def test_the_average_of_the_weights(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    pretrain(make_recipe(steps=2, ema_decay=0.9), corpus, str(tmp_path / "run"))
    given, name = read_weights(str(tmp_path / "run")), "encoder.embedder.positions.weight"
    checkpoint = checkpoint_of(tmp_path / "run")
    assert torch.equal(given.tensors[name], checkpoint.tensors("average")[name])
    assert not torch.equal(given.tensors[name], checkpoint.tensors("model")[name])


def test_a_folder_and_the_run_imported_from_it(first_run: str, exported: str, tmp_path: Path) -> None:
    ours, given = read_weights(first_run), read_weights(exported)
    assert given.tensors.keys() == {name for name in ours.tensors if name.startswith("encoder.")}
    assert all(torch.equal(given.tensors[name], ours.tensors[name]) for name in given.tensors)
    assert (given.what, given.objective, given.model.width) == ("a canine of transformers", None, 16)
    import_folder(exported, tmp_path / "run")
    again = read_weights(str(tmp_path / "run"))
    assert (again.what, again.objective, again.sha256) == ("an imported run", None, given.sha256)


def test_the_official_format(tmp_path: Path) -> None:
    """As google/canine-s lies on the hub: pytorch_model.bin, with or without the prefix of task models and heads."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = transformers.CanineConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, num_hash_buckets=64,
        max_position_embeddings=64,
    )  # fmt: skip
    model = transformers.CanineModel(config)
    task = transformers.CanineForSequenceClassification(config)
    task.canine.load_state_dict(model.state_dict())
    for name, state in (("bare", model.state_dict()), ("task", task.state_dict())):
        (tmp_path / name).mkdir()
        config.save_pretrained(tmp_path / name)
        torch.save(state, tmp_path / name / "pytorch_model.bin")
    model.save_pretrained(tmp_path / "safe")
    bare = read_weights(str(tmp_path / "bare"))
    assert {bare.sha256} == {read_weights(str(tmp_path / name)).sha256 for name in ("task", "safe")}
    expected = model.state_dict()["encoder.layer.1.attention.self.query.weight"]
    assert torch.equal(bare.tensors["encoder.trunk.layers.1.query.weight"], expected)
    pickled = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("pooler")}
    torch.save(pickled, tmp_path / "bare" / "pytorch_model.bin")
    without = read_weights(str(tmp_path / "bare"))
    assert bare.tensors.keys() - without.tensors.keys() == {"encoder.pooler.weight", "encoder.pooler.bias"}


def test_the_vocabulary_of_an_exported_bert(corpus: str, make_recipe_for: MakeRecipe, tmp_path: Path) -> None:
    pretrain(make_recipe_for({"name": "masked_subwords"}, steps=1), corpus, str(tmp_path / "run"))
    export_run(tmp_path / "run", tmp_path / "bert")
    import_folder(tmp_path / "bert", tmp_path / "again")
    vocabulary = read_weights(str(tmp_path / "run")).vocabulary
    assert vocabulary is not None
    assert [read_weights(str(tmp_path / name)).vocabulary for name in ("bert", "again")] == [vocabulary] * 2
    fields = json.loads((tmp_path / "bert" / "config.json").read_text())
    del fields["tokenfree_vocabulary"]
    (tmp_path / "bert" / "config.json").write_text(json.dumps(fields))
    (tmp_path / "bert" / "hashes.json").unlink()
    assert read_weights(str(tmp_path / "bert")).vocabulary is None


def test_a_folder_at_an_address(exported: str) -> None:
    fs = fsspec.filesystem("memory")
    fs.put(exported, "/weights", recursive=True)
    try:
        with pytest.raises(UserError, match=r"--init-from memory://weights: .* must be on this machine"):
            read_weights("memory://weights")
    finally:
        fs.rm("/weights", recursive=True)
    with pytest.raises(UserError, match=r"--init-from memory://weights: this holds neither a run"):
        read_weights("memory://weights")
    with pytest.raises(UserError, match="no file system for this address"):
        read_weights("nosuch://weights")


def test_a_damaged_checkpoint_is_refused_or_named(
    first_run: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Path(shutil.copytree(first_run, tmp_path / "run"))
    newest = run / "checkpoints" / "step_00000008" / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(JobError, match=r"step_00000008 is damaged.*--init-from .*/run/checkpoints/step_N"):
        read_weights(str(run))
    asked = read_weights(f"{run}/checkpoints/step_00000006")
    assert (asked.what, asked.path) == ("step 6 of a run", str(run))
    (run / "result.json").unlink()  # it is still trained
    assert read_weights(str(run)).sha256 == asked.sha256
    assert "step_00000008 is damaged" in caplog.text
    for step in (3, 6):
        (run / "checkpoints" / f"step_{step:08}" / "COMMIT").unlink()
    with pytest.raises(JobError, match=r"has no sound checkpoint; .*step_00000003 is damaged"):
        read_weights(str(run))


def test_what_holds_no_weights(first_run: str, exported: str, corpus: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "config.yaml").write_text("recipe: {}\n")
    odd = Path(shutil.copytree(exported, tmp_path / "odd"))
    (odd / "model.safetensors").unlink()
    (odd / "hashes.json").unlink()
    torch.save([torch.ones(1)], odd / "pytorch_model.bin")
    for source, words in (
        (tmp_path / "none", "holds neither a run"),
        (tmp_path / "empty", "neither a run .* nor a model of transformers"),
        (corpus, "neither a run .* nor a model of transformers"),
        (f"{first_run}/checkpoints/step_00000007", "has no checkpoint of step 7. Use one of these: 3, 6, 8"),
        (tmp_path / "cut", "config.yaml: damaged"),
        (odd, "damaged, or more than weights"),
    ):
        with pytest.raises(UserError, match=words):
            read_weights(str(source))
