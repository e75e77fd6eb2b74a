"""Ids to text: no half characters, nothing lost, nothing shown that a stop string takes back."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from specdemo.engine.text import Detokenizer, StopRule


class Bytes:
    """One token a byte."""

    def decode(self, ids, **_):
        return bytes(ids).decode("utf-8", errors="replace")


def test_characters_split_over_tokens():
    text = "naïve 🙂👩‍🔬 日本語 </script> ${x} {{y}} `z` \u202eabc"
    tokens = list(text.encode())
    detokenizer = Detokenizer(Bytes())
    pieces = [detokenizer.push(t) for t in tokens]
    assert "".join(pieces) + detokenizer.flush() == text
    assert not any("\ufffd" in p for p in pieces)


def test_broken_bytes_come_out_at_the_end():
    detokenizer = Detokenizer(Bytes())
    assert [detokenizer.push(t) for t in (65, 0xF0, 0x9F)] == ["A", "", ""]
    assert detokenizer.flush() == "\ufffd"


def test_stop_rule_never_takes_back_what_it_showed():
    accept_rng = random.Random(0)
    for _ in range(300):
        text = "".join(accept_rng.choice("abE") for _ in range(20))
        stop = "".join(accept_rng.choice("abE") for _ in range(accept_rng.randrange(1, 4)))
        rule, shown, reason = StopRule(Bytes(), (), 20, (stop,)), "", None
        for token in text.encode():
            piece, reason = rule.push(token)
            shown += piece
            assert text.startswith(shown) and stop not in shown
            if reason:
                break
        assert shown == rule.text == (text.split(stop)[0] if stop in text else text)
        assert reason == ("stop" if stop in text else "length")


class Pieces:
    """A byte-level tokenizer: token 1, 2, … are pieces of several bytes; 0 and what follows the
    pieces are special tokens, which have no text.
    """

    added_tokens_decoder = {0: SimpleNamespace(content="<|special|>", special=True)}

    def __init__(self, *pieces: bytes):
        self.pieces = pieces

    def decode(self, ids, **_):
        pieces = [self.pieces[i - 1] for i in ids if 0 < i <= len(self.pieces)]
        return b"".join(pieces).decode("utf-8", errors="replace")


def answer(tokenizer, ids, stop, limit=99, eos=()):
    """(text, ids read, reason) of an answer, as shown piece by piece."""
    rule, shown, reason, rest = StopRule(tokenizer, eos, limit, stop), "", None, list(ids)
    while rest and reason is None:
        piece, reason = rule.push(rest.pop(0))
        shown += piece
    assert shown == rule.text
    return shown, rule.count, reason


def test_only_unfinished_bytes_are_held_back():
    """A space and half an emoji in one token: the space is text at once."""
    half = "😀".encode()
    tokens = Pieces(b"foo", b" " + half[:2], half[2:], b"bar")
    rule = StopRule(tokens, (), 9)
    assert [rule.push(t)[0] for t in (1, 2, 3, 4)] == ["foo", " ", "😀", "bar"]
    # the stop string is found in the token that completes it, also at the limit or before the end
    assert answer(tokens, [1, 2, 3, 4], (" ",)) == ("foo", 2, "stop")
    assert answer(tokens, [1, 2], (" ",), limit=2) == ("foo", 2, "stop")
    assert answer(tokens, [1, 2, 9], (" ",), eos=(9,)) == ("foo", 2, "stop")
    # bytes that nothing completes are text too
    assert answer(tokens, [1, 2], ("\ufffd",), limit=2) == ("foo ", 2, "stop")
    assert answer(tokens, [1, 2, 0], ("\ufffd",), eos=(0,)) == ("foo ", 3, "stop")
    assert answer(tokens, [1, 2, 0], (), eos=(0,)) == ("foo \ufffd", 3, "eos")


def test_the_name_of_a_special_token_stops_at_its_id():
    tokens = Pieces(b"foo", b"<|spe", b"cial|>")
    assert answer(tokens, [0, 1, 1], ("<|special|>",)) == ("", 1, "stop")
    assert answer(tokens, [1, 0, 1], ("<|special|>", "x")) == ("foo", 2, "stop")
    assert answer(tokens, [1, 2, 3, 1], ("<|special|>",)) == ("foo", 3, "stop"), "spelt out"
    assert answer(tokens, [1, 0, 1], ("<|other|>",), limit=3) == ("foofoo", 3, "length")
    assert answer(tokens, [1, 0], ("<|special|>",), eos=(0,)) == ("foo", 2, "eos")


@pytest.mark.parametrize("streams", [400, pytest.param(8000, marks=pytest.mark.slow)])
def test_random_streams_stop_as_their_whole_text_says(streams):
    """Against the definition: an answer ends with the first token after which the text that no
    further byte can change contains a stop string; at its end all of its text counts.
    """
    rng = random.Random(streams)
    alphabet = list("aab .é😀") + ["\ufffd"]
    for _ in range(streams):
        raw = "".join(rng.choice(alphabet) for _ in range(12)).encode()
        if rng.random() < 0.3:  # bytes that are no text
            at = rng.randrange(len(raw))
            raw = raw[:at] + bytes([rng.randrange(128, 256)]) + raw[at:]
        pieces = []
        while raw:
            n = rng.randrange(1, 5)
            pieces, raw = [*pieces, raw[:n]], raw[n:]
        tokens = Pieces(*pieces)
        ids = [
            i for k in range(1, len(pieces) + 1) for i in ([0, k] if rng.random() < 0.1 else [k])
        ]
        end = rng.choice(("length", "eos"))
        limit, eos = (len(ids), ()) if end == "length" else (99, (len(pieces) + 1,))
        stop = tuple(
            "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 3)))
            for _ in range(rng.randrange(3))
        )
        stop += ("<|special|>",) * (rng.random() < 0.2)
        read = [*ids, *eos]
        for count in range(1, len(read) + 1):
            last, text = read[count - 1], tokens.decode(read[:count])
            special = last == 0 and "<|special|>" in stop
            over = count == len(read) or special
            certain = text if over else text.rstrip("\ufffd")
            cut = min((i for s in stop if (i := certain.find(s)) >= 0), default=None)
            if cut is not None or over:
                reason = "stop" if cut is not None or special else end
                assert answer(tokens, read, stop, limit, eos) == (certain[:cut], count, reason)
                break
