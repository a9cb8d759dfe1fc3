"""Do the work of `tokenfree completion`."""

import argparse

import shtab

_PATHS = {"DIR", "RUN", "RUN|FOLDER", "FILE", "PATH", "PROFILE", "RECIPE"}


def run(args: argparse.Namespace) -> int:
    parser = args.whole_parser()
    # argparse has no public attribute for this; shtab uses the private one too.
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for action in (action for command in commands.choices.values() for action in command._actions):
        if action.metavar in _PATHS:
            action.complete = shtab.FILE
    print(shtab.complete(parser, shell=args.shell))
    return 0
