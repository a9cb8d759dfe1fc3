"""Output of commands in a terminal: live lines, tables, plans and windows."""
