"""`python -m workflows` is the same as `tokenfree`."""

import sys

from workflows.cli import main

if __name__ == "__main__":
    sys.exit(main())
