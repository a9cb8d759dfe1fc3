"""Tests that a mutant must pass, in a minute or two."""

from __future__ import annotations

from pathlib import Path

from tools import REPOSITORY

MODEL, OBJECTIVES, OPTIMIZERS = "tests/train/model", "tests/train/objectives", "tests/train/optimizers"

# These tests compile, start processes or train. They are excluded, because they take longer than all others
# together.
SLOW = ("compiles", "two_processes", "learnt_from_their_context", "it_learns", "goes_on_bit_for_bit",
        "work_or_are_refused", "memory_of_a_step", "micro_batches_and_interruptions",
        "trunk_sees_words_and_places")  # fmt: skip
OPTIONS = ("-k", " and ".join(f"not {name}" for name in SLOW))

# The first entry that is a prefix of the file's path counts.
TESTS: dict[str, tuple[str, ...]] = {
    "train/model": (
        MODEL,
        "tests/workflows/recipes/library/test_paper_sizes.py",
        "tests/train/huggingface/onnx/test_any_length.py",
        f"{OBJECTIVES}/byte2word/test_start.py",
        f"{OPTIMIZERS}/base/test_definitions.py",
    ),
    "train/objectives": (
        OBJECTIVES,
        f"{MODEL}/encoder/test_equations_of_characters.py",
        "tests/train/batches/test_base.py",
        "tests/train/data/validation/test_baselines.py",
        "tests/train/evaluate/test_context_probe.py",
        f"{MODEL}/costs/test_counts.py",
        f"{MODEL}/encoder/test_defaults.py",
    ),
    "train/optimizers": (
        OPTIMIZERS,
        f"{OBJECTIVES}/base/test_training.py",
        f"{MODEL}/encoder/test_defaults.py",
    ),
}


def tests_of(file: str) -> list[list[str]]:
    """Return the arguments of pytest for a mutant of `file`, in rounds, with the tests most likely to fail first.

    Raises:
        ValueError: No tests are known for its folder, or one of them does not exist.
    """
    for folder, tests in TESTS.items():
        if file.startswith(folder):
            missing = [test for test in tests if not (REPOSITORY / test).exists()]
            if missing:
                raise ValueError(f"there is no {', '.join(missing)}; fix {__name__}.TESTS")
            stem = Path(file).stem
            names = (f"**/test_{stem}*.py", f"**/{stem}/test_*.py", "**/test_*equations*.py")
            first = [str(path) for name in names for path in (REPOSITORY / tests[0]).glob(name)]
            return [[*some, *OPTIONS] for some in (first, tests) if some]
    raise ValueError(f"{file}: no tests are known for it; add its folder to {__name__}.TESTS")
