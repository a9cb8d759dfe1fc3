"""Print a script that completes commands and options in a shell when TAB is pressed.

The script does not start Python, so completion is immediate. Write it again after an update of tokenfree. For
zsh, put fpath+=~/.zfunc before compinit in ~/.zshrc.

Examples:
  tokenfree completion bash > ~/.tokenfree.bash && echo "source ~/.tokenfree.bash" >> ~/.bashrc
  tokenfree completion zsh > ~/.zfunc/_tokenfree
  tokenfree completion fish > ~/.config/fish/completions/tokenfree.fish
"""

import argparse

from tokenfree.workflows.recipes import options

ARGUMENTS: options.Arguments = {
    "shell": {"metavar": "SHELL", "choices": ("bash", "zsh", "fish"), "help": "bash, zsh or fish"},
}


def run(args: argparse.Namespace) -> None:
    import shtab

    parser = args.whole_parser()
    # argparse has no public attribute for this; shtab uses the private one too.
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for action in (action for command in commands.choices.values() for action in command._actions):
        if action.metavar in options.PATHS:
            action.complete = shtab.FILE
    print(shtab.complete(parser, shell=args.shell))
