"""Tokens recognized by their form: the issuer's prefix, alphabet and length. Filler, keys of public
test code, and characters inside base64 data are not tokens."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recollect.core.rules.secret_table import (
    Row,
    RowPlace,
    SearchedText,
    SecretMatch,
    by_keywords,
    declare_token,
    find_by_rows,
)
from recollect.core.rules.secret_values import is_filler, is_placeholder, is_published_sample

if TYPE_CHECKING:
    from collections.abc import Iterator


_ALNUM = "A-Za-z0-9"
_WORD = r"A-Za-z0-9_\-"
_HEX = "0-9a-f"
_BASE64 = r"A-Za-z0-9+/_\-"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_START = r"(?<![^\W_])"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFormat:
    """One issuer's token."""

    name: str
    firsts: frozenset[str]
    """First characters of its prefixes."""
    pattern: re.Pattern[str]
    opening: str
    """Pattern of its start, or of the whole token if many words begin with the prefix."""
    public: bool = False
    """True if its issuer allows it in public code. Samples are then common, such as an alphabet."""


def _format(
    name: str,
    prefixes: str,
    body: str,
    *,
    end: str = _WORD,
    public: bool = False,
    common: bool = False,
) -> TokenFormat:
    listed = prefixes.split()
    starts = "|".join(map(re.escape, listed))
    return TokenFormat(
        name=name,
        firsts=frozenset(prefix[0] for prefix in listed),
        pattern=re.compile(rf"(?:{starts})(?P<body>{body})(?![{end}])", re.ASCII),
        opening=rf"(?:{starts}){body}" if common else starts,
        public=public,
    )


