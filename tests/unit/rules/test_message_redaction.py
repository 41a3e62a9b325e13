"""Secrets in the strings of a JSON text: masked, and nothing else is touched."""

import json
import random
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness.waiting import assert_linear
from tests.sizes import at_size

from recollect.core.rules.message_redaction import redact_json

_RNG = random.Random(5)
_ALNUM = string.ascii_letters + string.digits
TOKEN = "ghp_" + "".join(_RNG.choices(_ALNUM, k=36))
OPAQUE = "t9K" + "".join(_RNG.choices(_ALNUM, k=29))
PASSWORD = "Tr0ub4dor3"


@pytest.mark.parametrize(
    ("raw", "masked"),
    [
        (f'{{"text": "use {TOKEN} now"}}', '{"text": "use [REDACTED:github-token] now"}'),
        (f'{{"api_key": "{OPAQUE}"}}', '{"api_key": "[REDACTED:assigned-token]"}'),
        (f'{{"password":"{PASSWORD}"}}', '{"password":"[REDACTED:assigned-password]"}'),
        (
            f'["mysql","--password","{PASSWORD}"]',
            '["mysql","--password","[REDACTED:assigned-password]"]',
        ),
        (
            f'{{"name": "API_TOKEN", "value": "{OPAQUE}"}}',
            '{"name": "API_TOKEN", "value": "[REDACTED:assigned-token]"}',
        ),
        (
            f'{{"arguments":"{{\\"api_key\\": \\"{OPAQUE}\\"}}"}}',
            '{"arguments":"{\\"api_key\\": \\"[REDACTED:assigned-token]\\"}"}',
        ),
        (f'["DB_PASSWORD={PASSWORD}&x"]', '["DB_PASSWORD=[REDACTED:assigned-password]"]'),
        (
            f'["\\ud83d\\ude00 a\\n\\u0067{TOKEN[1:]}\\tb \\u00e9"]',
            '["\\ud83d\\ude00 a\\n[REDACTED:github-token]\\tb \\u00e9"]',
        ),
        (f'["lone \\ud83d {TOKEN}"]', '["lone \\ud83d [REDACTED:github-token]"]'),
        (f'{{"{TOKEN}": 1}}', '{"[REDACTED:github-token]": 1}'),
        (
            f'{{"z": 1.0e5, "a":  [-0, 1E2], "t": "{TOKEN}", "b": null}}',
            '{"z": 1.0e5, "a":  [-0, 1E2], "t": "[REDACTED:github-token]", "b": null}',
        ),
    ],
)
def test_secrets_go_and_the_rest_stays_byte_for_byte(raw: str, masked: str) -> None:
    assert redact_json(raw.encode()) == (masked.encode(), False)


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b'{"role":"user","content":"where is the token kept?"}',
        b'{"max_tokens": 4096, "total_tokens":  12, "key": "value"}',
        b'{"input_schema":{"properties":{"api_key":{"type":"string"}}}}',
        b'"\\ud83d"',
        b'{"a": NaN}',
        json.dumps({"content": '{"service": "auth-proxy", "pod": "auth-proxy-53e0d7"}'}).encode(),
        '{"text":"naïve 中文 🙂"}'.encode(),
    ],
)
def test_what_holds_no_secret_is_the_same_bytes(raw: bytes) -> None:
    found, exact = redact_json(raw)
    assert found is raw
    assert exact


def test_personal_data_on_request() -> None:
    raw = b'{"text":"mail jo@example.org"}'
    assert redact_json(raw) == (raw, True)
    assert redact_json(raw, pii=True) == (b'{"text":"mail [REDACTED:email]"}', False)


def test_pictures_stay_whole_and_keys_given_as_base64_go() -> None:
    data = "".join(_RNG.choices(_ALNUM + "+/", k=3000)) + "AKIA" + "Q7" * 8
    picture = json.dumps({"type": "image", "source": {"data": data}}).encode()
    assert redact_json(picture) == (picture, True)
    key = json.dumps({"private_key": data}).encode()
    assert data[:50].encode() not in redact_json(key)[0]


@pytest.mark.parametrize("raw", [b"{", b"plain", b'{"a": "', b"\xff\xfe"])
def test_what_is_no_json_is_masked_as_text(raw: bytes) -> None:
    assert redact_json(raw) == (raw, True)
    found, exact = redact_json(raw + f" {TOKEN} ".encode())
    assert TOKEN.encode() not in found
    assert found.startswith(raw)
    assert not exact


_STRINGS = st.lists(
    st.sampled_from(
        [
            *(TOKEN, OPAQUE, PASSWORD, "password", "api_key", "=", ": ", '"', "'", "\\", "\n"),
            *(" ", "Bearer ", "https://u:", "@h", "-----", "é", "🙂", "\ud83d", "\x00"),
            "[REDACTED:jwt]",
        ]
    ),
    max_size=6,
).map("".join)
_VALUES = st.recursive(
    _STRINGS | st.integers() | st.floats() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_STRINGS, inner, max_size=4),
    max_leaves=10,
)


def shape(value: Any) -> Any:
    """A value with its strings taken out."""
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    if isinstance(value, dict):
        return [shape(inner) for inner in value.values()]
    return repr(value)


def pairs(found: list[tuple[str, Any]]) -> Any:
    return {f"{at}": value for at, (_, value) in enumerate(found)}


@settings(max_examples=at_size(ci=60, full=400), deadline=None)
@given(_VALUES, st.booleans(), st.booleans())
def test_any_json_stays_json_of_the_same_shape(value: Any, escaped: bool, pii: bool) -> None:
    raw = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    found, exact = redact_json(raw, pii=pii)
    assert exact == (found == raw)
    assert redact_json(found, pii=pii) == (found, True)
    if b"\xed" not in raw:  # a lone surrogate that is not escaped is no JSON
        before, after = (json.loads(part, object_pairs_hook=pairs) for part in (raw, found))
        assert shape(before) == shape(after)


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_token_never_survives_however_it_is_escaped(before: str, after: str) -> None:
    raw = json.dumps([f"{before} {TOKEN} {after}"])
    hidden = raw.replace(TOKEN, "".join(f"\\u{ord(char):04x}" for char in TOKEN))
    for spelled in (raw, hidden):
        found, exact = redact_json(spelled.encode())
        assert not exact
        assert TOKEN not in json.loads(found)[0]


_UNITS = ('"\\n', '"password":"', '\\"', '["', '"a",', '{"name":"API_KEY","value":"', "\\u0067hp_")


@pytest.mark.parametrize("unit", _UNITS)
def test_a_long_text_takes_linear_time(unit: str) -> None:
    def redacted(chars: int) -> None:
        inner = unit * (chars // len(unit))
        for raw in (inner, json.dumps([inner]), json.dumps(inner.split(","))):
            redact_json(raw.encode())

    assert_linear(redacted, at_size(ci=40_000, full=320_000))
