"""Problems that several objectives look for in a model: each is one line for the user."""

from __future__ import annotations

from tokenfree.train.model.encoder import ModelConfig


def reads(objective: str, model: ModelConfig, symbols: str, *, instead: str) -> list[str]:
    """The problem of an embedder that reads other symbols than the objective gives it; `instead` names a fit one."""
    found = model.embedder.symbols
    if found == symbols:
        return []
    return [
        f"model.embedder.name: {model.embedder.name} reads {found}, but objective.name: {objective} gives it "
        f"{symbols}; set model.embedder.name to {instead}, or choose another objective"
    ]


def reads_characters(objective: str, model: ModelConfig) -> list[str]:
    """The problem of an embedder that does not read characters."""
    return reads(objective, model, "characters", instead="codepoint_hash")
