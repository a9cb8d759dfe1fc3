"""Near-duplicates by our sketches compared with datasketch and rensa, on the same texts.

    python -m benchmarks.preprocess.near_duplicates [--documents 1000] [--characters 3000] [--rounds 3]

The texts are pieces of the books and human rights declarations of the test data, each with a copy in which
0.1 to 4% of the characters are replaced. Both sides make sketches of 256 numbers from the same shingles and
search for pairs with a similarity of 0.8. The truth is the Jaccard similarity of the sets. The last line is the
time of sketches alone by rensa, which is written in Rust. datasketch and rensa are not dependencies. They were
measured with

    pip install --no-deps --target /tmp/peer datasketch rensa    # and PYTHONPATH=/tmp/peer
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

import numpy as np

from benchmarks.timing import in_turn, median
from tokenfree.preprocess.config import NearDuplicateConfig
from tokenfree.preprocess.documents.near_duplicates import (
    NUM_HASHES,
    band_hashes,
    band_rows,
    candidates,
    similarity,
    sketch,
)
from tokenfree.preprocess.text.normalize import normalize
from tools.wiki_pages import data_folder

LENGTH = NearDuplicateConfig().shingle_characters
MIN_SIMILARITY = 0.8
SHARES = (0.001, 0.003, 0.01, 0.02, 0.04)
Pairs = set[tuple[int, int]]


def shingles(text: str) -> set[str]:
    """Return the shingles that both sides hash."""
    folded = " ".join(text.casefold().split())
    return {folded[start : start + LENGTH] for start in range(max(1, len(folded) - LENGTH + 1))}


def ours(texts: Sequence[str]) -> np.ndarray:
    """Return our sketches, uint16 [texts, 256]."""
    return np.stack([sketch(text, LENGTH) for text in texts])


def our_pairs(sketches: np.ndarray) -> Pairs:
    """Return the pairs that our bands and then the estimated similarity find, as in a job."""
    rows = band_rows(MIN_SIMILARITY)
    keys = np.stack([np.zeros(len(sketches)), np.arange(len(sketches))], axis=1).astype(np.uint64)
    found = {
        (one, other)
        for band in band_hashes(sketches, rows).T
        for one, other in candidates(np.zeros(len(sketches), np.int64), keys, band).tolist()
    }
    return {
        (one, other) for one, other in found if similarity(sketches[one], sketches[other]) >= MIN_SIMILARITY
    }


def theirs(texts: Sequence[str]) -> list[datasketch.MinHash]:
    """Return the sketches of datasketch with its default hash."""
    made = []
    for text in texts:
        minhash = datasketch.MinHash(num_perm=NUM_HASHES)
        minhash.update_batch([shingle.encode() for shingle in shingles(text)])
        made.append(minhash)
    return made


def rusts(texts: Sequence[str]) -> list[rensa.RMinHash]:
    """Return the sketches of rensa."""
    sketches = []
    for text in texts:
        minhash = rensa.RMinHash(num_perm=NUM_HASHES, seed=0)
        minhash.update(list(shingles(text)))
        sketches.append(minhash)
    return sketches


def their_pairs(sketches: Sequence[datasketch.MinHash]) -> Pairs:
    """Return the pairs that datasketch's index and then its estimated similarity find."""
    index = datasketch.MinHashLSH(threshold=MIN_SIMILARITY, num_perm=NUM_HASHES)
    pairs = set()
    for number, one in enumerate(sketches):
        pairs |= {
            (other, number) for other in index.query(one) if sketches[other].jaccard(one) >= MIN_SIMILARITY
        }
        index.insert(number, one)
    return pairs


def documents(number: int, characters: int) -> list[str]:
    """Return pieces of texts in all scripts, followed by a copy of each with some characters replaced."""
    files = sorted([*data_folder().glob("books/*/*.txt"), *data_folder().glob("udhr/*.txt")])
    whole = [normalize(file.read_text(encoding="utf-8")) for file in files]
    pieces = [
        text[at : at + characters]
        for text in whole
        for at in range(0, len(text) - characters + 1, characters)
    ]
    draw = random.Random(0)
    draw.shuffle(pieces)
    pieces = pieces[: number // 2]
    copies = []
    for place, text in enumerate(pieces):
        share = SHARES[place % len(SHARES)]
        copies.append("".join(draw.choice(text) if draw.random() < share else letter for letter in text))
    return [*pieces, *copies]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--characters", type=int, default=3000, help="of each")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    texts = documents(options.documents, options.characters)
    half = len(texts) // 2
    sets = [shingles(text) for text in texts]
    exact = np.array([len(sets[n] & sets[half + n]) / len(sets[n] | sets[half + n]) for n in range(half)])
    near: Pairs = {(n, half + n) for n in np.flatnonzero(exact >= MIN_SIMILARITY).tolist()}
    our, their = ours(texts), theirs(texts)
    estimates = {
        "ours": similarity(our[:half], our[half:]),
        "datasketch": np.array([their[n].jaccard(their[half + n]) for n in range(half)]),
    }
    pairs = {"ours": our_pairs(our), "datasketch": their_pairs(their)}
    making = in_turn(
        {"ours": lambda: ours(texts), "datasketch": lambda: theirs(texts), "rensa": lambda: rusts(texts)},
        options.rounds,
    )
    finding = in_turn(
        {"ours": lambda: our_pairs(our), "datasketch": lambda: their_pairs(their)}, options.rounds
    )
    size = sum(map(len, texts)) / 1e6
    print(
        f"{len(texts)} texts, {size:.2f} million characters, shingles of {LENGTH}; {len(near)} near pairs of {half}"
    )
    print(f"{'':12}{'Mchar/s':>9}{'error':>8}{'bias':>8}{'pairs s':>9}{'found':>8}{'others':>8}{'bytes':>8}")
    for name, size_of in (("ours", 2 * NUM_HASHES), ("datasketch", their[0].hashvalues.nbytes)):
        off = estimates[name] - exact
        speed, share = size / min(making[name]), len(pairs[name] & near) / len(near)
        print(
            f"{name:12}{speed:9.2f}{np.sqrt(np.mean(off**2)):8.4f}{np.mean(off):8.4f}"
            f"{median(finding[name]):9.3f}{share:8.1%}{len(pairs[name] - near):8}{size_of:8}"
        )
    print(f"{'rensa':12}{size / min(making['rensa']):9.2f}")
    for name in ("datasketch", "rensa"):
        print(f"ours is {min(making[name]) / min(making['ours']):.1f} times as fast as {name}")


if __name__ == "__main__":
    import datasketch  # pyright: ignore[reportMissingImports]
    import rensa  # pyright: ignore[reportMissingImports]

    main()
