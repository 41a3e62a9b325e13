"""What a message is about, in a fixed set of words, and what it names: English and Chinese rules.

A topic or a name is a filter for people and a hint for search, never a verdict. Works on redacted
text, and never names a mask. Always pure and deterministic; a message is read up to a bound.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain

MOST_TOPICS = 8
HEAD_CHARS = 4_000
TAIL_CHARS = 1_000

# One mention tags a short message; a long one mentions many things in passing.
_LONG_CHARS = 600
_LONG_LEAST = 2
_MOST_COUNTED = 5

_ENGLISH: dict[str, str] = {
    "api": "api apis endpoint endpoints rest graphql grpc webhook webhooks openapi swagger rpc",
    "architecture": "architecture design refactor refactoring modular monolith microservice "
    "microservices abstraction layering dependency coupling",
    "auth": "auth authentication authorization login logout oauth oauth2 oidc saml jwt sso "
    "password passwords credential credentials permission permissions rbac",
    "build": "build builds compile compiler makefile cmake bazel webpack vite rollup bundler "
    "tsc cargo gradle maven linker",
    "config": "config configuration configure settings setting env dotenv yaml toml flag flags",
    "data": "csv parquet pandas dataframe dataset etl analytics numpy spreadsheet excel",
    "database": "database databases db sql postgres postgresql mysql sqlite mongodb redis query "
    "queries schema migration migrations transaction transactions orm",
    "debugging": "bug bugs debug debugging error errors exception exceptions traceback crash "
    "crashes crashed stacktrace regression broken fails failing failed",
    "decision": "decide decided decision decisions agreed chose chosen tradeoff tradeoffs",
    "deployment": "deploy deploys deployed deployment release rollout rollback docker container "
    "containers kubernetes k8s helm terraform ansible nginx staging production",
    "documentation": "docs documentation readme changelog docstring docstrings tutorial",
    "family": "family mother father mom dad sister brother wife husband son daughter kids "
    "parents grandmother grandfather married wedding",
    "finance": "invoice payment payments price budget salary tax bank refund billing mortgage "
    "subscription stripe",
    "food": "food restaurant recipe cook cooking dinner lunch breakfast cafe coffee vegan",
    "frontend": "frontend react vue svelte angular css html tailwind component components dom "
    "browser jsx tsx ui ux",
    "git": "git commit commits branch branches merge rebase cherry-pick stash github gitlab "
    "pr pull-request diff",
    "health": "health doctor hospital medicine symptom symptoms therapy exercise allergy sleep "
    "diagnosis fitness",
    "hobby": "hobby music guitar piano painting photography hiking reading book books movie "
    "movies film game games concert",
    "machine-learning": "model models training inference llm llms embedding embeddings pytorch "
    "tensorflow neural transformer fine-tune finetune gpt claude prompt prompts",
    "networking": "network dns tcp udp http https tls ssl socket proxy firewall vpn port ports",
    "performance": "performance slow latency throughput benchmark benchmarks profile profiler "
    "memory leak cpu optimize optimization cache caching",
    "planning": "plan plans todo milestone roadmap deadline schedule meeting meetings task tasks "
    "sprint",
    "school": "school university college exam exams homework teacher student degree course lecture",
    "security": "security vulnerability vulnerabilities cve xss csrf injection encryption "
    "encrypt sandbox exploit secret secrets",
    "testing": "test tests testing pytest jest unittest mock mocks fixture fixtures coverage "
    "assertion assertions",
    "travel": "travel trip flight flights hotel airport vacation holiday passport visa train "
    "booking reservation itinerary luggage",
    "work": "job career boss colleague colleagues interview promotion office company hired manager",
}
_CHINESE: dict[str, str] = {
    "api": "接口 端点 回调",
    "architecture": "架构 设计 重构 模块 微服务 依赖",
    "auth": "登录 登陆 认证 鉴权 授权 权限 密码",
    "build": "构建 编译 打包",
    "config": "配置 设置 环境变量 参数",
    "data": "数据集 报表 统计 表格",
    "database": "数据库 索引 事务 表结构 迁移",
    "debugging": "错误 报错 异常 崩溃 调试 修复 故障 失败",
    "decision": "决定 决策 选择 同意 方案",
    "deployment": "部署 上线 发布 回滚 容器 生产环境",
    "documentation": "文档 说明 注释",
    "family": "家人 妈妈 爸爸 母亲 父亲 姐姐 妹妹 哥哥 弟弟 妻子 丈夫 老婆 儿子 女儿 孩子 结婚",
    "finance": "付款 支付 价格 预算 工资 发票 银行 退款 贷款",
    "food": "吃饭 餐厅 菜谱 做饭 晚饭 午饭 早饭 咖啡 美食",
    "frontend": "前端 页面 组件 样式 浏览器",
    "git": "提交 分支 合并 代码库 仓库",
    "health": "健康 医生 医院 药 症状 锻炼 过敏 睡眠 感冒",
    "hobby": "爱好 音乐 吉他 钢琴 画画 摄影 徒步 看书 电影 游戏 演唱会",
    "machine-learning": "模型 训练 推理 向量 大模型 提示词 神经网络",
    "networking": "网络 域名 代理 防火墙 端口",
    "performance": "性能 优化 缓存 内存 延迟 吞吐",
    "planning": "计划 任务 待办 截止 日程 会议 安排",
    "school": "学校 大学 考试 作业 老师 学生 课程 毕业",
    "security": "安全 漏洞 加密 注入 攻击",
    "testing": "测试 用例 断言 覆盖率",
    "travel": "旅行 旅游 出差 航班 机票 酒店 机场 护照 签证 火车 行程",
    "work": "工作 上班 公司 同事 老板 面试 升职 加班",
}

TOPICS: frozenset[str] = frozenset(_ENGLISH)
"""Every topic there is."""

_TOPIC_OF: dict[str, str] = {
    word: topic
    for topic, words in chain(_ENGLISH.items(), _CHINESE.items())
    for word in words.split()
}
_WORDS = re.compile(r"[a-z][a-z0-9]{1,20}(?:-[a-z]{2,10})?", re.ASCII)
_HAN_WORDS = re.compile(
    "|".join(
        sorted(
            (word for word in _TOPIC_OF if not word.isascii()), key=lambda word: (-len(word), word)
        )
    )
)


def topics_of(text: str) -> tuple[str, ...]:
    """The topics of a text, those with the most words in it first."""
    text = _head_and_tail(text)
    spoken = Counter(_WORDS.findall(text.lower()))
    if not text.isascii():
        spoken.update(_HAN_WORDS.findall(text))
    scores: Counter[str] = Counter()
    for word in spoken.keys() & _TOPIC_OF.keys():
        scores[_TOPIC_OF[word]] += min(spoken[word], _MOST_COUNTED)
    least = _LONG_LEAST if len(text) > _LONG_CHARS else 1
    ranked = sorted((-score, topic) for topic, score in scores.items() if score >= least)
    return tuple([topic for _, topic in ranked[:MOST_TOPICS]])


def _head_and_tail(text: str) -> str:
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return text
    return f"{text[:HEAD_CHARS]}\n{text[-TAIL_CHARS:]}"


MOST_ENTITIES = 16
MOST_ENTITY_CHARS = 120

# A chunk is what white space and brackets leave; ASCII, so that it ends where Chinese begins.
# Most chunks are plain words, and each is looked at once however often it is said. A key of
# JSON is its schema's word, not the message's.
_CHUNKS = re.compile(
    r"(?<![\w@#~./\\:+&=?%-])[\w@#~./\\][\w@#~./\\:+&=?%-]{1,200}+(?!\"[ ]?:)", re.ASCII
)
_TRAILING = ".,;:!?=&-/\\"
_ENDINGS = (
    "py pyi js mjs cjs ts tsx jsx json jsonl json5 yaml yml toml md rst txt html htm css scss go "
    "rs java kt rb php sh bash sql c h cc cpp hpp cs lock ini cfg conf env log xml csv tsv ipynb "
    "swift vue svelte proto pdf png jpg svg zip gz tar tgz db sqlite patch diff"
)
_DOMAINS = "com org net io dev ai app cn local internal edu gov co uk de"
_SHAPES = re.compile(
    rf"""
    [a-z][a-z0-9+]{{1,12}}://[\w\[].{{2,}}                                # an address of the web
    |[\w.+-]{{1,64}}@[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{1,4}}                # of a mailbox
    |(?:\d{{1,3}}\.){{3}}\d{{1,3}}(?::\d{{2,5}})?                         # of a machine
    |(?:[a-z0-9-]{{1,63}}\.){{1,5}}(?:{"|".join(_DOMAINS.split())})(?::\d{{2,5}})?(?:/\S*)?
    |localhost:\d{{2,5}}
    |[vV]?\d{{1,4}}\.\d{{1,5}}\.\d{{1,6}}(?:[-+.]?[a-z]{{1,6}}\.?\d{{0,4}})?   # a version
    |[vV]\d{{1,4}}\.\d{{1,5}}
    |(?:[\w.-]{{1,40}}/[\w.-]{{1,60}})?\#\d{{1,7}}                        # an issue
    |[A-Z][A-Z0-9]{{1,9}}-\d{{1,6}}
    |(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{{7,40}}                             # a commit
    |@[A-Za-z][\w-]{{1,38}}                                               # a person's handle
    |(?:~|\.{{1,2}}|[A-Za-z]:)?(?:[/\\]{{1,2}}[\w.@+-]{{1,80}}){{2,20}}(?::\d{{1,6}})?    # a path
    |(?:[\w@.+-]{{1,80}}[/\\]){{0,20}}[\w@+.-]{{1,80}}\.(?:{"|".join(_ENDINGS.split())})(?::\d{{1,6}})?
    |(?:[\w@.+-]{{1,80}}/){{2,20}}[\w@.+-]{{1,80}}
    |[a-z][a-z0-9]{{0,30}}(?:[A-Z][a-z0-9]{{0,30}}){{1,8}}(?:\.\w{{1,40}})?   # a name in code
    |(?:[A-Z][a-z0-9]{{1,30}}){{2,8}}(?:\.\w{{1,40}})?
    |[A-Za-z][A-Za-z0-9]{{0,30}}(?:_[A-Za-z0-9]{{1,30}}){{1,8}}(?:\.\w{{1,40}})?
    |[A-Za-z_]\w{{0,40}}(?:(?:\.|::)[A-Za-z_]\w{{0,40}}){{1,6}}
    """,
    re.VERBOSE | re.ASCII,
)
_QUOTED = re.compile(
    r"`([^`\s][^`\n]{0,60})`|[「『《【“]([^「」『』《》【】“”\n]{1,40})[」』》】”]"
    r'|"([A-Z\u4e00-\u9fff][^"\n]{1,40})"'
)
_PROPER = re.compile(
    r"(?<![\w.])[A-Z][a-z]{1,20}(?: (?:[A-Z][a-z]{1,20}|[A-Z]\.)){1,3}"
    r"|(?<=[a-z,;] )[A-Z][a-z]{2,20}\b"
)
_DAY_OR_MONTH = re.compile(
    "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|March|April|May|June|July"
    "|August|September|October|November|December"
)
_MASKED = "REDACTED"


def entities_of(text: str) -> tuple[str, ...]:
    """What a text names, the most often named first, then in reading order of each shape."""
    text = _head_and_tail(text)
    named: Counter[str] = Counter()
    for chunk, count in Counter(_CHUNKS.findall(text)).items():
        if chunk.isalpha() and (chunk.islower() or chunk[1:].islower() or len(chunk) > 60):
            continue  # a word, perhaps at the beginning of a sentence
        name = chunk.rstrip(_TRAILING)
        if _SHAPES.fullmatch(name) is not None:
            named[name] += count
    for quoted in _QUOTED.finditer(text):
        named[(quoted[1] or quoted[2] or quoted[3]).strip()] += 1
    for proper in _PROPER.findall(text):
        if _DAY_OR_MONTH.fullmatch(proper) is None:
            named[proper] += 1
    kept = [name for name in named if 1 < len(name) <= MOST_ENTITY_CHARS and _MASKED not in name]
    kept.sort(key=lambda name: -named[name])
    return tuple(kept[:MOST_ENTITIES])
