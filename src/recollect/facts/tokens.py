"""Cuts a statement into words and values: numbers, durations, versions, paths, hosts, days.

Owns how a value is recognised and written, so that "30 s", "30 seconds" and "30秒" are one, and the
one spelling of a word. Must never look at more than the statement. What always holds: the time is
linear in the statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MOST_STATEMENT_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Token:
    """A word or a value of a statement, normalised, and where it stands."""

    text: str
    kind: str
    """`word`, or which kind of value it is: `number`, `duration`, `path`, …"""
    start: int
    end: int
    written: str


def table(lines: str) -> dict[str, str]:
    """Words by what they stand for, of entries like "limit: max maximum cap"."""
    parted = (entry.strip().partition(": ") for entry in re.split(r"[\n;]", lines.strip()))
    return {word: meant for meant, _, words in parted for word in words.split()}


# Words. One that is missing here is never wrong: two statements then do not meet, both are kept.
_GRAMMAR_LINES: Final = """
a an the this that these those it its i we you he she they me us them my our your their his her is
are was were be been being am has have had do does did will would shall should can could may must
might to of for in on at by with from as into onto under via per and or also just only now
currently today again already still yet anymore please so then there here up down out about s t ll
re ve m d project repo repository codebase environment env whole any all some few several
"""
GRAMMAR: Final = frozenset(_GRAMMAR_LINES.split())
_CHANGE_LINES: Final = """
decided agreed chose chosen choose picked going go goes set changed change moved move moves
switched switch updated update bumped raised raise lowered increased reduced became turned makes
make made uses use used using run runs running listen listens listening serve serves live lives
located stored keep kept put stay stays remains want need needs let new current correct right
latest value instead scheduled around every each after before happen happens note remember upgrade
upgraded pin pinned require requires migrate migrated planned due starts start ends fires points
configured found saved allow allows allowed available number moving switching migrating upgrading
staying
"""
FILLER: Final = GRAMMAR | frozenset(_CHANGE_LINES.split())
"""What never tells one thing from another: grammar, verbs of change, time that has come."""
_SAME_WORD: Final = table(
    """production: prod; staging: stg; development: dev; database: db; postgresql: postgres
    configuration: config; authentication: auth; limit: max maximum cap capped ceiling
    retries: retry; path: directory folder dir location; ttl: expiry expiration lifetime
    host: hostname address; replicas: replica; time-zone: timezone"""
)
_PLURALS: Final = frozenset(("replicas", "retries", "workers", "threads", "https", "always"))
_CHINESE: Final = table(
    """port: 端口号 端口 埠号; path: 路径 目录 位置; timeout: 超时时间 超时
    limit: 上限 限制 最多 最大; ttl: 有效期 过期时间; host: 主机名 主机 地址
    deadline: 截止日期 截止时间; version: 版本号 版本; replicas: 副本数 副本; branch: 分支
    region: 区域; url: 网址 域名; interval: 间隔; retries: 重试次数; size: 大小; memory: 内存
    budget: 预算; owner: 负责人; language: 语言; level: 日志级别 级别; daily: 每天 每日
    weekly: 每周
    : 的 了 是 在 为 到 成 把 将 被 用 由 和 也 都 就 请 我 你 它 我们 你们 咱们 大家 现在 目前
    : 已经 改成 改为
    : 改到 改用 换成 换到 调整为 调到 更新为 升级到 升到 设为 设成 设置为 设置 变成 迁到 迁移到
    : 移到 放在 位于 跑在
    : 运行在 监听 使用 采用 选用 选择 决定 定为 定在 应该 这个 那个 项目 仓库 环境 从 起 个 新
    : 最新 当前 上 里 吧 啊; : 改 换 切 还是 最后 最终 统一 又 再 还 所有 一律 要 会 有 已"""
)
"""Chinese words that name a property, as the English word they stand for; grammar as nothing."""
_LONGEST_CHINESE: Final = max(map(len, _CHINESE))
# Values.
_UNITS: Final = table(
    """ms duration: ms milliseconds 毫秒; s duration: s sec secs second seconds 秒 秒钟
    min duration: min mins minute minutes 分钟; h duration: h hr hrs hour hours 小时 个小时
    d duration: day days 天; w duration: week weeks 周; mo duration: month months 个月
    y duration: year years 年; kb size: kb kib; mb size: mb mib mi; gb size: gb gib gi
    tb size: tb; % percent: % percent; money: dollars usd eur 美元 元; time: am pm a.m. p.m. 点"""
)
"""A unit in one spelling, where it needs one, and the kind of value that it makes."""
_UNIT: Final = "|".join(sorted((re.escape(unit) for unit in _UNITS), key=len, reverse=True))
_MONTH: Final = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}"
_WHENS: Final = table(
    """weekday: monday tuesday wednesday thursday friday saturday sunday weekend weekday
    often: hourly daily nightly weekly biweekly monthly quarterly yearly"""
)
_FILES: Final = "py|tsx?|js|json|ya?ml|toml|md|sql|sh|go|rs|env|conf|ini|cfg|txt|csv|db"
_TOKENS: Final = re.compile(
    r"(?P<code>`[^`\n]{1,80}`)|(?P<email>[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,6})"
    r"|(?P<url>[a-z][a-z0-9+]{1,12}://[^\s,;，。；）)\"'<>\u4e00-\u9fff]{1,300})"
    r"|(?P<local>(?:localhost|127\.0\.0\.1|0\.0\.0\.0)?:(?P<localport>\d{2,5})(?!\d))"
    r"|(?P<host>\d{1,3}(?:\.\d{1,3}){3}(?::\d{2,5})?(?!\w)"
    r"|[a-z0-9][a-z0-9-]{0,62}(?:\.[a-z0-9-]{1,63}){0,6}\.(?:com|net|org|io|dev|internal|local|cn"
    r"|corp|lan|cloud|example|test)(?::\d{2,5})?(?![\w/]))|(?P<region>(?:us|eu|ap|sa|ca|me|af|cn"
    r"|asia|europe)-[a-z]{4,12}-?\d[a-z]?(?!\w))|(?P<path>(?<![A-Za-z0-9])(?:~"
    r"|\.{1,2})?/[A-Za-z0-9_.@%+-]+(?:/[A-Za-z0-9_.@%+-]+){0,20}/?"
    r"|[A-Za-z0-9_.-]{1,60}(?:/[A-Za-z0-9_.@-]{1,60}){2,20}/?"
    r"|[a-z]{2,10}/[a-z0-9_.@-]{2,60}(?<!\.)(?=\s|[,.，。]|$)|[A-Za-z0-9_.-]{1,60}/(?![\w])"
    rf"|[A-Za-z0-9_-]{{1,60}}\.(?:{_FILES})(?!\w))"
    r"|(?P<date>\d{4}-\d{1,2}-\d{1,2}|\d{1,2}\s?月\s?\d{1,2}(?:\s?[日号號])?"
    rf"|{_MONTH}\.?\s\d{{1,2}}(?:st|nd|rd|th)?(?!\w)|\d{{1,2}}(?:st|nd|rd"
    rf"|th)?\s(?:of\s)?{_MONTH}(?!\w))"
    r"|(?P<clock>\d{1,2}[:：]\d{2}(?:\s?[ap]m)?(?!\d))|(?P<money>[$€£¥]\s?\d[\d,.]{0,12}k?)"
    r"|(?P<version>v\d+(?:\.\d+){0,3}[\w.-]{0,12}|\d+(?:\.\d+){2,3}(?:-[\w.]{1,12})?)"
    rf"|(?P<measure>\d[\d,]{{0,12}}(?:\.\d+)?)\s?-?(?P<unit>{_UNIT})(?![a-z])"
    r"|(?P<number>\d[\d,]{0,12}(?:\.\d+)?(?![A-Za-z_-]))"
    r"|(?P<word>[^\W_\u4e00-\u9fff][^\W\u4e00-\u9fff]{0,60}(?:[-.+#_'’/][^\W\u4e00-\u9fff]{1,60}){0,6}[+#]{0,2})"
    r"|(?P<chinese>[\u4e00-\u9fff]{1,200})",
    re.IGNORECASE,
)


def cut(text: str) -> list[Token]:
    """The words and values of a statement, in order; of one that is too long, of its beginning."""
    return [
        token
        for match in _TOKENS.finditer(text, 0, MOST_STATEMENT_CHARS)
        for token in _tokens_of(match)
    ]


def _tokens_of(found_match: re.Match[str]) -> Iterator[Token]:
    group, written = found_match.lastgroup or "word", found_match[0]
    if group == "chinese":
        yield from _chinese(written, found_match.start())
        return
    if group == "code":
        inner = [token for match in _TOKENS.finditer(written[1:-1]) for token in _tokens_of(match)]
        text, kind = written[1:-1].casefold(), "name"
        if len(inner) == 1 and inner[0].kind != "word":
            text, kind = inner[0].text, inner[0].kind
    elif found_match["measure"] is not None:
        text, kind = _measured(_number(found_match["measure"]), found_match["unit"].casefold())
    elif found_match["local"] is not None:
        text, kind = found_match["localport"], "number"
    else:
        text, kind = _normalised(group, written.casefold())
    yield Token(text, kind, found_match.start(), found_match.end(), written)


def _normalised(group: str, text: str) -> tuple[str, str]:
    if group == "word":
        return _word(text)
    if group == "number":
        return _number(text), "number"
    if group == "clock":
        hour, minute = re.split("[:：]", text)[:2]
        late = "pm" in minute and int(hour) < 12
        return f"{int(hour) + 12 if late else int(hour)}:{minute[:2]}", "time"
    if group == "date":
        return " ".join(re.sub(r"(?<=\d)(?:st|nd|rd|th)|\bof\b|[日号號]", "", text).split()), "date"
    if group == "version":
        return text.removeprefix("v"), "version"
    return text.rstrip("./") or text, group


def _word(text: str) -> tuple[str, str]:
    word = singular(re.sub(r"['’]s?$", "", text))
    return word, _WHENS.get(word, "word")


def singular(word: str) -> str:
    """A word without its plural, in the one spelling that is used for it."""
    word = _SAME_WORD.get(word, word)
    if not word.isascii() or len(word) < 4 or word in _PLURALS:
        return word
    if word.endswith("ies") and not word.endswith("kies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is", "as", "os", "tes", "ins")):
        word = word[:-1]
    return _SAME_WORD.get(word, word)


def _measured(number: str, unit: str) -> tuple[str, str]:
    short, _, kind = _UNITS[unit].rpartition(" ")
    if kind == "time":
        hour = int(float(number))
        return f"{hour + 12 if unit.startswith('p') and hour < 12 else hour}:00", "time"
    return f"{number}{short}", kind


def _number(text: str) -> str:
    plain = text.replace(",", "")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain.lstrip("0") or "0"


def _chinese(run: str, start: int) -> Iterator[Token]:
    """Known words one by one, the longest first; what stands between them, as it is."""
    at = unknown = 0
    while at < len(run):
        sizes = range(min(_LONGEST_CHINESE, len(run) - at), 0, -1)
        size = next((size for size in sizes if run[at : at + size] in _CHINESE), 0)
        if not size:
            at += 1
            continue
        if unknown < at:
            yield Token(run[unknown:at], "word", start + unknown, start + at, run[unknown:at])
        if meant := _CHINESE[run[at : at + size]]:
            yield Token(*_word(meant), start + at, start + at + size, run[at : at + size])
        at += size
        unknown = at
    if unknown < len(run):
        yield Token(run[unknown:], "word", start + unknown, start + len(run), run[unknown:])
