"""What redaction masks, what it leaves alone, and what holds for any text."""

import random
import string
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness.waiting import assert_linear
from tests.sizes import at_size

from recollect.core.rules.redaction import redact

_RNG = random.Random(7)


def _random_text(alphabet: str, size: int) -> str:
    return "".join(_RNG.choices(alphabet, k=size))


_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"

# Made up at import, so that no token stands in the repository.
GITHUB = "ghp_" + _random_text(_ALNUM, 36)
AWS_ID = "AKIA" + _random_text("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16)
AWS_SECRET = "Q4/" + _random_text(_ALNUM + "+/", 36) + "z"
SLACK = "xoxb-" + _random_text("123456789", 12) + "-" + _random_text(_ALNUM, 24)
ANTHROPIC = "sk-ant-api03-" + _random_text(_ALNUM + "_", 93) + "AA"
FLY = "fm2_" + _random_text(_ALNUM + "+/", 90)
STRIPE = "sk_live_" + _random_text(_ALNUM, 24)
GOOGLE = "AIzaSy" + _random_text(_ALNUM, 33)
JWT = f"eyJhbGciOiJIUzI1NiJ9.eyJ{_random_text(_ALNUM, 40)}.{_random_text(_ALNUM, 43)}"
OPAQUE = "t9K" + _random_text(_ALNUM, 29)
KEY_BODY = "\n".join(_random_text(_ALNUM + "+/", 64) for _ in range(6))
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{KEY_BODY}\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"use {GITHUB} for the push", GITHUB),
        (f"https://{GITHUB}@github.com/a/b.git", GITHUB),
        (f"AWS_ACCESS_KEY_ID={AWS_ID}", AWS_ID),
        (f"aws_secret_access_key = {AWS_SECRET}", AWS_SECRET),
        (f'{{"token": "{SLACK}"}}', SLACK),
        (f"ANTHROPIC_API_KEY={ANTHROPIC}", ANTHROPIC),
        (f"stripe.api_key = '{STRIPE}'", STRIPE),
        (f"?key={GOOGLE}&q=1", GOOGLE),
        (f"cookie: session={JWT}; path=/", JWT),
        (f"OPENAI_API_KEY={OPAQUE}", OPAQUE),
        (f"access_token={OPAQUE}&expires=3600", OPAQUE),
        (f'"token": "{OPAQUE}"', OPAQUE),
        (f'{{\\"apiKey\\": \\"{OPAQUE}\\"}}', OPAQUE),
        (f"first\\n{GITHUB}\\nlast", GITHUB),
        (f"\x1b[93m{GITHUB}\x1b[0m", GITHUB),
        (f"{GITHUB}-{AWS_ID}", AWS_ID),
        (f"{AWS_ID}-{GITHUB}", GITHUB),
        (f"/app_{FLY}.png", FLY),
        (f"token-{FLY}", FLY),
        (f"Authorization: Bearer {OPAQUE}", OPAQUE),
        (f"curl -H 'X-Api-Key: {OPAQUE}' https://host", OPAQUE),
        ("curl -u bob:Tr0ub4dor https://host", "Tr0ub4dor"),
        ("postgres://app:s3cr3tPw9@db:5432/x", "s3cr3tPw9"),
        ("DB_PASSWORD=Tr0ub4dor&3", "Tr0ub4dor&3"),
        ('password: "Tr0ub4dor&3"', "Tr0ub4dor&3"),
        ("<password>Tr0ub4dor3</password>", "Tr0ub4dor3"),
        ("mysql --password Tr0ub4dor3 -h db", "Tr0ub4dor3"),
        ("my password is Tr0ub4dor3", "Tr0ub4dor3"),
        ("我的密码是Tr0ub4dor3", "Tr0ub4dor3"),
        ("密码：Tr0ub4dor3", "Tr0ub4dor3"),
        ("CREATE USER a IDENTIFIED BY 'Tr0ub4dor3';", "Tr0ub4dor3"),
        ("machine h login me password Tr0ub4dor3", "Tr0ub4dor3"),
        (f"the signing key of staging, rotated today: {OPAQUE}", OPAQUE),
        (f'client("{OPAQUE}")  # the auth token', OPAQUE),
        (f"<Password>\n  <Value>{OPAQUE}</Value>\n</Password>", OPAQUE),
        (f"https://host/reset-password/{OPAQUE}", OPAQUE),
        ('find("password").send_keys("raven-saddle-ivory-topaz")', "raven-saddle-ivory-topaz"),
        ("the root pw on that box? vJcIcy2E16 i think", "vJcIcy2E16"),
        (f"SNYK_TOKEN={uuid.UUID(int=_RNG.getrandbits(128))}", "SNYK_TOKEN="),
    ],
)
def test_secrets_do_not_survive(text: str, secret: str) -> None:
    result = redact(text)
    assert result.spans
    if secret.endswith("="):
        assert result.text == f"{secret}[REDACTED:assigned-token]"
    else:
        assert secret not in result.text


