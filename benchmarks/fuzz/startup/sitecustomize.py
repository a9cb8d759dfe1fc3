"""Read by Python when it starts with this folder on its path: installs the faults that the environment orders."""

import os

from benchmarks.fuzz.faults import install_from

install_from(os.environ)
