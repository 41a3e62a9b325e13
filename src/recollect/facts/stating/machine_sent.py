"""Tells messages under the user's role that a scheduler, a hook or a bot sent.

Owns the forms of such messages: a tag in brackets before them, a label that names what reports, a
reply that is asked for where nothing happened, counters and codes as the main content. Must never
list texts: whoever sets up a scheduler words it anew. What always holds: only the beginning of a
message is looked at, so the time is bounded.
"""

from __future__ import annotations

import re
from typing import Final

from recollect.rules.noise import strip_channel_prefix

_MOST_CHARS: Final = 1_200
"""A machine says what it is at the beginning; a longer message that does not was typed."""
_SHORT_CHARS: Final = 240
"""As long as what a bot posts in a line."""
_FEW_COUNTERS: Final = 3
"""So many, and one for every so many words, are a report."""

# Nouns that only machines put before a colon, and those that people do as well.
_SENDERS: Final = (
    r"alerts?|alarm|monitor(?:ing)?|watch(?:er|dog)?|check-?in|trigger(?:ed)?|notifications?|digest"
    r"|bot"
    r"|cron(?:job)?|webhook|scheduler|heartbeat|ping|pipeline|flush|sub-?agents?|uptime|probe|timer"
    r"|callback"
    r"|tick|sweep|housekeeping|firing|incident|automation|prompt|reminder|warnings?"
)
_REPORTS: Final = (
    r"reports?|check|events?|notice|status|state|summary|recap|queue|poll|sync|backups?|builds?"
    r"|jobs?|runs?"
    r"|usage|results?|system|deploy(?:ment)?s?|health|metrics?|task|hook|feed|routine|resolved"
    r"|audit|scan"
    r"|inbox|calendar|lag"
)
_SENDERS_CHINESE: Final = (
    r"通知|告警|警报|预警|报警|摘要|巡检|监控|心跳|日报|简报|播报|触发|机器人|流水线|轮询|回调|自检"
    r"|工单"
    r"|事件"
)
_REPORTS_CHINESE: Final = (
    r"报告|提醒|队列|周报|同步|备份|恢复|任务|系统|定时|自动|构建|部署|发布|消息|检查|状态|统计"
    r"|汇总"
    r"|例行|调度"
)
# A person who tags their own message does so in one of these ways.
_OWN_TAG: Final = re.compile(
    r"(?:note|notes|important|urgent|fyi|question|q|update|correction|decision|idea|wip|todo|edit"
    r"|ot"
    r"|off-?topic|minor|major|bug|feature|重要|注意|备注|补充|更新|更正|决定|问题|想法|题外话"
    r"|急)\W*$",
    re.IGNORECASE,
)
_TAG: Final = re.compile(
    r"\s*(?:\[([^\]\n]{1,60})\]|【([^】\n]{1,40})】|\(([^)\n]{1,40})\))\s*[:：]?\s*"
)
_MARKED: Final = re.compile(
    r"\s*(?:[\u2705\u274c\u2139]\ufe0f?\s*)+"  # ticks and crosses: people set them, too
)
_RINGING: Final = re.compile(
    r"\s*[\U0001f534\U0001f7e0\U0001f7e1\U0001f7e2\U0001f6a8\U0001f514\u23f0\u2699\u26a0\U0001f4ca"
    r"\U0001f4c8\U0001f916\U0001f9f9\u23f1\u23f2\U0001f504]"
    r"|\s*(?:每(?:天|日|周.|月|晚|早|小时)\s*)?\d{1,2}:\d\d\s*(?:[–—-]\s|[^，。\d]{0,8}(?:提醒|触发"
    r"|[:：]))"
    r"|\s*(?:session|context|token budget)\b[^.\n]{0,40}\b(?:idle|full|limit|compact\w*|expir\w+"
    r"|used)\b"
    r"|\s*(?:会话|上下文|对话)[^。\n]{0,16}(?:上限|压缩|已满|空闲|超时)",
    re.IGNORECASE,
)
_WORD: Final = (
    r"(?!(?:i|we|you|my|our|the|please|quick|small|short|current|first|next|new|last|another"
    r"|one)\b)"
    r"[\w./#@&+-]+(?::\d\d)?"
)
_ENDING: Final = r"(?: [\w./#@()-]+){0,3}\W{0,3}(?:[:：](?!\d)|\s[–—-]\s)"
_LABEL: Final = re.compile(
    rf"\W{{0,4}}(?:{_WORD} ){{1,5}}?(?:{_SENDERS}){_ENDING}"
    rf"|\W{{0,4}}(?:{_SENDERS})(?: [\w./#@-]+){{1,3}}\W{{0,3}}[:：](?!\d)"
    rf"|\W{{0,4}}(?:cron|webhook|heartbeat|scheduler|watchdog|health ?check|alert(?: firing)?"
    r"|resolved|firing"
    rf"|ping|poll|tick|k8s event|automated|system)\s*(?:[:：#.]|\d|$)"
    rf"|\W{{0,4}}(?![^:：]{{0,14}}(?:我|咱|你|他|她|记|请|把"
    rf"|说))[^\s，。！？,:：][^，。！？,:：\n]{{0,14}}?"
    rf"(?:{_SENDERS_CHINESE})[^，。！？,:：\n]{{0,14}}[:：]"
    rf"|\W{{0,4}}(?:提醒|通知|系统|定时|例行)[:：]\s?(?:您|你)(?:设|预|订|的)",
    re.IGNORECASE,
)
_MAYBE_LABEL: Final = re.compile(
    rf"\W{{0,4}}(?:{_WORD} ){{1,5}}?(?:{_REPORTS}){_ENDING}"
    rf"|\W{{0,4}}[^，。！？,:：\n]{{1,14}}(?:{_REPORTS_CHINESE})[^，。！？,:：\n]{{0,8}}[:：]",
    re.IGNORECASE,
)
_COUNTED: Final = re.compile(r"(?:\d+\D{1,60}){2}\d|\b[A-Z]{4,}\b", re.DOTALL)
# What is asked for where nothing happened; people do not tell a model to be silent by a code word.
_SILENCE: Final = re.compile(
    r"\b(?i:if|when|unless|in case)\b[^.\n]{0,80}\b(?:nothing|none|no (?:new|change|issue|pending"
    r"|open|action"
    r"|alert|news|item|task)\w*|quiet|all (?:is )?(?:clear|ok|good|fine|well)|not needed|not due"
    r"|empty|unchanged"
    r"|needs? (?:your )?attention)\b[^.\n]{0,60}\b(?:reply|say|answer|respond|output|return|send"
    r"|stay|stop|do"
    r" nothing|remain|skip|exit|end)"
    r"|\b(?i:reply|respond|answer|say|output|return)\b(?: only| just| exactly| with)*[ \"'`*]{1,3}"
    r"(?:[A-Z]{2,}(?:_[A-Z]+)+|(?!JSON|YAML|XML|CSV|HTML|SQL|URL|API|UTC|NULL|TRUE"
    r"|FALSE)[A-Z]{4,}|[A-Z]{3,} [A-Z]{4,})\b"
    r"|\b(?:HEARTBEAT|NO_REPLY|HEARTBEAT_OK|ALL_CLEAR)\b"
    r"|(?:如果|若|如|要是|倘若)?(?:没有?|无|沒有?|一切)[^。\n]{0,24}(?:回复|回覆|输出|返回|回答"
    r"|答复|说|则|就|直接)"
    r"\W{0,3}(?:[A-Z]{2,}(?:_[A-Z]+)*|[\"“「『`](?:无|一切|正常|没有|OK)|无需|无事|跳过|静默|结束"
    r"|不用回|不必回)"
)
_SCHEDULED: Final = re.compile(
    r"\b(?:scheduled|recurring|periodic|automated|automatic|auto-generated)"
    r" (?:check(?:[- ]?in)?|prompt|reminder|message|trigger|review|sweep|wake(?:-?up)?|ping"
    r"|heartbeat)\b"
    r"|\b(?:hourly|nightly|daily|weekly|cron) (?:check-?in|prompt|trigger|sweep|wake-?up|ping"
    r"|heartbeat)\b"
    r"|\b(?:this is|this message (?:is|was)) (?:an? )?(?:automated|automatic|scheduled|system|auto)"
    r"|\b(?:task|job|reminder)\b[^.\n]{0,40}\b(?:due now|now due)\b"
    r"|\b(?:started|triggered|sent|invoked|run) by (?:a |the )?(?:cron|scheduler|timer|web-?hook"
    r"|bot)\b"
    r"|\b(?:exit(?:ed)?(?: with)? code|rc|exit status|status code)[ =:]*\d"
    r"|\b(?:sub-?agent|background (?:task|job|process))\b[^.\n]{0,60}\b(?:finished|completed|done"
    r"|failed|exited|ended|killed|timed out"
    r"|cancell?ed)\b"
    r"|(?:^|[.!?;,]\s+|\b(?:and|then|only|just|please|not|never)\s+)"
    r"(?:tell|notify|alert|inform|message|relay\b[^.\n]{0,40} to|ping|wake) the user\b"
    r"|\b(?:trigger|prompt) for the\b"
    r"|(?:定时|计划|自动|例行|周期)(?:任务(?![:：])|提示|触发|唤醒|巡检|检查|消息|提醒)(?!的|是|都"
    r"|放|在|改"
    r"|跑|要|每|里)"
    r"|(?:系统|本消息|此消息)(?:自动|由)[^。\n]{0,12}(?:发|触发|生成)|由(?:系统|调度器"
    r"|定时器?)[^。\n]{0,6}(?:发|触发)"
    r"|退出码|(?:子代理|子任务|后台任务)[^。\n]{0,20}(?:完成|结束|失败)|时间到了(?:[（(。]|$)"
    r"|(?:告知|通知|提醒|转告)用户",
    re.IGNORECASE,
)
_PAIRS: Final = re.compile(r"(?:^|[\s,;，；(])[A-Za-z_][\w.-]{0,30}=[^\s=,，;；]{1,60}")
_COUNTER: Final = re.compile(
    r"\b\d+ ?/ ?\d+\b|\b\d+ of \d+\b|#\d+|\d\d:\d\d(?::\d\d)?|\b\d[\d.,]* ?(?:%|ms|s|m|h|gb|mb|kb"
    r"|min)\b"
    r"|(?<![\d.])\d[\d,.]*(?![\d.]* ?(?:am|pm))",
    re.IGNORECASE,
)
_OUTCOME: Final = re.compile(
    r"\b(?:FAILED|PROBLEM|CRITICAL|SUCCESS|UNSTABLE|PASSED|WARNING|RESOLVED|TIMEOUT|OutOfSync)\b"
    r"|\b(?i:build|job|incident|issue|run|pipeline|workflow|deployment|alert|ticket|task"
    r"|check) ?(?:#\d|\(run)"
    r"|\b\d+ (?:events|mentions|messages|unread|alerts|incidents|to (?:add|change|destroy))\b"
)
_REPORTING: Final = re.compile(r"[:=#%|：].*\d.*\d", re.DOTALL)
_WORDS: Final = re.compile(r"[A-Za-z]{2,}|[\u3400-\u9fff]{2}")
_SELF: Final = re.compile(
    r"\b(?:i|i'm|i've|we|we're|we've|my|our|let's|us|me)\b|我|咱", re.IGNORECASE
)
_PERSON: Final = re.compile(
    r"\b(?:i|i'm|i've|i'd|we|we're|we've|my|our|let's|us|me|please|pls|thanks|hey|hi|ok|sorry|no"
    r"|yes|yeah|so|and)\b"
    r"|我|咱|你|请|吧|哦|啊|呢|嗯|哈|就|是|用|的",
    re.IGNORECASE,
)


