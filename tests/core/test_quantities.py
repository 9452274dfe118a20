import pytest

from remat_explorer.errors import QuantityError
from remat_explorer.quantities import format_bytes, parse_budget, parse_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [("1024", 1024), ("1.5 GiB", 3 * 2**29), ("1.5gib", 3 * 2**29), ("2GB", 2 * 10**9), ("1e3 B", 1000), (7.9, 7)],
)
def test_bytes_are_read_with_and_without_units(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "1.5 Gib s", "-3", "1,5 GiB", "1.5 parsec", -1, float("nan"), None, True])
def test_what_is_no_number_of_bytes_is_quoted(text):
    with pytest.raises(QuantityError) as caught:
        parse_bytes(text)
    assert repr(text) in str(caught.value)
    assert '"1.5 GiB"' in str(caught.value)


def test_a_percentage_is_of_the_checkpoint_all_peak():
    assert parse_budget("70%", 1000) == 700
    assert parse_budget(" 12.5 % ", 800) == 100
    with pytest.raises(QuantityError, match='"60%"'):
        parse_budget("sixty", 1000)


@pytest.mark.parametrize("peak", [0, 1000])
def test_infinitely_much_is_too_much_also_of_nothing(peak):
    with pytest.raises(QuantityError, match="'1e400%' is more than"):
        parse_budget("1e400%", peak)


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1023, 1024, 10_239, 1_048_575, 2**30 - 1, 2**40, 2**52])
def test_formatted_bytes_read_back_to_within_half_a_percent(count):
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.006, abs=0.5)
