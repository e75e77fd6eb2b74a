"""Every family of transformers' mapping, as a tiny random model: it races identically and writes
what the model itself writes, or is refused in one sentence.
"""

from __future__ import annotations

import pytest
from test_general import PROMPT, brief, config_of, generated, loaded_of, race_result  # noqa: F401
from tiny_families import tiny_family
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from specdemo.engine import load
from specdemo.errors import UserError
from specdemo.models.validate import check_target

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


# whose sizes do not follow from a few rules
UNMADE = set(
    """
    blt cohere_compass_text dbrx fuyu gemma4_assistant gemma4_unified gemma4_unified_assistant
    got_ocr2 moss_transcribe_diarize musicgen musicgen_melody reformer
    """.split()
)


def refused_by_config(kind):
    """Whether the usual config of that type is enough to refuse it, in one sentence."""
    from transformers import CONFIG_MAPPING

    try:
        config = CONFIG_MAPPING[kind]()
    except Exception:  # it cannot be made without its parts, which each library says otherwise
        return False
    try:
        check_target(config, "This model")
    except UserError as error:
        assert str(error).count(". ") == 0
        return True
    return False


@pytest.mark.parametrize("kind", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
def test_it_races_identically_or_is_refused(kind):
    try:
        model = tiny_family(config_of(kind))
    except Exception as error:
        if refused_by_config(kind):
            return
        assert kind in UNMADE or isinstance(error, ImportError), error
        pytest.skip(f"{kind} cannot be made tiny here: {type(error).__name__}: {error!s:.100}")
    loaded = loaded_of(model)
    try:
        check_target(model.config, "This model")
        engine = load.make_engine(loaded)
    except UserError as error:
        message = str(error)
        assert message.endswith(".") and message.count(". ") == 0 and len(message) < 400
        return
    result = race_result(engine)
    assert result["identical"]
    assert result["output_ids"] == generated(model, engine.encode(PROMPT))
