"""Sequence labelling: each word of a sentence has a tag, such as its part of speech or, in BIO, its span.

A word gets the tag that is predicted at its first character (CANINE, https://arxiv.org/abs/2103.06874,
section 4.2), or at the first subword or word that begins in it.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field

from tokenfree.core.errors import UserError, logger
from tokenfree.core.settings import settings
from tokenfree.preprocess.text.characters import ALONE, SPACE, classes_of, codepoints_of
from tokenfree.train.batches.base import Arrays
from tokenfree.train.batches.ngrams import NO_FEATURE, word_features
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.base import DownstreamTask, Item, Metrics, Outputs, Predict, Split, TaskCollator
from tokenfree.train.tasks.examples.noise import Noise
from tokenfree.train.tasks.examples.tagged import (
    Scheme,
    TaggedExample,
    TaggedFormat,
    TaggedOptions,
    are_bio,
    read_tagged,
    spans,
)
from tokenfree.train.tasks.heads import PlaceHead
from tokenfree.train.tasks.inputs import NOWHERE, TextInputs, TextSymbols, part_of
from tokenfree.train.tasks.labelled_texts import DIGITS, softmax
from tokenfree.train.tasks.metrics import span_metrics, tag_metrics

OUTSIDE = "O"


@settings
class Config(DownstreamTask):
    """Words with one tag each.

    Attributes:
        labels: the tags; []: those of the training examples, in alphabetical order.
        scheme: `bio`: tags are spans, and an I- that continues no span is read as B-; `strict_bio`: such an
            I- is an error; `words`: tags of single words; null: bio if a tag begins with B- or I-, else
            words.
        targets: vectors that are tagged. `first`: that of a word's first character; `all`: those of all
            characters, of which the first alone decides the word's tag; `word`: the mean over a word's
            characters.
        decoder: `independent`: the most probable tag of each word; `crf`: the most probable tags of the whole
            sentence, by a linear-chain CRF (Lample et al., arXiv 1603.01360, section 2.2).
        miss_cost: score added, in training, to the tag O of words of spans, so that the model must be surer
            of O and finds more spans (softmax-margin, Gimpel and Smith 2010). In BIO only.
        dropout: dropout of the head.
        format: format of the files: conll, conllu or json; null: detected from name and columns.
        words_column: column of words: a number from 1, or a name in JSON and datasets; null: detected.
        tags_column: column of tags: a number from 1, or a name in JSON and datasets; null: detected.
        noise: noise in the characters of each word, which keeps its tag.
    """

    name: Literal["tagging"] = "tagging"
    labels: tuple[str, ...] = ()
    scheme: Scheme | None = None
    targets: Literal["first", "all", "word"] = "first"
    decoder: Literal["independent", "crf"] = "independent"
    miss_cost: Annotated[float, Field(ge=0)] = 0.0
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    format: TaggedFormat | None = None
    words_column: str | None = None
    tags_column: str | None = None
    noise: Noise = Noise()

    @property
    def has_spans(self) -> bool:
        return self.scheme != "words" and are_bio(self.labels)

    def check(self, model: ModelConfig, length: int) -> Iterable[str]:
        if self.targets == "all" and (self.decoder == "crf" or model.neighbours.name != "none"):
            yield (
                "task.targets: all characters have no CRF and no linear path over words; set it to word, or leave "
                "out task.decoder and model.neighbours"
            )
        yield from self.noise.check(model)

    def examples(self, split: Split, path: str) -> Sequence[TaggedExample]:
        columns = self.words_column, self.tags_column
        options = TaggedOptions(self.format, *columns, self.scheme, self.labels or None)
        return self.noise.add(read_tagged(path, options), split)

    def raw(self, key: str, text: str) -> "RawSentence":
        """Return a text as words separated by white space.

        Each punctuation mark and ideograph is a separate word.
        """
        starts, words = zip(*_words(text), strict=True) if text.strip() else ((), ())
        return RawSentence(key, words, text=text, starts=starts)

    def texts(self, example: TaggedExample) -> Sequence[str]:
        return example.words

    def fitted(self, examples: Sequence[TaggedExample]) -> Self:
        bare = next((example for example in examples if example.tags is None), None)
        if bare is not None:
            raise UserError(
                f"{bare.key}: the training examples have no tags. Name their column as task.tags_column."
            )
        labels = set(self.labels or (tag for example in examples for tag in example.tags or ()))
        # Characters inside a word continue its span.
        if are_bio(labels) and self.scheme != "words":
            labels |= {f"I{tag[1:]}" for tag in labels if tag.startswith("B-")} | {OUTSIDE}
        if len(labels) < 2:
            raise UserError(
                f"{examples[0].key}: all words are tagged {next(iter(labels))!r}. Give more tags."
            )
        return dataclasses.replace(self, labels=tuple(sorted(labels)))

    def build(self, model: ModelConfig) -> PlaceHead:
        outside, miss_cost = (self.labels.index(OUTSIDE), self.miss_cost) if self.has_spans else (0, 0.0)
        return PlaceHead(
            model,
            len(self.labels),
            dropout=self.dropout,
            pooled=self.targets == "word",
            chained=self.decoder == "crf",
            outside=outside,
            miss_cost=miss_cost,
        )

    def learn(
        self, head: PlaceHead, examples: Sequence[TaggedExample], held_out: Sequence[TaggedExample]
    ) -> None:
        if head.neighbours is not None:
            head.neighbours.learn(word_features([example.words]) for example in examples)

    def collator(self, inputs: TextInputs, seed: int) -> "TaggingCollator":
        return TaggingCollator(self, inputs)

    def predictions(
        self, examples: Sequence[TaggedExample], items: Sequence[Item], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        """Return `key`, `words`, `tags`, their `probabilities`, `gold` if given and, in BIO, the `spans`.

        Offsets of spans are characters of the given text, or of the words joined with spaces.
        """
        probabilities = [output.get("probabilities", softmax(output["logits"])) for output in outputs]
        best_tags = [
            output.get("tags", values.argmax(axis=-1))
            for output, values in zip(outputs, probabilities, strict=True)
        ]
        predictions = list[dict[str, Any]]()
        for example, words in zip(examples, self.tagged_words(examples, items, best_tags), strict=True):
            tags = [self.labels[word.tag] for word in words]
            sure = [
                0.0 if word.item == NOWHERE else float(probabilities[word.item][word.place, word.tag])
                for word in words
            ]
            predictions.append(self._prediction(example, tags, [round(value, DIGITS) for value in sure]))
        return predictions

    @property
    def default(self) -> int:
        """Return the tag of words that the model does not read."""
        return self.labels.index(OUTSIDE) if OUTSIDE in self.labels else 0

    def tagged_words(
        self, examples: Sequence[TaggedExample], items: Sequence[Item], tags: Sequence[np.ndarray]
    ) -> list[list["TaggedWord"]]:
        """Return the words of examples. `tags` has those of each item's places."""
        unread = TaggedWord(self.default, NOWHERE, NOWHERE)
        words = [[unread] * len(example.words) for example in examples]
        for number, item in enumerate(items):
            for word, place in enumerate(item.content.firsts.tolist(), item.content.begin):
                if place != NOWHERE:
                    words[item.example][word] = TaggedWord(int(tags[number][place]), number, place)
        return words

    def pieces(
        self, example: "RawSentence", words: Sequence["TaggedWord"]
    ) -> Iterator[tuple[int, int, int, "TaggedWord"]]:
        """Yield the begin and end of pieces of a text, their tag, and the word that it belongs to.

        Later pieces replace parts of earlier ones. The first character of a span has B-. Its other characters, and
        the spaces inside, have I-.
        """
        starts, ends = (
            example.starts,
            [start + len(word) for start, word in zip(example.starts, example.words, strict=True)],
        )
        if not self.has_spans:
            ends = [*starts[1:], len(example.text)]
        for start, end, word in zip(starts, ends, words, strict=True):
            yield start, end, word.tag, word
        for first, last, label in spans([self.labels[word.tag] for word in words]) if self.has_spans else ():
            for number in range(first, last + 1):
                start = starts[first] if number == first else ends[number - 1]
                yield start, ends[number], self.labels.index(f"I-{label}"), words[number]
            if f"B-{label}" in self.labels:
                yield starts[first], starts[first] + 1, self.labels.index(f"B-{label}"), words[first]

    def scores(
        self, examples: Sequence[TaggedExample], predictions: Sequence[Mapping[str, Any]]
    ) -> Metrics | None:
        gold = [example.tags for example in examples]
        gold_tags = [tags for tags in gold if tags is not None]
        if len(gold_tags) < len(gold):
            return None
        predicted = [prediction["tags"] for prediction in predictions]
        return span_metrics(gold_tags, predicted) if self.has_spans else tag_metrics(gold_tags, predicted)

    def baselines(self, examples: Sequence[TaggedExample]) -> Mapping[str, Predict]:
        by_word = dict[str, Counter[str]]()
        for example in examples:
            for word, tag in zip(example.words, example.tags or (), strict=True):
                by_word.setdefault(word, Counter())[tag] += 1
        usual = {word: counts.most_common(1)[0][0] for word, counts in by_word.items()}
        overall = Counter(tag for example in examples for tag in example.tags or ())
        default = OUTSIDE if self.has_spans else overall.most_common(1)[0][0]
        return {
            "most frequent tag": lambda others: [
                {"tags": [usual.get(word, default) for word in example.words]} for example in others
            ]
        }

    def _prediction(self, example: TaggedExample, tags: list[str], sure: list[float]) -> dict[str, Any]:
        gold = {} if example.tags is None else {"gold": list(example.tags)}
        fields = {
            "key": example.key,
            "words": list(example.words),
            "tags": tags,
            **gold,
            "probabilities": sure,
        }
        return fields | {"spans": _spans(example, tags)} if self.has_spans else fields


