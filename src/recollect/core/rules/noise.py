"""Recognizes noise messages, and text that a channel or coding agent added to a message. Noise is
stored but not indexed. Added text is neither indexed nor used in queries."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from enum import StrEnum

from recollect.core.rules.text import without_spans

# OpenClaw treats messages up to six characters as noise (docs/contributing/sources.md). A Han
# character, a syllable of Hangul or a kana carries about as much as three Latin letters, so six of
# them can form a sentence.
_SHORT_WEIGHT = 6
_WIDE_WEIGHT = 3

_WIDE = re.compile(
    "[\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31a0-\u31bf\u3400-\u4dbf\u4e00-\u9fff"
    "\ua000-\ua4cf\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
_SILENT = frozenset({"NO_REPLY", "HEARTBEAT_OK", "[forgotten]"})
"""Texts without information. Transcripts contain "[forgotten]" instead of forgotten messages."""
_MARKUP = " \t\r\n*_`~\"'.!"
_AUDIO = re.compile(
    r"\s*\[Audio\](?=.*file_key|\s*(?:data:\S*|<[^>\n]*>|[\w+/=-]{40,})?\s*\Z)",
    re.IGNORECASE | re.DOTALL,
)
"""A channel's audio without words: a file's key, an address, a placeholder, or encoded bytes."""
_QUEUED = re.compile(r"^\s*\[Queued messages\b[^\]\n]{0,200}\]", re.IGNORECASE)

_DATED = re.compile(
    r"\s*(?:System:\s{0,4})?\[(?:[A-Za-z]{1,20}\s{1,3}){0,2}"
    r"(?:(?:Sun|Mon|Tue|Wed|Thu|Fri|Sat)[a-z]{0,6}\s{1,3})?\d{4}-\d{2}-\d{2}\s\d[^\]\n]{0,120}\]\s{0,4}"
)
_CHANNELS = (
    "Feishu|Lark|WeChat|WeCom|DingTalk|Telegram|WhatsApp|Slack|Discord|Signal|iMessage|BlueBubbles"
    "|Matrix|MS Teams|MSTeams|Google Chat|GoogleChat|Mattermost|Zalo|Line|WebChat|IRC|Nostr"
    "|飞书|企业微信|微信|钉钉"
)
_ENVELOPE_END = (
    # The last item in the brackets that a channel puts before a message: a time with zone, an id, a
    # handle or address, a number, an age, a channel.
    r"(?:\d{1,2}:\d{2}(?::\d{2})?(?:\s?(?:[AP]M|Z))?(?:\s?[A-Z]{2,5})?(?:\s?[+-]\d{1,2}(?::?\d{2})?)?"
    r"|id:\S{1,80}|\(?@\w[\w.-]{0,60}\)?|[\w.+-]{1,60}@[\w-]{1,60}\.[\w.-]{1,60}"
    r"|\+\d[\d ()-]{5,20}|\+\d{1,4}(?:ms|[smhd])|#[^\W\d][\w-]{0,60})"
)
_BRIDGED = re.compile(
    # [WhatsApp +49 170 1234567 12:30], [Telegram Anna (@anna) id:123 +5m 2026-02-10 14:31 UTC].
    # Brackets without such a last item were written by the user: [Line 42], [Signal 9].
    rf"\s*\[(?:{_CHANNELS})"
    r"(?:\s[^\[\]\n]{0,160}(?:\[[^\[\]\n]{0,80}\][^\[\]\n]{0,80})?)?\s"
    + _ENVELOPE_END
    + r"\s?\]\s{0,4}",
    re.IGNORECASE,
)
_CHANNEL = re.compile(
    r"(?:Feishu|Lark|WeChat|WeCom|DingTalk|Telegram|WhatsApp|Slack|Discord|Signal|iMessage"
    r"|飞书|微信|企业微信|钉钉)\s?(?:\[[^\]\n]{1,80}\])?\s{0,2}"
    r"(?:(?:DM|group|message|消息|私聊|群聊)\s{0,2}(?:from|来自|in)?\s{0,2}[^:：\n]{1,80})?[:：]\s{0,4}",
    re.IGNORECASE,
)
_METADATA = re.compile(
    r"\s*(?:Conversation|Sender|Channel)\b[^\n:]{0,60}\(untrusted metadata\):\s{0,4}", re.IGNORECASE
)
_FENCE = re.compile(r"```(?:json)?[ \t]{0,4}\r?\n")
_REMINDERS = (
    *(
        (f"<{tag}>", f"</{tag}>")
        for tag in (
            "system-reminder", "environment_context", "task-notification", "command-name",
            "command-message", "local-command-caveat", "local-command-stdout",
            "local-command-stderr", "bash-stdout", "bash-stderr",
        )
    ),
    ("<command-args><", "/command-args>"),  # empty arguments only: the user writes others
)  # fmt: skip
_CONTINUED = "This session is being continued from a previous conversation that ran out of context."
_GO_ON = re.compile(
    r"^(?:If you need specific details from before compaction"
    r"|Continue the conversation from where it left off)",
    re.MULTILINE,
)
"""Lines after Claude Code's own summary that end it: a note, and the instruction to continue."""
_MOST_INDENT = 64  # bounds the search back to the start of a line
# A message has few prefixes. The limit makes the time linear for text that consists of prefixes.
_MOST_PREFIXES = 16
_MOST_METADATA_CHARS = 20_000


