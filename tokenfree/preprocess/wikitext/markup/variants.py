"""Language conversion markup, `-{zh-hans:..;zh-hant:..}-`: one variant is chosen, simplified Chinese if it can be."""

import re

# Wikis on which MediaWiki converts between scripts; elsewhere `-{` is ordinary text.
CONVERTED = frozenset(("zh", "gan", "sr", "sh", "kk", "ku", "tg", "uz", "crh", "iu", "shi", "ban", "wuu", "hak"))

_PREFERENCE = "zh-hans zh-cn zh zh-sg zh-my zh-hant zh-tw zh-hk zh-mo gan-hans gan sr-ec sr-el kk-cyrl kk".split()  # noqa: SIM905
_INNERMOST = re.compile(r"-\{([^{}]*)\}-")
_FLAGS = re.compile(r"\s*([A-Za-z+-](?:\s*;\s*[A-Za-z+-])*|(?:zh|sr|gan|kk)[\w-]*(?:;[\w-]+)*)?\s*\|")
_RULE = re.compile(r"\s*([a-z]{2,3}(?:-[a-z]+)*)\s*:(.*)\s*", re.DOTALL)
_RULE_END = re.compile(r";(?=\s*(?:[a-z]{2,3}(?:-[a-z]+)*\s*:|$|[^;{}]{1,40}=>))")
_MAX_DEPTH = 4


def choose_variant(text: str) -> str:
    """Replaces every conversion rule by what a reader of the chosen variant sees."""
    for _ in range(_MAX_DEPTH):
        text, count = _INNERMOST.subn(_shown, text)
        if not count:
            break
    return text


def _shown(match: re.Match[str]) -> str:
    content = match[1]
    flags = _FLAGS.match(content)
    if flags:
        names = (flags[1] or "").replace(" ", "").split(";")
        if any(name in ("H", "T", "-") for name in names):  # sets a rule or the title, shows nothing
            return ""
        content = content[flags.end() :]
    if ":" not in content:
        return content
    choices: dict[str, str] = {}
    for part in _RULE_END.split(content):
        rule = _RULE.fullmatch(part)
        if rule and "=>" not in part:
            choices[rule[1]] = rule[2].strip()
    if not choices:
        return content
    return next((choices[name] for name in _PREFERENCE if choices.get(name)), next(iter(choices.values())))
