"""Write a run for transformers or onnxruntime, with the same outputs.

A folder for transformers opens with the Auto classes and trust_remote_code=True, where tokenfree is
installed. A CANINE also opens with CanineModel, a subword BERT with BertModel. A fine-tuned run keeps its
head and the names of its labels. An ONNX graph takes inputs of any length. It returns embeddings, or the
logits of a fine-tuned run.

Example:
  tokenfree export runs/tiny --to huggingface exported/tiny
  tokenfree export runs/tiny --to onnx exported/graph
  tokenfree export runs/sst --to onnx exported/sentiment
"""

import argparse
import json
from pathlib import Path

from tokenfree.workflows.recipes.options import add_step_argument, add_trust_argument
from tokenfree.workflows.terminal.results import next_command

FORMATS = ("huggingface", "onnx")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    parser.add_argument(
        "--to", metavar="FORMAT", required=True, choices=FORMATS, help=f"one of: {', '.join(FORMATS)}"
    )
    parser.add_argument("folder", metavar="DIR", help="a new or empty folder to write")
    add_step_argument(parser)
    add_trust_argument(parser)


def run(args: argparse.Namespace) -> int:
    if args.to == "onnx":
        from tokenfree.train.huggingface.onnx import GRAPH, export_graph

        _, step = export_graph(
            args.run_folder,
            args.folder,
            step=args.step,
            trust_code=args.trust_code,
            progress=lambda line: print(f"  {line}", flush=True),
        )
        load = f"import onnxruntime; onnxruntime.InferenceSession({json.dumps(f'{args.folder}/{GRAPH}')})"
    else:
        from tokenfree.train.huggingface.exported_folder import auto_class
        from tokenfree.train.huggingface.folders import export_run

        reader, step = export_run(args.run_folder, args.folder, step=args.step, trust_code=args.trust_code)
        if reader.startswith("Canine"):
            print(
                f"  warning     {reader} needs padding after each text: see README.md. AutoModel pads by itself"
            )
        auto = auto_class(reader)
        load = f"{auto}.from_pretrained({json.dumps(args.folder)}, trust_remote_code=True)"
        load = f"import tokenfree; from transformers import {auto}; {load}"
    print(f"  step        {step:,}")
    files = sorted(path.name for path in Path(args.folder).iterdir())
    print(f"  files       {', '.join(files)} in {args.folder}")
    print(next_command("-c", load, program="python"))
    return 0
