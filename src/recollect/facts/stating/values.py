"""What counts as a value in a sentence: numbers, paths, addresses, versions, times.

Owns the patterns that both languages share. Must never match beyond one word of a sentence or
two. What always holds: patterns are written for folded sentences and match in linear time.
"""

from __future__ import annotations

from typing import Final

_UNITS: Final = (
    r"(?:ms|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|days?|weeks?|months?|years?|nights?|kb"
    r"|mb|gb|tb|kib|mib|gib"
    r"|k|kbps|mbps|gbps|hz|khz|mhz|ghz|v|w|kw|ma|mah|mm|cm|km|kg|g|mg|ml|l|px|dpi|fps|rps|rpm|qps"
    r"|tps|req/s|%|percent"
    r"|usd|eur|gbp|chf|cny|rmb|dollars|euros|pounds|bucks|°c|°|degrees|rows|items|records|requests"
    r"|connections|workers|threads|retries|attempts"
    r"|replicas|nodes|shards|partitions|cores|cpus|users|people|guests|words|pages|chars|characters"
    r"|lines|columns|bytes|bits|tokens|epochs|steps|points|times)"
)
_MONTHS: Final = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DAYS: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
_EXTENSIONS: Final = (
    r"(?:py|pyi|ts|tsx|js|jsx|mjs|go|rs|java|kt|swift|c|h|cc|cpp|hpp|cs|rb|php|ex|exs|scala|sh|bash"
    r"|zsh|sql|json|jsonl|ya?ml|toml|ini|cfg"
    r"|conf|env|md|rst|txt|csv|tsv|parquet|xml|html|css|scss|vue|svelte|lock|proto|tf|hcl|gradle"
    r"|ipynb|docx?|xlsx?|pdf|tex|pem|crt|log|db|sqlite|service|dockerfile|plist)"
)

# Values begin where a word does: this keeps the search linear in a word's length.
_BEGINS: Final = r"(?<![a-z0-9_./@-])"
_PIECE: Final = r"[a-z0-9_.@{}$*<>:+-]"
PATH: Final = (
    rf"{_BEGINS}(?:(?:~|\.{{1,2}})?/{_PIECE}{{1,80}}(?:/{_PIECE}{{0,80}}){{0,20}}|(?!and/or|yes/no"
    rf"|read/write)[a-z0-9_.@-]{{1,80}}(?:/{_PIECE}{{1,80}}){{1,20}}/?"
    rf"|[a-z]:\\[\w.\\ -]{{1,120}}"
    rf"|[a-z0-9_-]{{1,60}}(?:\.[a-z0-9_-]{{1,40}}){{0,4}}\.{_EXTENSIONS}(?![a-z0-9_]))"
)
_TOP: Final = (
    r"(?:com|net|org|io|dev|app|internal|local|lan|corp|cn|eu|de|co|ai|cloud|tw|hk|uk|us|jp|svc"
    r"|test|example|home)"
)
ADDRESS: Final = (
    rf"{_BEGINS}(?:[a-z]{{2,12}}://[^\s,;，。；）)]{{1,200}}"
    rf"|\d{{1,3}}(?:\.\d{{1,3}}){{3}}(?::\d+)?(?:/\d+)?|localhost(?::\d+)?"
    rf"|[a-z0-9_.+-]{{1,60}}@[a-z0-9-]{{1,60}}(?:\.[a-z0-9-]{{1,40}}){{1,4}}"
    rf"|[a-z0-9-]{{1,60}}(?:\.[a-z0-9-]{{1,60}}){{0,6}}\.{_TOP}(?![a-z0-9_])(?::\d+)?"
    rf"|[a-z][a-z0-9_-]{{0,40}}:\d{{2,5}}(?!\d))"
)
VERSION: Final = (
    rf"{_BEGINS}(?:v?\d{{1,6}}(?:\.\d{{1,6}}){{1,4}}(?:[-+.]?[a-z0-9]{{1,20}}){{0,4}}"
    rf"|v\d{{1,4}})(?![a-z0-9_])"
)
TIME: Final = (
    rf"(?:\d{{1,2}}(?::\d\d)?\s?(?:am|pm|a\.m\.|p\.m\.|utc|gmt|cet|cest|est|pst)\b|\d{{1,2}}:\d\d"
    rf"|\d{{4}}-\d\d(?:-\d\d)?|{_MONTHS}\.? \d{{1,2}}(?:st|nd|rd|th)?\b|\d{{1,2}}(?:st|nd|rd"
    rf"|th)? (?:of )?{_MONTHS}\b|{_DAYS}|midnight|noon"
    r"|every (?:\w+ ){0,2}(?:day|night|week|month|hour|minute|morning|evening|quarter|year|second"
    r"|\d+)\w*|every (?:mon|tues|wednes|thurs|fri|satur|sun)day|nightly|daily|weekly|monthly|hourly"
    r"|quarterly|q[1-4]\b|\d{4}\b年?|the \d{1,2}(?:st|nd|rd|th)\b"
    r"|[*\d/,-]{1,12}(?: [*\d/,-]{1,12}){4})"
)
_COUNTED: Final = (
    r"(?:two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty|sixty)"
)
NUMBER: Final = (
    rf"(?<![\d,._])(?:[$€£¥~<>=]{{0,2}}\s?\d[\d,._]{{0,20}}(?:\s?x\s?\d+)?(?:\s?{_UNITS}\b|%)?"
    rf"|{_COUNTED}\s(?:\w+\s)?{_UNITS}\b)"
)
CODE: Final = r"`[^`\n]{1,80}`"
NAME: Final = r"(?:\"[^\"\n\ufffc]{1,40}\"|'[^'\n]{1,40}')"

MEASURED: Final = (
    rf"(?<![\d,._])(?:[$€£¥~<>=]{{0,2}}\s?\d[\d,._]{{0,20}}\s?(?:{_UNITS}\b|%)"
    rf"|[$€£¥]\s?\d[\d,._]{{0,20}})"
)
"""A number that says of what it is one."""
STRONG: Final = rf"(?:{CODE}|{ADDRESS}|{PATH}|{VERSION}|{TIME})"
"""Values that are hardly ever said but to state them."""
VALUE: Final = rf"(?:{STRONG}|{NUMBER}|{NAME})"
"""Any value; a bare number says something only of a thing that has such a property."""
