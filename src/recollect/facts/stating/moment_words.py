"""The words of the moment: steps, orders for now, conditions, what others said, advice.

Owns the phrases only; `doubt` says which of them count for which statement. Must never hold a word
that plain statements use as well. What always holds: patterns are written for folded sentences and
are bounded, so the time is linear in the sentence.
"""

from __future__ import annotations

import re
from typing import Final

# What an agent tells of the step that it is at.
NARRATION: Final = re.compile(
    r"\bi'm (?:now |also |just |going |still )?\w+ing\b|^\W*+(?:now|next|then|first|finally|great"
    r"|good|ok|okay)\b[,:!.]? (?:find|check|let|publish|update|fix|add|run|look|i\b|i'|we\b|create"
    r"|test|see|verify|the (?:issue|problem|build|tests?)|it|this|that|for the)|\bi (?:see|notice"
    r"|found|can see|need to|want to|should|have to)\b|\byou (?:can|could|should|may|might|need"
    r"|typed|have|want)\b|\bthis (?:means|pass|is|will|way)\b|\bdidn't work\b|\bnot sure\b"
    r"|\bfeel free\b|\bshould (?:now|only|be|use)\b|\b(?:about|around|approximately|roughly"
    r"|on average|typically|usually|generally|normally|in general|by default)\b"
    r"|^\W*+(?:next steps?|still (?:waiting|running|working|on it))\b|接下来|现在(?:我|来|去|开始"
    r"|需要)|我(?:会|将|需要|建议|看到|发现)|你可以"
    r"|您可以|建议|一般(?:来说|情况)?|通常|平均|左右|看起来|看样子|看上去|[a-z] ?默认"
    r"|^\W*+from the (?:trace|logs?|output|docs)\b|\brule of thumb\b|\boption [abc]\b"
    r"|方案\s?[a-z一二三]|^\W*+(?:这个|该|此)(?:脚本|函数|类|方法|代码|正则)|^\W*+(?:the"
    r"|this) (?:function|regex|code|method|snippet|query|command) (?!now|lives|is in|has been"
    r"|moved)\w+s\b"
)
# What an agent advises or explains.
ADVICE: Final = re.compile(
    r"^\W*+(?:ensure|use|set|verify|check|add|create|make|run|call|try|consider|avoid|update"
    r"|install|open"
    r"|define|return|remember|note|keep|configure|replace|implement|test|start)\b"
    r"|^\W{0,4}\*\*[^*]{1,80}\*\*\s*[:–—-]|^\W{0,4}\*\*[^*]{1,80}:\*\*"
    r"|^\W*+the (?:issue|problem|fix|reason|trick|idea|goal) (?:is|was|here)\b|\b\d+ lines\b"
    r"|\bconsole\.log\b|\bprint(?:f|ln)?\b|\bdebug|\btemporar|调试|临时|\blines? \d|\btypos?\b"
    r"|\b(?:trace|logs?|output|error) (?:shows?|says|points)|\b\d+ of \d+\b|还在跑|\d ?%|/tmp/"
    r"|\bscratch\b|\bto reproduce\b"
    r"|\bbreakpoint\b|验证一下|常见|\d+ ?个(?:测试|用例|文件|case)"
    r"|\b(?:e\.g\.?|for example|for instance|i\.e|such as|so that|in order to|would|could|can be)\b"
    r"|比如|例如|可以|如果|需要|的话|方向|准备|打算|应该|我来|我去|我再|接着"
)
# What is to be done at once. Beside it, "don't …" is how this one thing is to be done.
AT_ONCE: Final = re.compile(
    r"(?:^\W*|[,;.:!—–]\s*|\b(?:and|then|now|just|ok|okay|please|pls|but|also|first)\s+)"
    r"(?:rename|show|run|open|fix|remove|delete|revert|check|look|move|write|create|add|update"
    r"|change|commit"
    r"|push|refactor|make (?!sure)|build|test|try|print|read|review|summari[sz]e|explain|list|draft"
    r"|translate"
    r"|find|replace|convert|extract|split|send|give|tell|stop|wait|go|start|continue|deploy|merge"
    r"|install"
    r"|download|rerun|restart|retry|sort|clean|drop|bump|comment|rewrite|polish|finish)\b"
    r"|(?:^\W*|[，,。；;]\s*)(?:(?:那|你|先|再|就|好|行|ok)\W{0,2}){0,3}(?:帮我|帮忙|给我|把|将)"
    r"|(?<![好])吧(?:[，,。！]|$)|一下|看看|这次|这回|今天|先(?!问|跟|和|找|告诉|通知|给我看)"
)
# Orders to make something: what they say of it is how this one thing is to be.
MAKE: Final = re.compile(
    r"^\W*+(?:(?:ok|okay|so|and|then|please|pls|now|also|hey|hi|next|first|just|great|cool|thanks"
    r"|perfect|right)\W+)*"
    r"(?:i (?:need|want) an? |make (?!sure|that)|create|write (?!all|every|commit|in\b|your|tests"
    r"|docs"
    r"|comments)|(?:build|draft|list|design) (?:an?|the|me|us|it|this|that|all|some|my|our)"
    r"|generate|add an?\b|implement|translate|proofread|find|give me|show me"
    r"|tell me|explain|compare|summari[sz]e|rephrase|sketch)\b"
    r"|^\W*+(?:那|再|然后|接着|请|麻烦)?(?:写|做|建|搞|画|加|弄|设计|生成)(?:一)?(?:个|份|段|张|条"
    r"|版)|^\W*+(?:翻译|润色|改写|总结|列出|列一下|解释)"
)
STANDING: Final = re.compile(
    r"\b(?:from now on|always|never|every time|by default|in general|as a rule|going forward|ever"
    r"|whenever"
    r"|all|any|every)\b"
    r"|以后|今后|一律|每次|从现在|永远|默认|所有|任何|都"
)
# Who asks for help tells what they see now, and not yet what holds.
ASKS_FOR_HELP: Final = re.compile(
    r"\bhelp\b|\bideas?\W*[?？]|\bany ideas?\b|\bwhy\b|\bwhat'?s (?:wrong|going on|happening)\b"
    r"|\bcan (?:u|you) (?:look|check|see|help|take|find|figure|debug|investigate)\b|\bstaring\b"
    r"|\bstuck\b|\bno clue\b"
    r"|\bwtf\b|\bfigure (?:it )?out\b|\binvestigate\b|\bdebug\b|\blook into\b|\bkeeps? \w+ing\b"
    r"|\btake a look\b"
    r"|救命|帮我?看|帮忙看|看下|看看|看一下|怎么回事|为什么|咋|为啥|排查|查一下|查下|求助|急|老是"
    r"|一直"
)
# What the model made in this conversation is talked of to have it changed.
YOURS: Final = re.compile(
    r"\byour (?:code|example|snippet|script|function|fix|patch|change|version|answer|suggestion"
    r"|output|draft)\b"
    r"|你(?:写|改|刚|那个|给的|生成|贴)"
)
# What stands before a statement and makes it a condition, an aim or somebody's words.
CONDITION: Final = re.compile(
    r"\b(?:if|when|whenever|before|until|till|unless|whether|ensure|ensuring|make sure|making sure"
    r"|in case|once"
    r"|after|as soon as|want to|trying to|need to|how|why|says?|said|told|reckons?|claims?|thinks?"
    r"|mentioned"
    r"|suggested|asked)\b[^,;:—–]*$"
    r"|(?:如果|要是|一旦|假如|万一|除非|要不是)[^，,；;]*$"
)
TELLING: Final = re.compile(
    r"\b(?!(?:i|we|you|i've|he'd)\b)[a-z][\w'-]* (?:says?|said|told (?:me|us)|reckons?|claims?"
    r"|thinks?|mentioned"
    r"|suggested|wrote|writes|complain(?:s|ed)|reports? that|reported)\b"
    r"|(?:docs?|文档|readme|wiki|官网|网上|书上|文章|博客|帖子|邮件|ticket|工单|合同|手册|slack"
    r"|群)[^，。]{0,4}(?:写|说|讲"
    r"|标|提)"
    r"|课程|老师|教程|视频|书里|电影|小说|隔壁|别的组|别的团队|友商|竞品|人家|面试"
    r"|(?<!我)(?<!我们)(?<!咱们)想要"
    r"|(?:^|[，,。；;])\s*(?:就)?说(?!错|明|一下|下|实话|定|白|回|到|起|好|的|真)"
    r"|(?<![我你来再便单话据听先么样直白坦常多])(?<!我们)(?<!咱们)(?:说|讲|写道|提到|喊|反馈|表示)"
    r"(?!错|明|一下|下|实话|定|不|法|白|回|到|起|话|好|的|了|是|吧|真|过|清)"
)
TEMPORARY: Final = re.compile(
    r"\b(?:let me|lemme|i'll|i will|i'm going to|i am going to|gonna|let's (?:see|check|try|look"
    r"|add a (?:print|log|breakpoint)|debug|test|run|start|do (?:a|one|some)|have|take|find|figure"
    r"|go (?:through|over|back|ahead|on|step)|move on|begin|hope|wait|dig|first|quickly"
    r"|also (?:check|see|try)|verify|confirm|make sure|get (?:this|started|going)|talk|discuss"
    r"|revisit|think))\b"
    r"|\b(?:for now|right now|at the moment|for the moment|just now|for the time being|temporarily"
    r"|temp(?:orary)?(?: (?:fix|hack|workaround|print|log))?|this time|just this once|for a (?:sec"
    r"|second|minute|moment|bit)|quickly|real quick|in a (?:sec|minute|bit)|brb|hang on|hold on"
    r"|one sec|a second|for this (?:run|test|one|session)|while (?:i|we) (?:debug|test|check|look)"
    r"|as a test|for testing|for debugging|to (?:debug|see (?:if|what|whether)|check (?:if"
    r"|whether)))\b"
    r"|\b(?:try|trying|tried) (?:to )?(?:\w+ing|again|it|that|this|with|running|restart\w*|the)\b"
    r"|\b(?:add|adding|added|put|insert) (?:an? |some )?(?:print|console\.log|log statement"
    r"|breakpoint|debug|sleep)\w*|\bprintf?\b.{0,20}\bdebug"
    r"|\b(?:it )?still (?:fails?|dies|crash(?:es)?|broken|doesn't|hangs|breaks)\b"
    r"|\bno (?:difference|luck|effect)\b"
    r"|\bdidn't help\b|\bsame error\b"
    r"|先(?:看|试|跑|加|查|重启|注释|打|不|别|把|用|这样|到这|放|停|暂|缩|调|降|升|关|回|换|改|设"
    r"|写|做"
    r"|弄|顶|稳|跳|绕|禁|\s?[a-z])|没线索|又(?:看|跑|试)了|看了一遍|暂时|临时|目前先|这次(?:先"
    r"|就)|眼下|待会|等会|等一下|稍等|一会儿|马上|我(?:来|去|先|再|这就)(?:看|查|试|跑|改|加|重|检"
    r"|确|排|帮|做|把|打)|试试|试一下|再试|看看|看一下|瞧瞧|打个(?:日志|断点|log)|加个(?:print|打印"
    r"|日志|断点|log|sleep)|调试(?:一下|用|时)|重启(?:一下|试|看)|临时改|让我|刚才(?:试|改|跑|看"
    r"|重)|试了|(?:也|都)没用|没有?用[，。！]?$"
    r"|还是\s?(?:报|不行|不对|oom|挂|一样|失败|崩|超时|卡)"
)
# What begins so is put up for discussion, however firm the rest of it sounds.
PROPOSAL: Final = re.compile(
    r"^\W*+(?:要不|要么|不如|比如|打个比方|假设|如果是我|maybe|perhaps|what if|how about|say,)"
)
MOMENTARY: Final = re.compile(
    r"\b(?:again|today|yesterday|tonight|this (?:morning|afternoon|evening)|twice|weird"
    r"|it (?:prints|shows|says|returns|logs|printed|showed|said|returned))\b|又(?:挂|崩|报|炸|坏|断"
    r"|卡|不)|今天|今晚|昨天|昨晚|明天|刚才|刚刚|[了过][\d一二三四五六七八九十两几]+次"
)
ONE_OFF: Final = re.compile(
    r"\b(?:yet)\b|\bthis \w+ must\b|\w\(\)|\bself\.|\b(?:this|that) (?:time|turn|message|reply"
    r"|answer|commit|pr"
    r"|file|line|function"
    r"|one|branch)\b.{0,20}$|\bin line \d+|\bon line \d+|\bbefore (?:you|we) (?:start|begin|do"
    r"|continue|go)\b|\buntil i\b|\bwhen you'?re (?:done|ready|finished)\b|\b(?:today|tonight"
    r"|this (?:morning|afternoon|evening))\b|\bdon't (?:worry|bother|mind|panic|sweat|stress|rush"
    r"|hurry|know|think|care|see|get|want|have|need|believe|remember|understand|mean|recall|like"
    r"|love)\b|\bnever ?mind\b|\bnever (?:thought|seen|heard|knew|had|been|tried|used|got|worked"
    r"|happened|did|mind|works|understood)\b|\bdon't (?:\w+ ){0,2}(?:it|that|this|them|anything"
    r"|either|these|those)(?: (?:yet|now|please|though))?\W*$|\bdon't (?:touch|change|edit|run|push"
    r"|commit|merge|send|delete|start|do) (?:it|that|this|anything)\b"
    r"|(?:别|不要|先别|不用|不必)(?:急|担心|着急|怕|慌|紧张|客气|管它|介意|误会|生气|忘了?(?:吃|喝"
    r"|睡)|闹|逗|催|动了?[。！]?$|说了|(?:弄|搞|写|填|传|发|看|配|接)(?:反|错|混|丢|坏|漏)|闹|逗"
    r"|提了|这样|笑)|别[^，。]{1,6}了(?:[，。！]|$)|别的|特别|分别|区别|级别|类别|个别|辨别|识别"
    r"|性别|差别|别人|告别|别墅|今天"
    r"|这周|本周|明天|下周|这两天"
    r"|今晚|这一次|这回|刚才|刚刚"
)