def test_the_value_goes_and_its_marks_names_and_neighbours_stay_readable() -> None:
    text = redact(f"key:\n{PEM}\ndone").text
    assert not any(line in text for line in KEY_BODY.split("\n"))
    assert text.startswith(
        "key:\n-----BEGIN RSA PRIVATE KEY-----\n[REDACTED:private-key]\n-----END"
    )
    result = redact(f'export API_TOKEN="{OPAQUE}"  # rotate monthly')
    assert result.text == 'export API_TOKEN="[REDACTED:assigned-token]"  # rotate monthly'
    text = f"a {GITHUB} b {SLACK} c"
    result = redact(text)
    assert [text[span.start : span.end] for span in result.spans] == [GITHUB, SLACK]
    assert [span.rule for span in result.spans] == ["github-token", "slack-token"]


@pytest.mark.parametrize("cut", [80, 200, 330])
def test_private_key_that_was_cut_off_is_masked_too(cut: int) -> None:
    text = redact(PEM[:cut]).text
    assert KEY_BODY[:40] not in text


_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@pytest.mark.parametrize(
    "text",
    [
        f"sk-ant-api03-{(_ALPHABET * 2)[:93]}AA",
        f"use sk-{_ALPHABET[:48]} for now",
        f"ghp_{_ALPHABET[:36]}",
        f"sk_live_{_ALPHABET[:24]}",
        f"gsk_{_ALPHABET[:52]}",
        "AKIA1234567890123456",
        f"ANTHROPIC_API_KEY=sk-ant-api03-{(_ALPHABET * 2)[:95]}",
    ],
)
def test_a_token_of_full_length_is_masked_although_it_is_an_alphabet(text: str) -> None:
    assert len(redact(text).spans) == 1
    assert not any(run in redact(text).text for run in ("abcdef", "123456"))


@pytest.mark.parametrize(
    "text",
    [
        "sk-ant-...",
        "ANTHROPIC_API_KEY=sk-ant-api03-xxxxxxxx",
        f"sk-ant-api03-{'x' * 93}AA",
        "api_key = YOUR_KEY",
        "OPENAI_API_KEY=sk-abcdefghijklmnopqrstuvwxyz",
        f"AIzaSy{_ALPHABET[:33]}",
    ],
)
def test_placeholders_of_documentations_stay(text: str) -> None:
    assert redact(text).text == text


