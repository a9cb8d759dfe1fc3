"""Download Wikipedia dumps and check them. An interrupted download resumes.

Fetches the multistream dump, which `tokenfree preprocess` reads in parallel. A file that already has the
SHA-1 listed by the mirror is not fetched again. The last lines show the command that preprocesses the files.

Examples:
  tokenfree download sw --output dumps
  tokenfree download sw simplewiki --output dumps --date 20260301 --dry-run
  tokenfree download en --output dumps --mirror https://mirror.accum.se/mirror/wikimedia.org/dumps
"""

from tokenfree.workflows.recipes import options

MIRROR_VARIABLE = "TOKENFREE_MIRROR"


ARGUMENTS: options.Arguments = {
    "names": {"metavar": "LANGUAGE_OR_WIKI", "nargs": "+", "help": "a language (sw) or a database (swwiki)"},
    "--output": {"metavar": "DIR", "required": True, "help": "folder for the files"},
    "--mirror": {
        "metavar": "URL",
        "help": f"default: ${MIRROR_VARIABLE}, or else https://dumps.wikimedia.org",
    },
    "--date": {"metavar": "YYYYMMDD", "default": "latest", "help": "date of the dump (default: latest)"},
    "--allow-http": {"action": "store_true", "help": "allow lists and files without encryption"},
    "--dry-run": {"action": "store_true", "help": "show the files and their sizes, and exit"},
}
