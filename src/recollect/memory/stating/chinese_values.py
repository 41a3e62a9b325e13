"""How Chinese states a value of a named thing, and how it corrects one.

Owns the phrases only; `explicit_chinese` says in which order they are tried. Must never take a
count, a result or an example for a value. What always holds: patterns are written for folded
sentences, in simplified characters only, and are bounded.
"""

from __future__ import annotations

import re
from typing import Final

from recollect.memory.stating.values import ADDRESS, CODE, PATH, VERSION

WITHIN: Final = r"[^，。！？；,;!?]"
LATIN: Final = r"(?<![a-z0-9_.])[a-z][a-z0-9_.+#/@-]{0,60}"
_DIGITS: Final = (
    r"(?<!\d)(?:\d[\d,.:/-]{0,20}|[一二三四五六七八九十百千两半]+(?=个|次|天|秒|分|小时|点|月|周|年"
    r"|万|千|百|条|人|台|份|页|字|号|块|元))"
)
_TIMES: Final = (
    r"(?:每(?:天|日|周|月|年|小时|晚|早|隔|个|次|分钟|季度)|周[一二三四五六日天末]"
    r"|星期[一二三四五六日天]|礼拜[一二三四五六日天]|凌晨|早上|上午|中午|下午|晚上|月底|月初|年底"
    r"|\d+\s*月|\d+\s*号|[一二三四五六七八九十]+月|[一二三四五六七八九十]+号"
    r"|[一二三四五六七八九十]+点|\d+日|\d+点)"
)
VALUES: Final = (
    rf"(?:{CODE}|{ADDRESS}|{PATH}|{VERSION}|{_TIMES}|{_DIGITS}|{LATIN}|\"[^\"\n\ufffc]{{1,20}}\""
    rf"|《[^》]{{1,20}}》)"
)
_HARD_VALUES: Final = rf"(?:{CODE}|{ADDRESS}|{PATH}|{VERSION}|{_TIMES}|{_DIGITS})"
_THINGS: Final = (
    r"(?:端口号?|连接埠|埠号?|埠|路径|目录|文件夹|资料夹|文件|档案|地址|网址|域名|主机名?|服务器"
    r"|伺服器|ip|url|host|port|端点|接口|版本号?|上限|下限|限制|限额|额度|配额|阈值|超时(?:时间)?"
    r"|逾时|过期时间|有效期|ttl|间隔|周期|频率|频次|保留期|保留|重试(?:次数)?|并发(?:数|量)?"
    r"|线程数?|进程数?|连接数|连接池|池大小|批大小|批次|batch ?size|大小|容量|内存|磁盘|缓存|队列"
    r"|主题|topic|表名?|库名?|数据库|资料库|桶|bucket|命名空间|namespace|集群|分支|仓库|标签|tag"
    r"|镜像|容器|环境变量|变量|参数|配置项?|设定|开关|flag|密级|编码|格式|时区|语言|区域|region"
    r"|机房|可用区|账号|帐号|用户名|邮箱|电话|联系人|负责人|值班|群名?|频道|名字|名称|名|代号|编号"
    r"|id|截止(?:日期|时间)?|截稿|交稿|交付|发布(?:日|时间)?|上线时间|例会|会议|周会|站会|评审|备份"
    r"|定时任务|任务|cron|计划|预算|价格|租金|费用|工资|单价|汇率|利率|尺寸|分辨率|帧率|波特率|电压"
    r"|频率|采样率|学习率|种子|seed|epoch|步数|温度|长度|宽度|高度|重量|体重|身高|剂量|字数|章节"
    r"|页数|航班|车次|酒店|房间号?|入住|退房|出发|到达|生日|纪念日|签证|护照|座位|车牌|楼层|门牌"
    r"|密度|比例|权重|副本数?|分片数?|节点数?|核数?|最大值?|最小值?|默认值?|目标|baud|gpio|引脚"
    r"|型号|框架|引擎|node|python|java|go|rust|mysql|postgres\w*|redis|ubuntu|ios|android|sdk|jdk"
    r"|limits?|timeout|endpoint|domain|path|version|cpu|memory|replicas?|quota|branch|env|deadline"
    r"|budget|schedule|config|staging|prod\w*|服务|环境|机器)"
)
_SET: Final = (
    r"(?:是|为|用的是|用|在|叫|叫做|设(?:为|成|的是|置为|置成|了)?|设定为|配(?:的是|成|置为|置成"
    r"|了)|改(?:成|为|到)了?|换成了?|调(?:成|到|为)了?|定(?:在|为|成)|限(?:制)?(?:在|为)|指向|走"
    r"|等于|固定(?:为|是|在|用)?|锁(?:定)?(?:在|为)|升(?:级)?(?:到|为)了?|降(?:级)?(?:到|为)了?"
    r"|提(?:高)?到了?|不超过|不能超过|最多|最大|最少|至少|默认(?:是|为)?|现在是|目前是|依然是|仍是"
    r"|还是|已经?(?:是|改成|改为|升到|换成)|:|:|=|到|有|只有|开(?:在|了|放)?|放在|存在|位于)"
)
STATED_VALUE: Final = re.compile(
    rf"{_THINGS}[^，。！？；,;!?是为在:=]{{0,12}}?{_SET}\s{{0,2}}[^，。！？；,;!?是为在:=]{{0,10}}?"
    rf"{_HARD_VALUES}|{_THINGS}\s*(?:是|为|叫|叫做|:|:)\s*{VALUES}"
    rf"|[\w\u4e00-\u9fff]\s*(?:是|在|:|:|=|用|走|叫)\s*(?:{ADDRESS}|{PATH}|{VERSION}|{CODE})"
    rf"|{WITHIN}{{2,20}}(?:是|在|到|设|开)\s*{_TIMES}|{_THINGS}\s*(?:设|开|用|走|给|就"
    rf"|改)\s*{_HARD_VALUES}"
    rf"|(?:调|改|设|升|降|提|换|锁|加|减|扩|缩)(?:高|低|整|级|大|小)?(?:到|为|成|回"
    rf"|在)了?\s?{_HARD_VALUES}"
    rf"|(?:端口号?|埠号?|预算|上限|下限|超时|学习率|限流|限额|间隔|并发|版本号?)\s?{_HARD_VALUES}"
    rf"|(?:叫|名叫|叫做)\s?{LATIN}|(?:接|插|连|装|焊|存)(?:在|到|进)?\s?(?:{LATIN}"
    rf"|{_HARD_VALUES})"
    rf"|(?:监听|跑在|运行在|部署在|部署到|放在|存放在|存在|位于|挂载(?:在|到)|暴露(?:在|到)?"
    rf"|绑定(?:在|到)?|托管在|写在|定义在|实现在|备份到|输出到|日志在|升级?到|降级?到"
    rf"|锁(?:定)?(?:在|到)|固定(?:在|为|用)|限制(?:在|为|到)|设(?:置)?(?:为|成)|配置(?:为|成)"
    rf"|定(?:在|于|为)|安排在|约在|改到|推迟到|提前到|延(?:期)?到|截止到?|到期日?(?:是|为)?"
    rf"|有效期到|默认(?:是|为|用|走)?|保留|最多|最大|不超过|至少|上限"
    rf"|每(?:隔)?){WITHIN}{{0,16}}?{_HARD_VALUES}"
    rf"|{_TIMES}{WITHIN}{{0,12}}(?:执行|跑|运行|备份|同步|清理|发布|上线|开会|例会|站会|触发|轮换"
    rf"|重启|更新|发车|起飞|出发|入住|退房|到期|截止|结束|开始|交|部署|发版|巡检|归档|推送|拉取"
    rf"|刷新|冻结|开|关|跑)"
    rf"|(?:用的?是?|使用|跑的?是?|基于|依赖|要求|需要|支持|目标(?:是|为)?|升到"
    rf"|在用)\s*{LATIN}(?:\s{LATIN}){{0,2}}\s*v?\d[\w.]*"
    rf"|(?:允许|最低|最高|起步价?|准确率)\s?{_HARD_VALUES}|{_HARD_VALUES}\s?(?:落地|起飞|发车|到站"
    rf"|抵达|集合|开场|开门|关门)|一[个张份台][^，,。]{{1,6}}{_HARD_VALUES}\s?(?:元|块|欧|美元|欧元"
    rf"|刀)"
    rf"|单位(?:是|用|为)|在\s?[a-z]+-[a-z0-9-]+|{_HARD_VALUES}\s?从[^，,。]{{1,8}}(?:出发|起飞"
    rf"|发车)"
    rf"|(?:到|至)\s?\d{{4}}\s?年|{_TIMES}{WITHIN}{{0,6}}(?:下线|上线|停服|发工资|生效|停用)"
    rf"|用\s?\d+\s?(?:频道|通道|号|端口)|从\s?{PATH}{WITHIN}{{0,4}}(?:加载|读|拉|取)"
    rf"|超过{WITHIN}{{1,16}}(?:会|就|自动)"
)
VALUE_OF_NOTHING: Final = re.compile(
    r"(?:报错|错误|异常|日志(?:里|显示|说|报|打|中|上)|输出|结果|返回|堆栈|提示|现象|例子|比如|例如"
    r"|第\d+行|刚才|耗时|花了|跑了|用了\d|一共|总共|找到了?\d|发现了?\d|有\d+个(?:测试|错误|警告"
    r"|失败)|通过了?\d|失败了?\d|\d ?行|个函数|个测试|现在\d+点|今天(?:是)?(?:周|星期|\d))"
)
SOME_VALUE: Final = re.compile(VALUES)
CORRECTION: Final = re.compile(
    rf"{_HARD_VALUES}[^，。！？；,]{{0,6}}[，,]\s?(?:不是|而不是|而非)\s?{_HARD_VALUES}|(?:不是"
    rf"|并非){WITHIN}{{1,24}}[，,]?\s*(?:而是|是|应该是|应为|要用|得用)|(?:是|为"
    rf"|用)\s*{VALUES}[^。！？]{{0,8}}[，,]?\s*(?:不是|而不是|而非|别用|不用|不再是)|(?:说错|写错"
    rf"|记错|搞错|弄错|打错|口误|更正|纠正|订正|修正一下"
    rf"|不对)[^。！？]{{0,16}}?[，,::\s][^。！？]{{0,40}}?{VALUES}|(?:从|由|把"
    rf"|将)?{WITHIN}{{0,20}}(?:改成|改为|换成|改到|换到|调成|调到|调整为|变成){WITHIN}{{0,20}}"
)
# What only the user may do: the model's "务必" is advice, its "改成" what it did.
# A value that a model tells is ours only where it says so; else it is knowledge of the world.
OURS: Final = re.compile(
    rf"已|现在|改|设|调|配|锁|固定|我|咱|你|贵|生产|测试|线上|环境|{CODE}|{PATH}|{ADDRESS}"
)
