"""Print a script by which a shell completes commands, options, recipes and keys when TAB is pressed.

The script starts no Python, so that TAB answers at once; make it anew when tokenfree was updated.

Examples:
  tokenfree completion bash > ~/.tokenfree.bash && echo "source ~/.tokenfree.bash" >> ~/.bashrc
  tokenfree completion zsh > ~/.zfunc/_tokenfree      # with fpath+=~/.zfunc before compinit in ~/.zshrc
  tokenfree completion fish > ~/.config/fish/completions/tokenfree.fish
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`SHELL`."""
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from tokenfree.workflows.completion import script

    print(script(args.whole_parser(), args.shell))
    return 0
