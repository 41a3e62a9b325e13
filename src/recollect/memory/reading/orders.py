"""Recognises what tells a reader what to do: what no tool's output may ever become a fact of.

Owns the turns of phrase, English and Chinese. It is strict on purpose: text that tools bring in is
evidence of how things are, and whatever in it addresses the reader, speaks for the user or begins
as an order is left where it stands. Must never be asked about the user's own words, which may lay
down anything. Pure, linear in the text.
"""

from __future__ import annotations

import re
from typing import Final

_SAYS: Final = re.compile(
    r"""
    \b(?:must|always|never|shall|should|ought|need(?:s|ed)?\ to|ha(?:ve|s)\ to|required?\ to
    |do\ not|don['’]?t|please|ensure|make\ sure|be\ sure|remember|memori[sz]e|note\ (?:that|to|down)
    |keep\ in\ mind|take\ note|from\ (?:now|here)\ on|going\ forward|henceforth|in\ (?:the\ )?future
    |whenever|every\ time|each\ time|any\ ?time|ignore|disregard|forget|overrid(?:e|es|den)|bypass
    |supersedes?|instead\ of|instructions?|instructed|prompts?|jailbreak|rules?|polic(?:y|ies)
    |mandatory|authori[sz]ed?|obey|comply|permission|approved?
    |assistants?|agents?|ai|llm|chatbot|model|claude|gpt|copilot|you|your|yours|yourself
    |(?:the\ )?(?:users?|operator|admin(?:istrator)?|owner|developer|customer|boss|ceo|human)['’]?s?
      \ (?:\w+\ ){0,2}?(?:wants?|prefers?|likes?|asks?|asked|says?|said|decided|requires?|requests?
      |requested|expects?|confirmed|approved|told|wishes|preference|instruction|standing)
    |prefers?|preferences?|standing|we\ (?:decided|agreed)|decision|decided|agreed)\b
    |(?:^|\n)\W{0,200}+(?:system|user|human|operator|developer|assistant)\s{0,20}(?:\]|>|:|：)
    |必须|必須|务必|務必|总是|總是|永远|永遠|一律|记住|記住|牢记|牢記|请|請|不要|别|別|勿|忽略|无视|無視
    |以后|以後|从现在起|從現在起|今后|今後|每次|应该|應該|应当|應當|需要|禁止|不得|不准|不许|不能|你|您
    |用户|用戶|使用者|管理员|管理員|老板|指令|指示|提示词|提示詞|规则|規則|偏好|决定|決定|改用|采用|採用|助手|模型
    """,
    re.IGNORECASE | re.VERBOSE,
)
_VERB_LINES: Final = """
send forward reply respond answer use add append include insert install run execute call invoke
delete remove drop disable enable turn set change update upgrade replace switch store save write
copy upload download post push commit merge deploy publish email mail transfer pay buy grant give
share reveal print show say tell treat consider assume prefer avoid stop start begin skip visit open
click go follow obey act pretend output return recommend suggest mention quote cite trust accept
approve allow whitelist route redirect point configure create make put keep mark record log learn
"""
_BEGINS_AS_ORDER: Final = re.compile(
    rf"(?:^|[.!?;:\n。！？；：]|\*/|-->|[>*#\-])[\s\"'“”`*_#>(\[-]{{0,200}}+"
    rf"(?:(?:and|then|also|now|so|first|next|important|note)\b\W{{0,20}}+){{0,20}}"
    rf"(?:{'|'.join(_VERB_LINES.split())})\b(?!\s{{0,20}}(?:[:=(]|-\w))",
    re.IGNORECASE,
)
_CHINESE_ORDER: Final = re.compile(
    r"(?:^|[。！？；：，,\n:;])\s{0,200}+(?:把|将|將|发送|發送|使用|运行|執行|执行|删除|刪除|回复|回覆|安装|安裝|转发|轉發|改成|告诉|告訴)"
)


def is_order(text: str) -> bool:
    """Whether a text tells its reader, or lays down for anybody, what is to be done."""
    return (
        _SAYS.search(text) is not None
        or _BEGINS_AS_ORDER.search(text) is not None
        or _CHINESE_ORDER.search(text) is not None
    )
