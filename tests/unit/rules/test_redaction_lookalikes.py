"""Lines as coding agents read and write them that only look as if they held a secret.

The first half was written before the rules were read. A line that is masked here is a line that a
user cannot find again.
"""

import random
import string

import pytest

from recollect.core.rules.message_redaction import TextMask
from recollect.core.rules.redaction import recognisable_secrets, redact
from recollect.system.config.settings import Redaction
from recollect_bench.redaction_data import FILLED, HALVES, Half, load_kinds

LOOKALIKES = r"""
password = get_secret("db/Primary1")
password = get_secret('prod-Db-Reader2')
const apiKey = await fetchSecret('prod/Stripe-Api2');
let token = client.secrets.get("Ci-Deploy-Token3")
secret = SecretClient(url).get_secret("Orders-Db-Pass1").value
db_password = read_password("Orders-Main-2")
token = retrieveToken("Ci-Deploy-Token3")
password: !vault Db-Pass-File2
password: !secret Wifi-Pass-2
password: ref+vault://kv/App-Prod1#/password
session=agent:main:telegram:group:-1001234567890:topic:42
session key agent:main:discord:channel:1234567890123456789
sessionKey=agent:main:whatsapp:dm:+491701234567
lane=session:agent:main:main durationMs=12034 active=0 queued=0
rsync -u -p src/app2-build/ /var/www/app2
docker run -u 1000 -p my-app2-port nginx:1.27
docker run -d -p 8080:80 --name web2 nginx
mkdir -p src/components2/v2-forms
psql -U postgres -p 5433 inventory2
ssh -p 2222 deploy@build2.example.com
our new key is user_id_v2_composite_idx
the password policy is min-12-chars
otp length is 6 and 120000 ms
kubectl -n kube-system get secret sh.helm.release.v1.web.v12 -o yaml
secret/web-tls-2024 created
git checkout 3f2a9c1d7e && git push origin fix/token-refresh-2
commit 9fceb02d0ae598e95dc970b74767f19372d61af8
tests/test_auth.py::test_password_reset_v2_flow PASSED
FAILED tests/test_token.py::TestToken::test_expired_token_401 - AssertionError
def test_secret_key_rotation_2024(client):
--token-color-primary-500: #1f6feb;
SELECT id, password_hash FROM users_v2 WHERE token_id = 12345;
CREATE INDEX idx_token_v2 ON access_tokens (user_id, created_at);
ALTER TABLE users ADD COLUMN api_key_v2 varchar(64);
the primary key is order_id_2024_partition
const token = await getToken(userId2);
password = os.environ["DB_PASSWORD_V2"]
secret_key = config.get('SECRET_KEY_V1')
total_tokens=128000 prompt_tokens=3214 completion_tokens=912
max_tokens: 4096, temperature: 0.7
token count: 18234 (limit 200000)
The cache key is build-linux-x64-node20
cache-key: pip-${{ runner.os }}-py3.12
Cache restored from key: Linux-node-20-npm-cache
sort key is created_at_desc_v2
sed -n 's/password=.*/password=***/p' app.env
curl -u $USER:$PASS https://api.example.com/v2/items
export TOKEN=$(gh auth token)
Authorization: Bearer $ACCESS_TOKEN
session_id: 0f8fad5b-d9cb-469f-a165-70867728950e
sessionId=2024-11-15T22-19-31-main
{"turn": 3, "session": "unnamed:5598fb36dcc255d0-8b2984a6", "tokens": 812}
session=main-2
session file: ~/.openclaw/agents/main/sessions/main-telegram-2.jsonl
passwd: password updated successfully
pass 2 of 3: 14 files changed, 203 insertions(+)
pinned to v1.2.3-rc1 in package-lock.json
Using a password on the command line interface can be insecure.
key: agent:main:main
ticket PROJ-1234 is blocked by PROJ-1200
The secret is to use useMemo2 here
access token expires in 3600 seconds
the auth method is scram-sha-256
credentials file is /etc/app2/creds.d
add force_refresh arg to get_repo_map and pass to get_ranked_tags_map
Please pass it to `get_ranked_tags_map` and rerun.
rsync -u -p -r ./dist-v2/ host2:/srv/app2/
pytest -p no:cacheprovider -l tests/test_v2.py
GET /download?policy=public-read-2024-11&size=12
https://jira.example.com/browse?ticket=PROJECT-2024-001122
session=telegram:group:-1009876543210:thread:77:lane:main2
session=agent:main:cron:0f8fad5b-d9cb-469f-a165-70867728950e:run:3
session=agent:coder:subagent:7c9e6679-7425-40de-944b-e07fc1f90ae7
session=2024-11-15_22-19-31_main_worker_3_telegram_group_retry
[ws] ⇄ res ✓ sessions.patch 12ms key=agent:main:discord:channel:987654321098765432
my key is orders/2024/11/invoice_batch_v2.parquet
our new key is tenant_id_v3_region_eu_west_1
the new key is translations.checkout.step2.title
your key is cache:v2:user:profile:1234
this key is feature_flags_v2_checkout_enabled
the partition key is customer_2024_region_eu_w1
the access key is named ci-deploy-2024-frankfurt-a
the token is stored in localStorage_v2_auth_state
the token limit is 128k-context-window-v2
the password field is input-group-2-wide
the password column is users_v2.passwd_hash2
the password hasher is argon2id-v19-m65536
password rules: min-8-max-64-mixed2
passphrase length: 12-to-64-chars
otp timeout is 300000 ms
otp ttl: 120000
verification code length is 6, expires after 600000 ms
CONFIRMATION CODE COLUMN: orders.conf_code_v2
grep -rn 'password=.*' src2/
re.compile(r'token=[^&]+2')
s/api_key=\S+/api_key=HIDDEN2/
Successfully built 8f1d2c3b4a5e && tagged registry.local/team/auth-token-svc:v2.3.1
Events: Warning FailedMount secret "db-creds-v2" not found
INSERT INTO settings (key, value) VALUES ('session_timeout_v2', '3600');
UPDATE users SET password_changed_at = '2024-11-15 22:19:31' WHERE id = 1045;
GRANT SELECT ON auth_tokens_v2 TO readonly_role2;
it('rejects the otp after 300000 ms', async () => {
expect(screen.getByLabelText('password2-input')).toBeVisible()
<input type="password" id="new-password-2" name="password2">
set the account limit to max-20-items2
set the login route to auth/login-v2
changed the account page to settings-v2-beta
dedupe key=a8b05b4e483ee776b81b068a33b7e9f2c34dde42 skipped
Authorization: AWS4-HMAC-SHA256 Credential=<id>/20240611/eu-west-1/s3/aws4_request
sec-websocket-key: w8ZyMKZKHTaTepzFRf/wJ7v3
access control list acl-c196d12ddde3172e1
gpg: using RSA key FG5BFXHOWUUE5JGJA4QVWS4K7AKLCJVWW7CCP4NY
"apkKeyHash": "9Z1QZ7gCc1CRXIOegVQo6Dz03Cmb"
user auth0|0bb3c0bc4459f698343ecbf9 was merged
"passwordLastUsed": "2024-06-11T18:02:11+00:00"
self.password2 = password2
if new_password == confirm_password:
password=2024-11-15T22:19:31+02:00
existingSecret: redis-auth-v2
snmpget -v 2c -c public switch-2 1.3.6.1.2.1.1.5.0
"""


