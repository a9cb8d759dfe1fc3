"""What contributors run or share: engines for tests, mutation, documentation, dumps. No part of the package."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
