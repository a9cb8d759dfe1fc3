"""A question as `tokenfree predict` is given it: a line of text, the context behind a tab."""

from __future__ import annotations

from tokenfree.preprocess.common.errors import UserError


def split_raw(key: str, text: str) -> tuple[str, bytes]:
    """The question, and in UTF-8 the context.

    Raises:
        UserError: there is no tab, or nothing before or behind it.
    """
    question, _, context = text.partition("\t")
    if not question.strip() or not context.strip():
        raise UserError(f"{key}: give a question and the text that may answer it with a tab between")
    return question.strip(), context.encode("utf-8", "surrogatepass")
