"""How much a command says: `--quiet`, nothing, or `--verbose`, the same for all of them."""

import argparse
import logging
import sys
import time
from typing import Any, Literal

Verbosity = Literal["quiet", "normal", "verbose"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`-q` and `-v`, of which one may be given; `verbosity` says which."""
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
    """What is seen of the libraries' messages: warnings for `debug`, errors alone otherwise, all when verbose."""
    if verbosity == "verbose":
        line = "%(asctime)s  %(name)s: %(message)s"
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=line, datefmt="%H:%M:%S", force=True)
    elif not debug:  # libraries warn about extras that are not installed; what matters comes as an error
        logging.getLogger().setLevel(logging.ERROR)
        logging.getLogger("tokenfree").setLevel(logging.WARNING)  # our own, a line each
        for name in ("apache_beam", "huggingface_hub"):  # they log at length what we explain in a line
            logging.getLogger(name).setLevel(logging.CRITICAL)


def show_settings(verbosity: Verbosity, settings: Any) -> None:
    """When verbose, all keys of resolved settings with their values, as YAML."""
    if verbosity == "verbose":
        import yaml

        from tokenfree.core.settings import to_mapping

        print(f"settings\n{yaml.safe_dump(to_mapping(settings), sort_keys=False, allow_unicode=True)}", file=sys.stderr)


def show_seconds(verbosity: Verbosity, command: str, began: float) -> None:
    """When verbose, how long a command took that began at that `time.monotonic()`."""
    if verbosity == "verbose":
        print(f"tokenfree {command}: {time.monotonic() - began:.1f} seconds", file=sys.stderr)
