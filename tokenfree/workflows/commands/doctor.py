"""Report what is missing on this machine, and how to get it.

Checks Python, packages, cores, GPUs, memory, limits, Java and storage. With a pretraining RECIPE, also
reports whether a step fits the machine's memory, and which precision is faster.

With --cluster, also checks each node of the Ray cluster at RAY_ADDRESS: versions, memory, limits, GPUs, and
access to the places of --storage.

Examples:
  tokenfree doctor --storage runs s3://bucket/runs
  tokenfree cluster submit -- doctor --cluster --storage s3://bucket/runs
"""

from tokenfree.workflows.recipes import options

ARGUMENTS: options.Arguments = {
    "recipe": {
        "metavar": "RECIPE",
        "nargs": "?",
        "help": "pretraining recipe whose memory and precision to check",
    },
    "--storage": {"metavar": "URL", "nargs": "+", "default": ["."], "help": "folders or URLs to write to"},
    "--cluster": {"action": "store_true", "help": "check each node of the Ray cluster at RAY_ADDRESS"},
    **options.trust("RECIPE"),
    **options.JSON,
}
