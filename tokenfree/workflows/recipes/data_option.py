"""The option `--data` of commands that train or evaluate on data directories: one, or several with weights."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenfree.train.mixture.mixture import Data

SHOWN = "a data directory made by `tokenfree preprocess`; or several, as DIR:WEIGHT or all without a weight"


def add_argument(
    parser: argparse.ArgumentParser, shown: str = SHOWN, *, metavar: str = "DIR", needed: bool = False
) -> None:
    """`--data DIR ...`, which takes all words up to the next option: RUN stands before it."""
    parser.add_argument("--data", metavar=metavar, nargs="+", required=needed, help=shown)


def data_of(args: argparse.Namespace) -> "Data | None":
    """What the option names, None where it was not given.

    Raises:
        UserError: see `tokenfree.train.mixture.mixture.parse`.
    """
    from tokenfree.train.mixture.mixture import parse

    return None if args.data is None else parse(args.data)


def told(data: "Data") -> str:
    """The directories; of several each with its share of the samples.

    Raises:
        UserError: see `tokenfree.train.mixture.contents.load_contents`.
    """
    from tokenfree.train.mixture.contents import load_contents
    from tokenfree.train.mixture.mixture import paths_of

    mixing = load_contents(data).mixing
    if mixing is None:
        return paths_of(data)[0]
    each = zip(paths_of(data), mixing["train"].shares.tolist(), strict=True)
    return ", ".join(f"{path} ({share:.1%})" for path, share in each)