_TAG_OF_MACHINE: Final = re.compile(
    rf"\b(?:{_SENDERS}|{_REPORTS}|ci|actions?|git\w*|jenkins)\b"
    rf"|{_SENDERS_CHINESE}|{_REPORTS_CHINESE}",
    re.IGNORECASE,
)


def machine_sent(text: str) -> bool:
    """Whether no person typed this message of the user's role."""
    said = strip_channel_prefix(text[: 2 * _MOST_CHARS]).strip()[:_MOST_CHARS]
    if _RINGING.match(said):
        return True
    marked = _MARKED.match(said)
    if marked is not None:
        said = said[marked.end() :]
    tag = _TAG.match(said)
    if tag is not None and _is_tag_of_machine(tag, said):
        return True
    head = said[:160]
    if _LABEL.match(head):
        return True
    if _MAYBE_LABEL.match(head) and _COUNTED.search(said) and not _SELF.search(said):
        return True
    if _SILENCE.search(said) or _SCHEDULED.search(said):
        return True
    if len(_PAIRS.findall(said)) > 1 and "\n" not in said:
        return True
    return _reports(said)


def _is_tag_of_machine(tag: re.Match[str], said: str) -> bool:
    name = next(part for part in tag.groups() if part is not None)
    rest = said[tag.end() :]
    if _OWN_TAG.match(name) or not rest:
        return False
    if _TAG_OF_MACHINE.search(name):
        return True
    # A name in brackets may be who said it: then the words are a person's.
    return not _PERSON.search(rest) or bool(_PAIRS.search(rest))


def _reports(said: str) -> bool:
    """Whether a short message with no person in it gives states and counters."""
    if len(said) > _SHORT_CHARS or _PERSON.search(said):
        return False
    if _OUTCOME.search(said):
        return True
    counters = len(_COUNTER.findall(said))
    if counters < _FEW_COUNTERS or not _REPORTING.search(said):
        return False
    return counters * _FEW_COUNTERS >= len(_WORDS.findall(said))
