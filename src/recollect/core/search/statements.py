"""Recognizes standing instructions, decisions, tasks, attempts and errors (English and Chinese). A
message such as "Always answer in metric units" applies to questions that share no word with it.
Such messages are marked when indexed, are candidates for every query, and are ranked higher."""

from __future__ import annotations

import re
from typing import Final

from recollect.core.values.compaction import ProbeKind

STANDING_WORD: Final = "is=standing"
_MOST_STANDING_CHARS: Final = 300  # not measured; longer messages order work

_LASTING: Final = re.compile(
    r"\b(?:always|never|from\ (?:now|here)\ on|going\ forward|in\ (?:the\ )?future"
    r"|(?:whenever|every\ time|each\ time|any\ ?time|when|if)\ i\ (?:ask|say|tell|mention|want"
    r"|request|talk|write|send|give|share|need|use)\b"
    r"|don'?t\ (?:ever|forget)|keep\ in\ mind|remember\ (?:to|that))"
    r"|以后|从现在起|今后|总是|永远|每次|一律|务必",
    re.IGNORECASE | re.VERBOSE,
)
_LASTING_ORDER: Final = re.compile(
    r"\W*(?:(?:please|also|and|so|ok(?:ay)?)\b\W*)*(?:(?:always|never|from\ (?:now|here)\ on"
    r"|going\ forward|in\ (?:the\ )?future|whenever|when\ i|if\ i|every\ time|each\ time|make\ sure"
    r"|be\ sure|don'?t|do\ not|remember|keep|use|include|format|provide|avoid|mention|give|answer"
    r"|reply|respond|write|call)\b|请|以后|从现在起|今后|每次|不要|务必|记住|一律)",
    re.IGNORECASE | re.VERBOSE,
)


def is_standing(text: str) -> bool:
    """Return whether a user's message gives a lasting instruction."""
    return (
        len(text) <= _MOST_STANDING_CHARS
        and not text.rstrip().endswith(("?", "？"))
        and _LASTING.search(text) is not None
        and _LASTING_ORDER.match(text) is not None
    )


