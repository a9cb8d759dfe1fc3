"""Examples of a Hugging Face dataset: `hf:NAME[:CONFIG][@SPLIT]`, of the hub, saved on disk, or a folder of its files.

Classes have the names that the dataset gives them; its -1 is a label that is not given.
"""

from __future__ import annotations

from typing import Any

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.sources.books.huggingface import Named, open_dataset
from tokenfree.train.tasks.examples.columns import ExampleTable

SCHEME = "hf:"


def dataset_table(address: str) -> ExampleTable:
    """All rows of a split, `train` unless another is named; rows are counted from 0 as the dataset counts them.

    Raises:
        UserError: there is no such dataset, config or split, or nothing is in it.
    """
    named = Named.parse(address.removeprefix(SCHEME))
    if not named.path:
        raise UserError(f"{address}: no dataset is named; give hf:NAME[:CONFIG][@SPLIT]")
    try:
        dataset = open_dataset(named)
    except UserError as error:  # it names the option of preprocessing
        raise UserError(f"{SCHEME}{str(error).removeprefix('hf_dataset: ')}") from error
    if not len(dataset):
        raise UserError(f"{address}: no row is in this dataset; give another split with @SPLIT")
    values = {name: _named(dataset.features[name], dataset[name][:]) for name in dataset.column_names}
    names = list(values)
    rows = [
        (number, dict(zip(names, row, strict=True))) for number, row in enumerate(zip(*values.values(), strict=True))
    ]
    return ExampleTable(address, named.label, names, rows, "row")


def _named(feature: Any, values: list[Any]) -> list[Any]:
    """Values of a column; classes by name, None for one that is not given."""
    import datasets

    inner = getattr(feature, "feature", None)
    if isinstance(feature, datasets.ClassLabel):
        return [_class_name(feature, value) for value in values]
    if isinstance(inner, datasets.ClassLabel):
        return [value if value is None else [_class_name(inner, one) for one in value] for value in values]
    return values


def _class_name(feature: Any, value: int | None) -> str | None:
    return None if value is None or value < 0 else feature.int2str(value)
