"""One command, one file: its docstring is the help, `add_arguments` adds its options. `work/NAME.py` does the work.

Optional names: `KIND` is the kind of recipe whose keys are options too. `PASSES_ON` is true if the command takes
words after `--`. `check` raises UserError for arguments that do not fit together, before the work is imported.
"""
