"""Writes the signatures of `tokenfree.NAME` into docs/api.md: python -m tools.docs.list_signatures."""

import ast
import re

from tools import REPOSITORY

PAGE = REPOSITORY / "docs" / "api.md"
MARK = "<!-- python -m tools.docs.list_signatures writes this block -->\n"
# What to list, in the order of the page, with its module.
SOURCES = {
    "Recipe.from_name": "workflows/api",
    "Recipe.for_finetuning": "workflows/api",
    "Recipe.for_sweep": "workflows/api",
    "Recipe.for_preprocessing": "workflows/api",
    "run_preprocess": "pipelines/preprocess",
    "pretrain": "train/pretrain",
    "finetune": "train/finetune",
    "run_sweep": "train/sweep/run",
    "evaluate": "train/evaluate",
    "predict": "workflows/api",
    "export": "workflows/api",
    "embed": "train/inference/embed",
    "load_encoder": "train/inference/text_encoder",
    "TextEncoder.__call__": "train/inference/text_encoder",
    "load_predictor": "train/inference/predictor",
    "Predictor.__call__": "train/inference/predictor",
    "load_finetuned": "train/inference/finetuned",
    "FinetunedModel.__call__": "train/inference/finetuned",
    "load_windows": "train/data/loader",
}
WIDTH = 100


def page() -> str:
    """Return the page with the signatures of the source."""
    lines = [_signature(module, name) for name, module in SOURCES.items()]
    block = f"{MARK}\n```python\n" + "\n".join(lines) + "\n```\n"
    pattern = rf"{re.escape(MARK)}\n```python\n.*?\n```\n"
    return re.sub(pattern, lambda _: block, PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def _signature(module: str, name: str) -> str:
    """Return a signature, in one line if it fits."""
    body = ast.parse((REPOSITORY / "tokenfree" / f"{module}.py").read_text(encoding="utf-8")).body
    for part in name.split("."):
        (node,) = (
            item for item in body if isinstance(item, ast.FunctionDef | ast.ClassDef) and item.name == part
        )
        body = node.body
    assert isinstance(node, ast.FunctionDef)
    label = {"run_sweep": "sweep"}.get(name, name)
    text = ast.unparse(node.args).removeprefix("self, ").replace("'", '"')
    arguments = [item.replace("=", " = ", 1) for item in re.split(r", (?=\*|\w+:)", text)]
    result = ast.unparse(node.returns).strip("'") if node.returns else "None"
    line = f"{label}({', '.join(arguments)}) -> {result}"
    if len(line) <= WIDTH:
        return line
    return f"{label}(\n    " + ",\n    ".join(arguments) + f",\n) -> {result}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
