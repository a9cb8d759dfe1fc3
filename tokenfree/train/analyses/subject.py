"""The model and the texts of an analysis."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath, expand_home
from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.manifest import MANIFEST, load_vocabulary
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.specials import of_subwords
from tokenfree.preprocess.text.words import word_spans
from tokenfree.train.batches.words import NUM_FRAME, word_capacity
from tokenfree.train.data.mixture import Data
from tokenfree.train.data.shards import ShardReader, paths_of
from tokenfree.train.huggingface.folders import PRETRAINED_LENGTH, read_folder
from tokenfree.train.inference.text_encoder import TextEncoder, load_encoder
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.runs.config import is_finetuned, read_config
from tokenfree.train.runs.formats import CONFIG_NAME
from tokenfree.train.runs.run import Run
from tokenfree.train.tasks.examples import files
from tokenfree.train.torch_state import default_settings


class AnalysedModel:
    """An encoder in evaluation mode that reads one text after another.

    `data` is its training data, if known.
    """

    def __init__(
        self, name: str, reader: TextEncoder, data: Data | None = None, vocabulary: Vocabulary | None = None
    ) -> None:
        self.name, self.reader, self.data, self._vocabulary = name, reader, data, vocabulary
        self.encoder: Encoder = reader.encoder
        self.symbols: str = reader.encoder.config.embedder.symbols

    def record(self) -> dict[str, Any]:
        """Return the description of the model for results: `run` and the values of `Checkpoint.record`."""
        checkpoint = self.reader.checkpoint
        return {"run": self.name, **({} if checkpoint is None else checkpoint.record())}

    @property
    def vocabulary(self) -> Vocabulary:
        """Vocabulary of a model of subwords. Raises UserError if it is not known."""
        if self._vocabulary is None:
            raise UserError(
                f"{self.name} reads subwords, and their vocabulary is not known; name the data directory that holds "
                "it with --vocabulary DIR"
            )
        return self._vocabulary

    def fitting(self, text: str) -> str:
        """Return as much of the beginning of `text` as the model reads, in whole words if it reads words."""
        if self.symbols == "subwords":
            encoded = self.vocabulary.encode_flat([text])
            room = self.reader.length - NUM_FRAME
            return text if len(encoded.ids) <= room else text[: int(encoded.starts[room])]
        config = self.encoder.config.downsampler
        if config.bytes_per_word is None:
            return text[: self.reader.max_characters]
        num_words, num_bytes = word_capacity(self.reader.length, config.bytes_per_word)
        starts, ends = (span.tolist() for span in word_spans(text))
        size = 0
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            size += end - start
            if number == num_words or size > num_bytes:
                return text.encode()[:start].decode()
        return text

    @torch.no_grad()
    def read(self, text: str) -> None:
        """Encode one text, so that hooks on the modules of the encoder run."""
        if self.symbols == "subwords":
            ids = self.subwords(text)
            self.encoder.encode(ids, torch.ones_like(ids, dtype=torch.bool))
        else:
            self.reader([text])

    def subwords(self, text: str) -> torch.Tensor:
        """Return CLS, the subwords of `text` and SEP, int64 [1, symbols]."""
        specials = of_subwords(self.vocabulary.size)
        ids = self.vocabulary.encode_flat([text]).ids.tolist()
        return torch.tensor([[specials.cls, *ids, specials.sep]])


@default_settings()
def load_model(
    run: AnyPath, *, step: int | None = None, vocabulary: AnyPath | None = None, trust_code: bool = False
) -> AnalysedModel:
    """Load the encoder of a run, or of a folder written by transformers' `save_pretrained`.

    `vocabulary` is a data directory with the vocabulary of a model of subwords, by default its training data.
    """
    name = expand_home(run)
    if CONFIG_NAME not in Storage.at(name).names() and (Path(name) / "config.json").is_file():
        folder_model = read_folder(Path(name))
        length = min(PRETRAINED_LENGTH, folder_model.encoder.config.embedder.max_characters)
        reader, data, sha256 = TextEncoder(folder_model.encoder, length=length), None, folder_model.vocabulary
    elif is_finetuned(run):
        return _finetuned(name, load_encoder(run, step=step, trust_code=trust_code), vocabulary)
    else:
        data = read_config(run, trust_code=trust_code).data
        reader = load_encoder(run, step=step, trust_code=trust_code)
        assert reader.checkpoint is not None, "it is of a run"
        sha256 = reader.checkpoint.state.vocabulary
    data = data if data is not None and is_data(data) else None
    place = vocabulary or (None if data is None else paths_of(data)[0])
    if place is None or reader.encoder.config.embedder.symbols != "subwords":
        return AnalysedModel(name, reader, data)
    return AnalysedModel(name, reader, data, _vocabulary(name, place, sha256))


def _finetuned(run: str, reader: TextEncoder, vocabulary: AnyPath | None) -> AnalysedModel:
    run_vocabulary = (
        load_vocabulary(Run(run).name) if reader.encoder.config.embedder.symbols == "subwords" else None
    )
    if run_vocabulary is not None and vocabulary is not None:
        _vocabulary(run, vocabulary, run_vocabulary.sha256)
    return AnalysedModel(run, reader, vocabulary=run_vocabulary)


def load_named_vocabulary(data: AnyPath) -> Vocabulary:
    """Return the vocabulary of a data directory. Raises UserError if it has none."""
    vocabulary = load_vocabulary(data)
    if vocabulary is None:
        raise UserError(f"{data} has no vocabulary; name a data directory with one as --vocabulary DIR")
    return vocabulary


def _vocabulary(name: str, data: AnyPath, sha256: str | None) -> Vocabulary:
    vocabulary = load_named_vocabulary(data)
    if sha256 is not None and vocabulary.sha256 != sha256:
        raise UserError(f"{data} has another vocabulary than {name}; name its own data with --vocabulary DIR")
    return vocabulary


def is_data(data: Data) -> bool:
    """Return True if `data` names complete data directories.

    The data of an imported run only describe its origin.
    """
    try:
        return all(Storage.at(path).size(MANIFEST) is not None for path in paths_of(data))
    except (UserError, NotADirectoryError):
        return False


SPLIT = "validation"


class SampledTexts(NamedTuple):
    """Texts that a model can read, and the number of texts that were cut for it."""

    texts: list[str]
    num_cut: int


def sample_texts(model: AnalysedModel, data: AnyPath | None, num_texts: int) -> SampledTexts:
    """Return at most `num_texts` texts of `data`, spaced evenly, each as far as `model` reads it.

    `data` is a data directory, whose validation split is read, or a file with one text per line. The default
    is the training data of the model. Raises UserError if there are no texts.
    """
    source = source_of(model, data)
    if is_data(source):
        reader = ShardReader(source, SPLIT)
        _, shards, rows = reader.spread(num_texts)
        full_texts = [bytes(row).decode() for row in reader.rows(("text",), shards, rows)["text"]]
    else:
        lines = [line for _, line in read_lines(str(source))]
        full_texts = [
            lines[index] for index in np.unique(np.linspace(0, len(lines) - 1, num_texts).astype(int))
        ]
    fitting = [model.fitting(text) for text in full_texts]
    cut = sum(len(short) < len(text) for short, text in zip(fitting, full_texts, strict=True))
    texts = [text for text in fitting if text.strip()]
    if not texts:
        raise UserError(
            f"{source} has no text to analyse; give a data directory or a file with a text a line"
        )
    return SampledTexts(texts, cut)


def source_of(model: AnalysedModel, data: AnyPath | None) -> Data:
    """Return `data` or, by default, the training data of the model.

    Raises UserError if these are not known.
    """
    if data is None and model.data is None:
        raise UserError(
            f"there is no data directory that {model.name} was trained on; name texts with --data PATH"
        )
    return (model.data or "") if data is None else expand_home(data)


def read_lines(path: AnyPath) -> list[tuple[int, str]]:
    """Return the lines of a UTF-8 file that are not blank, with numbers from 1.

    Raises UserError if there are none.
    """
    path = expand_home(path)
    if Path(path).is_dir():
        raise UserError(
            f"{path}: this folder has no data of `tokenfree preprocess`. Give a data directory or a file."
        )
    return [(number, line) for number, line in enumerate(files.read_lines(path), 1) if line.strip()]
