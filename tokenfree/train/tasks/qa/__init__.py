"""Question answering: files, windows, the head and the scores of SQuAD and TyDi."""
