from tokenfree.core.settings_values import fingerprint
from tokenfree.preprocess.config import PreprocessConfig


def test_the_fingerprint_follows_values_and_not_their_order() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint(PreprocessConfig(seed=1)) != fingerprint(PreprocessConfig(seed=2))
