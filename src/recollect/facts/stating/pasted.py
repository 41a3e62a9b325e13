"""The marks of words that were brought along: logs, code, documents, summaries, injected orders.

Owns the phrases and line shapes only; `spoken` says what follows from them. Must never
match a sentence that a person would type to state something. What always holds: patterns are
written for text as it was said, and each is linear in a line.
"""

from __future__ import annotations

import re
from typing import Final

# Lines that machines write. Each alternative begins at the line's first character.
MACHINE: Final = re.compile(
    r"\s*+(?:"
    # What bots and schedulers post.
    r"\[[^\]\n]{0,30}(?:cron|ci|bot|build|deploy|job|alert|monitor|heartbeat|pipeline|webhook"
    r"|release"
    r"|部署|定时任务|定時任務|告警|监控|監控|构建|構建|流水线|流水線|机器人|機器人|心跳|巡检"
    r"|巡檢)[^\]\n]{0,60}\]\s"
    r"|>|\||＞|#{1,6} |\d+[\t ]+[-|:] "  # quotes, tables, headings, numbered lines
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d|\[?\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
    r"|\[?(?:ERROR|WARN|WARNING|INFO|DEBUG|TRACE|FATAL|CRITICAL|NOTICE)\b[\]:\s|]"
    r"|npm (?:ERR!|WARN)|Traceback \(|File \"|at \S+ ?\(|at [\w.$<>]+:\d|\.{3} \d+ more|Caused by: "
    r"|\$ \S|% \S|>>> |PS [A-Z]:|# ?!|diff --git|index [0-9a-f]{6,}|@@ |\+\+\+ |--- [ab/]"
    r"|commit [0-9a-f]{7,}"
    r"|[+-](?! )\S|[+-] {2,}\S|[+-] (?:def|class|return|import|const|let|var|if|for|self|this)\b"
    r"|(?:From|To|Cc|Subject|Date|Sent|发件人|收件人|主题|寄件者|收件者|主旨)[:：] "
    r"|(?:HTTP/\d|GET|POST|PUT|PATCH|DELETE) [/\d]"
    r"|[\w.]*(?:Error|Exception|Warning): "
    r"|(?:def|class|import|from|const|let|var|function|func|fn|pub|public|private|static|package"
    r"|return|export|SELECT|INSERT|UPDATE|ALTER|CREATE|FROM|RUN|COPY|ENV"
    r"|EXPOSE) [\w{*(\"'.@/]+.{0,200}"
    r"(?:[;{}():=]|\bimport\b.{0,80}|['\"])\s*$"
    r"|[A-Za-z_][\w.\-\[\]]{0,60}\s?=\s?\S+\s*$"  # PORT=8080
    r"|(?!(?:agreed|deci\w+|note|remember|update|correction|fyi|reminder|status|todo|done)\b)"
    r"[\"']?[a-z_][\w.-]{0,40}[\"']?: ?(?:[\"'\[{]|[\w./:@-]+\s*$)"  # port: 8080
    r"|[\[\]{}()<].{0,400}[\]})>,;]\s*$|[\]})]+[;,]?\s*$"
    r"|[^\u4e00-\u9fff]{0,400}[;{]\s*$"
    r"|(?:-[a-z]|--[a-z][\w-]+)\b"
    r")"
)
# Links and tags are written for a page, not for a model.
PAGE: Final = re.compile(
    r"\]\(https?://|</?(?:a|div|span|p|br|img|table|tr|td|li|ul|ol|h\d|code|pre)\b[^>\n]{0,200}>"
)
INDENTED: Final = re.compile(r"(?: {4,}|\t)")
LISTED: Final = re.compile(r"\s*+(?:[-*+•]|\d{1,3}[.)、]|[a-z][.)])\s+\S")
RULE: Final = re.compile(r"\s{0,8}(?:[-=_*~#]{3,}|-{2,}.{0,60}-{2,}|={2,}.{0,60}={2,})\s*$")
HEADING: Final = re.compile(r"^#{1,4} \S", re.MULTILINE)
# What announces the words of somebody else. It ends the line, or stands before a quotation.
ANNOUNCED: Final = re.compile(
    r"(?:\b(?:docs?|documentation|readme|wiki|runbook|page|article|blog|post|paper|guide|manual"
    r"|changelog"
    r"|release notes?|e-?mail|mail|message|msg|memo|letter|policy|policies|contract|spec|rfc|ticket"
    r"|issue"
    r"|thread|slack|transcript|notes?|handbook|template|snippet|paste[ds]?|pasting|quot(?:e|ing|ed)"
    r"|excerpt|log|logs|output|stack ?trace|trace|error|config|file|dump|response|code|diff|patch"
    r"|yaml"
    r"|json|email|text|forwarded|fwd|forwarding|contents?|comment|review|says?|said|wrote|writes"
    r"|reads"
    r"|states|replied|answered|told me|got this|sent (?:me|us)( this)?|posted|stands there)\b"
    r"[^.!?\n]{0,80}|\b(?:here(?:'s| is| are) (?:the|what|an?|their|his"
    r"|her)\b[^.!?\n]{0,80}))[:：]\s*$",
    re.IGNORECASE,
)
# The same without a noun for it: somebody sent something, and what is to be made of it.
PASSED_ON: Final = re.compile(
    r"\b(?:got|received|sent|forwarded|posted|pasted?|wrote|shared|came"
    r"|from)\b[^.!\n]{0,60}\b(?:this|these"
    r"|following|below|it|vendor|client|customer|team|boss|legal|support"
    r"|landlord)\b[^.!\n]{0,60}[:：?？]\s*$"
    r"|(?:发来|發來|发了|發了|发的|發的|转来|轉來|收到|贴|貼|群里|群裡|写的|寫的|啥意思|什么意思"
    r"|什麼意思|怎么看"
    r"|怎麼看)[^。！\n]{0,30}[:：?？]\s*$",
    re.IGNORECASE,
)
# The same within a line: what follows the colon is theirs.
QUOTED_ON: Final = re.compile(
    r"\b(?:got this|from (?:\w+ )?(?:support|vendor|legal|hr|client|customer|them)|says?|said|wrote"
    r"|writes"
    r"|paragraph|grammar|proofread|translate|e-?mail|letter|forwarded|quote|this (?:text|sentence"
    r"|message|mail))"
    r"\b[^.!?\n:：]{0,40}[:：]\s+(?=\S)"
    r"|(?:翻译|翻譯|润色|潤色|改写|改寫|校对|校對|邮件|郵件|原文|公告|通知|写着|寫著|写道|寫道"
    r"|对方说|對方說|客户说"
    r"|客戶說|回复|回覆)[^。！？\n:：，,]{0,16}[:：]\s*(?=\S)",
    re.IGNORECASE,
)
# How a letter begins that was not written to a model.
SALUTATION: Final = re.compile(
    r"\s*+(?:Dear\b.{0,60}|(?:Hi|Hello|Hey) (?:all|team|everyone|folks|customers?|colleagues|Mr|Ms"
    r"|Mrs|Dr)\b.{0,30}"
    r"|(?:尊敬的|各位|亲爱的|親愛的).{1,20}|\S{1,8}您好)\s*[,，:：!！]?\s*$",
    re.IGNORECASE,
)
ASKED_ABOUT: Final = re.compile(
    r"\b(?:proofread|translate|rephrase|polish|summari[sz]e|reword|review|check|fix up|look at|read"
    r"|shorten|edit)"
    r"\b[^.!?\n]{0,30}\b(?:this|following|below|text|paragraph|draft)\b[^.!?\n]{0,30}[?.:]?\s*$"
    r"|(?:翻译|翻譯|润色|潤色|改写|改寫|校对|校對|总结|總結)(?:一下"
    r"|下)?[^。！？\n]{0,12}[:：？?]?\s*$",
    re.IGNORECASE,
)
ANNOUNCED_CHINESE: Final = re.compile(
    r"(?:文档|文件|文章|博客|邮件|郵件|消息|讯息|訊息|公告|手册|手冊|规定|規定|制度|日志|日誌|报错"
    r"|報錯|输出|輸出"
    r"|配置|代码|代碼|程式碼|原文|引用|转发|轉發|转一下|轉一下|粘贴|貼|贴|说明|說明|网页|網頁|帖子"
    r"|评论|評論|回复|回覆"
    r"|里面写|裡面寫|写道|寫道|上面写|上面寫|说的是|說的是|他说|他說|她说|她說|对方说|對方說|内容"
    r"|內容|如下)"
    r"[^。！？\n]{0,30}[:：]\s*$"
)
# A heading of one's own list, which announces nobody else's words.
OWN_HEADING: Final = re.compile(
    r"remember|keep in mind|for the record|decid|decision|agreed|my (?:preferences|rules|setup"
    r"|notes)"
    r"|our (?:conventions|rules|setup|ports|hosts|stack)|house rules|ground rules"
    r"|记住|記住|记一下|記一下|决定|決定|约定|約定|偏好|注意",
    re.IGNORECASE,
)
# What takes up one's own words again behind a paste.
RESUMED: Final = re.compile(
    r"\s*+(?:so[, ]|ok(?:ay)?\b|anyway|anyhow|that said|for us|on our (?:side|end)|in our case"
    r"|my take"
    r"|can you|could you|what do you|does (?:this|that)|that'?s (?:the|what|from|all|their)"
    r"|end (?:of )?(?:quote|paste)|back to|from my side|but we|for our|as for us"
    r"|所以|总之|總之|我觉得|我覺得|不过我|不過我|以上|回到|好了|帮我|幫我|你看|你觉得|你覺得|那我"
    r"|但我们|但我們|这是他|這是他)",
    re.IGNORECASE,
)
SUMMARY: Final = re.compile(
    r"\s*+(?:This session is being continued from a previous conversation"
    r"|The conversation history before this point was compacted"
    r"|<summary>|\[?(?:conversation|context|compaction) summary\b"
    r"|# ?(?:conversation )?summary of (?:the )?"
    r"(?:previous|earlier)|Another language model started to solve this)",
    re.IGNORECASE,
)
INJECTED: Final = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,20}\b(?:all|any|your|the|previous|prior|earlier"
    r"|above)\b"
    r".{0,20}\b(?:instructions?|prompts?|rules|messages|context)\b|\bsystem prompt\b"
    r"|\byou are now\b"
    r"|\b(?:note|instructions?|message) (?:to|for) (?:the |any |all )?(?:ai|llm|assistant|agent"
    r"|model)s?\b"
    r"|(?:忽略|无视|無視|忘记|忘記).{0,10}(?:之前|以上|先前|前面|所有|此前).{0,10}(?:指令|指示|提示"
    r"|规则|規則|要求|内容|內容)"
    r"|系统提示|系統提示",
    re.IGNORECASE,
)
