"""One command, one file: its docstring is the help, `add_arguments` its options, `run` the work."""
