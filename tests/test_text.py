"""Ids to text: no half characters, nothing lost, nothing shown that a stop string takes back."""

from __future__ import annotations

import random

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
