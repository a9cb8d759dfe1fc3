"""The same weights in transformers.BertModel and here: the same outputs, and names that map both ways."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.huggingface.bert import from_huggingface, to_huggingface
from tokenfree.train.model.costs import costs
from tokenfree.train.model.encoder import ModelConfig

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

BERT: dict[str, Any] = {"embedder": "subword_table", "downsampler": "identity", "upsampler": "identity"}


def port(**options: Any) -> Any:
    fields = {
        "vocab_size": 300,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 128,
    }
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**{**fields, **options})).eval()
    with torch.no_grad():  # far from the initial values, so that nothing hides behind small weights
        for parameter in model.parameters():
            parameter.normal_(0, 0.25) if parameter.dim() > 1 else parameter.uniform_(-0.5, 1.5)
    return model


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    model = port()
    encoder, _ = from_huggingface(model.state_dict(), model.config.to_dict())
    return model, encoder.eval()


@given(
    num_subwords=st.integers(1, 128),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=3),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=30, deadline=None)
def test_parity(pair: tuple[Any, Any], num_subwords: int, shares: list[float], seed: int) -> None:
    model, encoder = pair
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([max(1, round(share * num_subwords)) for share in shares])
    mask = torch.arange(num_subwords) < lengths[:, None]
    ids = torch.randint(1, 300, mask.shape, generator=generator) * mask
    segments = torch.randint(0, 2, mask.shape, generator=generator) * mask
    targets = torch.randint(0, num_subwords, (len(shares), 3), generator=generator)
    with torch.no_grad():
        ours, some = encoder(ids, mask, segments), encoder(ids, mask, segments, targets)
        theirs = model(ids, attention_mask=mask.long(), token_type_ids=segments)
    assert (ours.characters - theirs.last_hidden_state).abs().max() < 1e-5
    assert (ours.pooled - theirs.pooler_output).abs().max() < 1e-5
    assert torch.equal(some.characters, ours.characters.gather(1, targets[..., None].expand(-1, -1, 32)))


@pytest.mark.parametrize(
    "options", [{"hidden_act": "gelu_new"}, {"type_vocab_size": 3, "num_attention_heads": 2}]
)
def test_parity_of_other_settings(options: dict[str, Any]) -> None:
    model = port(**options)
    encoder, _ = from_huggingface(model.state_dict(), model.config.to_dict())
    ids = torch.randint(1, 300, (2, 50))
    with torch.no_grad():
        ours, theirs = encoder.eval()(ids, ids > 0), model(ids)
    assert (ours.characters - theirs.last_hidden_state).abs().max() < 1e-5


def test_from_the_port_and_back_loses_nothing() -> None:
    model = port()
    state, fields = to_huggingface(*from_huggingface(model.state_dict(), model.config.to_dict()))
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    theirs = model.config.to_dict()
    assert {name: theirs[name] for name in fields if name != "architectures"} == {
        name: value for name, value in fields.items() if name != "architectures"
    }


def test_to_the_port_and_back_loses_nothing() -> None:
    mapping = {**BERT, "width": 24, "trunk": {"layers": 3, "heads": 2, "dropout": 0.2}}
    config = build(ModelConfig, mapping, source="test")
    encoder = config.build()
    state, fields = to_huggingface(encoder, config)
    again, _ = from_huggingface(state, fields)
    assert again.state_dict().keys() == encoder.state_dict().keys()
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in encoder.state_dict().items())
    model = transformers.BertModel(transformers.BertConfig(**fields))
    model.load_state_dict(state)  # strict: every name and shape


def test_the_prefix_and_heads_of_task_models() -> None:
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(port().config)  # it has no pooler: ours is fresh
    encoder, _ = from_huggingface(model.state_dict(), model.config.to_dict())
    assert torch.equal(encoder.embedder.table.rows.weight, model.bert.embeddings.word_embeddings.weight)


def test_what_cannot_be_expressed() -> None:
    mapping = {**BERT, "width": 24, "trunk": {"layers": 1, "heads": 2, "attention": "sliding_global"}}
    mapping["embedder"] = {"name": "subword_table", "positions": "sinusoidal"}
    config = build(ModelConfig, mapping, source="test")
    with pytest.raises(UserError, match=r"model\.embedder\.positions .*model\.trunk\.attention\.name"):
        to_huggingface(config.build(), config)
    config = build(ModelConfig, {**BERT, "embedder": {"name": "subword_table", "segments": 0}}, source="test")
    with torch.device("meta"), pytest.raises(UserError, match=r"model\.embedder\.segments"):
        to_huggingface(config.build(), config)
    with pytest.raises(UserError, match="position_embedding_type must be absolute"):
        from_huggingface({}, {"position_embedding_type": "relative_key"})


def test_parameters_of_bert_base() -> None:
    """109,482,240, as of the released bert-base-uncased with its pooler."""
    config = build(ModelConfig, BERT, source="test")
    assert sum(cost.parameters for cost in costs(config, 512)) == 109_482_240
