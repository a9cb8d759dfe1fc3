"""Runs to folders of transformers and back: the same outputs, by the commands that users give."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tokenfree import load_encoder
from tokenfree.core.errors import SettingsError, UserError
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.huggingface.folders import export_run, import_folder
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs.config import read_config
from tokenfree.workflows import cli

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

MakeRecipe = Callable[..., PretrainRecipe]
TEXTS = ["any text", "日本語 \U0001f600"]


@pytest.fixture(scope="module")
def run(corpus: str, make_recipe: MakeRecipe, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("run"))
    pretrain(make_recipe(steps=2), corpus, folder)
    return folder


@pytest.fixture(scope="module")
def exported(run: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("exported"))
    assert cli.main(["export", run, "--to", "huggingface", folder]) == 0
    return folder


def theirs(folder: str) -> Any:
    """The outputs of the port for the texts, padded far enough for padding not to matter."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(TEXTS, padding="max_length", max_length=24, return_tensors="pt")
    with torch.no_grad():
        return transformers.CanineModel.from_pretrained(folder).eval()(**inputs)


def test_an_exported_folder_can_be_shared(exported: str) -> None:
    assert len({path.stat().st_mode for path in Path(exported).iterdir()}) == 1


def test_an_exported_run_gives_the_same_outputs(run: str, exported: str) -> None:
    ours, port = load_encoder(run)(TEXTS), theirs(exported)
    num_positions = ours.mask.shape[1]
    assert (ours.characters - port.last_hidden_state[:, :num_positions])[ours.mask].abs().max() < 1e-5
    assert (ours.pooled - port.pooler_output).abs().max() < 1e-5


