"""Do the work of `tokenfree export`."""

import argparse
import json
from pathlib import Path

from tokenfree.core.errors import UserError
from tokenfree.preprocess.dataset.card import CARD, export_tables
from tokenfree.workflows.terminal.results import counted, next_command


def run(args: argparse.Namespace) -> int:
    if args.to == "parquet":
        return _export_data(args)
    # Here, because tables can be written without torch.
    from tokenfree.train.huggingface import exported_folder, folders, onnx

    if args.to == "onnx":
        _, step = onnx.export_graph(
            args.run_folder,
            args.folder,
            step=args.step,
            trust_code=args.trust_code,
            progress=lambda line: print(f"  {line}", flush=True),
        )
        load = (
            f"import onnxruntime; onnxruntime.InferenceSession({json.dumps(f'{args.folder}/{onnx.GRAPH}')})"
        )
    else:
        reader, step = folders.export_run(
            args.run_folder, args.folder, step=args.step, trust_code=args.trust_code
        )
        if reader.startswith("Canine"):
            print(
                f"  warning     {reader} needs padding after each text: see README.md. AutoModel pads by itself"
            )
        auto = exported_folder.auto_class(reader)
        load = f"{auto}.from_pretrained({json.dumps(args.folder)}, trust_remote_code=True)"
        load = f"from transformers import {auto}; {load}"
    print(f"  step        {step:,}")
    files = sorted(path.name for path in Path(args.folder).iterdir())
    print(f"  files       {', '.join(files)} in {args.folder}")
    print(next_command("-c", load, program="python"))
    return 0


def _export_data(args: argparse.Namespace) -> int:
    if args.step is not None:
        raise UserError(
            "--step: --to parquet exports a data directory, which has no checkpoints. Leave it out."
        )
    names = export_tables(
        args.run_folder, args.folder, progress=lambda name: print(f"  written     {name}", flush=True)
    )
    if not names:
        print(f"{args.folder}: already complete; nothing to do")
    else:
        print(f"  tables      {counted(len(names) - (CARD in names), 'new file')} in {args.folder}")
    load = f"import datasets; print(datasets.load_dataset({json.dumps(args.folder)}))"
    print(next_command("-c", load, program="python"))
    return 0
