"""Finds the words of a message that its speaker said, and not brought along.

Owns what is no speech: tools' words, thinking, recalled blocks, code, quotes, tables, tagged
documents, log lines, letters, what machines send, and whatever stands behind a colon that nobody
opened with words of their own. Must never let a tool's words through: where they cannot be told
apart, nothing was said. What always holds: spans come in order, lie in the text, each within one
line; the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from recollect.rules.noise import reminder_spans, strip_channel_prefix
from recollect.rules.text import thinking_spans
from recollect.rules.trust import is_below
from recollect.values.recall import BLOCK_CLOSING
from recollect.values.segment import Segment

MOST_SPOKEN_CHARS: Final = 16_000
"""More than a person types or a model says in one message: the middle of it was pasted."""
_EDGE_CHARS: Final = MOST_SPOKEN_CHARS // 2
_LEAST_PASTED_CHARS: Final = 200
_OWN_SHARE: Final = 0.4
"""Of a message's characters: below, what is said is a comment on what was brought along."""
_LEAST_HEADINGS: Final = 3
_MOST_LINE_CHARS: Final = 2_000

_RECALLED: Final = re.compile(r"<recalled-context\b")
_FENCE: Final = re.compile(r"[ \t]{0,12}(?:[-*+>][ \t]+)?(`{3,}|~{3,}|\"{3}$|'{3}$)")
_TAG: Final = re.compile(r"\s{0,8}<([A-Za-z][\w.:-]{1,40})(?:\s[^<>\n]{0,200})?>")
_HEADING: Final = re.compile(r"^#{1,4} \S", re.MULTILINE)
_LISTED: Final = re.compile(r"\s*+(?:[-*+•]|\d{1,3}[.)、]|[a-z][.)])\s+\S")
_RULED: Final = re.compile(r"\s{0,8}(?:[-=_*~#]{3,}|-{2,}.{0,60}-{2,}|={2,}.{0,60}={2,})\s*$")
_SALUTATION: Final = re.compile(
    r"\s*+(?:Dear\b.{0,60}|(?:Hi|Hello|Hey) (?:all|team|everyone|Mr|Ms|Mrs|Dr)\b.{0,30}|(?:尊敬的"
    r"|各位|亲爱的|親愛的).{1,20}|\S{1,8}您好)\s*[,，:：!！]?\s*$",
    re.IGNORECASE,
)
_PAGE: Final = re.compile(
    r"\]\(https?://|</?(?:a|div|span|p|br|img|table|t[rd]|li|[uo]l)\b[^>\n]{0,200}>"
)
_MACHINE_LINE: Final = re.compile(
    r"\s*+(?:>|\||＞|#{1,6} |(?:[+-] )?\d+[\t ]+[-|:] |E +\w"  # quotes, tables, numbered lines
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d|\[?\d\d:\d\d:\d\d"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\[?(?:ERROR|WARN|WARNING|INFO|DEBUG|TRACE|FATAL"
    r"|CRITICAL|NOTICE)\b[\]:\s|]|Traceback \(|File \"|at \S+ ?\(|Caused by: |[\w.]*(?:Error"
    r"|Exception|Warning): |\$ \S|% \S|>>> |diff --git|@@ |\+\+\+ |--- |commit [0-9a-f]{7,}"
    r"|[+-](?! )\S|[+-] {2,}\S|(?:From|To|Cc|Subject|Date|Sent|发件人|收件人|主题)[:：] "
    r"|(?:HTTP/\d|GET|POST|PUT|DELETE) [/\d]"
    r"|[A-Za-z_][\w.\-\[\]]{0,60}\s?=\s?\S+\s*$"  # PORT=8080
    r"|[\"']?[a-z_][\w.-]{0,40}[\"']?: ?(?:[\"'\[{]|[\d./]+\s*$)"  # port: 8080
    r"|[\[\]{}()<].{0,400}[\]})>,;]\s*$|[\]})]+[;,]?\s*$|[^\u4e00-\u9fff]{0,400}[;{]\s*$"
    r"|--?[a-z][\w-]*\b)"
)
_OWN_HEADING: Final = re.compile(
    r"^(?!.*(?:\b(?:sent|said|says?|wrote|from|e?mail|docs?|policy|notice|their|got|forwarded)\b"
    r"|[发發说說写寫贴貼]|邮件|郵件|公告|通知|文档|规定|原文)).*(?:remember|keep in mind"
    r"|for the record|\bdecid|decision|agreed|correction|update|\bnote\b|important|fyi|reminder"
    r"|change of plan|new plan|cause\b|to be clear|rules?\b|from now on|always|never|\bdone\b"
    r"|\bour (?:own )?(?:side|rules|setup)|记住|記住|记一下|記一下|决定|決定|约定|約定|偏好|注意"
    r"|更新|更正|根因|原因)",
    re.IGNORECASE | re.DOTALL,
)
"""A heading of one's own: what follows its colon is not somebody else's."""
_ASKS_TO_KEEP: Final = re.compile(r"(?:please )?(?:remember|note|keep in mind)\b", re.IGNORECASE)
_INLINE_COLON: Final = re.compile(
    r"(?:^|[.!?。！？]\s{0,9})([^.!?。！？:：\n]{1,80})(?::\s+|：\s{0,9})(?=\S+(?:\s+\S+){4}"
    r"|[^\s：]{8})"
)
_POINTS_AHEAD: Final = re.compile(
    r"\b(?:this|these|below|following|attached|quote|excerpt|paste[ds]?|email|mail|message|draft"
    r"|text|docs?)\b[^.!]{0,40}\W*$|(?:以下|下面|如下|这段|这封|这份|这篇|原文|邮件|公告|通知|文档"
    r"|内容)[^。！]{0,12}\W*$",
    re.IGNORECASE,
)
_RESUMED: Final = re.compile(
    r"\s*+(?:so[, ]|ok(?:ay)?\b|anyway|that said|for us|on our (?:side|end)|in our case|my take"
    r"|but we|back to|所以|总之|總之|我觉得|不过我|以上|回到|好了|那我|但我们)",
    re.IGNORECASE,
)
_SUMMARY: Final = re.compile(
    r"\s*+(?:This session is being continued from a previous conversation"
    r"|The conversation history before this point was compacted|<summary>|\[?(?:conversation"
    r"|context|compaction) summary\b|# ?(?:conversation )?summary of (?:the )?(?:previous|earlier)"
    r"|Another language model started to solve this)",
    re.IGNORECASE,
)
_INJECTED: Final = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,20}\b(?:all|any|your|the|previous|prior|earlier"
    r"|above)\b.{0,20}\b(?:instructions?|prompts?|rules|messages|context)\b|\bsystem prompt\b"
    r"|\byou are now\b|\b(?:note|instructions?|message) (?:to|for) (?:the |any |all )?(?:ai|llm"
    r"|assistant|agent|model)s?\b|(?:忽略|无视|無視|忘记|忘記).{0,10}(?:之前|以上|先前|前面|所有"
    r"|此前).{0,10}(?:指令|指示|提示|规则|規則|要求)|系统提示|系統提示",
    re.IGNORECASE,
)
_MACHINE_SENT: Final = re.compile(
    r"\s*+(?:[\[【(（][^\]】)）\n]{0,30}(?:cron|schedul|\bci\b|bot|build|deploy|job|alert|monitor"
    r"|heartbeat|pipeline|webhook|system|系统|部署|定时|告警|监控|构建|流水线|机器人|心跳|巡检"
    r"|唤醒)|HEARTBEAT|Background task\b|[\u2300-\u27bf\U0001f300-\U0001faff]"
    r"|(?:this is an )?automat(?:ed|ic)\b|自动|会话即将|You were woken)"
)
_MACHINE_TOLD: Final = re.compile(
    r"\b(?i:if|when|unless)\b[^.\n]{0,80}\b(?:nothing|none|no (?:new|change|issue|pending|open"
    r"|action|task)\w*|quiet|all (?:is )?(?:clear|ok|good|fine|well)|empty|unchanged"
    r"|attention)\b[^.\n]{0,60}\b(?:reply|say|answer|respond|output|stay|stop|do nothing|skip|exit"
    r"|end)\b|\b(?i:reply|respond|answer|say|output|return)(?: only| just| exactly"
    r"| with)*[ \"'`*]{1,3}[A-Z]{2,}(?:_[A-Z]+|[A-Z]{2,})\b|\b(?:HEARTBEAT|NO_REPLY|ALL_CLEAR)"
    r"|\b(?i:scheduled|recurring|periodic|automated|automatic|hourly|nightly|daily|weekly"
    r"|cron) (?:check(?:[- ]?in)?|prompt|reminder|message|trigger|review|sweep|wake(?:-?up)?|ping"
    r"|heartbeat)\b|\b(?i:tell|ask|remind|notify|alert|inform|message|ping) the user\b"
    r"|\b(?:exit(?:ed)?(?: with)? code|exit status)\b|(?:定时|计划|自动|例行|周期)(?:提示|触发"
    r"|唤醒|巡检|检查|消息|提醒)|(?:没有?|无|沒有?|一切)[^。\n]{0,24}(?:回复|回覆|输出"
    r"|返回)\W{0,3}[A-Z]{2,}|(?:告知|通知|提醒)用户|无需回复"
)
LONG_QUOTE_CHARS: Final = 60
"""A user's words between quotation marks of at least this length are a document's, not theirs;
shorter ones are names and terms."""