def test_a_full_disk_is_one_line(
    run: str, tmp_path: Path, limit_files: Callable[[int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    limit_files(500)
    assert cli.main(["export", run, "--to", "huggingface", str(tmp_path / "out")]) == 2
    limit_files(1 << 30)
    assert capfd.readouterr().err == (
        "tokenfree: cannot write (File too large). Free space for the output and in TMPDIR, then run the same command "
        "again.\n"
    )
    assert list(tmp_path.iterdir()) == []
    assert cli.main(["export", run, "--to", "huggingface", str(tmp_path / "out")]) == 0


def test_an_imported_folder_gives_the_same_outputs(
    run: str, exported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["import", exported, "--output", str(tmp_path / "again")]) == 0
    told, followed = capsys.readouterr().out.splitlines()[-2:]
    assert told.endswith("codepoint_hash, strided_conv, 1 layers of width 16, up to 64 positions")
    assert followed.endswith(
        f"tokenfree pretrain RECIPE --data DIR --output RUN --init-from {tmp_path}/again"
    )
    one, other = load_encoder(tmp_path / "again"), load_encoder(run)
    assert one.encoder.state_dict().keys() == other.encoder.state_dict().keys()
    assert torch.equal(one(TEXTS).characters, other(TEXTS).characters)
    assert one.pooled_is_trained  # a folder with a pooler has trained it
    import_folder(exported, tmp_path / "again")  # the same again is no mistake
    with pytest.raises(UserError, match="run of other settings"):
        import_folder(exported, tmp_path / "again", {"train": {"length": 32}})


def test_evaluating_an_imported_run_says_what_it_lacks(
    exported: str, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_folder(exported, tmp_path / "run")
    assert cli.main(["evaluate", str(tmp_path / "run"), "--data", corpus]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"was imported from {exported}: an encoder without the head of an objective" in line


def test_weights_as_pickle(exported: str, run: str, tmp_path: Path) -> None:
    model = transformers.CanineModel.from_pretrained(exported)
    (tmp_path / "old").mkdir()
    model.config.save_pretrained(tmp_path / "old")
    torch.save(model.state_dict(), tmp_path / "old" / "pytorch_model.bin")
    import_folder(tmp_path / "old", tmp_path / "run")
    assert torch.equal(load_encoder(tmp_path / "run")(TEXTS).pooled, load_encoder(run)(TEXTS).pooled)


def test_import_with_another_attention_pattern(exported: str, run: str, tmp_path: Path) -> None:
    options = ["--model.trunk.attention.name", "sliding_global", "--train.length", "32"]
    separate = ["--model.trunk.attention.separate_global_projections", "true"]
    assert cli.main(["import", exported, "--output", str(tmp_path / "run"), *options, *separate]) == 0
    encoder = load_encoder(tmp_path / "run")
    layers: list[Any] = list(encoder.encoder.trunk.layers)
    assert all(torch.equal(layer.core.key.weight, layer.key.weight) for layer in layers)
    torch.testing.assert_close(encoder(TEXTS).pooled, load_encoder(run)(TEXTS).pooled, atol=1e-6, rtol=0)
    assert read_config(tmp_path / "run").recipe.train.length == 32


def test_all_problems_of_settings_laid_over_a_folder_come_together(exported: str, tmp_path: Path) -> None:
    wrong = {"model": {"wdith": 16}, "train": {"steps": "x"}}
    with pytest.raises(SettingsError) as refused:
        import_folder(exported, tmp_path / "run", wrong)
    starts = ("there is no key 'model.wdith'", "train.steps: should be")
    assert refused.value.source == f"import of {exported}"
    for problem, start in zip(refused.value.problems, starts, strict=True):
        assert problem.startswith(start)


def test_settings_that_the_weights_do_not_serve(exported: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"do not go with .*trunk\.positions"):
        import_folder(exported, tmp_path / "run", {"model": {"trunk": {"positions": {"name": "diet_rel"}}}})
    with pytest.raises(UserError, match=r"do not go with .*core"):
        import_folder(exported, tmp_path / "run", {"model": {"trunk": {"attention": {"name": "linformer"}}}})
    with pytest.raises(UserError, match=r"model\.embedder\.max_characters"):
        import_folder(exported, tmp_path / "run", {"train": {"length": 65}})
    assert not (tmp_path / "run").exists()


def test_bert_both_ways(tmp_path: Path) -> None:
    torch.manual_seed(0)
    fields = {"vocab_size": 99, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = transformers.BertModel(transformers.BertConfig(**fields, intermediate_size=24)).eval()
    model.save_pretrained(tmp_path / "bert")
    import_folder(tmp_path / "bert", tmp_path / "run")
    assert export_run(tmp_path / "run", tmp_path / "again").reader == "BertModel"
    again = transformers.BertModel.from_pretrained(tmp_path / "again").eval()
    ids = torch.randint(1, 99, (2, 30))
    encoder = load_encoder(tmp_path / "run")
    with torch.no_grad():
        assert torch.equal(again(ids).last_hidden_state, model(ids).last_hidden_state)
        difference = encoder.encoder(ids, ids > 0).characters - model(ids).last_hidden_state
    assert difference.abs().max() < 1e-5
    with pytest.raises(UserError, match="reads subwords, not texts"):
        encoder(TEXTS)


def test_the_command_names_files_and_warns_of_padding(
    run: str, exported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", run, "--to", "huggingface", str(tmp_path / "canine")]) == 0
    out = capsys.readouterr().out
    assert "  warning     CanineModel needs padding after each text" in out
    assert ", config.json, hashes.json, model.safetensors, modeling_tokenfree.py, " in out
    import_folder(exported, tmp_path / "run", {"model": {"trunk": {"attention": {"name": "multi_scale"}}}})
    assert cli.main(["export", str(tmp_path / "run"), "--to", "huggingface", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "warning" not in out
    assert "from transformers import AutoModel; AutoModel.from_pretrained(" in out


def test_folders_that_are_no_models(run: str, exported: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is there already"):
        export_run(run, exported)
    with pytest.raises(UserError, match="holds no run"):
        export_run(tmp_path, tmp_path / "out")
    broken = tmp_path / "broken"
    broken.mkdir()
    for text, words in (
        (None, "no config.json of transformers"),
        ("{", "no config.json of transformers"),
        ("[]", "no config.json of transformers"),
        ('{"model_type": "gpt2"}', "model_type 'gpt2' is not known"),
        (
            '{"model_type": "tokenfree"}',
            "only AutoModel opens this folder. Give the run that it was exported from",
        ),
        (
            json.dumps(json.loads((Path(exported) / "config.json").read_text())),
            "holds neither model.safetensors",
        ),
    ):
        if text is not None:
            (broken / "config.json").write_text(text)
        with pytest.raises(UserError, match=words):
            import_folder(broken, tmp_path / "out")
    for name in ("pytorch_model.bin", "model.safetensors"):
        (broken / name).write_bytes(b"not weights at all")
        with pytest.raises(UserError, match=f"cannot read the weights .*{name}"):
            import_folder(broken, tmp_path / "out")
