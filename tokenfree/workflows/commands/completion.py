"""Print a script that completes commands and options in a shell when TAB is pressed.

The script does not start Python, so completion is immediate. Write it again after an update of tokenfree.

Examples:
  tokenfree completion bash > ~/.tokenfree.bash && echo "source ~/.tokenfree.bash" >> ~/.bashrc
  tokenfree completion zsh > ~/.zfunc/_tokenfree      # with fpath+=~/.zfunc before compinit in ~/.zshrc
  tokenfree completion fish > ~/.config/fish/completions/tokenfree.fish
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")
