"""All windows of some documents at once."""

from collections.abc import Sequence

import pyarrow as pa

from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.features.columns import iterate_windows
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.records import Document, schema


def build_windows(
    documents: Sequence[Document], config: PreprocessConfig, vocabulary: Vocabulary | None
) -> pa.RecordBatch:
    batches = [batch.rows for batch in iterate_windows(documents, config, vocabulary)]
    return pa.concat_batches(batches or [pa.RecordBatch.from_pylist([], schema(config.columns))])
