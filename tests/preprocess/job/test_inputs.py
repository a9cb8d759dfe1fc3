from tokenfree.core.settings import DECIDES_RUNS, OPERATIONAL, marked_keys
from tokenfree.core.settings_values import to_mapping
from tokenfree.preprocess.config import INPUT, PreprocessConfig
from tokenfree.preprocess.job.inputs import identity, reading_identity

# Settings that are left out where they have their default, so that earlier jobs keep their identity.
UNUSED = ("encoding", "readers", "cleaner", "keep_dropped")


def test_identity_leaves_out_inputs_and_operational_settings() -> None:
    config = PreprocessConfig()
    excluded = [*marked_keys(config, INPUT), *marked_keys(config, OPERATIONAL)]
    assert excluded == ["wikipedia", "books", "hf_dataset", "templates_from", "split_bytes"]
    content = identity(config, ())["config"]
    assert to_mapping(config).keys() - content.keys() == {*excluded, *UNUSED}
    assert "also" not in content["filters"]


def test_reading_identity_has_the_settings_that_decide_runs() -> None:
    names = {
        *("text_column", "id_column", "language_column", "language"),
        *("expand_templates", "namespaces", "filters", "near_duplicates", "validation_fraction"),
    }
    assert set(marked_keys(PreprocessConfig(), DECIDES_RUNS)) == {*names, *UNUSED}
    assert reading_identity(identity(PreprocessConfig(), ()))["config"].keys() == names
