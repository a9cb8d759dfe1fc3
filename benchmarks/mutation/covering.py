"""Tests that a mutant must pass: those of its package first, then those of whole models. Each takes seconds."""

from __future__ import annotations

MODEL, OBJECTIVES, OPTIMIZERS = "tests/train/model", "tests/train/objectives", "tests/train/optimizers"

# These tests compile, start processes or train. They are excluded, because they take longer than all others together.
SLOW = ("compiles", "two_processes", "learnt_from_their_context", "it_learns", "goes_on_bit_for_bit",
        "work_or_are_refused", "memory_of_a_step", "micro_batches_and_interruptions",
        "trunk_sees_words_and_places")  # fmt: skip
OPTIONS = ("-k", " and ".join(f"not {name}" for name in SLOW))

_EQUATIONS = (f"{MODEL}/test_equations.py", f"{MODEL}/test_equations_of_characters.py")
_OF_MODELS = ("counts", "defaults", "encoder", "costs", "slots", "character_width")
_WHOLE = (*(f"{MODEL}/test_{name}.py" for name in _OF_MODELS), "tests/workflows/test_recipe_figures.py")
_WORDS = (f"{MODEL}/downsamplers/test_words_by_loops.py", f"{MODEL}/test_byte2word_model.py",
          f"{OBJECTIVES}/test_byte2word_start.py")  # fmt: skip
_STRIDED = (f"{MODEL}/downsamplers/test_strided_conv.py", f"{MODEL}/downsamplers/test_strided_pooling.py")
_PROPERTIES = (f"{MODEL}/test_model_properties.py",)
_CODES = tuple(
    f"{MODEL}/trunk/test_{name}.py"
    for name in ("position_equations", "biases", "diet", "bias_reuse", "without_gradients")
)
_WINDOWS = tuple(
    f"{MODEL}/trunk/test_{name}.py"
    for name in (
        "position_equations",
        "multi_scale_layer",
        "heads_alone",
        "sliding_global",
        "longformer",
        "linformer",
        "multi_scale",
    )
)
_GROUPS = (f"{OPTIMIZERS}/test_optimizers.py",)  # these test which parameters stack several tensors
_ANY_SIZE = (f"{MODEL}/trunk/test_positions.py::test_codes_equal_loops_at_any_size",)
_COLLATORS = (
    "canine_c",
    "canine_s",
    "masked_bytes",
    "masked_characters",
    "masked_subwords",
    "byte2word",
    "replacements",
    "training",
)
_BATCHES = (
    *(f"{OBJECTIVES}/test_{name}.py" for name in _COLLATORS),
    "tests/train/batches/test_target_kinds.py",
    "tests/train/data/test_baselines.py",
    "tests/train/analyses/test_what_is_read.py",
)

# The first entry that is a prefix of the file's path counts.
TESTS: dict[str, tuple[str, ...]] = {
    "train/model/embedders": (*_EQUATIONS, f"{MODEL}/embedders", *_WHOLE, *_WORDS, *_GROUPS),
    "train/model/downsamplers/strided": (*_EQUATIONS, *_STRIDED, *_WHOLE),
    "train/model/downsamplers": (*_EQUATIONS, *_WORDS, *_WHOLE),
    "train/model/attention": (*_EQUATIONS, *_WINDOWS, *_WHOLE, *_PROPERTIES, *_ANY_SIZE),
    "train/model/layers": (*_EQUATIONS, *_WINDOWS, *_WHOLE),
    "train/model/upsamplers": (*_EQUATIONS, f"{MODEL}/upsamplers", *_WHOLE, *_WORDS),
    "train/model/common/attention": (*_EQUATIONS, *_CODES, *_PROPERTIES, *_ANY_SIZE),
    "train/model/common": (*_EQUATIONS, f"{MODEL}/common", *_WHOLE, *_WORDS, *_CODES, f"{MODEL}/upsamplers"),
    "train/model": (*_EQUATIONS, *_CODES, *_WHOLE, *_PROPERTIES, *_GROUPS),
    "train/objectives": (_EQUATIONS[1], *_BATCHES, f"{MODEL}/test_counts.py", f"{MODEL}/test_defaults.py"),
    "train/optimizers": (OPTIMIZERS, f"{OBJECTIVES}/test_training.py", f"{MODEL}/test_defaults.py"),
}  # fmt: skip


def tests_of(file: str) -> list[list[str]]:
    """Return the arguments of pytest for a mutant of `file`, in rounds, with the tests most likely to fail first.

    Raises:
        ValueError: No tests are known for its folder.
    """
    stem = file.rsplit("/", 1)[-1].removesuffix(".py")
    for folder, tests in TESTS.items():
        if file.startswith(folder):
            own = [test for test in tests if f"test_{stem}" in test]
            others = [test for test in tests if test not in own]
            rounds = [[test for test in others if "equations" in test], own]
            others = [test for test in others if "equations" not in test]
            rounds += [others[:1], others[1:4], others[4:]]
            return [[*tests, *OPTIONS] for tests in rounds if tests]
    raise ValueError(f"{file}: no tests are known for it; add its folder to {__name__}.TESTS")
