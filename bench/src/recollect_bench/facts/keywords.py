"""The naive baseline: every sentence that holds a word from a short list is a fact.

What a first version of such a memory does, and what the rules have to be better than. It reads
whatever it is given, as such versions do.
"""

from __future__ import annotations

import re
from typing import Final

from recollect.rules.text import sentence_spans

_KEYWORDS: Final = re.compile(
    r"\b(?:remember|note|decided|decision|go with|going with|switch|agreed|always|never|must|don't"
    r"|prefer|like|hate|port|path|version|config|host|url|limit|done|blocked|implemented|crash\w*"
    r"|fails?|broken|uses?|through)\b"
    r"|记住|记一下|注意|决定|改用|采用|就用|定下来|不要|别|必须|务必|一律|以后|喜欢|习惯|端口|路径|版本|配置"
    r"|已完成|还没|阻塞|崩溃|失败",
    re.IGNORECASE,
)


def keyword_sentences(text: str) -> list[str]:
    """The sentences that it would keep."""
    return [
        text[start:end] for start, end in sentence_spans(text) if _KEYWORDS.search(text, start, end)
    ]
