"""One command, one file: its docstring is the help, `ARGUMENTS` lists its options. `work/NAME.py` does the work.

Optional names: `add_arguments` adds options that a table cannot express, in place of `ARGUMENTS`. `KIND` is
the kind of recipe whose keys are options too. `PASSES_ON` is true if the command takes words after `--`.
`check` raises UserError for arguments that do not fit together, before the work is imported.
"""
