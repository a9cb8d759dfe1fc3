"""README.md of a data directory, the files by which `datasets` opens it, and its export as Parquet tables."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyarrow as pa

from tokenfree.core.errors import UserError
from tokenfree.core.files import TEMPORARY, AnyPath
from tokenfree.core.locks import LOCK, claimed
from tokenfree.core.settings import build
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import check_hash
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.completion import content_fingerprint
from tokenfree.preprocess.dataset.manifest import (
    MANIFEST,
    NEAR_DUPLICATE_PAIRS,
    DatasetSplit,
    Manifest,
    ShardEntry,
    load_manifest,
)
from tokenfree.preprocess.dataset.verify import COPY, read_batches
from tokenfree.preprocess.records import CHARACTER_COLUMNS, COLUMN_TYPES, schema
from tokenfree.preprocess.sources.books import UNDETERMINED


def front_matter(manifest: Manifest, suffix: str = ".arrow") -> str:
    """Return the YAML between two lines of dashes, for files with this suffix.

    The same data give the same bytes.
    """
    from huggingface_hub import DatasetCardData  # imported late: readers of a data directory do not need it

    languages = sorted(set(manifest.statistics["languages"]) - {UNDETERMINED})
    files = [
        {"split": name, "path": f"{name}/*{suffix}"}
        for name, split in manifest.splits.items()
        if split.shards
    ]
    data = DatasetCardData(
        language=languages or None,
        task_categories=["fill-mask"],
        tags=["tokenfree", "character-level"],
        configs=[{"config_name": "default", "data_files": files}],
    )
    return f"---\n{data.to_yaml()}\n---"


CARD = "README.md"
PLOTS = "plots"
MAX_BARS = 20  # languages, scripts or reasons in a plot; the tables hold all
BLUE = "#2f6690"
ROW, BARS_WIDTH = 24, 480  # pixels of a bar with its gap, and of the longest bar


def write_card(storage: Storage, manifest: Manifest) -> None:
    bars = plot_data(manifest)
    for name, (title, axis, values) in bars.items():
        storage.write_bytes(f"{PLOTS}/{name}.svg", draw_bars(title, axis, values))
    storage.write_bytes(CARD, card(manifest, list(bars)).encode())


def plot_data(manifest: Manifest) -> dict[str, tuple[str, str, dict[str, float]]]:
    """Return title, axis and bars of each plot by its file name, without plots that have no bars."""
    languages = manifest.statistics["languages"]
    scripts: dict[str, float] = {}
    for language in languages.values():
        for script, count in language["scripts"].items():
            scripts[script] = scripts.get(script, 0) + count
    letters = sum(scripts.values()) or 1
    characters = {name: language["characters"] for name, language in languages.items()}
    plots: dict[str, tuple[str, str, dict[str, float]]] = {
        "lengths": ("Documents by length", "documents", _lengths(manifest.statistics["lengths"])),
        "languages": ("Characters by language", "characters", _largest(characters)),
        "scripts": (
            "Letters by script",
            "% of letters",
            _largest({k: 100 * v / letters for k, v in scripts.items()}),
        ),
        "dropped": ("Pages that are no documents, by reason", "pages", _largest(dropped(manifest.counters))),
    }
    return {name: plot for name, plot in plots.items() if plot[2]}


def dropped(counters: Mapping[str, Any]) -> dict[str, int]:
    reasons = {
        "redirect": counters["redirects"],
        "other namespace": counters["other_namespaces"],
        "duplicate": counters["duplicates"],
        "near-duplicate": counters.get("near_duplicates", 0),
        **{f"filtered: {reason}": count for reason, count in counters["filtered"].items()},
        **{f"failed: {reason}": count for reason, count in counters["failed"].items()},
    }
    return {reason: count for reason, count in reasons.items() if count}


OUTCOMES = {
    "definition": "by definition",
    "rule": "by a rule",
    "fallback": "by a guess",
    "dropped": "dropped",
    "limit": "beyond a limit",
}
MAX_DROPPED_SHARE = 0.05  # of templates in running text, without a warning
MAX_LISTED = 5


def template_line(counters: Mapping[str, Any]) -> str:
    """Return what gave the text of templates in running text, and which were dropped; empty if there were none."""
    outcomes = counters.get("templates", {})
    parts = [f"{outcomes[name]:,} {text}" for name, text in OUTCOMES.items() if outcomes.get(name)]
    names = [
        f"{name} ({count:,})"
        for name, count in _largest(counters.get("dropped_templates", {}), MAX_LISTED).items()
    ]
    return ", ".join(parts) + (f"; dropped most often: {', '.join(names)}" if names else "")


def template_warning(counters: Mapping[str, Any]) -> str:
    outcomes = counters.get("templates", {})
    share = (outcomes.get("dropped", 0) + outcomes.get("limit", 0)) / max(1, sum(outcomes.values()))
    text = f"{share:.1%} of the templates in running text were dropped. Give a whole dump to templates_from."
    return text if share > MAX_DROPPED_SHARE else ""


def byte_shares(manifest: Manifest) -> dict[str, float]:
    """Return the share of each language's subwords that are bytes of characters missing from the vocabulary."""
    return {
        name: counts["byte_pieces"] / counts["subwords"]
        for name, counts in sorted(manifest.statistics["languages"].items())
        if counts["subwords"]
    }


