"""Verbosity of commands: `--quiet`, the default, or `--verbose`, with the same meaning for all commands."""

import argparse
import logging
import sys
from typing import Literal

Verbosity = Literal["quiet", "normal", "verbose"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the mutually exclusive options `-q` and `-v`, which set `verbosity`."""
    either = parser.add_mutually_exclusive_group()
    for short, name, what in (
        ("-q", "quiet", "only errors, warnings and the result: no progress"),
        (
            "-v",
            "verbose",
            "also settings, messages of libraries and seconds (standard error); progress as plain lines",
        ),
    ):
        either.add_argument(short, f"--{name}", dest="verbosity", action="store_const", const=name, help=what)
    parser.set_defaults(verbosity="normal")


def set_logging(verbosity: Verbosity, *, debug: bool) -> None:
    """Choose the libraries' log messages to show: all if verbose, warnings with `debug`, otherwise only errors."""
    if verbosity == "verbose":
        line = "%(asctime)s  %(name)s: %(message)s"
        logging.basicConfig(
            stream=sys.stderr, level=logging.INFO, format=line, datefmt="%H:%M:%S", force=True
        )
    # Libraries warn about missing extras, but whatever matters raises an error.
    elif not debug:
        logging.getLogger().setLevel(logging.ERROR)
        # One line each.
        logging.getLogger("tokenfree").setLevel(logging.WARNING)
        # They log at length what our errors say in one line.
        for name in ("apache_beam", "huggingface_hub"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
