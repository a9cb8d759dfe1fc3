"""How far attention reaches, and of what its matrices are made."""
