"""Models of tokenfree in transformers, such as `AutoModel.from_pretrained(FOLDER, trust_remote_code=True)`.

`tokenfree export` writes this module and what it uses of the others into one file, with the variables of the model.
Inputs are the codepoints of `CanineTokenizer`, or subword ids for models of subwords. `forward` pads each
text as in training, so its outputs depend neither on the tokenizer's padding nor on other texts of the batch.

B batch, C positions of the input, V vectors of the encoder, D width, K classes
"""

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple
from transformers.utils.hub import cached_file

from tokenfree.preprocess.text.specials import BYTE_MASK, CLS, MASK, SEP
from tokenfree.train.batches.words import NOWHERE
from tokenfree.train.huggingface.weight_names import HEADS, SAFETENSORS, encoder_names
from tokenfree.train.model.common.basic import initialise
from tokenfree.train.model.encoder import Encoder, ModelConfig, mean_of_text
from tokenfree.train.tasks.heads import PlaceHead, TextHead, encode_all, upsampled
from tokenfree.train.tasks.inputs import Padding, TextInputs, TextSymbols, joined
from tokenfree.train.tasks.questions import SpanHead

# `export` replaces these values.
MODEL = ModelConfig()
LENGTH = 2048  # maximum length of an input
INPUTS: Callable[[ModelConfig, int], Any] = Padding  # first argument of `BATCH`, made for the model
BATCH: Any = None  # `batch_of_symbols` or `batch_of_bytes`
OBJECTIVE: Any = None  # settings of the objective, for models with its head
VOCABULARY_SIZE = 0
# For folders whose weights have the names of an equivalent model of transformers.
FROM_PORT: Callable[..., dict[str, Tensor]] | None = None
RENAMED: Callable[..., dict[str, Tensor]] | None = None
# For heads of taggers, and of models with a linear path over n-grams, which read texts.
TEXTS: Callable[[ModelConfig, int], TextInputs] | None = None
TAGGING: Any = None  # settings of the task
TAG_WORDS: Callable[..., Tensor] | None = None
NGRAMS: Callable[..., Any] | None = None

HUB = ("cache_dir", "force_download", "local_files_only", "token", "revision", "subfolder")
NO_ANSWER = -1e4
# What the tag of a position outside of words, and of one in a word, has more than the rest.
SURE, EQUAL = 10.0, 1e-4