_TITLE = "# Windows of text for token-free language encoders"


def _summary(manifest: Manifest) -> str:
    counters = manifest.counters
    return (
        f"{counters['documents']:,} documents in {len(manifest.statistics['languages'])} languages, cut into "
        f"{counters['windows']:,} windows of at most {manifest.config['window']['max_characters']:,} characters, "
        f"{counters['characters']:,} characters in all. Schema version {manifest.schema_version}, content "
        f"`{manifest.fingerprint}`."
    )


def _splits_table(manifest: Manifest) -> str:
    rows = [
        (name, split.documents, split.rows, split.characters, len(split.shards))
        for name, split in manifest.splits.items()
    ]
    return _table(("split", "documents", "windows", "characters", "shards"), rows)


def _character_columns(manifest: Manifest) -> str:
    columns = set(manifest.config["columns"])
    if "text" not in columns:
        return ""
    if columns.isdisjoint(CHARACTER_COLUMNS):
        return "The columns `codepoints` and `whitespace` follow from `text` and are left out; training derives them."
    bits = 32 * ("codepoints" in columns) + ("whitespace" in columns)
    num_bytes = sum(shard.bytes for shard in manifest.shards)
    return (
        "The columns `codepoints` and `whitespace` follow from `text` and take "
        f"{bits / 8 * manifest.counters['characters'] / max(num_bytes, 1):.0%} of the shards. A recipe whose `columns` "
        "leave them out makes smaller shards, from which training derives them."
    )


def card(manifest: Manifest, plots: Sequence[str]) -> str:
    counters = manifest.counters
    pages = [
        ("Pages read", counters["pages"]),
        *dropped(counters).items(),
        ("**Documents**", counters["documents"]),
    ]
    shares = byte_shares(manifest)
    languages = [
        (
            name,
            counts["documents"],
            counts["windows"],
            counts["characters"],
            f"{counts['characters'] / counts['subwords']:.2f}" if counts["subwords"] else "",
            f"{shares[name]:.1%}" if name in shares else "",
        )
        for name, counts in sorted(manifest.statistics["languages"].items())
    ]
    sections = [
        front_matter(manifest),
        _TITLE,
        _summary(manifest),
        '```python\nimport datasets\n\nwindows = datasets.load_from_disk("this folder")["train"]\n```',
        '`datasets.load_dataset("this folder")` gives the same from a copy that it makes in its cache.',
        "## Splits",
        "A split is chosen by the text of a document, so no text is in two splits. Of equal texts in one language, one "
        "document is kept.",
        _splits_table(manifest),
        _character_columns(manifest),
        "## Languages",
        _table(
            ("language", "documents", "windows", "characters", "characters per subword", "subwords in bytes"),
            languages,
        ),
        "## What became of the pages",
        _table(("", "pages"), pages),
        "Pages that failed are kept with reason and text in `failures/`.",
        "Documents that filters dropped are in `dropped/`." if manifest.config.get("keep_dropped") else "",
        f"Templates in running text: {templates}." if (templates := template_line(counters)) else "",
        template_warning(counters),
        f"`{NEAR_DUPLICATE_PAIRS}` names each near-duplicate, the document for which it was dropped, and the estimated "
        "Jaccard similarity of their shingles."
        if "near_duplicates" in counters
        else "",
        "## Inputs",
        _table(
            ("input", "bytes", "SHA-256"),
            [(entry["path"], entry["size"], f"`{entry['sha256']}`") for entry in manifest.inputs[:1000]],
        ),
        ""
        if len(manifest.inputs) <= 1000
        else f"And {len(manifest.inputs) - 1000:,} more: see `manifest.json`.",
        "## Plots",
        *[f"![{name.replace('_', ' ')}]({PLOTS}/{name}.svg)" for name in plots],
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def draw_bars(title: str, axis: str, values: Mapping[str, float]) -> bytes:
    """Return an SVG of horizontal bars, written by hand because matplotlib takes too long for them."""
    left = 24 + 7 * max(map(len, values))  # room for the names, in the pixels of a wide letter
    longest = max(*values.values(), 1e-9)
    parts = [f'<text x="8" y="22" font-weight="bold">{escape(f"{title} ({axis})")}</text>']
    for row, (name, value) in enumerate(values.items()):
        y = 38 + ROW * row
        width = max(1.0, BARS_WIDTH * value / longest)
        parts += [
            f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{ROW - 6}" fill="{BLUE}"/>',
            f'<text x="{left + width + 6:.1f}" y="{y + 14}">{_short(value)}</text>',
        ]
    size = f"0 0 {left + BARS_WIDTH + 70} {50 + ROW * len(values)}"
    style = 'font-family="sans-serif" font-size="13" fill="#222"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" {style}>', *parts, "</svg>"]
    return ("\n".join(lines) + "\n").encode()


