"""The rows of the queue, those that tell most for their minutes first; docs/task_results.md says what was tried."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.learning.plan import Options
from benchmarks.tasks.plan import NoiseRow, Row
from tokenfree.train.analyses.noise import SCHEMES
from tokenfree.train.tasks.examples.noise import IN_WORDS

RATE = "train.learning_rate"
PAIRS = (2, 5, 10)  # of mirrored summation: the nearest of them stand 17, 11 and 1 apart
VECTORS = 20
DOMAINS = ("mr", "books", "electronics", "imdb")
TEXTS = ("sst2", "sst5", "electronics", "wisesight")
NAMES = ("ewt", "swa", "amh")

# Short sequences of small vectors in the place of the recipes' 100 of 50. In float32: bfloat16 was slower for models so
# narrow until attention trained in parts.
MIRRORED: Options = (
    ("task.length", str(VECTORS)),
    ("task.size", "10"),
    ("task.dev_examples", "1000"),
    ("task.test_examples", "5000"),
    ("train.length", str(VECTORS + 1)),
    ("model.embedder.size", "10"),
    ("train.validate_every_steps", "250"),
    ("train.precision", "float32"),
)
MIRRORED_STEPS = 2000
MODELS = {
    "": "MS-Trans-Flex",
    "-hier-s": "MS-Trans-Hier-S",
    "-deep-hier-s": "MS-Trans-deepHier-S",
    "-transformer": "Transformer",
}
# A multi-scale Transformer over the units that the recipes make of hashed n-grams, with the head of its paper.
MULTI_SCALE: Options = (
    ("model.embedder.positions", "none"),
    ("model.trunk.heads", "8"),
    ("model.trunk.layer.name", "multi_scale"),
    ("model.trunk.attention.name", "multi_scale"),
    ("task.representation", "class_max"),
    (RATE, "0.001"),
)
ORDER = (("model.embedder.positions", "sinusoidal"),)
FULL: Options = (*ORDER, ("model.trunk.attention.name", "full"))
STANDARD: Options = (*FULL, ("model.trunk.layers", "2"), ("model.trunk.layer.name", "bert"))
SINGLE: Options = (("model.trunk.attention.alpha", "0"), ("model.trunk.attention.scales", "[3]"))
# The CANINE-S of `benchmarks.learning`, from scratch; and the same over the hashed n-grams of the recipe `ner`.
NGRAMS: Options = (("model.initialisation", "official"), ("model.trunk.dropout", "0"))
CANINE: Options = (
    ("model.embedder.name", "codepoint_hash"),
    ("model.embedder.hashes", "4"),
    ("model.embedder.buckets", "4096"),
    ("model.embedder.max_characters", "2048"),
    *NGRAMS,
)
CHARACTERS: Options = ((RATE, "0.0005"), ("train.length", "240"))
PIECES: Options = ((RATE, "0.0005"), ("train.length", "80"))
LONG_PIECES: Options = ((RATE, "0.0005"), ("train.length", "112"))
LOWER_RATE = (RATE, "0.0005")  # at twice that, five of nine models of imdb's long reviews learn nothing
LONG_WORDS = ("ewt", "amh")  # one word of theirs alone is more than 80 subwords
WORDS: Options = ((RATE, "0.0005"), ("train.length", "384"))


def _mirrored() -> Iterator[Row]:
    for pairs in PAIRS:
        options = (*MIRRORED, ("task.pairs", str(pairs)))
        data = f"mirrored summation, K = {pairs}"
        for end, label in MODELS.items():
            yield Row(f"mirrored{end}-{pairs}", label, f"mirrored-summation{end}", data, MIRRORED_STEPS, options)
        six = (*options, ("model.trunk.layers", "6"))  # as many as those of deepHier
        label = "MS-Trans-Flex, six layers (not in the paper)"
        yield Row(f"mirrored-six-{pairs}", label, "mirrored-summation", data, MIRRORED_STEPS, six)


def _multi_scale(data: str, recipe: str, steps: int, *options: tuple[str, str]) -> Iterator[Row]:
    """The multi-scale Transformer, the same with full attention and order told by sinusoids, and its paper's baseline,
    two layers of BERT's: all from scratch."""
    for name, label, over in (
        ("ms", "multi-scale", ()),
        ("standard", "standard Transformer", STANDARD),
        ("full", "multi-scale layers, full attention", FULL),
    ):
        given = tuple({**dict(MULTI_SCALE), **dict(options), **dict(over)}.items())
        yield Row(f"{data}-{name}", label, recipe, data, steps, given)


def _pretrained(data: str, recipe: str, steps: int, canine_steps: int) -> Iterator[Row]:
    """CANINE-S pretrained and not, and the two BERTs pretrained."""
    yield Row(f"{data}-canine", "CANINE-S, pretrained", recipe, data, canine_steps, CHARACTERS, "canine-s")
    untrained = (*CANINE, *CHARACTERS)
    yield Row(f"{data}-canine-untrained", "CANINE-S, untrained", recipe, data, canine_steps, untrained)
    pieces = LONG_PIECES if data in LONG_WORDS else PIECES
    yield Row(f"{data}-bert", "subword BERT, pretrained", recipe, data, steps, pieces, "bert")
    yield Row(f"{data}-char-bert", "character BERT, pretrained", recipe, data, steps, CHARACTERS, "s-char-bert")


def _trained_with_noise() -> Iterator[Row]:
    """Byte2Word and subword BERT with noise in training and evaluation, as in Byte2Word's paper."""
    for scheme in SCHEMES:
        noise = (("task.noise.train", scheme), ("task.noise.evaluation", scheme))
        for side, label, options in (("byte2word", "Byte2Word", WORDS), ("bert", "subword BERT", PIECES)):
            if side == "byte2word" or scheme != IN_WORDS:
                name = f"sst2-{scheme.replace('_', '-')}-{side}"
                shown = f"{label}, pretrained; `{scheme}` in all parts"
                yield Row(name, shown, "classification", "sst2", 300, (*options, *noise), side)


def _rows() -> Iterator[Row]:
    yield from _mirrored()
    for data in ("sst5", "sst2"):
        yield from _multi_scale(data, "classification", 800)
    for data in DOMAINS:
        slower = (LOWER_RATE,) if data == "imdb" else ()
        yield from _multi_scale(data, "classification", 400, *slower)
    for data in TEXTS:
        yield from _pretrained(data, "classification", 300, 1500)  # after 300, CANINE-S hardly left the larger class
    for data in NAMES:
        yield from _pretrained(data, "ner", 500, 500)
        yield Row(f"{data}-ngrams", "CANINE-S with n-grams, untrained", "ner", data, 500, (*NGRAMS, *CHARACTERS))
    yield Row("sst2-byte2word", "Byte2Word, pretrained", "classification", "sst2", 300, WORDS, "byte2word")
    yield from _trained_with_noise()
    apart = ("task.encode", "apart")
    yield from _multi_scale("snli", "pairs", 800, apart)
    single = tuple({**dict(MULTI_SCALE), **dict(SINGLE), **dict((apart,))}.items())
    yield Row("snli-single-3", "one scale, 3", "pairs", "snli", 800, single)


ROWS = tuple(_rows())
NOISE_SIDES = ("byte2word", "bert")  # the better under noise first, as the document has it
NOISE_ROWS = tuple(
    NoiseRow(f"sst2-noise-{side}", row) for side in NOISE_SIDES for row in ROWS if row.name == f"sst2-{side}"
)