@pytest.mark.parametrize("line", LOOKALIKES.strip().splitlines())
def test_everyday_text_of_coding_agents_is_left_alone(line: str) -> None:
    assert [(span.rule, line[span.start : span.end]) for span in redact(line).spans] == []


def test_all_of_them_in_one_transcript_are_left_alone() -> None:
    assert redact(LOOKALIKES).spans == ()


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("Your verification code is 482913", "482913"),
        ("one-time code: 482913", "482913"),
        ('{"session": "other:5598fb36dcc255d0-8b2984a6"}', "5598fb36dcc255d0-8b2984a6"),
        ("mysql -u root -pTr0ub4dor inventory", "Tr0ub4dor"),
        ("docker login -u ci -p Tr0ub4dor registry.local", "Tr0ub4dor"),
        ("the password is Sommer-2024", "Sommer-2024"),
        ("smtp.login('ada', 'Tr0ub4dor&3')", "Tr0ub4dor&3"),
    ],
)
def test_what_stands_behind_a_certain_label_is_still_masked(line: str, secret: str) -> None:
    assert secret not in redact(line).text


SECRET = "vK8q2Zt7Lm4XwB9r"


@pytest.mark.parametrize(
    ("taught", "said"),
    [
        ("DB_PASSWORD=prod2024", "curl https://prod2024.example.com/health"),
        ("the password is Sommer-2024", "see docs/Sommer-2024.md"),
        (f"DB_PASSWORD={SECRET}", f"sha a{SECRET} and {SECRET}7"),
    ],
)
def test_what_a_session_masked_changes_no_other_word(taught: str, said: str) -> None:
    mask = TextMask(Redaction())
    assert "[REDACTED:" in mask.text(taught)
    assert mask.text(said) == said


@pytest.mark.parametrize(
    "value",
    [
        "/etc/passwd",
        "v1.2.3-rc1",
        "000000001234",
        "prod2024",
        "user_id_v2_composite_idx",
        "Mai2024",
    ],
)
def test_paths_versions_numbers_and_names_are_never_known_by_themselves(value: str) -> None:
    assert not recognisable_secrets([value])


@pytest.mark.parametrize(
    "said", ["try {} again", "as\\n{} there", "%3D{}", "'{}'", "\x1b[31m{}\x1b[0m", "{}"]
)
def test_a_random_secret_is_masked_where_it_stands_alone(said: str) -> None:
    mask = TextMask(Redaction())
    mask.text(f"DB_PASSWORD={SECRET}")
    assert SECRET not in mask.text(said.format(SECRET))


