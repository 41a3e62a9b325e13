"""Knows how Chinese states a thing plainly, and in which order its ways are tried.

Owns the Chinese rules, in the order in which they are tried; sentences come folded, so they are
written in simplified characters only. Must never decide what is doubtful (`doubt`) or
what was said at all (`spoken`). What always holds: a rule's trigger lies in the sentence;
patterns are bounded, so the time is linear in the sentence.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from recollect.facts.stating.chinese_values import (
    CORRECTION,
    LATIN,
    SOME_VALUE,
    STATED_VALUE,
    VALUE_OF_NOTHING,
    WITHIN,
)
from recollect.facts.stating.elliptic import CHOSEN_CHINESE, VALUED_CHINESE
from recollect.facts.stating.rule import Rule, Stated, all_stated
from recollect.facts.stating.values import ADDRESS, CODE, PATH, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator


_REMEMBER: Final = re.compile(
    r"(?:请|麻烦|帮我|你|要|先|务必|一定)?(?:记住|记一下|记下|记着|记得(?!好像|上次|以前|当时|之前"
    r"|有|吗)|记好|牢记|备注|备忘|留意|注意(?:一下|了)?[\s::，,]|请注意|提醒一下|说明一下[::，,]"
    r"|存一下|写进记忆|记到|别忘了?(?!吃|喝|睡))"
)
_SAYS_SOMETHING: Final = re.compile(r"[是为要用别不在叫有会得必走没]|\d|[a-z]\s*[:=]|:\s*$")
_DECIDED: Final = re.compile(
    r"(?<!取)决定(?!不了|权|性|于|因素|是否|一下|下一步)|定下来|(?<![制确规稳固肯否])定了(?!吗)"
    r"|敲定|拍板|说定"
    r"|商定|约定(?!俗成)|达成一致|一致同意|最终选|最后选|选定|选择了|选了"
    r"|确定(?:用|使用|采用|下来|了|为|走|选|由|不)|就定|统一(?:用|使用|采用|成|为|改|走)|采用|改用"
    r"|换用|转用|弃用|不再(?:用|使用|支持|采用|走|考虑|需要|维护)"
    r"|(?:不走|不做|不搞)[^，。！？；,啦]{1,12}了|砍掉|就用|就选|就走|就按|就这么(?:定|办|做|干)"
    r"|那就(?:用|走|按|换|选|统一|定)"
    r"|继续(?:用|走|沿用)|还是用|还是选|还是走|还是按|沿用|作废|用回|最终(?:方案|决定|用|采用)"
    r"|方案(?:是|定)|结论(?:是|:)|我们(?:就|都|会)?用|咱们?(?:就|都)?用|走.{1,12}方案"
    r"|switch to"
    r"|最后(?:用|选|还是|定)|废弃(?!的)|选\s?[a-z一二三四]\s?方案"
    r"|[a-z][\w.-]{0,30} ?不用了|换\s?[a-z][\w.-]{0,30}\s?了"
)
# Changes that are a value's where they name one, and else a choice.
_CHANGED: Final = re.compile(
    r"定为|定在|定成|换成|换到|换回|改成|改为|改回|改到|改走|切换(?:到|成|为|至)|切到|切回|迁移?到"
    r"|迁到|转到(?!新)|推迟到|延期到|延到|提前到|就叫|就放|回退到|全部?用|都用"
    r"|搬到"
)
_DECIDED_BY_MODEL: Final = re.compile(
    r"决定(?!不了|权|性|于|因素|是否)|敲定|选定|选择了|选了|定下来|约定(?!俗成)|结论(?:是|:)"
)
_CAUSE: Final = re.compile(
    r"root cause(?! ?analysis)|根因(?!分析)|根本原因|原因(?:是|在于|找到|查到|:)|问题(?:出在|在于"
    r"|根源)|罪魁祸首"
    r"|已知(?:问题|bug|缺陷)|^\W*+(?:找到了|查到了|确认了|定位到了?|破案了?"
    r"|查明了?)\s*[:，,]\s*\S{4}"
)
_NO_DECISION: Final = re.compile(
    r"^\W*+(?:那|好|行|嗯|ok|可以|就)?[，,\s]*(?:就|那就)?(?:这么|这样|按你说的|按你的|照你说的"
    r"|听你的)(?:定|办|做|干|来)?(?:了|吧)?\W*$|(?:帮我|请你?|麻烦你?|你|给我|再)(?:把"
    r"|将).{0,30}(?:改成|改为|换成|改到)|^\W*+(?:请|麻烦)?把.{1,30}(?:改成|改为|换成"
    r"|改回).{0,20}(?:一下|吧)\W*$"
)
_NO_CHANGE: Final = re.compile(
    rf"{_NO_DECISION.pattern}|(?:这|那)(?:个|里|段|行|句|张|块|版)[^，。！？；,]{{0,12}}(?:换成"
    rf"|改成|改为|换到)|错别?字|标题|文案|措辞|颜色|字体|单位|第.{{1,3}}[段行句章]|按钮|图标|变量名"
    r"|(?:^|[，,])\s*(?:把|将|帮我|给我)"
)
_LAID_DOWN: Final = re.compile(
    r"(?:^|[，,。；;::、\s]|请|就|都|也|你|们|千万|绝对|一定|永远(?!是)|以后|今后|能|代码"
    r"|里)(?:不要(?!紧)|别(?!的|人|墅)|不许|不准|禁止|严禁|切勿|请勿|勿|不得|不可以|不能(?=超过|用"
    r"|有|写|提交"
    r"|直接|在|放|出现|少|多|改|动|吃|把|让|低于|高于|早于|晚于|没)|不允许|少用|避免)"
    r"|(?<![特分区级类个辨识性差告])别(?:超过|用|写|改|动|碰|提交|发|放|加|删|存|打|传|带|在|把|让"
    r"|直接|再|去|给|开|关)"
    r"|(?:我|他|她|妹|弟|妈|爸|姐|哥|女儿|儿子|老婆|老公|太太|先生|孩子)[^，。！？；,]{0,4}(?:吃素"
    r"|不吃|不能吃|不喝|过敏|对[^，。！？；,]{1,8}过敏)"
    r"|必须(?!的[，,。！]|的$)|务必|一律|一定要|(?:总是|始终|永远)(?=用|写|先|要|走|给|带|放|加)"
    r"|从不(?=用|写|吃|喝|在)|坚决|凡是|所有.{1,20}(?:都要|都得"
    r"|都必须|必须|要|需要|不要|不能|不许)|每次.{1,24}(?:都要|都得|都上|都先|要|先|必须)|(?:^"
    r"|[，,。；;:\s])(?:那|从)?(?:以后|今后|往后)(?!再|有)|从现在(?:开始|起)|从今(?:天起|往后|以后)"
    r"|下次(?:开始|起)|默认(?:用|使用|走|按|都|要|不)|统一(?=用|使用|走|放|写|成|改|存|按|叫|为|utc"
    r"|[a-z\s])|规矩|规则是|原则(?:是|上|:)|要求(?:是"
    r"|:|都)|规范(?:是|:)|约定(?:是|:)|只(?:许|准|用)(?!是|了|于)|优先(?:用|使用|选|考虑)"
    r"|尽量(?!快)"
    r"|我(?:比较|更|还是|最|特别|很|超|真的|个人|一般|通常|平时|一直|从来|都)*(?:喜欢(?!这|那|你|他"
    r"|她)|偏好|偏爱|习惯|讨厌(?!这|那)|不喜欢|不爱|反感|受不了|爱(?=吃|喝|用)|不吃|不喝|吃素"
    r"|不习惯|用不惯|过敏|对.{1,10}过敏|倾向于用|不想(?:看到|要|用|再)|希望你(?:以后|每次|总是|都)"
    r"|要求|更想用)|忌口|(?<!了)叫我(?!\W*$|一声|起床|过来)|称呼我|我叫|(?:回复|回答|注释|提交信息"
    r"|commit).{0,8}(?:用|要|写"
    r"|保持)(?:中文|英文|繁体|简体|简短|简洁)|用(?:中文|英文|繁体|简体)(?:回复|回答|写|说|交流"
    r"|注释)"
    r"|都(?:要|得|必须|需要)(?:有|加|写|带|用|走|过|经过|先)|只(?:从|在|允许"
    r"|接受)[^，。！？；,]{2,16}(?:部署|发布|发版|合并|提交|运行|测试|开会|工作|下单)|不耐受"
    r"|谁(?:都|也)(?:别|不许|不准)"
    r"|默认\s?(?:off|on|true|false|关|开|启用|禁用)"
    r"|先(?:问|跟|和|找|告诉|通知)我|不能吃|[，,]\s?一直都是"
)
_STATE: Final = re.compile(
    r"还没|尚未|还未|未完成|没做完|没写完|没弄|没搞|没开始|没有(?:完成|实现|做|写|测|上线|合并|开始"
    r"|接)|未(?:实现|测试|上线|合并|开始|解决|处理)|已经?(?:完成|做完|写完|上线|合并|部署|发布|修复"
    r"|修好|实现|搞定|弄好|解决|测完|通过|提交|迁移|付|订|预订|交|买|寄|签|约|配好|接好|接入|打通"
    r"|关闭|下线|升级|改完|跑通|验收|归档|切|开通|申请)|完成了|做完了|写完了|搞定了|上线了|合并了"
    r"|合进|修好了|修复了|弄好了|测完了|部署好了|发布了|交付了|跑通了|订好了|买好了|付了|签了"
    r"|待(?:办(?:事项)?\s?:|完成|处理|测试|实现|确认|审核|合并|评审|解决|补|上线|修)|进行中|卡在"
    r"|卡住|阻塞"
    r"|被.{1,20}(?:卡|挡|阻塞|堵)|block|等.{1,16}(?:批|审|回复|确认|给|提供|签|上线|完成|到货|开通)"
    r"|差.{1,16}(?:没|就)|剩下?.{0,16}(?:没|未|要|待)|暂停|搁置|挂起|延期|只(?:做|写|完成)了"
    r"|做了一半|写了一半|进度(?:是|到|:)|(?:完成|进度).{0,4}\d+%|todo\s?:|wip|下一步"
    r"|[^，。！？；,]了一半|(?:翻译|整理|部署|配置|对接|打包|申请|预订|安装|设计|画|写|接|调"
    r"|测)好了"
)
_STATE_OF_NOTHING: Final = re.compile(
    r"还没(?:吃|睡|喝|起床|下班|想|看|懂|明白|反应|收到|听|来得及|搞懂|搞清|弄明白|定|决定|说完)"
    r"|^\W*+(?:好的?|嗯|ok|行)?[，,\s]*(?:已经?)?(?:完成|搞定|弄好|做完|修好|改好"
    r"|好)了?[。！!~\s]*$|(?:测试|构建|编译|安装|下载)(?:已经?)?(?:跑完|完成|通过)了?[。！!]?$"
    r"|等(?:我|你)(?:一|看|回|想)|已经?(?:很晚|晚了|困|饿)"
)
_DEFECT: Final = re.compile(
    r"crash|deadlock|崩溃|闪退|卡死|死锁|泄漏|泄露(?!密)|内存溢出|oom|报错(?!信息|日志)|出错"
    r"|失败(?!的话|重试|了?吗|时|后|率|次数)|超时(?!时间|设|是|为|改|配|\d)|挂(?:掉|了)|丢(?:数据"
    r"|消息|包|失|帧|单|日志)|重复(?:扣|发|写|提交|执行|推送|下单|计|消费)|乱码|过期了|已经?过期"
    r"|证书.{0,6}过期|到期了|坏了|失效|不生效|不兼容|不支持|不起作用|打不开|连不上|起不来|启动不了"
    r"|跑不起来|登不上|登录不了|收不到|显示不(?:全|出|了)|对不上|不一致|不同步|错位|漂移|过热|死机"
    r"|黑屏|白屏|花屏|卡顿|有(?:个)?(?:已知)?(?:的)?(?:bug|问题|缺陷|漏洞|坑|毛病)|已知(?:问题|bug"
    r"|缺陷)|竞态|竞争条件|越界|空指针|溢出|root cause(?! ?analysis)|根因(?!分析)|根本原因"
    r"|原因(?:是|在于|找到|查到|:)"
    r"|问题(?:出在|在于|是|根源)|罪魁祸首|是因为|导致|引起|会(?:崩|挂|卡|丢|报|超时|失败|重复|漏|闪"
    r"|死|断|掉)|漏水|漏电|停产|停止维护|被弃用"
    r"|丢(?:步|字|精度|事件)|会重复|就会(?:卡|崩|丢|慢|乱|错)"
    r"|不稳定|老问题|老毛病|时好时坏|偶发|经常(?:断|挂|卡|丢|超时|失败)"
    r"|会(?:截|覆盖|吞|漏|跳|变)|不(?:启动|响应|触发|刷新|保存|同步|生成|显示)(?!的话)|没有(?:限流"
    r"|鉴权|索引|备份|校验|加密|监控|缓存|重试)"
)
_DEFECT_OF_NOTHING: Final = re.compile(
    r"^\W*+(?:又|还是|它|这|那|怎么|好像|现在|唉|哎|啊)?(?:又|还是|还|就)?(?:报错|崩溃?|失败|挂"
    r"|卡死|出错|超时|不行)了?\W*$|测试(?:都|又|全|还)?挂|\d ?个(?:失败|报错|错误)|报错了?[:，,]"
    r"|报错(?:说明|显示|说|是)|看起来|看样子|没(?:有)?(?:问题|毛病|bug)|不(?:是"
    r"|会有)(?:什么)?(?:大)?问题|有问题(?:随时|请|再|就|叫|找|可以)|什么问题|的问题[?？]|我(?:脑子"
    r"|电脑)?(?:坏|死机)|心态崩|人麻了|困死|累死|记忆力|问题不大|有什么"
)
_STRUCTURE: Final = re.compile(
    rf"(?:通过|经过|经由|借助|走|用|基于){WITHIN}{{1,24}}(?:通信|通讯|连接|调用|访问|对接|交互"
    rf"|同步|转发|推送|传给|传到|发给|发到|写入|读取|分发|路由|暴露|订阅|消费|上报|下发|存储|渲染"
    rf"|鉴权|认证|管理|部署|传输)"
    rf"|(?:发布到|发送到|发到|发给|推送到|推到|推给|写入|写到|写进(?!度|展|来)|存入|存在|存到|存进"
    rf"|落到|落库|同步到|同步给|转发到|转发给|转给|交给|路由到|上报到|上报给|汇总到|聚合到|归档到"
    rf"|备份到|缓存在|缓存到|部署在|部署到|跑在|运行在|托管在|挂在|放在|位于){WITHIN}{{1,40}}"
    rf"|(?:订阅|消费|监听|调用|依赖于?|拉取|读取|读){WITHIN}{{1,24}}(?:的|里|中|上|来)?(?:消息"
    rf"|事件|数据|队列|主题|topic|接口|服务|api|库|流|表|配置)|由{WITHIN}{{1,24}}(?:组成|构成|负责"
    rf"|处理|提供|触发|生成|调度|管理|驱动|维护|渲染|完成|统一)|(?:分为|分成|拆成|拆分为|拆分成"
    rf"|拆为|划分为|包含|包括|共用|共享|隔离|独立部署|解耦){WITHIN}{{1,40}}|(?:前面|后面|前端|后端"
    rf"|上面|外面|中间|底层|上层)(?:是|挂|加|接|放|套|走|用|有|隔)(?:着|了)?{WITHIN}{{2,30}}|单体"
    rf"|微服务|架构(?:是|为|上|:)|事件驱动|主从|读写分离|(?:请求|流量|调用|数据|消息|事件|连接"
    rf"|日志)(?:都|全|先|会|统一|一律|全部)*(?:走|经过|进|落|先到)[^，。！？；,]{{1,24}}|(?:再|都"
    rf"|统一)?用\s?[a-z][\w.+#-]{{0,30}}\s?(?:调|连|传|通信|访问|推|拉|同步)|(?:都?是|各自)独立的"
    rf"|每个[^，。！？；,]{{1,12}}(?:独立|单独|一个|各自)|(?:和|跟|与)[^，。！？；,]{{1,16}}(?:共用"
    rf"|共享|是分开的)|归[^，。！？；,]{{1,12}}(?:管|负责|维护)|(?:只|都)(?:信|认|收|发|读"
    rf"|写)[^，。！？；,]{{2,20}}|无状态|\S ?(?:->|→|=>) ?\S{{1,80}} ?(?:->|→|=>) ?\S"
    r"|(?:^|[，,])(?![^，,]{0,8}(?:我|你|先|再"
    r"|想))[\w\u4e00-\u9fff .-]{2,16}走\s?[a-z][\w.+-]{1,30}(?=[，,。]|$)"
    r"|不直接(?:连|访问|调|读|写)|只(?:走|通过|经过)[^，。！？；,]{2,16}"
    r"|一个[^，。！？；,]{1,8}一个[^，。！？；,]{1,8}$"
    rf"|(?:^|[，,])(?![^，,]{{0,12}}(?:我|你|先|再|可以|能|要|想"
    rf"|帮))[^，,。]{{2,14}}用(?:的是)?\s?{LATIN}(?:\s{LATIN})?(?=[，,。！]|$)|(?:服务器|伺服器"
    rf"|机器|集群|数据|备份|钥匙|文件|仓库)[^，,。]{{0,6}}在(?!线)[^，,。]{{2,14}}(?:机房|区|那|上"
    rf"|里|下|节点|柜)"
    r"|只有[^，,。]{1,14}(?:开|能|有|可以|允许|支持|启用)[^，,。]{1,16}"
    rf"|(?<!回)归[\u4e00-\u9fffa-z]{{1,6}}(?:管|负责)?(?=[，,。]|$)|(?:主角|反派|女主|男主|项目"
    rf"|服务|猫|狗|儿子|女儿|老板|房东)[^，,。]{{0,4}}(?:叫|姓)[^，,。]{{1,8}}"
)
_BUILT: Final = re.compile(
    r"(?:我|我们|已经?|刚|都|也)?(?:已经?|刚刚?|都|也)?(?:新增|新建|添加|增加|加上"
    r"|(?<!参)(?<!增)加了|实现了|写了|建了|创建了?|拆(?:成|到|分)了?|抽(?:到|成|出)了?|提取(?:到"
    r"|成)了?|重构了?|改写了?|迁移?(?:到|至)了?|移(?:到|至)了?|挪到了?|放到了?|放在了?|封装(?:成|到"
    r"|在)了?|接入了?|集成了?|替换(?:成|为|了)|改成了?|改为了?|升级(?:到|了)|配置了|设置了|设为了?"
    r"|调整(?:为|到|成)了?|启用了|关闭了|禁用了|删除了|移除了|注册了|挂到了?|实现在|写在|定义在"
    r"|位于|放在)"
    r"|已?更新(?:了|到)?|已修改|补了|改了"
)
_SURE_PLACE: Final = re.compile(rf"{CODE}|{ADDRESS}|{PATH}|{VERSION}")
_PLACE: Final = re.compile(rf"{CODE}|{ADDRESS}|{PATH}|{VERSION}|{LATIN}|\d")
_ORDER_NOW: Final = re.compile(
    r"^\W*+(?:那|好|嗯|ok|现在|接下来|另外|再)?[，,\s]*(?:请|麻烦|帮我|帮忙|给我|你|能|可以"
    r"|直接)+(?:你|帮|把|将|再|先|给|我|直接)*(?:把|将|看|查|写|改|加|跑|删|建|做|生成|整理|翻译|列"
    r"|总结|检查|修|提交|解释|换成|改成|部署|重启|执行|打开|运行|实现|重构|优化|配置|设置)"
)

_WRITTEN: Final = re.compile(
    rf"(?:写在|写进|放在|放到|实现在|定义在|封装在|抽到|移到|挪到|拆到|加在|配在)了?\s?(?:{CODE}"
    rf"|{PATH})"
)
# What a model did is told as done; without that it is a plan, or the step that it is at.
_FINISHED: Final = re.compile(r"已|了(?!解)|(?:改|设|换|配|建|写|加|接|装|挪|移|拆|放)好")
_UNFINISHED: Final = re.compile(rf"^(?!.*(?:{_FINISHED.pattern}))")
_VALUED: Final = Rule(manner="value", type="config", pattern=STATED_VALUE, unless=VALUE_OF_NOTHING)
_BUILDING: Final = Rule(
    manner="built", type="implementation", pattern=_BUILT, needs=_SURE_PLACE, unless=_NO_CHANGE
)
_KEPT_IN: Final = re.compile(
    rf"(?:^|[，,])(?![^，,]{{0,12}}我)[^，,。]{{2,16}}(?:写在|放在|定义在|实现在)\s?"
    rf"(?:{CODE}|{PATH}|{ADDRESS})"
)
_STATED_BY_MODEL: Final = (
    Rule(manner="defect", type="issue", pattern=_CAUSE, unless=_DEFECT_OF_NOTHING),
    Rule(manner="built", type="implementation", pattern=_WRITTEN, needs=_FINISHED),
    Rule(manner="built", type="implementation", pattern=_KEPT_IN),
)
_STATED: Final = (
    Rule(manner="defect", type="issue", pattern=_CAUSE, unless=_DEFECT_OF_NOTHING),
    Rule(manner="built", type="implementation", pattern=_WRITTEN),
)
_LASTING: Final = re.compile(
    r"会|时|的时候|经常|每次|只要|不支持|不兼容|过期|到期|已知|漏|停产|停止维护|弃用|老问题|老毛病"
    r"|偶发|没有|不一致|竞态"
)
_BROKEN: Final = Rule(
    manner="defect", type="issue", pattern=_DEFECT, unless=_DEFECT_OF_NOTHING, needs=_LASTING
)
_DONE: Final = Rule(manner="state", type="task_state", pattern=_STATE, unless=_STATE_OF_NOTHING)
_JOINED: Final = Rule(manner="structure", type="architecture", pattern=_STRUCTURE)
_RULES: Final = (
    Rule(manner="remember", type="config", pattern=_REMEMBER, needs=_SAYS_SOMETHING),
    *_STATED,
    Rule(manner="laid_down", type="preference", pattern=_LAID_DOWN),
    Rule(manner="decided", type="decision", pattern=_DECIDED, unless=_NO_DECISION),
    _VALUED,
    Rule(manner="value", type="config", pattern=CORRECTION, unless=_NO_CHANGE, needs=SOME_VALUE),
    Rule(manner="value", type="config", pattern=VALUED_CHINESE),
    Rule(manner="decided", type="decision", pattern=CHOSEN_CHINESE),
    Rule(manner="decided", type="decision", pattern=_CHANGED, unless=_NO_CHANGE),
    _DONE,
    _BROKEN,
    _JOINED,
    _BUILDING,
)
_STATE_OF_MODEL: Final = re.compile(
    r"(?:还没|尚未|还未|没有?)(?:做|开始|完成|实现|接|写|测|上线|合并|部署|迁移|处理|给)|未完成"
    r"|做了一半|写了一半"
    r"|已经?(?:完成|上线|合并|部署|发布|修复|实现|下线|迁移|归档)(?!的)|卡在|被[^，。]{1,16}(?:卡"
    r"|阻塞|挡)"
)
_VALUE_OF_MODEL: Final = re.compile(
    r"已经?[^，。！]{0,40}(?:调|改|设|配|锁|升|降|换|绑|定)(?:到|成|为|至|在)|(?:调|改|设|锁|升|降"
    r"|换)(?:到|成|为)"
    r"[^，。！]{1,16}了"
)
_OF_MODELS: Final = (
    *_STATED_BY_MODEL,
    Rule(manner="decided", type="decision", pattern=_DECIDED_BY_MODEL),
    Rule(manner="built", type="implementation", pattern=_VALUE_OF_MODEL, needs=_PLACE),
    Rule(
        manner="built",
        type="implementation",
        pattern=_BUILT,
        needs=_PLACE,
        unless=_UNFINISHED,
    ),
    Rule(manner="state", type="task_state", pattern=_STATE_OF_MODEL, unless=_STATE_OF_NOTHING),
)


_POINTING: Final = re.compile(r"\W*(?:它|他|她|对方|人家)")


def chinese(sentence: str, *, by_user: bool) -> Iterator[Stated]:
    """What a folded sentence states plainly, as far as Chinese goes; the surest first."""
    for stated in all_stated(_RULES if by_user else _OF_MODELS, sentence):
        clause = sentence[_clause_start(sentence, stated.trigger[0]) :]
        if stated.manner in ("value", "built", "structure") and _POINTING.match(clause):
            continue
        if stated.manner == "remember" or not _ORDER_NOW.search(clause):
            yield stated


def _clause_start(sentence: str, at: int) -> int:
    return max(sentence.rfind(mark, 0, at) for mark in "，,；;") + 1