class TokenfreeConfig(PreTrainedConfig):
    """Settings of a model of tokenfree.

    `tokenfree` holds the settings of heads. `port` is the `model_type` in transformers if the weights have the
    names of that model.
    """

    model_type = "tokenfree"
    tokenfree: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def get_config_dict(cls, *args: Any, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read config.json.

        Its `model_type`, which may be that of an equivalent transformers model, is replaced.
        """
        fields, unused = super().get_config_dict(*args, **options)
        return {**fields, "model_type": cls.model_type}, unused


@dataclass
class TokenfreeOutput(BaseModelOutputWithPooling):
    """The outputs of an encoder. `mean` [B, D] is the same as that of `tokenfree.load_encoder`."""

    mean: Tensor | None = None


class Batch(NamedTuple):
    arrays: dict[str, Tensor]  # the same as from a task's collator
    vectors_BC: Tensor  # int64: index of each position's vector among those of the encoder; -1: none
    symbols_BC: Tensor  # int64: index of each position's symbol; it differs if vectors are of words
    input_BC: Tensor | None = None  # int64: the input of `forward`, with zeros for padding

    def spread(self, vectors_BVD: Tensor, *, of_symbols: bool = False, fill: float = 0.0) -> Tensor:
        """Return the vectors [B, C, D] of all positions, with `fill` where there is none."""
        places_BC1 = (self.symbols_BC if of_symbols else self.vectors_BC)[..., None]
        spread_BCD = vectors_BVD.gather(1, places_BC1.clamp(min=0).expand(-1, -1, vectors_BVD.shape[-1]))
        return spread_BCD.masked_fill(places_BC1 == NOWHERE, fill)


class TokenfreePreTrainedModel(PreTrainedModel):
    """Base class with the encoder, the conversion of inputs to batches, and the loading of weights."""

    config_class = TokenfreeConfig
    base_model_prefix = ""
    _keys_to_ignore_on_load_unexpected = [r"^head\.", r"^lm_head\."]  # transformers 5.0 takes no set

    def __init__(self, config: TokenfreeConfig) -> None:
        super().__init__(config)
        # Transformers builds on the "meta" device, where constants would be lost.
        with torch.device("cpu"):
            self.encoder = Encoder(MODEL)
        self._constants = {name: buffer.clone() for name, buffer in self.encoder.named_buffers()}
        self._inputs = INPUTS(MODEL, LENGTH)

    @classmethod
    def from_pretrained(cls, path: Any, *args: Any, config: Any = None, **options: Any) -> Any:
        hub = {name: options[name] for name in HUB if name in options}
        if not isinstance(config, TokenfreeConfig):
            config = TokenfreeConfig.from_pretrained(path if config is None else config, **hub)
        if "port" in config.tokenfree:
            file = cached_file(path, SAFETENSORS, **hub)
            assert file is not None, "else it raises"
            assert RENAMED is not None, "the folder was written with this file"
            path, config = None, copy.deepcopy(config)
            # A saved copy has this class's names.
            options["state_dict"] = RENAMED(load_file(file), config.tokenfree.pop("port"))
        result = super().from_pretrained(path, *args, config=config, **options)
        model = result[0] if isinstance(result, tuple) else result
        persistent = model.encoder.state_dict().keys()
        for name, buffer in model.encoder.named_buffers():
            if name not in persistent:
                buffer.copy_(model._constants[name])
        return result

    def _init_weights(self, module: nn.Module) -> None:
        # transformers 5.0 calls this for modules with loaded weights too, which it marks.
        if not all(
            getattr(parameter, "_is_hf_initialized", False) for parameter in module.parameters(recurse=False)
        ):
            initialise(module, self.encoder.config.initialisation)

    def batch(self, input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None) -> Batch:
        """Return a padded batch.

        Raises ValueError if padding does not follow the text, or a text is too long.
        """
        mask_BC = (input_ids != 0) if attention_mask is None else attention_mask.bool()
        sizes_B = mask_BC.sum(dim=1)
        places_C = torch.arange(input_ids.shape[1], device=input_ids.device)
        if not torch.equal(mask_BC, places_C < sizes_B[:, None]):
            raise ValueError("the padding has to follow the text. Set tokenizer.padding_side to 'right'.")
        batch = BATCH(self._inputs, input_ids, token_type_ids, mask_BC)
        return batch._replace(input_BC=input_ids * mask_BC)


def batch_of_symbols(
    padding: Padding, input_ids: Tensor, token_type_ids: Tensor | None, mask_BC: Tensor
) -> Batch:
    """Return a batch for models with a vector per position of the input."""
    longest, max_length = int(mask_BC.sum(dim=1).max()), padding.length - padding.spare
    if longest > max_length:
        raise ValueError(f"a text has {longest} positions, and this model reads {max_length}. Truncate it.")
    length = padding.padded([longest])

    def padded(x_BC: Tensor) -> Tensor:
        return functional.pad((x_BC * mask_BC)[:, :longest], (0, length - longest))

    arrays = {"codepoints": padded(input_ids), "mask": padded(mask_BC)}
    if token_type_ids is not None and bool(token_type_ids.any()):
        arrays["segments"] = padded(token_type_ids)
    places_C = torch.arange(input_ids.shape[1], device=input_ids.device)
    positions_BC = torch.where(mask_BC, places_C, NOWHERE)
    return Batch(arrays, positions_BC, positions_BC)


def batch_of_bytes(
    inputs: TextInputs, input_ids: Tensor, token_type_ids: Tensor | None, mask_BC: Tensor
) -> Batch:
    """Return a batch for models of bytes.

    The vector of a character is that of its first byte, or of its word.
    """
    sizes = mask_BC.sum(dim=1).tolist()
    rows = [row[:size] for row, size in zip(input_ids.tolist(), sizes, strict=True)]
    parts = [[_encoded(inputs, text) for text in _texts(row)] for row in rows]
    for row in parts:
        if inputs.missing(row):
            raise ValueError(f"a text is longer than the {LENGTH} bytes that this model reads. Truncate it.")
    arrays = {name: torch.from_numpy(array) for name, array in inputs.arrays(parts).items()}
    vectors_BC = torch.full(input_ids.shape, NOWHERE)
    for number, row in enumerate(parts):
        places = [0]
        for part, offset in zip(row, inputs.offsets(row), strict=True):
            places += [
                *np.where(part.vectors == NOWHERE, NOWHERE, offset + part.vectors),
                offset + part.num_vectors,
            ]
        vectors_BC[number, : len(places)] = torch.tensor(places)
    symbols_BC = vectors_BC
    if "unit_ends" in arrays:
        starts_BU = functional.pad(arrays["unit_ends"][:, :-1], (1, 0))
        symbols_BC = torch.where(vectors_BC < 0, NOWHERE, starts_BU.gather(1, vectors_BC.clamp(min=0)))
    device = input_ids.device
    on_device = {name: tensor.to(device) for name, tensor in arrays.items()}
    return Batch(on_device, vectors_BC.to(device), symbols_BC.to(device))


def _encoded(inputs: TextInputs, text: Sequence[int]) -> TextSymbols:
    """Return a text as input of the encoder.

    Each MASK becomes the byte MASK, which is a separate word.
    """
    has_words = MODEL.downsampler.bytes_per_word is not None
    mask = TextSymbols(np.array([BYTE_MASK]), np.array([0]), np.array([1]) if has_words else None)
    parts: list[TextSymbols] = []
    for is_mask, run in groupby(text, key=lambda codepoint: codepoint == MASK):
        codepoints = list(run)
        parts += [mask] * len(codepoints) if is_mask else [inputs.encode("".join(map(chr, codepoints)))]
    return joined(parts or [inputs.encode("")])


def renamed(weights: Mapping[str, Tensor], port: str) -> dict[str, Tensor]:
    """Return the weights of a model of transformers of the type `port` by the names in this file."""
    weights = {name.removeprefix(f"{port}."): weight for name, weight in weights.items()}
    with torch.device("meta"):
        names = encoder_names(Encoder(MODEL).state_dict(), weights)
    assert FROM_PORT is not None, "the folder was written with this file"
    encoder = FROM_PORT(names, weights.__getitem__, MODEL)
    heads = {
        ours + name.removeprefix(theirs): weight
        for name, weight in weights.items()
        for theirs, ours in HEADS.items()
        if name.startswith(theirs)
    }
    return heads | {f"encoder.{name}": weight for name, weight in encoder.items()}


def _texts(row: Sequence[int]) -> list[list[int]]:
    if len(row) < 2 or row[0] != CLS or row[-1] != SEP:
        raise ValueError("an input has to begin with CLS and end with SEP. Keep add_special_tokens=True.")
    texts: list[list[int]] = [[]]
    for codepoint in row[1:-1]:
        texts.append([]) if codepoint == SEP else texts[-1].append(codepoint)
    return texts


def texts_of(batch: Batch) -> list[list[str]]:
    """Return the texts of each row of a batch."""
    assert batch.input_BC is not None, "`TokenfreePreTrainedModel.batch` sets it"
    rows = [np.trim_zeros(row, "b") for row in batch.input_BC.tolist()]
    return [["".join(map(chr, text)) for text in _texts(row)] for row in rows]


def tag_words(head: PlaceHead, encoder: Encoder, batch: Batch) -> Tensor:
    """Return logits [B, C, K] whose maximum is the tag of `tokenfree predict`, which reads whole words.

    The first character of a name has B-; its others, and the spaces inside, have I-. With a CRF, scores are the
    logarithms of marginal probabilities.
    """
    examples, begins = list[Any](), list[tuple[int, int]]()
    for row, texts in enumerate(texts_of(batch)):
        ends = np.cumsum([len(text) + 1 for text in texts])
        examples += [TAGGING.raw("", text) for text in texts]
        begins += [(row, int(end) - len(text)) for text, end in zip(texts, ends, strict=True)]
    assert TEXTS is not None, "the folder was written with this file"
    inputs = TEXTS(MODEL, LENGTH)
    inputs.reads_ngrams = MODEL.neighbours.name != "none"
    collator = TAGGING.collator(inputs, 0)
    items = collator.items(examples, training=False)
    shape, device = batch.vectors_BC.shape, batch.vectors_BC.device
    source_BC, tag_BC = np.full(shape, NOWHERE), np.full(shape, TAGGING.default)
    scores = torch.zeros(1, len(TAGGING.labels), device=device)
    if items:
        arrays = collator(items, np.zeros(len(items), dtype=np.int64))
        outputs = head.outputs(
            encoder, {name: torch.from_numpy(values).to(device) for name, values in arrays.items()}
        )
        scores_IPK = outputs["probabilities"].log() if "probabilities" in outputs else outputs["logits"]
        tags_IP = outputs.get("tags", scores_IPK.argmax(dim=-1)).cpu().numpy()
        scores = scores_IPK.flatten(0, 1)
        for example, words in zip(examples, TAGGING.tagged_words(examples, items, tags_IP), strict=True):
            row, begin = begins.pop(0)
            for first, last, tag, word in TAGGING.pieces(example, words):
                tag_BC[row, begin + first : begin + last] = tag
                if word.item != NOWHERE:
                    source_BC[row, begin + first : begin + last] = word.item * tags_IP.shape[1] + word.place
    return _led_by(scores, torch.from_numpy(source_BC).to(device), torch.from_numpy(tag_BC).to(device))


def _led_by(scores_NK: Tensor, source_BC: Tensor, tag_BC: Tensor) -> Tensor:
    """Return the scores of `source_BC`, [B, C, K], whose maximum is exchanged for that of the tag `tag_BC`."""
    tag_BC1, nowhere_BC1 = tag_BC[..., None], (source_BC == NOWHERE)[..., None]
    scores_BCK = scores_NK[source_BC.clamp(min=0)].masked_fill(nowhere_BC1, 0.0)
    largest_BC1, best_BC1 = scores_BCK.max(dim=-1, keepdim=True)
    scores_BCK = scores_BCK.scatter(-1, best_BC1, scores_BCK.gather(-1, tag_BC1))
    # Where both are equal, the tag must be the first maximum.
    raised_BC1 = largest_BC1 + torch.where(nowhere_BC1, SURE, EQUAL * (best_BC1 != tag_BC1))
    return scores_BCK.scatter(-1, tag_BC1, raised_BC1)


class TokenfreeModel(TokenfreePreTrainedModel):
    """The encoder, with a vector per position, the pooled vector of CLS, and the mean over a text."""

    def __init__(self, config: TokenfreeConfig) -> None:
        super().__init__(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **unused: Any,
    ) -> TokenfreeOutput:
        batch = self.batch(input_ids, attention_mask, token_type_ids)
        vectors_BVD, pooled_BD = encode_all(self.encoder, batch.arrays)
        vectors_BCD = batch.spread(vectors_BVD)
        return TokenfreeOutput(
            vectors_BCD, pooled_BD, mean=mean_of_text(vectors_BCD, batch.vectors_BC != NOWHERE)
        )


class _Labelled(TokenfreePreTrainedModel):
    output: type[Any]  # record of transformers with the loss and the logits

    @abstractmethod
    def logits(self, batch: Batch) -> Tensor: ...

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **unused: Any,
    ) -> Any:
        logits = self.logits(self.batch(input_ids, attention_mask, token_type_ids))
        if labels is None:
            return self.output(None, logits)
        # By the kind of the loss.
        values = {"logits": logits, "pooled_logits": logits, "vocab_size": logits.shape[-1]}
        return self.output(self.loss_function(labels=labels, config=self.config, **values), logits)


class TokenfreeForMaskedLM(_Labelled):
    """The encoder with the head of its objective: logits [B, C, K] over characters or over subwords."""

    output = MaskedLMOutput

    def __init__(self, config: TokenfreeConfig) -> None:
        super().__init__(config)
        self.lm_head: Any = OBJECTIVE.build(MODEL.width, VOCABULARY_SIZE)
        self.post_init()

    def logits(self, batch: Batch) -> Tensor:
        vectors_BCD = batch.spread(upsampled(self.encoder, batch.arrays).characters, of_symbols=True)
        return self.lm_head.logits(self.encoder, vectors_BCD)


class TokenfreeForSequenceClassification(_Labelled):
    """The encoder with a head that predicts a class, or a number, for texts and for pairs of texts."""

    output = SequenceClassifierOutput

    def __init__(self, config: TokenfreeConfig) -> None:
        super().__init__(config)
        head = {"representation": "mean", "dropout": 0.1, **config.tokenfree.get("head", {})}
        self.head = TextHead(MODEL, size=len(config.id2label or ()), **head)
        self.post_init()

    def logits(self, batch: Batch) -> Tensor:
        if NGRAMS is not None:
            texts = ["\n".join(texts) for texts in texts_of(batch)]
            features = (torch.from_numpy(values).to(batch.vectors_BC.device) for values in NGRAMS(texts))
            batch.arrays["ngrams"], batch.arrays["ngram_counts"] = features
        return self.head.outputs(self.encoder, batch.arrays)["logits"]


class TokenfreeForTokenClassification(_Labelled):
    """The encoder with a head that predicts a class per position, or per word and the spaces inside names."""

    output = TokenClassifierOutput

    def __init__(self, config: TokenfreeConfig) -> None:
        super().__init__(config)
        head = {"dropout": 0.1, **config.tokenfree.get("head", {})}
        self.head = PlaceHead(MODEL, len(config.id2label or ()), **head)
        self.post_init()

    def logits(self, batch: Batch) -> Tensor:
        if TAG_WORDS is not None:
            return TAG_WORDS(self.head, self.encoder, batch)
        return batch.spread(self.head.everywhere(self.encoder, batch.arrays)["logits"])


class TokenfreeForQuestionAnswering(TokenfreePreTrainedModel):
    """The encoder with a head that predicts where the answer to the first text begins and ends in the second text."""

    def __init__(self, config: TokenfreeConfig) -> None:
        super().__init__(config)
        self.head = SpanHead(MODEL.width, None)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **unused: Any,
    ) -> QuestionAnsweringModelOutput:
        batch = self.batch(input_ids, attention_mask, token_type_ids)
        arrays = batch.arrays
        if "segments" in arrays:
            arrays["global"] = arrays["mask"] & (arrays["segments"] == 0)
        outputs = self.head.outputs(self.encoder, arrays)
        both_BVD = torch.stack([outputs["start"], outputs["end"]], dim=-1)
        start_BC, end_BC = batch.spread(both_BVD, fill=NO_ANSWER).unbind(dim=-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(start_BC, end_BC, start_positions, end_positions)
        return QuestionAnsweringModelOutput(loss, start_BC, end_BC)
