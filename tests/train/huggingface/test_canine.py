"""The same weights in transformers.CanineModel and here: the same outputs, and names that map both ways."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.huggingface.canine import from_huggingface, to_huggingface
from tokenfree.train.model.encoder import ModelConfig

transformers = pytest.importorskip("transformers", reason="transformers is not installed")


def port(**options: Any) -> Any:
    fields = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "num_hash_functions": 4,
        "num_hash_buckets": 512,
        "max_position_embeddings": 512,
        "local_transformer_stride": 32,
    }
    torch.manual_seed(0)
    model = transformers.CanineModel(transformers.CanineConfig(**{**fields, **options})).eval()
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
    num_characters=st.integers(1, 300),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=3),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_parity(pair: tuple[Any, Any], num_characters: int, shares: list[float], seed: int) -> None:
    model, encoder = pair
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([max(1, round(share * num_characters)) for share in shares])
    mask = torch.arange(num_characters) < lengths[:, None]
    codepoints = torch.randint(1, 0x110000, mask.shape, generator=generator) * mask
    segments = torch.randint(0, 16, mask.shape, generator=generator) * mask
    with torch.no_grad():
        ours = encoder(codepoints, mask, segments)
        missing = (0, max(0, 4 - num_characters))  # theirs has no unit for fewer than four
        padded = [torch.nn.functional.pad(x, missing) for x in (codepoints, mask.long(), segments)]
        theirs = model(padded[0], attention_mask=padded[1], token_type_ids=padded[2])
    assert (ours.characters - theirs.last_hidden_state[:, :num_characters]).abs().max() < 1e-5
    assert (ours.pooled - theirs.pooler_output).abs().max() < 1e-5


@pytest.mark.parametrize(
    "options",
    [
        {"downsampling_rate": 3, "upsampling_kernel_size": 5},
        {"downsampling_rate": 6, "local_transformer_stride": 128},
        {"hidden_act": "gelu_new", "num_hash_functions": 8},
        {"hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 300},
    ],
)
def test_parity_of_other_settings(options: dict[str, Any]) -> None:
    model = port(**options)
    encoder, _ = from_huggingface(model.state_dict(), model.config.to_dict())
    lengths = torch.tensor([[150], [31]])
    mask = torch.arange(150) < lengths
    codepoints = torch.randint(1, 0x110000, (2, 150)) * mask
    with torch.no_grad():
        ours = encoder.eval()(codepoints, mask)
        theirs = model(codepoints, attention_mask=mask.long())
    assert (ours.characters - theirs.last_hidden_state).abs().max() < 1e-5
    assert (ours.pooled - theirs.pooler_output).abs().max() < 1e-5


@pytest.mark.slow
def test_parity_at_2048_characters(pair: tuple[Any, Any]) -> None:
    model = port(num_hash_buckets=2048, max_position_embeddings=2048, local_transformer_stride=128)
    encoder, _ = from_huggingface(model.state_dict(), model.config.to_dict())
    mask = torch.arange(2048) < torch.tensor([[2048], [1930]])
    codepoints = torch.randint(1, 0x110000, (2, 2048)) * mask
    with torch.no_grad():
        ours = encoder.eval()(codepoints, mask)
        theirs = model(codepoints, attention_mask=mask.long())
    assert (ours.characters - theirs.last_hidden_state).abs().max() < 1e-5
    assert (ours.pooled - theirs.pooler_output).abs().max() < 1e-5


def test_from_the_port_and_back_loses_nothing() -> None:
    model = port()
    encoder, config = from_huggingface(model.state_dict(), model.config.to_dict())
    state, fields = to_huggingface(encoder, config)
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    theirs = model.config.to_dict()
    assert {name: theirs[name] for name in fields.keys() - {"architectures"}} == {
        name: value for name, value in fields.items() if name != "architectures"
    }


def test_to_the_port_and_back_loses_nothing() -> None:
    mapping = {
        "width": 24,
        "embedder": {"buckets": 96, "hashes": 3, "max_characters": 64},
        "downsampler": {"rate": 5, "block": 16},
        "trunk": {"layers": 3, "heads": 2, "dropout": 0.2},
        "upsampler": {"kernel": 3},
    }
    config = build(ModelConfig, mapping, source="test")
    torch.manual_seed(1)
    encoder = config.build()
    state, fields = to_huggingface(encoder, config)
    again, config_again = from_huggingface(state, fields)
    assert config_again.build().state_dict().keys() == encoder.state_dict().keys()
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in encoder.state_dict().items())
    assert to_huggingface(again, config_again)[1] == fields
    model = transformers.CanineModel(transformers.CanineConfig(**fields))
    model.load_state_dict(state)  # strict: every name and shape


def test_the_prefix_and_heads_of_task_models() -> None:
    torch.manual_seed(0)
    model = transformers.CanineForQuestionAnswering(port().config)
    encoder, _ = from_huggingface(model.state_dict(), model.config.to_dict())
    assert torch.equal(encoder.pooler.weight, model.canine.pooler.dense.weight)


def test_broken_checkpoints() -> None:
    model = port()
    state, fields = model.state_dict(), model.config.to_dict()
    without = {name: tensor for name, tensor in state.items() if name != "projection.conv.bias"}
    with pytest.raises(UserError, match=r"lacks the weight projection\.conv\.bias"):
        from_huggingface(without, fields)
    with pytest.raises(UserError, match="does not: extra"):
        from_huggingface({**state, "extra": torch.zeros(1)}, fields)
    with pytest.raises(UserError, match=r"projection\.conv\.bias has the shape \(3,\)"):
        from_huggingface({**state, "projection.conv.bias": torch.zeros(3)}, fields)
    with pytest.raises(UserError, match="hidden_act 'swish'"):
        from_huggingface(state, {**fields, "hidden_act": "swish"})


def test_a_model_that_the_port_cannot_express() -> None:
    mapping = {
        "width": 24,
        "embedder": {"buckets": 96, "hashes": 3, "family": "independent"},
        "downsampler": {"align_mask": True},
        "trunk": {"layers": 1, "heads": 2, "attention": "multi_scale"},
    }
    config = build(ModelConfig, mapping, source="test")
    with pytest.raises(UserError) as caught:
        to_huggingface(config.build(), config)
    for key in ("model.embedder.family", "model.downsampler.align_mask", "model.trunk.attention.name"):
        assert key in str(caught.value)


def test_position_table_longer_than_the_hash_tables() -> None:
    mapping = {
        "width": 24,
        "embedder": {"buckets": 96, "hashes": 3, "max_characters": 128},
        "trunk": {"layers": 1, "heads": 2},
    }
    config = build(ModelConfig, mapping, source="test")
    with pytest.raises(UserError, match=r"model\.embedder\.max_characters, 128, must not exceed"):
        to_huggingface(config.build(), config)
