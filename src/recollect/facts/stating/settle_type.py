"""Settles the type of a statement by what it says, where the words that found it say another.

Owns the few forms that the rules' triggers mistake: a setting's new value told as something built,
a name told as a preference, a defect told with "never". Must never guess: where none of them fits,
the type stays. What always holds: pure, linear in one sentence.
"""

from __future__ import annotations

import re
from typing import Final

from recollect.facts.stating.folded import folded
from recollect.values.fact import FactDraft, FactType

_VALUE: Final = r"(?:[`\"'#$€~/v]*\d|`[^`]+`|utc\b|on\b|off\b|true\b|false\b|[a-z_]+=\S)"
_SET_ANEW: Final = re.compile(
    rf"\b(?:is|are) now (?:set to |at |on |off\b|capped at |limited to )?{_VALUE}"
    rf"|\bnow (?:sets|starts at|runs at|runs on|listens on|defaults to|points to|expires (?:in"
    rf"|after))"
    rf" {_VALUE}"
    r"|(?:改为|改成|改到|调到|调成|调为|设为|设成|设置为|写进|写到)\s*(?:[~/]|[\w.:]*\d|off|on"
    r"|true|false)"
)
_OWN_NAME: Final = re.compile(
    r"\b(?:my|our) (?:\w+ ){0,2}(?:name|e-?mail|e-?mail address|address|phone|phone number|number"
    r"|user ?name|handle|birthday|time ?zone|id|user id|account)(?:'s| is)\b|我(?:叫|的(?:名字"
    r"|邮箱|电话|手机|生日)[是叫])"
)
_DEFECT: Final = re.compile(
    r"\b(?:crash(?:es|ed)?|drops?|hangs?|leaks?|fails?|breaks?|stalls?|loses|times out|(?:was"
    r"|were|got) "
    r"(?:cancell?ed|lost|denied|broken|delayed))\b|收不到|崩溃|闪退|卡死|丢(?:失|包|数据)|泄漏"
    r"|报错"
)
_LAID_DOWN: Final = re.compile(
    r"\b(?:don't|do not|must|always|should|please|prefer|want|like|hate|use|keep|avoid|we decided"
    r"|decided|going with|let's|chosen|chose|switch)\b|不要|别|必须|一律|以后|决定|喜欢|习惯"
)
_STRATEGY: Final = re.compile(r"\b(?:strategy|plan|approach|policy) is to\b")
_BEHAVES: Final = re.compile(
    r"\b(?:calls|caches|captures|stores|supports|inserts|exposes|reads|reloads|wraps|renders"
    r"|delegates"
    r"|implements|returns|creates|parses|handles|has|have)\b"
)
_HAS_VALUE: Final = re.compile(
    r"\d|=|(?<!\w)[~/][\w./-]+|#[\da-f]{3}|\b(?:defaults?|port|host|url|path)\b"
)
_DONE_SOMEHOW: Final = re.compile(r"\bis done (?:through|by|via|with|in|on|using)\b")
_FIXED_AT: Final = re.compile(
    r"\bfixed at \S*\d|\bcannot be \w+ unless\b|\bis capped at\b|\blimited to \S*\d"
)


def settle_type(draft: FactDraft, *, by_user: bool) -> FactType:
    """The type of a draft that rules found."""
    low = folded(draft.content)
    match draft.type:
        case "preference" if _OWN_NAME.search(low):
            return "config"
        case "preference" | "decision" | "architecture" if _is_defect(low):
            return "issue"
        case "implementation" if not by_user and _SET_ANEW.search(low):
            return "config"
        case "config" if _STRATEGY.search(low):
            return "decision"
        case "config" if not by_user and _BEHAVES.search(low) and not _HAS_VALUE.search(low):
            return "implementation"
        case "task_state" if _FIXED_AT.search(low):
            return "config"
        case "task_state" if _DONE_SOMEHOW.search(low):
            return "implementation"
        case _:
            return draft.type


def _is_defect(low: str) -> bool:
    return _DEFECT.search(low) is not None and _LAID_DOWN.search(low) is None
