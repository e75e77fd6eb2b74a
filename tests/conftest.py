"""Models the tests share: tiny random ones, made in milliseconds, and the embedded pair, loaded
once.
"""

import functools
import os

import pytest

# Tests run in several processes at once: a thread each, as two that wait for one core are
# many times slower. Read by torch when it is first imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
from tiny_models import make_tiny_target, make_tiny_tokenizer  # noqa: E402

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# fixture -> the marker of every test that uses it
MARKERS = {"browser": "browser"} | dict.fromkeys(
    ("loaded_bf16", "loaded_fp32", "loaded_int4"), "real"
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark tests by what they use, and leave the slow ones out of every run that does not ask for
    them by name.
    """
    for item in items:
        for name in MARKERS.keys() & set(item.fixturenames):
            item.add_marker(MARKERS[name])
    if "slow" not in config.option.markexpr:
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


@pytest.fixture(scope="module")
def one_thread():
    """Tiny matrices are faster on one thread; undone for whoever comes after."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_target():
    return make_tiny_target()


@pytest.fixture
def tiny_loaded(tiny_target):
    """A tiny random target with a tokenizer, as ``load_target`` would return it."""
    from specdemo.models.load import Loaded
    from specdemo.models.pairs import Pair

    pair = Pair(id="tiny", title="Tiny", license="none", size="tiny", target=({"path": "nowhere"},))
    return Loaded(
        pair, tiny_target, make_tiny_tokenizer(), (126,), torch.float32, torch.device("cpu")
    )


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory):
    """A tiny chat model on disk, the way a user's own target lies there."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("target")
    words = {"<pad>": 0, "<s>": 1, "<end>": 2, "<user>": 3, "<assistant>": 4, "<unk>": 5} | {
        f"w{i}": i for i in range(6, 128)
    }
    core = Tokenizer(WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token="<unk>",
        pad_token="<pad>",
        eos_token="<end>",
        additional_special_tokens=["<s>", "<user>", "<assistant>"],
    )
    tokenizer.chat_template = (
        "<s> {% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <end> {% endfor %}"
        "{% if add_generation_prompt %}<assistant> {% endif %}"
    )
    tokenizer.save_pretrained(folder)
    model = make_tiny_target(layers=2)
    model.generation_config.eos_token_id = 2
    model.save_pretrained(folder)
    return folder


def _real(dtype):
    from specdemo.models.load import load_target
    from specdemo.models.pairs import get_pair

    return load_target(get_pair("smollm2-135m"), dtype=dtype, device="cpu")


@pytest.fixture(scope="session")
def loaded_bf16():
    """The embedded pair's target, fetched into the cache once (about 93 MB), in bf16."""
    return _real("bf16")


@pytest.fixture(scope="session")
def loaded_fp32():
    """The embedded pair's target in fp32."""
    return _real("fp32")


@pytest.fixture(scope="session")
def loaded_int4():
    """The embedded pair's target with the file's own 4-bit weights."""
    return _real("int4")


def _engine(loaded):
    """Measured in one turn: no test of a race rests on how dear a pass is. The widths that agree
    are found as always.
    """
    from specdemo.engine import load

    brief = functools.partial(load.calibrate, seconds=0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "calibrate", brief)
        return load.make_engine(loaded)


@pytest.fixture(scope="session")
def engine_bf16(loaded_bf16):
    """The embedded pair, ready to race."""
    return _engine(loaded_bf16)


@pytest.fixture(scope="session")
def engine_fp32(loaded_fp32):
    return _engine(loaded_fp32)


@pytest.fixture(scope="session")
def engine_int4(loaded_int4):
    return _engine(loaded_int4)
