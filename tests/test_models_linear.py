"""The packed product equals the plain one, for every shape the engine and the drafters use."""

import pytest
import torch
import torch.nn.functional as F

from specdemo.models import linear
from specdemo.models.linear import Linear


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(1,), (3,), (2, 5), (1, 16), (0,), ()])
def test_same_numbers_as_f_linear(dtype, shape):
    torch.manual_seed(0)
    weight, x = torch.randn(96, 40, dtype=dtype), torch.randn(*shape, 40, dtype=dtype)
    got = Linear(weight)(x)
    want = F.linear(x.double(), weight.double())
    assert got.shape == want.shape and got.dtype == dtype
    torch.testing.assert_close(
        got.double(), want, rtol=1e-2, atol=2e-2 if dtype == torch.bfloat16 else 1e-4
    )


def test_rows_of_another_type_are_refused():
    weight = torch.randn(64, 64, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError):
        Linear(weight)(torch.randn(2, 64))


def test_strided_rows():
    torch.manual_seed(0)
    weight, x = (
        torch.randn(24, 8, dtype=torch.bfloat16),
        torch.randn(5, 16, dtype=torch.bfloat16)[:, :8],
    )
    assert torch.equal(Linear(weight)(x), Linear(weight)(x.contiguous()))


def test_falls_back_when_the_operator_is_missing(monkeypatch):
    def absent(*_):
        raise RuntimeError("no such operator")

    monkeypatch.setattr(Linear, "_pack", absent)
    weight, x = torch.randn(24, 8, dtype=torch.bfloat16), torch.randn(5, 8, dtype=torch.bfloat16)
    plain = Linear(weight)
    assert plain.packed is None and torch.equal(plain(x), F.linear(x, weight))


def test_converts_to_the_requested_dtype():
    made = Linear(torch.randn(4, 4), dtype=torch.float64)
    assert (
        made.dtype == torch.float64
        and made.packed is None
        and not linear.packs("cpu", torch.float64)
    )


def test_fp32_rows_do_not_depend_on_how_many_there_are():
    """From two rows on, the same row gives the same bits; one row goes to the plain product."""
    torch.manual_seed(0)
    weight, x = torch.randn(96, 64), torch.randn(32, 64)
    product = Linear(weight)
    if product.packed is not None:
        for rows in (2, 4, 8, 16, 24):
            assert torch.equal(product(x[:rows]), product(x)[:rows])
        assert torch.equal(product(x[:1]), F.linear(x[:1], weight))
