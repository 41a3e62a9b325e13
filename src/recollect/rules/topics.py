"""What a message is about, in a fixed set of words: rule-based, English and Chinese.

Owns the topics and the words that speak for them (OpenClaw's design: tagged when added). A topic is
a filter for people and a hint for search, never a verdict: at most `MOST_TOPICS`, those with
the most words in the message first. Always pure and deterministic; a message is read up to a
bound, so the time does not grow with a log's size.
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
            (word for word in _TOPIC_OF if not word.isascii()),
            key=lambda word: (-len(word), word),
        )
    )
)


def topics_of(text: str) -> tuple[str, ...]:
    """The topics of a text, those with the most words in it first."""
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        text = f"{text[:HEAD_CHARS]}\n{text[-TAIL_CHARS:]}"
    spoken = Counter(_WORDS.findall(text.lower()))
    if not text.isascii():
        spoken.update(_HAN_WORDS.findall(text))
    scores: Counter[str] = Counter()
    for word in spoken.keys() & _TOPIC_OF.keys():
        scores[_TOPIC_OF[word]] += min(spoken[word], _MOST_COUNTED)
    least = _LONG_LEAST if len(text) > _LONG_CHARS else 1
    ranked = sorted((-score, topic) for topic, score in scores.items() if score >= least)
    return tuple([topic for _, topic in ranked[:MOST_TOPICS]])
