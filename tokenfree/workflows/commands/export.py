"""Write a run for transformers or onnxruntime, with the same outputs, or a data directory as Parquet tables.

A folder for transformers opens with the Auto classes and trust_remote_code=True. It holds the code that the
model needs, so tokenfree need not be installed. A CANINE also opens with CanineModel, a subword BERT with
BertModel. A fine-tuned run keeps its head and the names of its labels. An ONNX graph takes inputs of any
length. It returns embeddings, or the logits of a fine-tuned run.

Parquet tables are compressed by zstd, one for each shard, with a card for the viewer of the Hugging Face hub.
If the command is killed, run it again: it keeps complete tables.

Example:
  tokenfree export runs/tiny --to huggingface exported/tiny
  tokenfree export runs/tiny --to onnx exported/graph
  tokenfree export runs/sst --to onnx exported/sentiment
  tokenfree export data/simple --to parquet exported/tables
"""

import argparse

from tokenfree.workflows.recipes.options import add_step_argument, add_trust_argument

FORMATS = ("huggingface", "onnx", "parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_folder",
        metavar="RUN|DATA",
        help="the folder of a run, or for parquet a data directory or its address",
    )
    parser.add_argument(
        "--to", metavar="FORMAT", required=True, choices=FORMATS, help=f"one of: {', '.join(FORMATS)}"
    )
    parser.add_argument("folder", metavar="DIR", help="a new or empty folder to write")
    add_step_argument(parser)
    add_trust_argument(parser)