@pytest.mark.parametrize(
    "text",
    [
        "commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "session 0b7c6f0e-6f43-4d83-9d27-3e2d0f8f3f7a resumed",
        "/usr/lib/python3/dist-packages/token/secret_key/password/auth_token_v2_helpers.py",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "api_key = os.environ['OPENAI_API_KEY']",
        "token = config.get('token2')",
        "password: Optional[str] = None",
        "password=${DB_PASSWORD}",
        "API_KEY=<your-api-key-1>",
        "GITHUB_TOKEN: ${{ secrets.GITHUB_TOKEN2 }}",
        "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "AKIAIOSFODNN7EXAMPLE",
        "max_tokens: 128000, total_tokens=40961",
        "next_page_token: CAUQAA9x81kd72hsGq",
        "public_key = 'MFkwEwYHKoZIzj0CAQYIKoZIzj0'",
        "primaryKey: user_id_2",
        "the password is required",
        f"cache key restored: Linux-node-{uuid.UUID(int=_RNG.getrandbits(128)).hex}",
        f"the token was added in commit {_random_text(_HEX, 40)}",
        f'"credentialId": "{OPAQUE}"',
        f'{{"names": "STRIPE_SECRET","first_kept":"{_random_text(_HEX, 32)}","tokens":3}}',
        "load_key_and_certificates = rust_pkcs12.load_key",
        "postgres://user:password@localhost/db",
        'curl -u "$USER:$PASSWORD" https://host',
        "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ29uZ3JhdHVsYXRpb25z\n-----END",
        "",
        "ok",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text).text == text
    assert redact(text).spans == ()


def test_personal_data_only_on_request() -> None:
    text = "mail jo@example.org, call +44 20 7946 0958, pay 4111 1111 1111 1111"
    assert redact(text).text == text
    assert redact(text, pii=True).text == (
        "mail [REDACTED:email], call [REDACTED:phone], pay [REDACTED:payment-card]"
    )


_PIECES = st.sampled_from(
    [
        GITHUB, AWS_ID, SLACK, JWT, OPAQUE, PEM, "Tr0ub4dor&3", "password", "token", "api_key", "=",
        ": ", '"', "'", "\\", "\n", " ", "Bearer ", "Authorization: ", "https://", "u:", "@",
        "curl -u ", "[REDACTED:", "]", "[REDACTED:jwt]", "-----", "/", "+", "_", ".", "是", "İ",
        "-", "jo@ex.org",
    ]
)  # fmt: skip
_TEXTS = st.lists(st.one_of(_PIECES, st.text(max_size=6)), max_size=14).map("".join)


@settings(max_examples=at_size(ci=200, full=1_500), deadline=None)
@given(_TEXTS, st.booleans())
def test_redacting_twice_is_redacting_once(text: str, pii: bool) -> None:
    once = redact(text, pii=pii).text
    assert redact(once, pii=pii).text == once


@settings(max_examples=at_size(ci=80, full=500), deadline=None)
@given(_TEXTS)
def test_only_the_spans_change(text: str) -> None:
    result = redact(text)
    rebuilt, done = "", 0
    for span in result.spans:
        assert done <= span.start < span.end <= len(text)
        rebuilt += text[done : span.start] + span.replacement
        done = span.end
    assert rebuilt + text[done:] == result.text


_ADVERSARIAL = {
    "assignments": "token=",
    "prose": "password is ",
    "quotes": "token=\"token='token=`",
    "escapes": 'token=\\"',
    "jwt": "eyJ",
    "jwt parts": "eyJhbGciOiJIUzI1NiJ9.",
    "base64": "/fm2_",
    "keys": "-----BEGIN PRIVATE KEY-----",
    "urls": "://a:b",
    "curl": "curl -u a:",
    "headers": "authorization: ",
    "digits": "1|",
    "phones": "+1 23 ",
    "at": "a.@a.",
    "one run": "a",
    "slashes": "\\",
    "spaces": " ",
    "sql": "identified by password ",
    "jwk": '"kty":"d":"',
    "dots": "a.b-",
    "words": "pw",
    "names": "token_",
    "bytes": "key = [" + "12," * 300,
    "manifests": "kind: Secret\ndata:\n  a: bcdef1\n",
    "members": '{"kind": "Secret", "data": {"a": "bcdef1", ',
}


@pytest.mark.parametrize("name", _ADVERSARIAL)
def test_a_long_text_of_anything_takes_linear_time(name: str) -> None:
    unit = _ADVERSARIAL[name]
    size = at_size(ci=100_000, full=400_000)
    assert_linear(lambda chars: redact(unit * (chars // len(unit)), pii=True), size)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("requirepass raven-saddle", "raven-saddle"),
        ("snmp-server community ravenSaddle RO", "ravenSaddle"),
    ],
)
def test_forms_that_no_labelled_set_holds_are_masked(text: str, secret: str) -> None:
    """A rule that no labelled text needs may still be the only one that knows a form."""
    assert secret not in redact(text).text


@pytest.mark.parametrize(
    "text",
    [
        '{"session": "mHkHqJqpfqkDGWcgFvaQ8x2LkPz0TqWn"}',
        "_gitlab_session=4f1d0c9be27a85634f1d0c9be27a8563",
        "user_session=xT8hQ2mV9pLk3RzW7nYb5dFc",
        '{"code": "SplxlOBeZQQYbYS6WxSbIA7"}',
        "https://x.io/cb?code=9f3b5c1a7d2e4f6a8b0c1d2e3f4a5b6c7d8e9f01&state=1",
        "echo\t'Tr0ub4dor&3x' | docker login -u me --password-stdin",
    ],
)
def test_values_behind_a_session_a_code_or_a_tab_are_masked(text: str) -> None:
    assert redact(text).text != text
