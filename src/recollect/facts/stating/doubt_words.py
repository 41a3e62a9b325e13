"""The words that make a sentence doubtful: questions, guesses, stories, mockery, moments, secrets.

Owns the phrases only; `doubt` says which of them count for which statement. Must never
hold a word that plain statements use as well. What always holds: patterns are written for folded
sentences and are bounded, so the time is linear in the sentence.
"""

from __future__ import annotations

import re
from typing import Final

QUESTION: Final = re.compile(
    r"[?？]\W*$|[?？]\s|(?:吗|呢|么|嘛)[。！~\s]*$"
    r"|^\W*+don't (?:we|you|i|they)\b"
    r"|,\s*(?:right|correct|no|got it|gotcha|makes sense|yeah|eh|isn't it|aren't they|is it)\W*$"
    r"|(?:对吧|是吧|没错吧"
    r"|对不对)\W*$"
    r"|^\W*+(?:(?:so|and|but|ok|okay|hey|hi|well|also|then|now|hmm|btw)\W+){0,3}"
    r"(?:what|why|how|who|which|where|whose|should (?:we|i)|shall|can (?:we|i)\b|could (?:we|i)\b"
    r"|do (?:we|you|i|they)\b"
    r"|does|did|is (?:it|there|this|that)\b|are (?:we|you|there|they|these)\b|has\b|have (?:you"
    r"|we)\b|will (?:it|you|this)\b"
    r"|would (?:it|you|this)\b|any (?:idea|chance|thoughts)|wonder|thoughts on|when (?:do|does|did"
    r"|is|are|will|should|can))\b"
    r"|(?:^|[,;.:!]|\b(?:so|and|ok|please|then|but|now))\s*(?:can|could|would|will) (?:you|u)\b"
    r"|要不要|是不是|能不能|可不可以|行不行|好不好|有没有|该不该|是否|为什么|怎么办|怎么样|咋办"
    r"|哪个好|哪一个|多少[?？]?$|什么[?？。]?$|如何[?？]?$"
    r"|(?!时不时)([\u4e00-\u9fff])不\1|\bremember (?:what|which|where|who|if|whether)\b"
)
POLITE_ORDER: Final = re.compile(
    r"\b(?:can|could|would|will) you (?:please |pls |also |just ){0,2}"
    r"(?:remember(?! what| which| where| who| if| whether)|keep in mind|note\b|make a note|never"
    r"|always|stop)|(?:能|可以|麻烦"
    r"|请)你?(?:帮我)?(?:记住|记一下|记下)"
)
TAG_QUESTION: Final = re.compile(
    r"[,，]?\s*(?:ok(?:ay)?|k|alright|please|got it|clear|deal|yeah|好吗|好吧|行吗|可以吗|知道了吗"
    r"|明白吗|好不好|ok吗)\s*[?？]+\W*$"
)
SPECULATION: Final = re.compile(
    r"\b(?:maybe|perhaps|mayb|possibly|probably|presumably|might|may (?:be|have|want|need)"
    r"|could(?:n't| be| also| just| have)?"
    r"|what if|how about|what about|i (?:think|guess|suppose|suspect|wonder|assume|bet|imagine"
    r"|feel like|believe|doubt)"
    r"|not (?:\w+ )?sure|unsure|no idea|dunno|consider(?:ing)?|thinking (?:of|about)|thought about"
    r"|toying|leaning|tempted"
    r"|pondering|weighing|debating|undecided|undecided|still deciding|one option|another option"
    r"|options? (?:is|are|would|could)"
    r"|alternatively|either\b.{1,80}\bor|would(?:n't)?|i'd (?!rather|prefer|like|love|hate)|we'd"
    r"|it'd|that'd|they'd|you'd (?:have|need|get)|hypothetical\w*|theoretically"
    r"|in theory|suppose|supposing|imagine|assuming|assume|let's say|say we|wish|hope(?:fully)?"
    r"|hoping|seems?|seemed"
    r"|looks like|look like|appears?|apparently|supposedly|allegedly|rumou?r|someday|some day"
    r"|one day|eventually"
    r"|at some point|down the (?:road|line)|later on|in the future we|should (?:probably|maybe"
    r"|be able|work|be fine|be ok|be good)"
    r"|ought to|kind of|sort of|like to see|would be (?:nice|cool|great)|(?:nice|cool"
    r"|great) to have|if only|tbd|to be (?:decided|confirmed|discussed)"
    r"|worth (?:trying|a try|considering|exploring)|an idea|one idea|ideas|idea\s*:|idea is"
    r"|brainstorm\w*|potentially|guess(?:ing)?|likely|unlikely|or something|whatever|rule of thumb"
    r"|iirc|afaik"
    r"|if i recall|from memory|for the sake of argument|for argument's sake)\b"
)
SPECULATION_CHINESE: Final = re.compile(
    r"可能|也许|或许|大概(?!\d)|估计|应该(?:是|在|会|可以|能|没|就|有|够|差不多|行|还)|好像|似乎"
    r"|貌似|要不(?!要|然)|不如(?!意)|假如|假设|万一|要是|倘若"
    r"|考虑|想想|想着|在想|说不定|讨论(?:一下|下)|倾向|听说|据说|感觉|我猜|怀疑|不确定|不太确定"
    r"|没想好|没定|还没(?:决定|确定)|待定|再说|再议|看情况"
    r"|如果.{0,40}(?:的话|就好|会怎么)|或者|还是.{1,20}还是|到时候|将来|以后再|有空|有机会|不妨"
    r"|试着|是否|会不会|难道|理论上|按理|印象中|记得好像|我觉得|我认为|个人觉得"
    r"|(?:我|咱|我们|咱们)想(?!要)|打算|计划着|琢磨|犹豫|纠结|希望|但愿|最好能|备选|方案[一二三abc]"
    r"|可以试|可以考虑|也行|也可以|来着|我记得|我看(?!到|过)|你说(?!的对)|打个比方"
)
HYPOTHETICAL: Final = re.compile(
    r"^\W*+(?:(?:and|but|so|ok|well|also|then)\W+)?(?:if|unless|in case|once|when we (?:get|reach)"
    r"|as soon as|were we|had we|even if)\b"
    r"|\bif (?:we|i|you|they|it|that|this|someone|somebody)\b.{0,80}\b(?:'d|would|could|might|were"
    r"|had)\b|^\W*+(?:如果|若|假如|要是|等(?!下|一下|等|会)|等到|一旦)"
    r"|\b(?:when|once|until|after) (?:it|that|this|they|everything)(?:'s| is| are) (?:done|ready"
    r"|finished|merged|live)|好了(?:叫|告诉|通知|跟|喊)我"
)
STORY: Final = re.compile(
    r"\b(?:in|at|from|on) (?:my|our|a|the|his|her|their) (?:\w+ )?(?:last|previous|old|former|ex-?"
    r"|prior|first|past) (?:\w+ )?(?:job|company|team|gig|employer|place|workplace|startup|role"
    r"|project|client|shop|life|flat|apartment|school)"
    r"|\b(?:years?|decades?) ago\b|\bback (?:when|in (?:the|my|\d{4}|college|school|uni))\b"
    r"|\bonce upon\b|\bi once\b|\bwe once\b|\bone time\b|\bthis one time\b"
    r"|\b(?:a|my|some|this) (?:friend|buddy|ex-?colleague|ex-?coworker|cousin|uncle|neighbou?r"
    r"|brother|sister)(?:'s|s)? (?!prefers|likes|hates|is\b|wants|lives|needs|has\b|can't)\w+"
    r"|\bused to\b(?! (?:the|it|that|be))|\bwhen i (?:was|worked|joined|started at)\b|\bmy (?:old"
    r"|ex|last|previous|former)[ -](?:boss|manager|team|company|job|employer|lead|colleague)"
    r"|\bin the old days\b|\bfunny story\b|\bremember when\b|\breminds me\b|\bi remember (?:when"
    r"|how|that one|the time)\b"
    r"|\b(?:a|the|some) (?:story|novel|movie|film|episode|podcast|book)\b.{0,40}\b(?:where|in which"
    r"|about)\b|\bfictional\b|\bin the (?:story|novel|game world)\b"
    r"|(?:上家|前公司|前东家|上一家|上一份|上个公司|之前那家|以前的公司|以前公司|老东家|前同事"
    r"|我以前在|我之前在|以前在|之前在.{0,8}公司|我朋友|我同学|朋友公司|有个朋友|有一次|有次|当年"
    r"|那时候|那会儿|几年前|大学时|上学时|我表哥|我哥们|听过一个|故事里|小说里|电影里|从前|想当初"
    r"|刚毕业)"
    r"|(?:大学|上学|读书|实习|毕业|小时)(?:的)?(?:时候|那会|那年)|\bi(?:'m| am) (?:playing|reading"
    r"|watching)\b"
)
RETURN: Final = re.compile(
    r"\b(?:anyway|anyhow|but (?:here|now|for (?:us|this)|we|in our|our)|here,? (?:we|i)"
    r"|for this (?:project|repo|one)|for us|in our case|in this (?:project|repo)|back to"
    r"|long story short|that's why)\b"
    r"|总之|不过现在|不过我们|但我们|但是我们|但这次|这次|所以我们|现在我们|咱们这|我们这|我们现在"
    r"|回到正题|言归正传|说回"
)
SARCASM: Final = re.compile(
    r"(?:^|\s)/s(?=\W|$)|🙄|\byeah,? (?:right|sure)\b|\boh (?:great|sure|yeah|good|wonderful"
    r"|fantastic|perfect|brilliant|joy|nice|lovely|yes)\b|\bsure,? (?:let's|why not|because|and)\b"
    r"|\bgenius\b|\bbrilliant\b|\bwhat could (?:possibly )?go wrong\b|\bwhat a (?:great|brilliant"
    r"|fantastic|wonderful)\b|\bjust (?:great|wonderful|perfect|what (?:i|we) needed)\b"
    r"|\bbecause (?:that|who|clearly|obviously|apparently|nothing)\b.{0,60}|\bwho needs\b"
    r"|\bclearly the best\b|\bjust kidding\b|\b(?:jk|j/k|kidding|joking|joke|sarcasm|ironic\w*)\b"
    r"|\blove (?:it when|how)\b"
    r"|\bgreat idea\b|\bwhile we're at it\b.{0,40}\b(?:let's|why)|\bhow (?:lovely|wonderful"
    r"|convenient)\b|\bof course,? because\b|\bmy favou?rite (?:bug|part|thing is when)\b|\bi(?:'m"
    r"| am) sure (?:the|that|they|nobody|everyone)\b|\btotally (?:fine|safe|normal|secure)\b"
    r"|\bas (?:always|usual),? (?:a )?(?:joy|great|perfect)\b|😏|🙃|😜"
    r"|呵呵|开玩笑|说笑|逗你|才怪|真是.{0,4}(?:天才|人才|高明|机智|棒|好主意)|天才(?:啊|呀|！|!)"
    r"|好主意[啊，,]|英明|太(?:棒|好|妙|机智|优秀)了(?:吧|呢|啊|，|,|！|!)?|可真(?:行|棒|是|好|会)"
    r"|可不是嘛|多好啊|反正.{0,16}(?:没人|又不|也没|不会|不用)|干脆.{0,30}(?:得了|算了|好了|吧)"
    r"|干脆(?:以后|都|全)|求之不得|谢谢啊|真有你的|狗头|手动|不愧是|讽刺|反话|(?:多|真)(?:安全|省事"
    r"|方便|省心)|是吧[?？]|怕什么|岂不"
    r"|\byeah,? let's\b|融资必备"
)
# Laughter tells of its own sentence only: it mostly answers what was said before.
LAUGHTER: Final = re.compile(
    r"\b(?:lol|lmao|rofl|haha\w*|hehe\w*)\b|😂|🤣|😅|哈哈|嘿嘿|笑死|厉害了"
)
OTHERS: Final = re.compile(
    r"\b(?:docs?|documentation|readme|wiki|article|blog(?: ?post)?|post|paper|guide|manual|book"
    r"|tutorial|changelog|release notes|policy|handbook|spec|rfc|e-?mail|stack ?overflow|vendor"
    r"|they|he|she|someone|somebody|people|everyone|folks|reddit|hn|twitter|consultant|salesman"
    r"|sales (?:guy|rep)|chatgpt|gemini|copilot) (?:\w+ )?(?:says?|said|states?|recommends?"
    r"|suggests?|claims?|wrote|writes|reads|mentions?|insists?|argues?|advises?|tells?|told|warns?"
    r"|keeps? saying|thinks?|wants us)\b"
    r"|\baccording to\b|\bquoting\b|\bquoted? (?:from|by|below|above)\b|\bquote\s*:|\bunquote\b"
    r"|\b(?:translate|proofread|rephrase|polish|reword|summari[sz]e|what does this mean)\b.{0,30}:"
    r"|(?:翻译|怎么翻|润色|改写|校对|什么意思)[^。]{0,10}:|日志(?:里|中)?(?:显示|说|提示)"
    r"|[::]\s*\"\ufffc|\bit says\b|\bsays here\b|\bper the (?:docs|readme|manual|article|guide"
    r"|policy)\b|\bin their (?:docs|readme|blog|policy|words)\b|\btheir (?:policy|rule|rules|readme"
    r"|docs|guideline|guidelines|team|terms)\b|\bthe other team\b|\bbest practices? (?:is|says?"
    r"|are)\b|\bi (?:read|heard|saw) (?:somewhere|that|an? (?:article|post|tweet|thread|talk|video)"
    r"|on (?:reddit|hn|twitter|the internet|a blog))\b|\bheard\b"
    r"|(?:文档|官方|手册|文章|博客|教程|规范|制度|邮件|网上|书上|书里|论文|别人|有人|他们|他|她"
    r"|对方|供应商|客服|专家|老板娘|公告|readme|wiki)(?:里|上|中)?(?:面)?(?:都|也|还|是|就)?(?:说"
    r"|写|建议|推荐|要求|声称|规定|提到|讲|认为|宣称)|据.{0,10}(?:说|称|报道)|按照?.{0,8}(?:文档"
    r"|官方|手册)|引用|原文|原话|他们的(?:规定|制度|要求|文档)"
    r"|\b(?:chatgpt|copilot|gemini|claude|gpt) (?:gave|told|said|says|suggests?)\b|(?:同事|顾问"
    r"|教程|示例|样例|例子|网友|有的人|有些人|大部分|大多数|多数人|很多人|别的组|隔壁组)(?:里|中|都"
    r"|也|的|们)?(?:用|推荐|建议|说|喜欢|团队|公司|人)"
    r"|(?:上面|里面|这里)写着"
    r"|\b(?:in|from) (?:the|a|this|that|their) (?:tutorial|example|sample|article|talk|video"
    r"|docs)\b|\b(?:tutorial|example|sample)(?: config| code)? (?:uses?|has|says|shows)\b"
)
# Weather, food, commute and the day: nobody keeps them.
EVERYDAY: Final = re.compile(
    r"\b(?:weather|rain(?:ing|s)?|snow(?:ed|ing)?|coffee|lunch|beer|wine|song|commute|on the train"
    r"|the ac\b|hungover|tired|talk (?:then|later)|my (?:laptop|keyboard|job|life|chair|back|screen"
    r"|phone|desk"
    r"|mouse|commute))\b"
    r"|天气|下雨|下雪|地铁|高铁上|空调|外卖|奶茶|咖啡|热死|冷死|累死|困死|放假|这首歌|吃饭|摸鱼"
    r"|加班"
)
PERSONAL_CHATTER: Final = re.compile(
    r"^\W*+(?:hi|hey|hello|thanks|thank you|thx|ty|cheers|good (?:morning|evening|night|afternoon)"
    r"|bye|see (?:you|ya)|welcome|no problem|np|you're welcome|congrats|sorry (?:for|about)|how are"
    r"|nice|cool|great|awesome|perfect|sounds good|lgtm|got it|ok|okay|sure|yep|yes|no|nope|exactly"
    r"|right|done|你好|您好|谢谢|多谢|辛苦了|早上好|晚上好|晚安|再见|拜拜|好的|好|嗯|行|可以|没事"
    r"|不客气|收到|明白|了解|哈喽)\W*$"
)
# Feelings, wishes and comfort: what friends tell each other.
FEELING: Final = re.compile(
    r"\b(?:wow|congrats|congratulations|proud of|so proud|looking forward|can't wait|good luck"
    r"|cheer(?:s|ing)? (?:me|you)|grateful|thankful|appreciate|inspir\w+|amazing|awesome|incredible"
    r"|stoked|excited|exciting|smile|passionate|hugs?|each other|here for you|(?:your|my) back\b"
    r"|believe in|so glad|so happy|makes me happy|take care|dreams?|feeling (?:good|down|great"
    r"|better|sad)|goals|journey|memories)\b"
    r"|感到|开心|焦虑|失望|难过|感动|激动|委屈|伤心|兴奋|高兴|祝你|加油|恭喜|期待"
)
SECRET: Final = re.compile(
    r"\b(?:password|passwd|passphrase|pwd|pw|passcode|pin (?:code|number)|secret(?: key)?"
    r"|api[ _-]?key|access[ _-]?key|private key|token|credentials?|login|license key"
    r"|recovery (?:code|key)|seed phrase|otp|2fa code)s?\b[^.,;]{0,40}?(?:\b(?:is|are|=|to|was)\b"
    r"|[:=])\s*(?:now |still |set to |changed to |just )?[\"'`]?(?=\S*[\d!@#$%^&*_-])[^\s\"'`/]{4,}"
    r"|(?:密码|口令|密钥|令牌|秘钥|token|api ?key|key|验证码|pin码|暗号)[^，。；]{0,16}?(?:是|为"
    r"|改成|改为|换成|[::=])\s*[\"'`「“]?(?=[\x21-\x7e]*[\da-z])[\x21-\x7e]{4,}"
)
SUBORDINATE: Final = re.compile(
    r"[,;，；。]|\s-{1,2}\s|[—–(（]|\b(?:because|since|otherwise|or else|so that|cause|cuz|as it"
    r"|so we|that way)\b|因为|否则|不然|免得|以免|毕竟"
)
CLAUSE_ENDS: Final = re.compile(r"[,;，；]\s*|\b(?:but|and so|so)\s+|但是?|所以")
