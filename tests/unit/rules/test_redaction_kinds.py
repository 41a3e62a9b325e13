"""Secrets in commands, in accounts, and codes of doors, each written in several ways."""

import time

import pytest

from recollect.core.rules.redaction import redact

AWS_ID = "AKIA" + "Q3EGRJ5TZW7XNB2K"
AWS_SECRET = "wJq9/dK2mTz7Xc4V" + "bN8sLpR6" + "yHf3GaUe1+QoZi5k"
AGE = "AGE-SECRET-" + "KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" + "9X8GF2TVDW0S3JN54KHCE6MUA7"
PASSWORD = "kettle7-" + "Ranch"
JOINED = "Willow" + "Harbor"
MIXED = "aT9x" + "Qm4Wz7"

MASKED: tuple[tuple[str, str], ...] = (
    # an AWS secret next to the id of its key
    (f"{AWS_ID}\n{AWS_SECRET}", AWS_SECRET),
    (f"{AWS_ID} / {AWS_SECRET}", AWS_SECRET),
    (f"> {AWS_ID}\n> {AWS_SECRET}\n", AWS_SECRET),
    (f"1. {AWS_ID}\n2. {AWS_SECRET}", AWS_SECRET),
    (f"{AWS_ID} (prod)\n{AWS_SECRET}", AWS_SECRET),
    (f"<td>{AWS_ID}</td>\n<td>{AWS_SECRET}</td>", AWS_SECRET),
    (f'"{AWS_ID}\\n{AWS_SECRET}"', AWS_SECRET),
    # codes of doors and safes
    ("safe combination: 31-07-22", "31-07-22"),
    ("The combination of the safe is 31 07 22", "31 07 22"),
    ("the code for the garage is 48213", "48213"),
    ("vault combo L31 R07 L22", "L31 R07 L22"),
    ("entry code *4821#", "4821"),
    ("Code für die Haustür: 4821", "4821"),
    ("combinaison du coffre : 31-07-22", "31-07-22"),
    ("código de la puerta: 4821", "4821"),
    ("код от сейфа: 482137", "482137"),
    ("门禁密码：4821", "4821"),
    # an account and its password
    (f"login for staging: admin / {PASSWORD}", PASSWORD),
    (f"router login = root / {JOINED}", JOINED),
    (f"Logins:\n- wiki: mia / {MIXED}", MIXED),
    (f"test account: jane@example.com / {PASSWORD}", PASSWORD),
    (f"log in as admin with {PASSWORD}", PASSWORD),
    (f"Zugangsdaten: admin / {PASSWORD}", PASSWORD),
    (f"логин: admin / {PASSWORD}", PASSWORD),
    # an argument of a command
    (f"htpasswd -nbB lena {PASSWORD}", PASSWORD),
    (f"docker run --entrypoint htpasswd httpd:2 -Bbn lena '{JOINED}' > users", JOINED),
    (f"htpasswd -b -C 12 /etc/users.htpasswd lena {JOINED} && nginx -s reload", JOINED),
    (f"echo 'lena:{JOINED}' | sudo chpasswd", JOINED),
    (f"chpasswd <<< lena:{JOINED}", JOINED),
    (f"openssl passwd -6 {JOINED}", JOINED),
    (f"psexec64 \\\\web -u lena -p {PASSWORD} cmd", PASSWORD),
    (f"plink -pw {JOINED} lena@web", JOINED),
    # PowerShell
    (f"ConvertTo-SecureString '{JOINED}' -AsPlainText -Force", JOINED),
    (f"ConvertTo-SecureString -Force -AsPlainText {MIXED}", MIXED),
    (f'ConvertTo-SecureString `\n  -String "{JOINED}" `\n  -AsPlainText -Force', JOINED),
    (f"ConvertTo-SecureString('{JOINED}') -AsPlainText", JOINED),
    (f"New-Object Net.NetworkCredential('lena', '{JOINED}')", JOINED),
    (f'[Net.NetworkCredential]::new("lena","{JOINED}")', JOINED),
    # Windows
    (f"net use Z: \\\\nas\\media {JOINED} /user:lena", JOINED),
    (f"net use \\\\nas\\media /user:CORP\\lena {JOINED}", JOINED),
    (f'net use Z: "\\\\nas\\my files" /u:lena {MIXED} /persistent:no', MIXED),
    (f"net use * https://dav.example.com /user:lena {MIXED}", MIXED),
    (f"cmdkey /generic:srv /user:lena /pass:{JOINED}", JOINED),
    (f"signtool sign /f a.pfx /p {JOINED} a.exe", JOINED),
    # keys and their stores
    (f"keytool -list -keystore a.jks -storepass {JOINED}", JOINED),
    (f"keytool -keypasswd -keypass {PASSWORD} -new {JOINED}", JOINED),
    (f"jarsigner -keystore a.jks -keypass '{JOINED}' a.jar main", JOINED),
    (f"apksigner sign --ks-pass=pass:{JOINED} a.apk", JOINED),
    (f'openssl req -new -passin "pass:{JOINED}"', JOINED),
    (f"openssl enc -aes-256-cbc -k {JOINED} -in a", JOINED),
    (f"ssh-keygen -t ed25519 -N {JOINED} -f id", JOINED),
    (AGE, AGE),
    (f"identity: '{AGE.replace('KEY-1', 'KEY-PQ-1')}'", AGE[16:]),
    # a list of recovery codes
    ("Recovery codes:\n1f8c2-9ab4d\n77de0-c51f3\n0b9e4-2d6aa", "77de0-c51f3"),
)
READABLE = (
    f"{AWS_ID}EXAMPLE\nsrc/components/navigation/SidebarItemsList",
    "a fail-safe combination of flags 12-24-48",
    "the error code for the garage door is 4105",
    "promo code DOOR2024",
    "part code for lock: 4711123",
    "the gate code will change on 12.05.2024",
    "code for the alarm module: 3400 lines",
    "the safe code 2048-bit",
    "login providers: google / facebook-oauth2",
    "accounts: shop-eu1 / shop-us2",
    "login for staging: username / password",
    "branch login / fix-redirect2",
    "login redirect admin/users2",
    "credentials: $USER / $PASS",
    "htpasswd -D /etc/users.htpasswd lena-2",
    "htpasswd -b users lena $PASSWORD",
    "openssl enc -aes-256-cbc -kfile pass2.txt",
    "openssl rsa -passin env:KEY_PASS2 -in k.pem",
    "keytool -storepass <storepass> -keypass <keypass>",
    "ConvertTo-SecureString $env:SECRET2 -AsPlainText -Force",
    "ConvertTo-SecureString (Get-Content p2.txt) -AsPlainText",
    "new NetworkCredential(user2, pass2)",
    "net use Z: \\\\nas\\media2 /user:CORP\\lena2",
    "net use Z: \\\\nas\\media2 /user:lena *",
    "cmdkey /add:srv2 /user:lena /pass:%PASSWORD2%",
    "the line starts with `" + AGE[:16] + "`",
    "recovery codes:\nusers01\nusers02\nusers03",
    # words for a secret before a name, an index, a digest or a public key
    "secretName: tls-" + "9f8e7d6c5b",
    "gpg: using RSA key " + "3A6B9C0D1E2F4758" + "69A0B1C2D3E4F50617283940",
    "ERC20 token 0x" + "3a6b9c0d1e2f4758" + "69a0b1c2d3e4f50617283940",
    "docker pull registry.example.com/auth@sha256:" + "3a6b9c0d1e2f4758" * 4,
    "KMS key mrk-" + "3a6b9c0d1e2f4758" * 2,
    "s3 key: exports/" + "3a6b9c0d1e2f4758" + "/part.parquet",
    "Sec-WebSocket-Key: " + "dGhlIHNhbXBsZSBu" + "b25jZQ==",
    "Idempotency-Key: " + "q8Zr2LmX7vT4" + "bN9cKd3H",
    "X509v3 subjectKeyIdentifier=" + "3a6b9c0d1e2f4758" + "69a0b1c2",
)
HOSTILE = (
    f"{AWS_ID}/",
    f"{AWS_ID}\n",
    "safe code ",
    "combination of the safe door gate ",
    "code for the safe is ",
    "code 12-34-",
    "login admin, ",
    "login: admin / ",
    "cred a@b.c / ",
    "htpasswd -b a ",
    "net use /user:a \\\\a ",
    "convertto-securestring -force `\n",
    "networkcredential('a', '",
    "recovery codes\n",
    "recovery code a1b2-",
    "chpasswd <<< a:",
    "keytool -storepass ",
    "openssl passwd -1 -2 ",
    "secretName.a.",
)


@pytest.mark.parametrize(("text", "secret"), MASKED)
def test_a_secret_is_masked_however_it_is_written(text: str, secret: str) -> None:
    masked = redact(f"See below.\n{text}\nThanks").text
    assert secret not in masked
    assert masked.startswith("See below.\n")
    assert masked.endswith("\nThanks")
    assert redact(masked).text == masked


@pytest.mark.parametrize("text", READABLE)
def test_a_text_that_only_looks_alike_stays_readable(text: str) -> None:
    assert redact(text).text == text


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_repeated_label_takes_linear_time(unit: str) -> None:
    def seconds_of(chars: int) -> float:
        text = (unit * (chars // len(unit) + 1))[:chars]
        seconds: list[float] = []
        for _ in range(3):
            started = time.process_time()
            redact(text)
            seconds.append(time.process_time() - started)
        return min(seconds)

    seconds_of(1_000)
    assert seconds_of(80_000) < 8 * max(seconds_of(20_000), 0.02)