def _lengths(lengths: Mapping[str, int]) -> dict[str, float]:
    if not lengths:
        return {}
    bits = range(min(map(int, lengths)), max(map(int, lengths)) + 1)
    return {f"{_short(2 ** (n - 1))} to {_short(2**n - 1)} characters": lengths.get(str(n), 0) for n in bits}


def _largest(values: Mapping[str, float], limit: int = MAX_BARS) -> dict[str, float]:
    return dict(sorted(values.items(), key=lambda item: (-item[1], item[0]))[:limit])


def _short(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    lines += [
        [f"{cell:,}" if isinstance(cell, int) else str(cell).replace("|", "\\|") for cell in row]
        for row in rows
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_layout(
    storage: Storage, splits: Mapping[str, DatasetSplit], vocabulary_sha256: str | None
) -> list[str]:
    """Write the files by which `datasets` opens a directory, and return their names."""
    files: dict[str, Any] = {"dataset_dict.json": {"splits": sorted(splits)}}
    for name, split in splits.items():
        described = {"description": "Windows of text with character, word, subword and sentence features."}
        files[f"{name}/dataset_info.json"] = described
        files[f"{name}/state.json"] = {
            "_data_files": [{"filename": shard.path.partition("/")[2]} for shard in split.shards],
            # Names the caches of `datasets`.
            "_fingerprint": content_fingerprint({name: split}, vocabulary_sha256),
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": name,
        }
    for name, content in files.items():
        storage.write_json(name, content)
    return list(files)


TABLE = ".parquet"
# Key of a table's metadata, by which a later command knows it.
_SHARD_SHA256 = b"shard_sha256"
_OPEN_TABLES = """```python
datasets.load_dataset("this folder")
pyarrow.dataset.dataset("this folder/train")
polars.scan_parquet("this folder/train/*.parquet")
duckdb.sql("select language, count(*) from 'this folder/train/*.parquet' group by language")
```"""


def export_tables(
    data: AnyPath, folder: AnyPath, *, progress: Callable[[str], None] = lambda name: None
) -> list[str]:
    """Write each shard of a data directory as a Parquet table, then a card, and return the names of new files.

    Tables of an earlier, killed export are kept. `progress` is called with the name of each new file. Raises
    UserError if `data` is no data directory, or `folder` holds anything else or is in use, and JobError if a
    shard is damaged.
    """
    source, target, manifest = Storage.at(data), Storage.at(folder), load_manifest(data)
    config = build(PreprocessConfig, manifest.config, source=f"{data}/{MANIFEST}")
    shards = {shard.path.removesuffix(".arrow") + TABLE: shard for shard in manifest.shards}
    sections = (
        front_matter(manifest, TABLE),
        _TITLE,
        _summary(manifest),
        _OPEN_TABLES,
        _splits_table(manifest),
    )
    text = ("\n\n".join(sections) + "\n").encode()
    with claimed(target):
        names = [name for name in target.find() if name.split("/")[0] not in (LOCK, TEMPORARY)]
        for name in names:
            if not _is_exported(target, name, shards.get(name), text):
                raise UserError(
                    f"{folder}: holds {name}, which is not of this export; give a new or empty folder"
                )
        new_names = [name for name in (*shards, CARD) if name not in names]
        for name in new_names:
            shard = shards.get(name)
            with target.new_file(name) as new:
                if shard is None:
                    Path(new.path).write_bytes(text)
                else:
                    check_hash(source, shard.path, shard.sha256, source=MANIFEST, action=COPY)
                    _write_table(source, shard, config, new.path)
            progress(name)
        target.remove(TEMPORARY)
    return new_names


def _is_exported(storage: Storage, name: str, shard: ShardEntry | None, text: bytes) -> bool:
    import pyarrow.parquet

    if shard is None:
        return name == CARD and storage.read_bytes(name) == text
    try:
        with storage.open(name) as file:
            metadata = pyarrow.parquet.read_schema(file).metadata
    except pa.ArrowInvalid:
        return False
    return (metadata or {}).get(_SHARD_SHA256) == shard.sha256.encode()


def _write_table(storage: Storage, shard: ShardEntry, config: PreprocessConfig, path: str) -> None:
    import pyarrow.parquet

    columns = schema(config.columns)
    # Offsets grow within a row. Their differences take half the space of the numbers.
    offsets = [name for name in columns.names if columns.field(name).type == COLUMN_TYPES["word_starts"]]
    with pyarrow.parquet.ParquetWriter(
        path,
        columns.with_metadata({**(columns.metadata or {}), _SHARD_SHA256: shard.sha256}),
        compression="zstd",
        compression_level=3,
        use_dictionary=["document", "language", "codepoints.list.element"],  # pyright: ignore[reportArgumentType]
        column_encoding={f"{name}.list.element": "DELTA_BINARY_PACKED" for name in offsets},
    ) as writer:
        for batch in read_batches(storage, shard, config):
            writer.write_batch(batch)