_TASK: Final = re.compile(
    r"\b(?:TODO|FIXME)\b|^\W*\[\ \]"
    r"|(?i:\b(?:still\ (?:have|has|need|needs)\ to|still\ (?:missing|open|to\ do|todo|pending)"
    r"|remains?\ to\ be|left\ to\ do|not\ (?:yet\ )?(?:done|finished|implemented)"
    r"|next\ (?:step|up|task|thing)s?\b(?!\W*$)|(?:up\ )?next:|next,?\ (?:we|i|you|let)"
    r"|we\ should\ (?:also|still|then)|remember\ to|don'?t\ forget\ to|to-?do:|follow[- ]up:))"
    r"|待办|还需要|还要|接下来|下一步|尚未|未完成",
    re.VERBOSE,
)
# If a model writes "I need to", it will act; if a person writes it, the model should act.
_ASKED: Final = re.compile(
    r"\b(?:we|i|you)\ (?:still\ )?(?:need|have)\ to\b", re.IGNORECASE | re.VERBOSE
)
_ATTEMPT: Final = re.compile(
    r"\b(?:(?:did|does|do)(?:\ not|n'?t)"
    r"\ (?:work|help|fix|solve|change\ anything|compile|build|pass)"
    r"|(?:that|this|it|which|attempt|approach|try)\ (?:\w+\ )?"
    r"(?:failed|fails|broke|crashed|timed\ out)"
    r"|still\ (?:fails|failing|broken|crashes|the\ same\ error|does\ not|doesn'?t)"
    r"|(?:no|without)\ (?:success|luck|effect)|(?:was|were|is)\ (?:a\ )?(?:dead\ end|not\ enough)"
    r"|made\ (?:it|things)\ worse|(?:had|have)\ to\ (?:revert|roll\ back)|reverted|rolled\ back"
    r"|tried\b[^.]{1,200}\bbut)\b|没有用|不起作用|还是不行|失败了|没有效果|行不通",
    re.IGNORECASE | re.VERBOSE,
)
_DECISION: Final = re.compile(
    r"\b(?:(?:we|i|you)(?:'ve|\ have)?\ (?:decided|agreed|chose|settled|opted|picked)"
    r"|(?:it\ (?:was|is)|was)\ decided|decision:|decided\ (?:to|on|against|that)"
    r"|let'?s\ (?:use|go|stick|keep|take|pick|make|switch|do|call|drop|skip|not)"
    r"|(?:we'?re|we\ are|i'?m|i\ am|i'?d\ be)\ going\ with|go(?:ing)?\ with|stick(?:ing)?\ with"
    r"|(?:we|i)(?:'ll|\ will)\ (?:use|go|keep|stick|take|switch|stay|drop)|the\ plan\ is"
    r"|instead\ of\b[^.]{1,120}\b(?:use|we|i)\b|i\ prefer|my\ preference\ is)\b"
    r"|决定|采用|就用|选择了|确定用|改用",
    re.IGNORECASE | re.VERBOSE,
)
_CONSTRAINT: Final = re.compile(
    r"\b(?:must(?:\ not|n'?t)?|never|always|shall(?:\ not)?|may\ not|under\ no\ circumstances"
    r"|only\ ever|has\ to|have\ to\ be|required?\ to|make\ sure|be\ sure\ to"
    r"|at\ (?:most|least)|no\ (?:more|less|later)\ than|without\ (?:asking|breaking|changing)"
    r"|keep\ in\ mind|from\ now\ on|not\ allowed|forbidden|deadline|budget\ (?:is|of))\b"
    # Only a sentence that addresses someone decides: "they do not agree" decides nothing.
    r"|(?:^\W*|[,;:(–—]\s*|\b(?:please|and|but|so|then|you|we|also)\ )"
    r"(?:do\ not|don'?t)\b|\b(?:you|we)\ cannot\b"
    r"|必须|不要|禁止|绝不|务必|不能|不得|总是|一律",
    re.IGNORECASE | re.VERBOSE,
)
# Orders for now. Verbs that also state rules ("use", "keep", "ask") are excluded.
_ORDER: Final = re.compile(
    r"""^\W*(?:(?:please|pls|plz|ok|okay|now|then|next|also|and|so|hey|hi|quick(?:ly)?|just|first
        |again|(?:can|could|would|will)\ you|i\ need\ you\ to|i(?:'d|\ would)\ like\ you\ to)\W+)*
    (?:add|adapt|analy[sz]e|apply|arrange|attach|benchmark|build|bump|calculate|change|check|clean
      |clear|collect|commit|compare|compute|convert|copy|count|create|cut|debug|delete|deploy
      |describe|design|document|download|draft|draw|edit|estimate|explain|export|extract|fetch
      |figure\ out|fill|find|finish|fix|format|generate|get|give|go\ (?:on|through|ahead)
      |have\ a\ look|help|implement|import|improve|inspect|install|investigate|list|load|look
      |make|mark|measure|merge|migrate|modify|open|optimi[sz]e|organi[sz]e|outline|paste|plan|plot|polish|post
      |prepare|print|profile|propose|pull|push|read|rebase|recheck|refactor|regenerate|remove|rename
      |reorder|replace|reply|reproduce|research|reset|restart|restore|revert|review|rewrite|run
      |save|scan|search|send|set\ up|show|simplify|sketch|sort|split|start|suggest|summari[sz]e|sum
      |switch|tell|test|tidy|trace|translate|trim|try|turn|update|upgrade|upload|validate|verify
      |visuali[sz]e|walk|wire|wrap|write)\b
    |^\W*(?:请|帮我|麻烦)?(?:写|改|修|查|看|跑|加|删|列|画|生成|总结|翻译|解释|检查|整理)""",
    re.IGNORECASE | re.VERBOSE,
)
# Verbs of orders used as nouns: "Update: the port is 8471", "Run times are capped".
_SAYS_SO: Final = re.compile(
    r"^\W*\w+(?::|(?:\ (?!(?:if|that|why|what|how|the|an?|this|all|my|our)\b)\w+){0,2}"
    r"\ (?:is|are|was|were|has|have|goes?|must|should|will)\b)",
    re.IGNORECASE | re.VERBOSE,
)
_ERROR_LINE: Final = re.compile(
    r"\b[A-Z]\w{0,60}(?:Error|Exception)\b(?=[:\s(]|$)|\bE[A-Z]{5,20}\b|\bFAILED\b|\bFAIL:"
    r"|npm\ ERR!|^Traceback"
    r"|(?i:\b(?:error|fatal|panic|exception)(?:\[\w{1,12}\])?:|\bsegmentation\ fault"
    r"|\bexit(?:ed)?\ (?:with\ )?(?:code|status):?\ [1-9]\d{0,2}\b|\breturned\ non-zero"
    r"|\bcommand\ not\ found|\bno\ such\ file\ or\ directory|\bpermission\ denied"
    r"|\bcannot\ find\ module|\bundefined\ reference"
    r"|\b(?:build|tests?|job|command|request|connection|deploy|migration)\ failed\b)",
    re.VERBOSE,
)
# A line of source code that mentions an error does not report one.
_CODE: Final = re.compile(
    r"[;{,]\s*$|\$\{|^\W*(?:import|from|const|let|var|def|class|return|raise|throw|catch|except|if"
    r"|elif|else|assert|expect|await|async|function|try)\b|//|/\*"
)
_NAMES_ERROR: Final = re.compile(r"\b[A-Z]\w{0,60}(?:Error|Exception)\b|\bE[A-Z]{5,20}\b|[:!]")
_LEAST_WORDS: Final = 3  # not measured; shorter sentences state nothing