class NoiseReason(StrEnum):
    """Reason why a message is not indexed."""

    EMPTY = "empty"
    SHORT = "short"
    SILENT_REPLY = "silent_reply"
    HEARTBEAT_PROMPT = "heartbeat_prompt"
    RAW_AUDIO = "raw_audio"
    QUEUED_MESSAGES = "queued_messages"
    NO_ANSWER = "no_answer"


def is_noise(text: str) -> NoiseReason | None:
    """Return why a message is not worth indexing; None if it is worth it."""
    text = without_reminders(strip_channel_prefix(text)).strip()
    if not text:
        return NoiseReason.EMPTY
    if text.strip(_MARKUP) in _SILENT:
        return NoiseReason.SILENT_REPLY
    # The prompt of a heartbeat names the file, and mentions the word elsewhere too.
    if "HEARTBEAT.md" in text and "heartbeat" in text.replace("HEARTBEAT.md", "").lower():
        return NoiseReason.HEARTBEAT_PROMPT
    if _AUDIO.match(text):
        return NoiseReason.RAW_AUDIO
    if _QUEUED.match(text):
        return NoiseReason.QUEUED_MESSAGES
    return NoiseReason.SHORT if _is_short(text) else None


_MOST_NO_ANSWER_CHARS = 400
"""A longer reply tells something besides."""
_TALK = r"(?:conversation|chat|messages|discussion|context|history|memory|session)"
_KNOWLEDGE = r"(?:information|info|idea|clue|record|knowledge|details?|memory|recollection|access)"
_APOLOGIES = re.compile(
    rf"(?:(?:(?:i['’]?m|i\sam)\s)?(?:\w+\s)?(?:sorry|afraid)|(?:my\s)?apologies|unfortunately|hm+"
    rf"|honestly|well|good\squestion|(?:based\son|from|in)\s[^,.]{{0,40}}\b{_TALK}|leider"
    rf"|tut\smir\sleid|抱歉|对不起|but|and|so|aber)\b[\s,.!，–—-]*(?:that\b|dass\b)?\s*",
    re.IGNORECASE | re.VERBOSE,
)
_ADMITS = re.compile(
    rf"""i\s(?:\w+\s)?(?:do\snot|don['’]t|cannot|can['’]t|could\snot|couldn['’]t|no\slonger|was\snot
        |wasn['’]t|was\snever|am\snot\sable\sto|am\sunable\sto|have\snot\sbeen|haven['’]t\sbeen)
      \s(?:\w+\s)?(?:(?:know|recall|remember)(?!\s(?:of\s)?(?:any|ever|a\s))|told|determine|answer
        |(?:tell|say)(?=$|\s(?:what|which|who|when|where|why|how|if|whether|from|that)\b)
        |have\s[^,]{{0,30}}\b{_KNOWLEDGE})\b.*
    |(?:i\shave|i['’]ve|i\shave\sgot)\s(?:absolutely\s)?no\s[^,]{{0,20}}\b{_KNOWLEDGE}(?!\show\syou)\b.*
    |(?:i['’]m|i\sam)\s(?:\w+\s)?(?:not\s(?:sure|certain|aware)|unsure|uncertain|unaware)
      (?:\s(?:what|which|who|when|where|why|how|if|whether|about|of)\b.*)?
    |you\s(?:have\snot|haven['’]t|did\snot|didn['’]t|never)\s(?:\w+\s)?(?:told|tell|given|give|shown?)\sme\b.{{0,60}}
    |you\s(?:have\snot|haven['’]t|did\snot|didn['’]t|never)\s(?:\w+\s)?(?:mention|shar|specif|provid|said|say)\w*
      (?:\s(?:it|that|this|one|yours?\s\w+|which|what|who|when|where|how))?(?:\s(?:yet|so\sfar|before|to\sme))?
    |(?:that|this|it)\s?(?:was|is|has|['’]s)(?:n['’]t|\snot|\snever)\s(?:\w+\s)?
      (?:mentioned|specified|stated|discussed|said)\b.{{0,40}}
    |(?:no\sidea|not\ssure)\b.{{0,20}}
    |(?:das\s|es\s)?(?:ich\s)?weiß\s(?:ich\s)?(?:\w+\s){{0,3}}nicht\b.*
    |.{{0,20}}\bist\smir\s(?:leider\s)?nicht\sbekannt|.{{0,30}}\bhabe\s(?:ich\s)?(?:leider\s)?keine\s.*|keine\sahnung
    |我?(?:也|还|并|真的)?(?:不知道|不清楚|不记得|没有.{{0,20}}(?:信息|记录|资料)|无法(?:确定|回答)).*""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_TELLS_MORE = re.compile(
    r"\b(?:but|however|although|though|except|because|since|only|instead|unless|until|maybe|perhaps|think"
    r"|probably|likely|guess|assume[ds]?|seems?|might|aber|jedoch|weil|vielleicht|vermutlich)\b"
    r"|但|不过|可能|也许|因为|[:：]",
    re.IGNORECASE,
)
_OFFERS = re.compile(
    r"""(?:(?:please\s(?:tell|share|provide|give|paste|send|let|remind|point|specify|clarify|say|check)
        |could\syou|let|feel\sfree|remind|tell)\s
        |(?:if|once)\syou\s(?:can\s)?(?:tell|share|provide|give|paste|send|let|remind|point|mention)\b
        |i\s(?:will|can|could)\s(?:help|look|check|search|find|try|remember)\b
        |i['’]ll\s(?:help|look|check|search|find|try|remember)\b
        |bitte\s|sag\s|wenn\s(?:du|sie)\smir|请|如果你).*""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_DETAIL = re.compile(r"[\d`/=<>{}]|\w\.\w")
_CLAUSES = re.compile(r"(?<=[.!?…。！？])\s*(?=\S)|\n+|[;,，]\s*")
_UNKNOWN = re.compile(r"(?:welche\w?|was|we[rmn]|wann|wo|wie|warum|ob)\b.*", re.DOTALL)
"""A German clause that names what is not known, after a comma."""


def answers_nothing(text: str) -> bool:
    """Return whether a reply only says that the assistant does not know, and asks or offers help.
    If recalled as an answer, it would take the place of one. Unclear replies return False."""
    if len(text) > _MOST_NO_ANSWER_CHARS:
        return False
    admits = False
    for clause in _CLAUSES.split(text):
        clause_text = clause.strip(_MARKUP + "。！")
        while clause_text and (apology := _APOLOGIES.match(clause_text)):
            clause_text = clause_text[apology.end() :]
        if not clause_text or clause_text.endswith(("?", "？")):
            continue
        if _ADMITS.fullmatch(clause_text) and not _TELLS_MORE.search(clause_text):
            admits = True
        elif not (admits and _UNKNOWN.fullmatch(clause_text)) and (
            not _OFFERS.fullmatch(clause_text) or _DETAIL.search(clause_text)
        ):
            return False
    return admits


def _is_short(text: str) -> bool:
    if len(text) > _SHORT_WEIGHT:
        return False
    wide = len(_WIDE.findall(text))
    return len(text) + wide * (_WIDE_WEIGHT - 1) <= _SHORT_WEIGHT


def strip_channel_prefix(text: str) -> str:
    """Remove leading text that the user did not write: a channel's dates, names and metadata, and a
    coding agent's reminders."""
    offset = 0
    for _ in range(_MOST_PREFIXES):
        following = _after_metadata(text, offset)
        if following == offset:
            following = _after_reminder(text, offset)
        if following == offset:
            match = (
                _DATED.match(text, offset)
                or _CHANNEL.match(text, offset)
                or _BRIDGED.match(text, offset)
            )
            following = offset if match is None else match.end()
        if following == offset:
            break
        offset = following
    return text[offset:]


def channel_of(text: str) -> str | None:
    """Return the channel that put its prefix before a message, such as "telegram"."""
    date_match = _DATED.match(text)
    offset = date_match.end() if date_match else 0
    prefix = _CHANNEL.match(text, offset) or _BRIDGED.match(text, offset)
    name = prefix and re.search(_CHANNELS, prefix[0], re.IGNORECASE)
    return name[0].lower() if name else None


def reminder_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return the positions of a coding agent's reminders, and of the sentences around its summary.
    A reminder begins a line and has a closing tag."""
    spans = [
        span for opening, closing in _REMINDERS for span in _find_enclosed(text, opening, closing)
    ]
    if text.startswith(_CONTINUED):
        end = text.find("\n") if "\n" in text else len(_CONTINUED)
        spans.append((0, end))
        if goes_on := _GO_ON.search(text, end):
            spans.append((goes_on.start(), len(text)))
    kept: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if not kept or start >= kept[-1][1]:  # skip a reminder inside another reminder
            kept.append((start, end))
    return tuple(kept)


def _find_enclosed(text: str, opening: str, closing: str) -> Iterator[tuple[int, int]]:
    offset = 0
    while (start := text.find(opening, offset)) >= 0:
        end = text.find(closing, start)
        if end < 0:
            return
        offset = end + len(closing)
        indent = text[max(0, start - _MOST_INDENT) : start].rpartition("\n")[2]
        if len(indent) < _MOST_INDENT and not indent.strip():
            yield start, offset


def without_reminders(text: str) -> str:
    return without_spans(text, reminder_spans(text))


_ATTACHMENT = (
    "files?|documents?|docs?|attachments?|search_results?|uploaded_(?:files?|documents?)"
    "|file_contents?"
)
"""Tags between which clients put files, documents and search results, such as pi's `file`."""
_OPENING = re.compile(
    rf"(?P<indent>^[ \t]{{0,64}})?(?<![`\w])<(?P<tag>{_ATTACHMENT})\b[^>\n]{{0,1000}}(?<!/)>",
    re.MULTILINE | re.IGNORECASE,
)
_CLOSING = re.compile(rf"</(?P<tag>{_ATTACHMENT})\s{{0,64}}>", re.IGNORECASE)
_MIN_INLINE_CHARS = 80
"""Shorter content after a tag within a line is a remark about the tag. Not measured."""


def attachment_spans(text: str, *, nearest: bool = False) -> list[tuple[int, int]]:
    """Return the positions of files and documents in a user's text. They extend to the last closing
    tag, or without one to the end, because their content may contain closing tags to pass for the
    user's words. With `nearest`, they end at the next closing tag: nothing that is stored or
    trusted may depend on that."""
    openings = list(_OPENING.finditer(text)) if "<" in text else []
    ends: dict[str, list[int]] = {}
    for closing in _CLOSING.finditer(text) if openings else ():
        ends.setdefault(closing["tag"].lower(), []).append(closing.end())
    spans: list[tuple[int, int]] = []
    for opening in openings:
        if spans and opening.start() < spans[-1][1]:
            continue
        later = ends.get(opening["tag"].lower(), [])
        following = later[bisect_left(later, opening.end()) :]
        if following:
            end = following[0 if nearest else -1]
            content = text[opening.end() : end]
            is_remark = "\n" not in content and len(content) < _MIN_INLINE_CHARS
            if is_remark and opening["indent"] is None:
                continue
        elif opening["indent"] is None or nearest or opening["tag"][0].isupper():
            continue  # a component of the user's own code, such as `<Document>` in JSX
        else:
            end = len(text)
        spans.append((opening.start(), end))
    return spans


def attachments_in(texts: Sequence[str], *, nearest: bool = False) -> list[list[tuple[int, int]]]:
    """Return the positions of files and documents in each of a message's texts. A document may
    begin in one text and end in another."""
    joined: list[list[tuple[int, int]]] = [[] for _ in texts]
    spans = attachment_spans("\n".join(texts), nearest=nearest)
    offset = 0
    for text, inside in zip(texts, joined, strict=True):
        for start, end in spans:
            first, last = max(start - offset, 0), min(end - offset, len(text))
            if first < last:
                inside.append((first, last))
        offset += len(text) + 1
    return joined


def without_attachments(texts: Sequence[str], *, nearest: bool = False) -> list[str]:
    """Return a message's texts without files and documents (`attachment_spans`)."""
    inside = attachments_in(texts, nearest=nearest)
    return [without_spans(text, spans) for text, spans in zip(texts, inside, strict=True)]


def _after_reminder(text: str, offset: int) -> int:
    start = _past_space(text, offset)
    for opening, closing in _REMINDERS:
        if text.startswith(opening, start):
            end = text.find(closing, start)
            return offset if end < 0 else _past_space(text, end + len(closing))
    return offset


def _after_metadata(text: str, offset: int) -> int:
    announcement = _METADATA.match(text, offset)
    if announcement is None:
        return offset
    start = announcement.end()
    fence = _FENCE.match(text, start)
    if fence is not None:
        close = text.find("```", fence.end(), fence.end() + _MOST_METADATA_CHARS)
        return _past_space(text, close + 3) if close >= 0 else offset
    if not text.startswith("{", start):
        return offset
    try:
        _, size = json.JSONDecoder().raw_decode(text[start : start + _MOST_METADATA_CHARS])
    except (json.JSONDecodeError, RecursionError):
        return offset
    return _past_space(text, start + size)


def _past_space(text: str, offset: int) -> int:
    following_text = text[offset : offset + 64]
    return offset + len(following_text) - len(following_text.lstrip())
