"""Preprocess a small corpus, pretrain, sweep and write a report on this machine, in minutes.

Without --dump, the demo writes its own English corpus: a small Wikipedia dump, and docstrings as books. Run
the same command again to resume a demo that was stopped.

Examples:
  tokenfree demo
  tokenfree demo --dump enwiki-latest-pages-articles1.xml.bz2 --output demo-en
"""

from tokenfree.workflows.recipes import options

ARGUMENTS: options.Arguments = {
    "--dump": {"metavar": "PATH", "help": "Wikipedia dump to use instead of the demo's own corpus"},
    "--output": {"metavar": "DIR", "default": "demo", "help": "folder to write to (default: demo)"},
    "--workers": {
        "metavar": "N",
        "type": options.at_least(1),
        "default": 2,
        "help": "number of training workers (default 2)",
    },
}