# Prefixes, alphabets and lengths are the issuers' own, from their documentation or from tokens they
# print. If an issuer announces that tokens may grow, the range is wider than today's length.
RUN_FORMATS: tuple[TokenFormat, ...] = (
    # Model providers
    _format("anthropic-key", "sk-ant-", rf"[a-z]{{3,6}}\d\d-[{_WORD}]{{80,120}}AA"),
    _format(
        "openai-key", "sk-", rf"(?:[a-z]{{3,8}}-)?[{_WORD}]{{16,100}}T3BlbkFJ[{_WORD}]{{16,100}}"
    ),
    _format("openai-key", "sk-", rf"[{_ALNUM}]{{48}}"),
    _format("model-provider-key", "sk-or-v1- sk-", rf"(?:[{_HEX}]{{64}}|[{_HEX}]{{32}})"),
    _format("model-provider-key", "sk-lf- pk-lf-", _UUID),
    _format("model-provider-key", "gsk_", rf"[{_ALNUM}]{{48,56}}"),
    _format("model-provider-key", "xai-", rf"[{_ALNUM}]{{70,90}}"),
    _format("model-provider-key", "pplx- llx- csk-", rf"[{_WORD}]{{48,56}}"),
    _format("model-provider-key", "nvapi-", rf"[{_WORD}]{{60,70}}"),
    _format("model-provider-key", "r8_", rf"[{_ALNUM}]{{37,40}}"),
    _format("model-provider-key", "tgp_v1_ pa-", rf"[{_WORD}]{{43}}"),
    _format("model-provider-key", "pcsk_", rf"[{_ALNUM}_]{{60,80}}"),
    _format("model-provider-key", "tvly-", rf"(?:dev-|prod-)?[{_WORD}]{{28,50}}"),
    _format("model-provider-key", "lsv2_pt_ lsv2_sk_", rf"[{_HEX}]{{32}}_[{_HEX}]{{10}}"),
    _format("huggingface-token", "hf_ api_org_", r"[A-Za-z]{34}", end=_ALNUM + "_"),
    # Clouds
    _format("aws-access-key", "AKIA ASIA ABIA ACCA", r"[A-Z0-9]{16}", end=_ALNUM + "_"),
    _format("aws-access-key", "A3T", r"[A-Z0-9]{17}", end=_ALNUM + "_", common=True),
    _format("aws-appsync-key", "da2-", r"[a-z0-9]{26}"),
    _format("aws-mws-key", "amzn.mws.", _UUID),
    _format("google-api-key", "AIzaSy", rf"[{_WORD}]{{33}}", public=True),
    _format("google-oauth", "GOCSPX-", rf"[{_WORD}]{{28}}"),
    _format("google-oauth", "ya29.", rf"[{_WORD}.]{{30,400}}"),
    _format("alibaba-key", "LTAI", rf"[{_ALNUM}]{{12,24}}"),
    _format("tencent-key", "AKID", rf"[{_ALNUM}]{{32}}"),
    _format("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", rf"[{_HEX}]{{64}}"),
    _format("databricks-token", "dapi", rf"[{_HEX}]{{32}}(?:-\d)?"),
    _format("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[\w.=-]{32,64}"),
    _format("supabase-token", "sbp_ sb_secret_", rf"[{_WORD}]{{30,50}}"),
    _format("cloudflare-origin-key", "v1.0-", rf"[{_HEX}]{{24}}-[{_HEX}]{{146}}"),
    _format("cloudflare-token", "cfat_ cfut_ cfk_", rf"[{_ALNUM}]{{40,56}}"),
    _format("clickhouse-key", "4b1d", rf"[{_ALNUM}]{{38}}"),
    _format("fly-token", "fo1_", rf"[{_WORD}]{{43}}"),
    _format("heroku-key", "HRKU-", rf"[{_WORD}]{{36,64}}"),
    _format("scalingo-token", "tk-us-", rf"[{_WORD}]{{48}}"),
    _format("netlify-token", "nfp_", rf"[{_ALNUM}]{{36}}"),
    _format("vercel-token", "vcp_ vci_ vca_ vcr_ vck_", rf"[{_ALNUM}]{{24,64}}"),
    _format("dynatrace-token", "dt0c01. dt0s01.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    # Code hosting, registries and build services
    _format("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", rf"[{_ALNUM}]{{36,255}}", end=_ALNUM + "_"),
    _format("github-token", "github_pat_", rf"[{_ALNUM}]{{22}}_[{_ALNUM}]{{59}}"),
    _format(
        "gitlab-token", "glpat- gldt- glft- glsoat- glimt- glffct- glwt-", rf"[{_WORD}]{{20,40}}"
    ),
    _format(
        "gitlab-token",
        "glpat- glrt- glrtr-",
        rf"(?:t\d_)?[{_WORD}]{{20,300}}(?:\.[a-z0-9]{{2}}\.?[a-z0-9]{{7}})?",
    ),
    _format("gitlab-token", "glptt-", rf"[{_WORD}]{{40}}"),
    _format("gitlab-token", "glagent-", rf"[{_WORD}]{{50,1024}}"),
    _format("gitlab-token", "gloas-", rf"[{_WORD}]{{64}}"),
    _format("gitlab-token", "glcbt-", rf"(?:[{_ALNUM}]{{1,5}}_)?[{_WORD}]{{20}}"),
    _format("gitlab-token", "GR1348941", rf"[{_WORD}]{{20,50}}"),
    _format("bitbucket-token", "ATBB", rf"[{_ALNUM}]{{24,40}}"),
    _format("npm-token", "npm_", rf"[{_ALNUM}]{{36}}"),
    _format("pypi-token", "pypi-AgE", rf"[{_WORD}]{{50,1000}}"),
    _format("rubygems-key", "rubygems_", rf"[{_HEX}]{{48}}"),
    _format("nuget-key", "oy2", r"[a-z0-9]{43}"),
    _format("clojars-token", "CLOJARS_", r"[a-z0-9]{60}"),
    _format("docker-token", "dckr_pat_ dckr_oat_", rf"[{_WORD}]{{27,40}}"),
    _format("docker-swarm", "SWMTKN-1- SWMKEY-1-", rf"[{_ALNUM}+/-]{{40,120}}"),
    _format("artifactory-key", "AKCp", rf"[{_ALNUM}]{{60,80}}"),
    _format("artifactory-key", "cmVmdGtuO", rf"[{_ALNUM}]{{55}}"),
    _format("sonar-token", "squ_ sqp_ sqa_", rf"[{_ALNUM}]{{40}}"),
    _format("sourcegraph-token", "sgp_", r"(?:(?:local|[0-9a-fA-F]{16})_)?[0-9a-fA-F]{40}"),
    _format("sourcegraph-token", "slk_", rf"[{_HEX}]{{64}}"),
    _format("sentry-token", "sntryu_", rf"[{_HEX}]{{64}}"),
    _format("pulumi-token", "pul-", rf"[{_HEX}]{{40}}"),
    _format("vault-token", "hvs. s.CAES", rf"[{_WORD}]{{80,300}}"),
    _format("vault-token", "hvb. hvr.", rf"[{_WORD}]{{90,400}}"),
    _format(
        "doppler-token",
        "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.",
        rf"(?:[a-z0-9_-]{{2,35}}\.)?[{_ALNUM}]{{40,44}}",
    ),
    _format("prefect-token", "pnu_ pnb_", rf"[{_ALNUM}]{{36}}"),
    _format("infracost-key", "ico-", rf"[{_ALNUM}]{{32}}"),
    _format("octopus-key", "API-", r"[A-Z0-9]{26}", common=True),
    _format("harness-token", "pat. sat.", rf"[{_WORD}]{{22}}\.[{_HEX}]{{24}}\.[{_ALNUM}]{{20}}"),
    _format("openshift-token", "sha256~", rf"[{_WORD}]{{43}}"),
    # Messaging and mail
    _format(
        "slack-token",
        "xoxb- xoxp- xoxa- xoxr- xoxo- xoxs- xoxe- xoxc-",
        r"(?:\d-)?(?:\d{7,14}-){1,4}[A-Za-z0-9]{18,64}",
    ),
    _format(
        "slack-token",
        "xoxe.xoxb- xoxe.xoxp- xoxe- xoxp- xoxb- xoxa- xoxr- xoxd-",
        rf"(?:\d-)?[{_ALNUM}]{{40,260}}",
    ),
    _format("slack-token", "xapp-", r"\d-[A-Z0-9]{6,14}-\d{8,14}-[a-z0-9]{40,80}"),
    _format("sendgrid-key", "SG.", rf"[{_WORD}]{{16,32}}\.[{_WORD}]{{16,64}}"),
    _format("mailgun-key", "key- pubkey-", rf"[{_HEX}]{{32}}", common=True),
    _format("brevo-key", "xkeysib- xsmtpsib-", rf"[{_HEX}]{{64}}-[{_ALNUM}]{{16}}"),
    _format("twilio-key", "SK", r"(?:[0-9a-f]{32}|[0-9A-F]{32})", common=True),
    # Payments and shops
    _format(
        "stripe-key",
        "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_",
        rf"[{_ALNUM}]{{16,247}}",
    ),
    _format("stripe-key", "whsec_", rf"[{_ALNUM}]{{32,64}}"),
    _format("square-token", "sq0atp-", rf"[{_WORD}]{{22}}"),
    _format("square-token", "sq0csp-", rf"[{_WORD}]{{43}}"),
    _format("square-token", "EAAA", rf"[{_WORD}]{{60}}"),
    _format("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"[0-9a-fA-F]{32}"),
    _format("plaid-token", "access-sandbox- access-development- access-production-", _UUID),
    _format("flutterwave-key", "FLWSECK", r"(?:_TEST)?-[0-9a-zA-Z]{12,40}(?:-X)?"),
    _format("shippo-token", "shippo_live_ shippo_test_", rf"[{_HEX}]{{40}}"),
    _format("easypost-key", "EZAK EZTK", rf"[{_ALNUM}]{{54}}"),
    _format("duffel-token", "duffel_live_ duffel_test_", rf"[{_WORD}]{{43}}"),
    # Applications
    _format("facebook-token", "EAA", rf"[{_ALNUM}]{{80,400}}"),
    _format("atlassian-token", "ATATT3 ATCTT3", r"[\w=-]{100,300}"),
    _format("notion-token", "ntn_", rf"\d{{11}}[{_ALNUM}]{{35}}"),
    _format("notion-token", "secret_", rf"[{_ALNUM}]{{43}}", common=True),
    _format("linear-key", "lin_api_ lin_oauth_", rf"[{_ALNUM}]{{40,64}}"),
    _format("airtable-token", "pat", rf"[{_ALNUM}]{{14}}\.[{_HEX}]{{64}}", common=True),
    _format("postman-key", "PMAK-", rf"[{_HEX}]{{24}}-[{_HEX}]{{34}}"),
    _format("postman-key", "PMAT-", r"[A-Z0-9]{26}"),
    _format("figma-token", "figd_ figu_ figo_", rf"[{_WORD}]{{36,60}}"),
    _format("dropbox-token", "sl.", rf"(?:u\.)?[{_WORD}]{{130,1400}}"),
    _format("grafana-token", "glsa_", rf"[{_ALNUM}]{{32}}_[0-9a-fA-F]{{8}}"),
    _format("newrelic-key", "NRAK- NRAA- NRRA-", r"[A-Za-z0-9]{27,42}"),
    _format("newrelic-key", "NRJS- NRII- NRBR-", rf"[{_WORD}]{{19,32}}"),
    _format("posthog-key", "phc_ phx_ phs_ phr_ pha_", rf"[{_ALNUM}]{{40,64}}"),
    _format("readme-key", "rdme_", r"[a-z0-9]{70}"),
    _format("typeform-token", "tfp_", r"[\w.-]{40,60}"),
    _format("contentful-token", "CFPAT-", rf"[{_WORD}]{{43}}"),
    _format("frameio-token", "fio-u-", rf"[{_WORD}]{{64}}"),
    _format("adobe-secret", "p8e-", r"[a-zA-Z0-9]{32}"),
    _format("intra42-secret", "s-s4t2ud- s-s4t2af-", rf"[{_HEX}]{{64}}"),
    _format("settlemint-token", "sm_aat_ sm_pat_ sm_sat_", rf"[{_ALNUM}]{{16}}"),
    _format("definednet-key", "dnkey-", rf"[{_WORD}]{{26}}-[{_WORD}]{{52}}"),
    _format("wundergraph-key", "cosmo_", rf"[{_HEX}]{{32}}"),
    _format("akamai-token", "akab-", r"[a-z0-9]{16}-[a-z0-9]{16}"),
    _format("pubnub-secret", "sec-c-", r"[A-Za-z0-9=-]{36,60}"),
    _format("age-secret-key", "AGE-SECRET-KEY-1", r"[0-9A-Z]{58}"),
    _format("nkey-seed", "SA SC SN SO SU SX", r"[A-Z2-7]{56}", common=True),
    _format(
        "1password-key",
        "A3-",
        r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}",
    ),
    _format(
        "discord-token",
        "M N O",
        rf"[{_WORD}]{{22,27}}\.[{_WORD}]{{6}}\.[{_WORD}]{{27,38}}",
        common=True,
    ),
    _format("jwt", "eyJ", rf"[{_WORD}]{{12,}}+\.eyJ[{_WORD}]{{8,}}+(?:\.[{_WORD}]*+)?"),
    # An encrypted token has five parts.
    _format("jwt", "eyJ", rf"[{_WORD}]{{12,}}+(?:\.[{_WORD}]*+){{4}}"),
    # Base64 bodies: the run of token characters ends at the first plus or slash
    _format("1password-token", "ops_eyJ", rf"[{_BASE64}]{{200,}}+={{0,3}}"),
    _format("grafana-token", "glc_eyJ", rf"[{_BASE64}]{{32,400}}={{0,3}}"),
    _format("grafana-token", "eyJrIjoi", rf"[{_ALNUM}]{{70,400}}={{0,3}}"),
    _format("sentry-token", "sntrys_eyJ", rf"[{_BASE64}]{{30,400}}={{0,2}}_[{_BASE64}]{{43}}"),
    _format("aws-bedrock-key", "ABSKQmVkcm9ja0FQSUtleS", rf"[{_BASE64}]{{80,250}}={{0,2}}"),
    _format(
        "aws-bedrock-key", "bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29t", rf"[{_BASE64}]*+={{0,2}}"
    ),
    _format("bitbucket-token", "BBDC-", rf"[{_BASE64}]{{40,60}}"),
)


_NOT_BASE64 = re.compile(r"[._~-]")
_FILE_ENDING = re.compile(r"\.(?:png|jpe?g|gif|svg|webp|ico|css|html?|js|map|woff2?|pdf|mp[34])\b")
_BLOB = re.compile(r"[A-Za-z0-9+/]{24}\Z")


def _is_live(match: re.Match[str], body: str, *, public: bool = False) -> bool:
    token, text, start = match.group(), match.string, match.start()
    is_sample = is_placeholder if public else is_filler
    if token.endswith("EXAMPLE") or is_sample(body) or is_published_sample(token):
        return False
    if _FILE_ENDING.match(text, match.end()):
        return False
    before = text[start - 1] if start else " "
    if before not in "+/" or _NOT_BASE64.search(token):
        return True
    return _BLOB.search(text, max(0, start - 25), start) is None


def _is_no_filler(value: str) -> bool:
    return not is_filler(value)


def _infix(name: str, keyword: str, run: str) -> Row:
    """Return the rule of a token that has its mark inside. It begins a run of token characters."""
    pattern = rf"(?a)(?<![\w.~-]){run}(?![{_WORD}])"
    return Row(name, keyword, pattern, place=RowPlace.TEXT, check=_is_live)


def _spelled(name: str, keyword: str, token: str) -> Row:
    """Return the rule of a token with characters that a run does not have."""
    return Row(name, keyword, f"(?a){token}", judge=_is_no_filler)


_ROWS = by_keywords(
    (
        _infix("azure-client-secret", "q~", r"[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![.~])"),
        _infix("terraform-token", ".atlasv1.", rf"[{_ALNUM}]{{14}}\.atlasv1\.[{_WORD}]{{60,80}}"),
        _infix("maxmind-key", "_mmk", rf"[{_ALNUM}]{{6}}_[{_ALNUM}]{{29}}_mmk"),
        _infix("newrelic-key", "nral", r"(?:[a-z]{2}\d\dx*)?[0-9a-f]{32,36}(?:FFFF)?NRAL"),
        _infix("mailchimp-key", "-us", r"[0-9a-f]{32}-us\d{1,2}"),
        _spelled("google-oauth", "1//0", rf"{_START}1//0[{_WORD}]{{40,120}}(?![{_WORD}])"),
        _spelled(
            "slack-webhook",
            "hooks.slack.com/",
            rf"{_START}hooks\.slack\.com/"
            r"(?P<value>(?:services|workflows|triggers)/[\w/-]{20,120})",
        ),
        Row(
            "fly-token",
            "fm1a_|fm1r_|fm2_",
            rf"(?a){_START}fm(?:1[ar]|2)_[{_BASE64}]{{80,}}+={{0,3}}",
            place=RowPlace.TEXT,
            judge=_is_no_filler,
        ),
        _spelled("wallet-key", "xprv", rf"{_START}xprv[1-9A-Za-z]{{90,120}}(?!\w)"),
        _spelled("nostr-key", "nsec1", rf"{_START}nsec1[a-z0-9]{{58}}(?!\w)"),
        _spelled(
            "tailscale-key",
            "tskey-",
            rf"{_START}tskey-[a-z]{{2,12}}-[{_ALNUM}]{{6,40}}-[{_ALNUM}]{{16,64}}",
        ),
        _spelled("mapbox-token", "sk.eyj", rf"{_START}sk\.eyJ[\w-]{{20,400}}\.[\w-]{{16,64}}"),
        _spelled(
            "jenkins-secret",
            "{aqaaabaaaa",
            rf"\{{(?P<value>AQAAABAAAA[{_BASE64}]{{16,2000}}={{0,2}})\}}",
        ),
        _spelled(
            "discord-webhook",
            "/api/webhooks/",
            r"/api/webhooks/(?P<value>\d{15,22}/[\w-]{50,80})",
        ),
        _spelled(
            "teams-webhook",
            ".webhook.office.com/",
            r"\.webhook\.office\.com/(?P<value>webhookb2/[\w@/-]{60,240})",
        ),
    )
)

_LEAD_CHARS = 64
_BY_FIRST: dict[str, list[TokenFormat]] = defaultdict(list)
for _one in RUN_FORMATS:
    for _first in _one.firsts:
        _BY_FIRST[_first].append(_one)
_OPENINGS = "|".join(sorted({one.opening for one in RUN_FORMATS}, reverse=True))
# A run may begin inside an escape: `\\n` of JSON, `%3D` of a URL, a terminal's color (ESC [ 9 3 m).
_RUN = declare_token(
    re.compile(
        rf"(?:\A(?:[nrt]|[0-9a-fA-F]{{2}}|[0-9]{{1,2}}m)?|(?<![{_ALNUM}_]))(?:{_OPENINGS})",
        re.ASCII,
    )
)
_STARTS = re.compile(
    r"(?<!\w)(?<!\w-)(?<!\w--)"
    r"(?:(?<=\\)[nrt]|(?<=%)[0-9a-fA-F]{2}|(?<=\x1b\[)[0-9]{1,2}m)?"
    rf"(?=(?:{_OPENINGS}))",
    re.ASCII,
)
_JOINED = re.compile(rf"[.~-]+(?=(?:{_OPENINGS}))", re.ASCII)  # a token right after another
# Tokens that begin with a number: what follows it, its greatest length, the pattern of the rest.
_NUMBERED = (
    ("facebook-token", "|", 17, re.compile(rf"\|(?<=[0-9]{{13}}\|)[{_WORD}]{{27}}(?![{_WORD}])")),
    ("telegram-token", ":AA", 10, re.compile(rf":AA(?<=\d{{8}}:AA)[{_WORD}]{{33}}(?![{_WORD}])")),
)


def find_tokens(reading: SearchedText) -> Iterator[SecretMatch]:
    """Find every token that is recognized by its form."""
    text, done = reading.text, 0
    for opening in _STARTS.finditer(text) if reading.found & _RUN else ():
        at = opening.end()
        while at >= done:
            for token_format in _BY_FIRST[text[at]]:
                match = token_format.pattern.match(text, at)
                if match is None:
                    continue
                done = max(done, match.end())
                if _is_live(match, match["body"], public=token_format.public):
                    # A run of token characters includes these: the text before them was searched.
                    lead = text[max(0, at - _LEAD_CHARS) : at]
                    first = at - len(lead) + len(lead.rstrip(".~+/-"))
                    yield SecretMatch(token_format.name, *match.span(), first, match.end())
            joined = _JOINED.match(text, done) if done > at else None
            if joined is None:
                break
            at = joined.end()
    yield from find_by_rows(_ROWS, reading)
    for name, sign, most_digits, pattern in _NUMBERED:
        for rest in pattern.finditer(text) if sign in text else ():
            lead = text[max(0, rest.start() - most_digits) : rest.start()]
            start = rest.start() - len(lead) + len(lead.rstrip("0123456789"))
            if not is_filler(text[start : rest.end()]):
                yield SecretMatch(name, start, rest.end(), start, rest.end())
