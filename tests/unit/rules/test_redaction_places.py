"""Secrets known by the place they stand in: commands, calls, manifests, headers, lists of bytes."""

import pytest

from recollect.core.rules.redaction import redact

MASKED: tuple[tuple[str, str], ...] = (
    # an account and its token, given to a client
    (
        'client = Client("AC5ef872f6da5a21de157d80997a64bd33", "a1b2c3d4e5f60718293a4b5c6d7e8f90")',
        "a1b2c3d4e5f60718293a4b5c6d7e8f90",
    ),
    # flags of commands
    (
        r"schtasks /create /tn Backup /tr C:\b.cmd /sc daily /ru CORP\svc /rp Wint3rTal3",
        "Wint3rTal3",
    ),
    ('SCHTASKS /Create /S srv01 /U admin /P "Gr8nite!x" /TN job', "Gr8nite!x"),
    ("aws ssm put-parameter --name /prod/db --type SecureString --value s3cr3tTid3", "s3cr3tTid3"),
    (
        'aws ssm put-parameter --name "/prod/db" --value "Tid3-w4ter" --type "SecureString"',
        "Tid3-w4ter",
    ),
    # told, with the word for it before or after
    ("the new one is Harb0ur!77 (old password expired yesterday)", "Harb0ur!77"),
    ("I rotated the password. The new one is: Harb0ur!77", "Harb0ur!77"),
    ("Their login changed, the current one is 'Harb0ur!77'.", "Harb0ur!77"),
    # keys as numbers
    (
        "const aesKey = [43, 126, 21, 22, 40, 174, 210, 166, 171, 247, 21, 136, 9, 207, 79, 60];",
        "43, 126, 21, 22, 40, 174",
    ),
    (
        "byte secret_key[12] = {0x2b, 0x7e, 0x15, 0xae, 0xd2, 0xa6, 0xab, 0xf7, 0x88, 0xcf, 9, 3};",
        "0x2b, 0x7e, 0x15",
    ),
    ("SECRET = bytes([43,126,21,22,40,174,210,166,171,247,21,136,9,207,79,60])", "43,126,21,22"),
    (
        "privateKey: new Uint8Array([43, 126, 21, 22, 40, 174, 210, 166, 171, 247, 21, 9])",
        "43, 126, 21, 22",
    ),
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
    ('{"kind": "Secret", "data": {"value": "cDRzc3cwcmQxMjM="}}', "cDRzc3cwcmQxMjM="),
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
    'client = Client("us-east-1", "billing-service")',
    'Client("550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440001")',
    "schtasks /query /tn Backup /fo LIST",
    "schtasks /run /p",
    "aws ssm put-parameter --name /prod/region --type String --value eu-west-1b",
    "aws ssm put-parameter --type SecureString --value $DB_PASSWORD",
    "the new one is required (old password policy)",
    "The bus stop moved, the new one is nearer to pier39.",
    "the new one is v2.1.0, the old login page is gone",
    "sizes = [16, 24, 32, 48, 64, 96, 128, 160, 192, 200, 224, 240, 250, 255, 12, 14]",
    "key_codes = [37, 38, 39, 40, 13, 27, 32, 9, 8, 46, 36, 35, 33, 34, 16, 17]",
    "primary_key = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]",
    "token_ids = [101, 75, 20, 102, 34, 67, 41, 52, 63, 77, 88, 99, 110, 11, 12, 13]",
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
