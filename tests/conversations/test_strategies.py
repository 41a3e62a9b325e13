"""The generators themselves: messy enough to break every rule, valid where they promise to be."""

import copy
import json
import random

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from tests.conversations.resends import strings_to_blocks
from tests.conversations.strategies import Body, bodies, resends, valid_bodies
from tests.sizes import at_size

from recollect.testing.provider_rules import FORMAT_NAMES, RULES, violations

_ONLY_GENERATE = settings(
    max_examples=10_000,  # ends when every rule was broken: within 500 for all wires
    deadline=None,
    database=None,
    phases=[Phase.generate],
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
_QUICK = settings(max_examples=at_size(ci=20, full=80), deadline=None)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_valid_bodies_are_valid(format_name: str) -> None:
    @_QUICK
    @given(valid_bodies(format_name))
    def check(body: Body) -> None:
        assert violations(format_name, body, ids_unique_across_messages=True) == []

    check()


# What the ordinary mess leaves to `beyond_repair` and to `with_user_text=False`.
_BEYOND = {
    "messages-empty",
    "input-empty",
    "role-unknown",
    "call-id-malformed",
    "call-id-missing",
    "thinking-malformed",
    "cache-marks-over-four",
    "system-not-behind-user",
}


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_messy_bodies_break_every_rule_a_repair_can_mend(format_name: str) -> None:
    missing = {*RULES[format_name], "valid"} - _BEYOND

    def completes(body: Body) -> bool:
        json.dumps(body)
        missing.difference_update(
            {item.rule for item in violations(format_name, body)} or {"valid"}
        )
        return not missing

    find(bodies(format_name), completes, settings=_ONLY_GENERATE, random=random.Random(1))


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_the_faults_beyond_repair_cover_the_other_rules(format_name: str) -> None:
    under_beta = {"system-not-behind-user"}  # drawn by `with_system_inside` only
    missing = (set(RULES[format_name]) & _BEYOND) - under_beta

    def completes(body: Body) -> bool:
        missing.difference_update(item.rule for item in violations(format_name, body))
        return not missing

    faulty = bodies(format_name, with_user_text=False, beyond_repair=True)
    find(faulty, completes, settings=_ONLY_GENERATE, random=random.Random(1))


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_a_resend_says_the_same_and_leaves_the_body_alone(format_name: str) -> None:
    @_QUICK
    @given(bodies(format_name), st.data())
    def check(body: Body, data: st.DataObject) -> None:
        before = copy.deepcopy(body)
        again = data.draw(resends(format_name, body))
        assert body == before
        assert _plain(format_name, again) == _plain(format_name, before)

    check()


def _plain(format_name: str, body: Body) -> object:
    """A body without marks, every string content a block, keys sorted."""

    def without_marks(value: object) -> object:
        if isinstance(value, dict):
            return {k: without_marks(v) for k, v in value.items() if k != "cache_control"}
        return [without_marks(item) for item in value] if isinstance(value, list) else value

    return json.loads(
        json.dumps(without_marks(strings_to_blocks(format_name, body)), sort_keys=True)
    )


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_a_resend_of_a_valid_body_is_valid(format_name: str) -> None:
    @_QUICK
    @given(valid_bodies(format_name), st.data())
    def check(body: Body, data: st.DataObject) -> None:
        assert violations(format_name, data.draw(resends(format_name, body))) == []

    check()
