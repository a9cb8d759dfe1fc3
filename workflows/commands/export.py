"""Write a run's encoder for another library: transformers.CanineModel.from_pretrained(DIR) gives the same outputs.

A subword BERT becomes a folder for transformers.BertModel. Heads of the objective stay behind.

Example:
  tokenfree export runs/tiny --to huggingface exported/tiny
"""

import argparse

FORMATS = ("huggingface",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`RUN --to huggingface DIR`."""
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    parser.add_argument("--to", metavar="FORMAT", required=True, choices=FORMATS, help=f"one of: {', '.join(FORMATS)}")
    parser.add_argument("folder", metavar="DIR", help="a new or empty folder to write")
    parser.add_argument("--trust-code", action="store_true", help="run the code outside tokenfree that RUN names")


def run(args: argparse.Namespace) -> int:
    """Write the folder, and print how to load it."""
    from tokenfree.train.huggingface.folders import export_run
    from tokenfree.workflows.terminal.next_command import next_command

    reader = export_run(args.run_folder, args.folder, trust_code=args.trust_code)
    load = f"from transformers import {reader}; {reader}.from_pretrained({args.folder!r})"
    print(next_command("-c", load, program="python"))
    return 0