def statement_kind(sentence: str, *, by_user: bool) -> ProbeKind | None:
    """Return which kind of statement the sentence is; None if it states nothing to remember."""
    if len(sentence.split()) < _LEAST_WORDS and sentence.isascii():
        return None
    if sentence.rstrip(" \"'”)*_").endswith(("?", "？")):
        return None
    if _TASK.search(sentence) or (by_user and _ASKED.search(sentence)):
        return "task"
    for kind, shape in _KINDS:
        if shape.search(sentence):
            return kind
    return "constraint" if is_standing(sentence) else None


def is_order(sentence: str) -> bool:
    """Return whether a sentence only asks for work to be done now."""
    return (
        _ORDER.match(sentence) is not None
        and _SAYS_SO.match(sentence) is None
        and statement_kind(sentence, by_user=True) is None
    )


def is_error_line(line: str) -> bool:
    return _ERROR_LINE.search(line) is not None and _CODE.search(line) is None


def tells_the_error(text: str) -> str:
    """Return the most informative line of a failed result, else its first line. The last line of a
    traceback names the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    error_lines = [line for line in lines if is_error_line(line) and _NAMES_ERROR.search(line)]
    error_lines = [line for line in error_lines if not line.startswith("Traceback")]
    return error_lines[-1] if error_lines else (lines or [""])[0]


_KINDS: Final[tuple[tuple[ProbeKind, re.Pattern[str]], ...]] = (
    ("attempt", _ATTEMPT),
    ("decision", _DECISION),
    ("constraint", _CONSTRAINT),
)


_LOOKS: Final = re.compile(
    r"""^\s*(?:cd\s+\S+\s*(?:&&|;)\s*)?(?:ls|cat|sed|head|tail|grep|rg|find|fd|pwd|which|wc|nl|echo
    |tree|stat|file|awk|cut|sort|open|goto|scroll_\w+|search_\w+|find_file|edit|create|submit)\b""",
    re.VERBOSE,
)


def is_looking(command: str) -> bool:
    """Return whether a shell command only looks at files, which later work does not repeat."""
    return _LOOKS.match(command) is not None
