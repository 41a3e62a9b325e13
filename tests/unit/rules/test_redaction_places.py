"""Secrets known by the place they stand in: commands, calls, manifests, headers, lists of bytes."""

from __future__ import annotations

import pytest

from recollect.core.rules.redaction import redact

MASKED: tuple[tuple[str, str], ...] = (
    # piped to a command that takes a secret
    ("printf 'Qu4rtz-Lamp' | docker secret create db_password -", "Qu4rtz-Lamp"),
    ("printf '%s' Qu4rtzLamp9 | gh secret set DEPLOY", "Qu4rtzLamp9"),
    ('printf "%s" "Qu4rtzLamp9" | podman secret create api -', "Qu4rtzLamp9"),
    ('"Qu4rtzLamp9" | ConvertTo-SecureString -AsPlainText -Force', "Qu4rtzLamp9"),
    ("$p = 'Qu4rtzLamp9' | ConvertTo-SecureString -AsPlainText -Force", "Qu4rtzLamp9"),
    ("echo Qu4rtzLamp9 | vault kv put secret/db password=-", "Qu4rtzLamp9"),
    # a Kubernetes secret
    (
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  value: cDRzc3cwcmQxMjM=\n",
        "cDRzc3cwcmQxMjM=",
    ),
    ("kind: Secret\nstringData:\n  value: tall-Ships\n  host: quiet.harbour9\n", "tall-Ships"),
    (
        '{"kind": "Secret", "data": {"value": "cDRzc3cwcmQxMjM="}}',
        "cDRzc3cwcmQxMjM=",
    ),
    # hashes of passwords
    ("admin:$apr1$ZjTqBB3f$IF9gdYAGlMrs2fuINjHsz.", "IF9gdYAGlMrs2fuINjHsz"),
    (
        "traefik.basicauth.users=admin:$$apr1$$ZjTqBB3f$$IF9gdYAGlMrs2fuINjHsz.",
        "IF9gdYAGlMrs2fuINjHsz",
    ),
    (r"- admin:\$apr1\$ZjTqBB3f\$IF9gdYAGlMrs2fuINjHsz.", "IF9gdYAGlMrs2fuINjHsz"),
    # short tokens of a header
    ("Authorization: Bearer abc123", "abc123"),
    ("curl -H 'Authorization: Bearer k9x2z' https://example.org", "k9x2z"),
    ('headers = {"Authorization": "Token q7w8e9"}', "q7w8e9"),
)

CLEAN: tuple[str, ...] = (
    'printf "%s\\n" "$TOKEN" | docker secret create token -',
    "printf 'done' | tee log.txt",
    "cat secret.txt | docker secret create db -",
    '"report2024" | Out-File summary.txt',
    "$s | ConvertTo-SecureString -AsPlainText -Force",
    "kind: ConfigMap\nmetadata:\n  name: db\ndata:\n  value: eu-west-1\n",
    "kind: Secret\nmetadata:\n  name: db-credentials\n  namespace: prod-eu\ntype: Opaque\n",
    "kind: Secret\ndata:\n  value: {{ .Values.password | b64enc }}\n",
    "kind: Secret\nmetadata:\n  name: x\n---\nkind: Service\nspec:\n  value: cluster-a1b2\n",
    "$apr1$ is the prefix of Apache's MD5 hashes",
    "Authorization: Bearer <token>",
    "Authorization: Bearer $TOKEN",
    "Authorization: Bearer token",
    "Authorization: Basic auth is used here",
    "authorization: oauth2 flow",
)


@pytest.mark.parametrize(("text", "secret"), MASKED)
def test_a_secret_in_its_place_is_masked(text: str, secret: str) -> None:
    assert secret not in redact(text).text


@pytest.mark.parametrize("text", CLEAN)
def test_what_only_stands_there_is_not(text: str) -> None:
    assert redact(text).text == text
