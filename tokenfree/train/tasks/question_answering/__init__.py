"""Extractive question answering: TyDi QA's primary tasks, and files in the form of SQuAD."""