def passwords(rows: int) -> tuple[str, list[str]]:
    chance = random.Random(rows)
    drawn = ["".join(chance.choices(string.ascii_letters, k=11)) + "7q" for _ in range(rows)]
    lines = [f"user{at},{value},token {at}" for at, value in enumerate(drawn)]
    return "\n".join(["name,password,note", *lines]), drawn


def test_every_row_of_a_password_column_is_masked() -> None:
    text, drawn = passwords(1_000)
    masked = redact(text).text
    assert [value for value in drawn if value in masked] == []


@pytest.mark.parametrize("half", HALVES)
def test_redacting_twice_gives_what_redacting_once_gave_for_every_kind(half: Half) -> None:
    """Counts only: the held-out half is never printed."""
    changed = 0
    for kind in load_kinds(half):
        for seed in range(FILLED):
            once = redact(kind.fill(seed)[0]).text
            changed += redact(once).text != once
    assert changed == 0


TOLD = {
    "en": ("the wifi password was changed to {}", "The password of the safe is {}."),
    "es": ("La contraseña del portátil es {}",),
    "ja": ("倉庫のパスワードは{}です", "パスワードは{}に変更しました"),
    "de": (
        "Das Passwort für den Drucker ist {}",
        "mein Gäste-Passwort ist jetzt {}, bitte merken",
        "das Passwort heißt {}",
        "das Admin-Passwort wurde auf {} geändert",
    ),
    "ru": (
        "Пароль от принтера {}",
        "пароль теперь {}, запомни",
        "Пароль администратора изменили на {}",
        "пароль от базы данных это {}",
    ),
    "zh": ("打印机的密码是{}", "密码现在是{}，请记住", "管理员密码改成了{}", "用密码{}登录打印机"),
}


@pytest.mark.parametrize("value", ["Nebel1973", "kastanie88", "Wq7!rabe"])
@pytest.mark.parametrize("told", [one for texts in TOLD.values() for one in texts])
def test_a_password_that_is_told_is_masked_in_every_language(told: str, value: str) -> None:
    assert value not in redact(told.format(value)).text


@pytest.mark.parametrize(
    "line",
    [
        "Das Passwort steht auf Zettel-B12 im Ordner 2024",
        "Das Passwort auf host-22 muss weg",
        "Der Passwort-Hash ist jetzt sha256",
        "das Passwort wurde auf Wunsch geändert",
        "Das Gäste-Passwort ist abgelaufen",
        "Пароль на сервере web-01 устарел",
        "Пароль от сервера web-01 в хранилище",
        "пароль теперь хранится в Vault",
        "密码sha256加密存储",
        "密码utf8mb4编码",
        "把密码字段改成varchar255",
        "密码现在是加密的",
        "用密码登录GitHub",
    ],
)
def test_what_is_said_of_a_password_is_left_alone(line: str) -> None:
    assert redact(line).text == line


_RNG = random.Random(7)
_HEX = "".join(_RNG.choice("0123456789abcdef") for _ in range(40))
NEAR_LOOKALIKES = r"""
the digest job uses auth token {hex}
hash-service/api-key:{hex}
hash service api key {hex}
content hash job, session secret {hex}
md5 is off, webhook secret {hex}
hash.example.com api key {hex}
the hash bot: access key {hex}
the sha256 verifier needs api key {hex}
webhook event secret {hex}
event token {hex}
event signing secret {hex}
event hub access key {hex}
event credentials {hex}
accessor token {hex}
nonce token {hex}
nonce=1; session token {hex}
nonce 4 and access token {hex}
recv key {hex}
hash token {hex}
auth2 {hex}
oauth2 {hex}
vault/api-key-prod:{hex}
secrets/token-ci:{hex}
"credentials": {{"hashKey": "{hex}"}}
the vault secret, see https://x.example/?p={hex}
magic login https://app.example/go?u={hex}
the invite, https://x.example/join?i={hex}
if the password == Tr0ub4dor3 you are in
password == hunter2secret9
assert password == S3cretPass
password === Winter2024x
password != hunter2secret9
if pw == Tr0ub4dor3:
passphrase == Kestrel77blue
PASSWORD == HUNTER22X
root password == abc123xyz
password == password123
密码 == hunter2secret9
secret: x-99-1234-abc
secret: b-7-8821-qrs
secret: kestrel-v7-blue
password=2024.11.20rev:12
password=12.11.20abc:34
password=1.2.3x:45
password=20.24.11go:07
password: 7-7-7seven:11
password: 10:20:30up:40
password=1:22+33:44
password=2024-11-20k:12
pw=2023.1.1rev2:10
authorization: Bearer abcdefgh2=
Authorization: Bearer secretword2=
Authorization: Token kestrel77=
authorization: bearer tokentoken5=
"""


@pytest.mark.parametrize("line", NEAR_LOOKALIKES.strip().splitlines())
def test_a_secret_is_masked_next_to_words_of_lookalikes(line: str) -> None:
    text = line.format(hex=_HEX)
    assert len(redact(text).spans) == 1
    assert _HEX not in redact(text).text