@dataclasses.dataclass(frozen=True, slots=True)
class RawSentence(TaggedExample):
    text: str = ""
    starts: tuple[int, ...] = ()  # first character of each word in the text


class TaggedWord(NamedTuple):
    tag: int
    item: int  # number of the item with its place; -1: the model does not read it
    place: int


class TaggedWindow(NamedTuple):
    begin: int  # number of the first word
    text: TextSymbols
    words: Sequence[str]
    places: np.ndarray  # int64 [P]: positions whose vectors are tagged
    ends: np.ndarray  # int64 [P]: the position after the last vector of the word, if words are tagged
    classes: np.ndarray  # int64 [P]: class of each place; -1: no tag is given
    firsts: np.ndarray  # int64 [words]: place that decides the word's tag; -1: none


class TaggingCollator(TaskCollator):
    def __init__(self, task: Config, inputs: TextInputs) -> None:
        self._inputs, self._has_spans, self._targets = inputs, task.has_spans, task.targets
        self._classes = {label: number for number, label in enumerate(task.labels)}

    def items(self, examples: Sequence[TaggedExample], *, training: bool) -> list[Item]:
        """Return the items.

        Sentences that are too long are halved between words; a single word is cut at its end.
        """
        long = list[str]()
        items = [
            Item(number, self._inputs.size([window.text]), window)
            for number, example in enumerate(examples)
            if example.words
            for window in self._windows(example, 0, len(example.words), long)
        ]
        if long:
            logger.warning(
                "words longer than the model reads at once: %d. Only their beginnings are read.", len(long)
            )
        return items

    def __call__(self, items: Sequence[Item], sample_ids: np.ndarray) -> Arrays:
        windows: list[TaggedWindow] = [item.content for item in items]
        max_places = max(1, *(len(window.places) for window in windows))
        places, ends, classes = (np.full((len(items), max_places), fill) for fill in (0, 0, -1))
        place_mask = np.zeros((len(items), max_places), dtype=bool)
        for row, window in enumerate(windows):
            size = len(window.places)
            places[row, :size], ends[row, :size], classes[row, :size] = (
                window.places,
                window.ends,
                window.classes,
            )
            place_mask[row, :size] = True
        arrays = self._inputs.arrays([[window.text] for window in windows])
        return arrays | {
            "places": places,
            "place_ends": ends,
            "place_mask": place_mask,
            "classes": classes.clip(min=0),
            "target_mask": classes >= 0,
            "num_characters": np.array([len(window.text.vectors) for window in windows], dtype=np.int64),
            **(self._ngrams(windows, place_mask) if self._inputs.reads_ngrams else {}),
        }

    def _ngrams(self, windows: Sequence[TaggedWindow], place_mask: np.ndarray) -> Arrays:
        features = word_features([window.words for window in windows])
        ngrams = np.full((*place_mask.shape, features.shape[1]), NO_FEATURE)
        ngrams[place_mask] = features[np.concatenate([window.firsts != NOWHERE for window in windows])]
        return {"ngrams": ngrams}

    def _windows(
        self, example: TaggedExample, begin: int, end: int, long: list[str]
    ) -> Iterator[TaggedWindow]:
        words, tags = example.words[begin:end], example.tags and example.tags[begin:end]
        original = None if example.before is None else " ".join(example.before[begin:end])
        text = self._inputs.encode(" ".join(words), original)
        if self._inputs.missing([text]):
            middle = (begin + end) // 2
            if begin < middle:
                yield from self._windows(example, begin, middle, long)
                yield from self._windows(example, middle, end, long)
                return
            long.extend(words)
            text = part_of(text, 0, self._inputs.fitting(text))
        yield self._window(words, tags, begin, text)

    def _window(
        self, words: Sequence[str], tags: Sequence[str] | None, begin: int, text: TextSymbols
    ) -> TaggedWindow:
        of_word = np.repeat(np.arange(len(words)), [len(word) for word in words])
        # A space precedes each word except the first.
        characters = np.arange(len(of_word)) + of_word
        vectors = text.vectors[characters[characters < len(text.vectors)]]
        kept = np.flatnonzero(vectors != NOWHERE)
        vector_indices, first = np.unique(vectors[kept], return_index=True)
        # The word in which each vector begins.
        word = of_word[kept[first]]
        with_vectors, of_firsts, counts = np.unique(word, return_index=True, return_counts=True)
        ends = vector_indices + 1
        if self._targets != "all":
            ends = ends[of_firsts + counts - 1]
            vector_indices, word, of_firsts = vector_indices[of_firsts], with_vectors, np.arange(len(counts))
        firsts = np.full(len(words), NOWHERE)
        firsts[with_vectors] = of_firsts
        classes = np.full(len(vector_indices), -1)
        if tags is not None:
            classes = np.array([self._classes[self._inside(tag)] for tag in tags])[word]
            classes[of_firsts] = np.array([self._classes[tag] for tag in tags])[with_vectors]
        begins = self._inputs.offsets([text])[0]
        return TaggedWindow(begin, text, words, vector_indices + begins, ends + begins, classes, firsts)

    def _inside(self, tag: str) -> str:
        return f"I{tag[1:]}" if self._has_spans and tag.startswith("B-") else tag


def _words(text: str) -> list[tuple[int, str]]:
    kinds = classes_of(codepoints_of(text))
    edges, visible = kinds <= ALONE, kinds != SPACE
    cuts = np.ones(len(text) + 1, dtype=bool)
    cuts[1:-1] = edges[1:] | edges[:-1]
    starts, ends = np.flatnonzero(cuts[:-1] & visible), np.flatnonzero(cuts[1:] & visible) + 1
    return [(start, text[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _spans(example: TaggedExample, tags: Sequence[str]) -> list[dict[str, Any]]:
    sizes = [len(word) for word in example.words]
    if isinstance(example, RawSentence):
        text, starts = example.text, example.starts
    else:
        text = " ".join(example.words)
        starts = (np.cumsum([0, *sizes]) + np.arange(len(sizes) + 1)).tolist()
    labelled_spans = [
        (label, starts[first], starts[last] + sizes[last]) for first, last, label in spans(tags)
    ]
    return [
        {"label": label, "start": start, "end": end, "text": text[start:end]}
        for label, start, end in labelled_spans
    ]