_RECALLED_BLOCK: Final = re.compile(
    r"<\s{0,4}recalled-context\b.*?(?:<\s{0,4}/\s{0,4}recalled-context\s{0,4}>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_FENCED: Final = re.compile(r"^[ \t]{0,8}(```|~~~).*?(?:^[ \t]{0,8}\1[^\n]*$|\Z)", re.M | re.S)
_QUOTED_LINE: Final = re.compile(r"^[ \t]{0,8}>[^\n]*$", re.MULTILINE)
_LONG_QUOTE: Final = re.compile(
    rf"“[^“”]{{{LONG_QUOTE_CHARS},20000}}”|「[^「」]{{{LONG_QUOTE_CHARS},20000}}」"
    rf'|(?<![\w"])"[^"\n]{{{LONG_QUOTE_CHARS},5000}}"(?!\w)'
)
_NO_STATEMENTS: Final = frozenset({"note", "file"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnWords:
    """Where a message's own words stand, line by line, and why others were left out."""

    lines: tuple[tuple[int, int], ...] = field(default=())
    refused: tuple[str, ...] = ()
    beside_paste: bool = False
    """Most of the message was brought along."""


def spoken(segment: Segment) -> OwnWords:
    """The lines of a segment that its speaker said."""
    if why := _no_speech(segment):
        return OwnWords(refused=(why,))
    text, by_user = segment.text, segment.role == "user"
    end = _before_calls(segment)
    if end is None:
        return OwnWords(refused=("a tool's words cannot be told apart",))
    lines: list[tuple[int, int]] = []
    reasons: dict[str, None] = {}
    for start, stop in _between(_gaps(text[:end], thinking=not by_user), end):
        _read(text, start, stop, lines, reasons, by_user=by_user)
    headings = [match.start() for match in _HEADING.finditer(text, 0, end)] if by_user else []
    if len(headings) >= _LEAST_HEADINGS:  # nobody types those to a model
        reasons["a document"] = None
        lines = [line for line in lines if line[1] <= headings[0]]
    if _INJECTED.search(text[: min(end, MOST_SPOKEN_CHARS)]):
        lines = _before_injected(text, lines)
        reasons["an injected instruction"] = None
    said = sum(last - first for first, last in lines)
    return OwnWords(
        lines=tuple(lines),
        refused=tuple(reasons),
        beside_paste=end > _LEAST_PASTED_CHARS and said < _OWN_SHARE * end,
    )


def _no_speech(segment: Segment) -> str:
    if segment.role == "tool":
        return "a tool's words"
    if segment.role == "system":
        return "a system prompt"
    if segment.trust in ("low", "outside"):
        return "not trusted enough"
    if segment.noise is not None:
        return "noise"
    if (segment.role == "user" and segment.trust != "high") or _SUMMARY.match(segment.text):
        return "a summary"
    head = segment.text[:MOST_SPOKEN_CHARS]
    if segment.role == "user" and (_MACHINE_SENT.match(head) or _MACHINE_TOLD.search(head)):
        return "a machine's message"
    return ""


def _before_calls(segment: Segment) -> int | None:
    """Where the words before the first tool call end; None where that cannot be told."""
    if segment.tool is None:
        return len(segment.text)
    if segment.role != "assistant":
        return None
    call = re.search(rf"^{re.escape(segment.tool)}[^\s(]{{0,200}}\(", segment.text, re.MULTILINE)
    return call.start() if call else None


def _gaps(text: str, *, thinking: bool) -> list[tuple[int, int]]:
    """Thinking, recalled blocks, and the middle of what is too long."""
    gaps = list(thinking_spans(text)) if thinking else []
    if len(text) > MOST_SPOKEN_CHARS:
        gaps.append((_EDGE_CHARS, len(text) - _EDGE_CHARS))
    at = 0
    while (begun := _RECALLED.search(text, at)) is not None:
        closed = text.find(BLOCK_CLOSING, begun.end())
        at = len(text) if closed < 0 else closed + len(BLOCK_CLOSING)
        gaps.append((begun.start(), at))
    return sorted(gaps)


def _between(gaps: list[tuple[int, int]], end: int) -> Iterator[tuple[int, int]]:
    at = 0
    for first, last in gaps:
        if at < first:
            yield at, first
        at = max(at, last)
    if at < end:
        yield at, end


def _read(
    text: str,
    start: int,
    stop: int,
    lines: list[tuple[int, int]],
    reasons: dict[str, None],
    *,
    by_user: bool,
) -> None:
    """Go through the lines of a stretch, and keep the spans that were said."""
    block = ""  # what closes the fence or the tagged document that a line stands in
    pasted = ruled = False
    after_blank = True
    while start < stop:
        end = text.find("\n", start, stop)
        end = stop if end < 0 else end
        line = text[start : min(end, start + _MOST_LINE_CHARS)]
        blank = not line.strip()
        if block:
            block = "" if block in line else block
        elif opened := _opens(text, line, start, stop):
            block = opened.strip(" ")
            reasons["code" if opened[0] in "`~\"'" else "a document"] = None
        elif not blank:
            if pasted and after_blank and not ruled and _RESUMED.match(line):
                pasted = False
            if _RULED.match(line):  # a person draws a line around what is somebody else's
                ruled = pasted = by_user and not ruled
                why = "a rule between parts"
            elif by_user and _SALUTATION.match(line):
                pasted, why = True, "a letter"
            else:
                why = "pasted text" if pasted else _not_typed(line, by_user=by_user)
            if why:
                reasons[why] = None
            else:
                own = _own_part(line) if by_user else len(line)
                lines.append((start, end if own == len(line) else start + own))
                pasted = own < len(line) or _announces(line)
        after_blank = blank
        start = end + 1


def _opens(text: str, line: str, start: int, stop: int) -> str:
    """What closes the block that a line opens; a blank where it opens and closes one itself."""
    fence = _FENCE.match(line)
    if fence is not None:
        return f"{fence[1]}" if line.find(fence[1], fence.end()) < 0 else " "
    tag = _TAG.match(line)
    if tag is None:
        return ""
    closing = f"</{tag[1]}>"
    return closing if closing not in line and text.find(closing, start, stop) >= 0 else " "


def _not_typed(line: str, *, by_user: bool) -> str:
    if line.startswith(("    ", "\t")) and not _LISTED.match(line):
        return "code"
    if by_user and _PAGE.search(line):
        return "a document"
    return "what a machine wrote" if _MACHINE_LINE.match(line) else ""


def _own_part(line: str) -> int:
    """Up to where a line is its writer's own: up to a colon that somebody else's words follow."""
    for match in _INLINE_COLON.finditer(line):
        if not (_OWN_HEADING.search(match[1]) or _ASKS_TO_KEEP.match(line, match.end())):
            return match.end()
    return len(line)


def _announces(line: str) -> bool:
    """Whether what follows a line may be somebody else's: it asks, points ahead, or ends in a colon
    that nobody opened with words of their own."""
    tail = line.rstrip()[-200:]
    if tail.endswith((":", "：")):
        return not _OWN_HEADING.search(tail)
    return tail.endswith(("?", "？")) or _POINTS_AHEAD.search(tail) is not None


def _before_injected(text: str, lines: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The lines before the first that gives orders to a model: what follows is its."""
    for at, (start, end) in enumerate(lines):
        if _INJECTED.search(text, start, min(end, start + MOST_SPOKEN_CHARS)):
            return lines[:at]
    return lines


def why_unread(segment: Segment) -> str | None:
    """Why a segment is passed over as a whole; None where it is read."""
    if segment.noise is not None:
        return f"noise: {segment.noise}"
    if segment.role == "system":
        return "system"
    if segment.role == "user" and segment.trust == "medium":
        return "a summary"  # `rules.trust`: the model's words under the user's role
    if segment.source in _NO_STATEMENTS:
        return "a note"
    return None


def readable(segment: Segment) -> str:
    """The segment's text with white space for everything that may not be read."""
    text = segment.text
    if why_unread(segment) is not None:
        return " " * len(text)
    text = _without(text, sorted(_hidden(segment)))
    if segment.role == "tool" or is_below(segment.trust, "medium"):
        return text  # raw content, and shown as such
    return _said_only(segment, text)


def _without(text: str, hidden: list[tuple[int, int]]) -> str:
    """The text with white space for these spans, which come in order and may overlap."""
    if not hidden:
        return text
    kept: list[str] = []
    at = 0
    for start, end in hidden:
        if end > at:
            kept += (text[at:start], " " * (end - max(at, start)))
            at = end
    return "".join([*kept, text[at:]])


def _said_only(segment: Segment, text: str) -> str:
    """The lines that somebody said; of what is too long to be told apart line by line, all."""
    if len(text) > MOST_SPOKEN_CHARS:
        return text
    kept: list[str] = []
    at = 0
    for start, end in spoken(segment).lines:
        kept += (" " * (start - at), text[start:end])
        at = end
    return "".join([*kept, " " * (len(text) - at)])


def _hidden(segment: Segment) -> Iterator[tuple[int, int]]:
    text = segment.text
    if "recalled-context" in text.lower():
        yield from (match.span() for match in _RECALLED_BLOCK.finditer(text))
    if segment.role == "tool":
        return
    if segment.role == "assistant":
        yield from thinking_spans(text)
        yield from _calls(text, segment.tool)
    else:
        yield 0, len(text) - len(strip_channel_prefix(text))
        yield from reminder_spans(text)
        yield from (match.span() for match in _LONG_QUOTE.finditer(text))
    yield from (match.span() for match in _FENCED.finditer(text))
    yield from (match.span() for match in _QUOTED_LINE.finditer(text))


def _calls(text: str, tool: str | None) -> Iterator[tuple[int, int]]:
    """From the first call on: what follows it in a message are further calls."""
    if tool:
        called = re.search(rf"^{re.escape(tool)}\(", text, re.MULTILINE)
        if called is not None:
            yield called.start(), len(text)
