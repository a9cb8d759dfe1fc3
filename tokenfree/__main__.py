"""`python -m tokenfree ...` is the same as `tokenfree ...`."""

import sys

from tokenfree.workflows.cli import main

if __name__ == "__main__":
    sys.exit(main())
