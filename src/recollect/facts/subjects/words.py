"""The words by which statements are told apart: what names a property, what says nothing.

Owns the lists, in English and Chinese, and nothing else. Chinese words are given as the English
word they stand for, so that "预发 API 的端口" and "the staging API's port" are one thing. A word
that is missing here is never wrong: two statements then do not meet, and both are kept.
"""

from __future__ import annotations

from typing import Final


def listed(lines: str) -> frozenset[str]:
    """The words of some lines."""
    return frozenset(lines.split())


_GRAMMAR_LINES: Final = """
a an the this that these those it its i we you he she they me us them my our your their his her
is are was were be been being am has have had do does did will would shall should can could may
must might to of for in on at by with from as into onto under via per and or also just only
now currently today again already still yet anymore please so then there here up down out about
s t ll re ve m d project repo repository codebase environment env whole any all some few several
"""
GRAMMAR: Final = listed(_GRAMMAR_LINES)
"""What no statement is about, not even one of what may be done."""

_CHANGE_LINES: Final = """
decided decide agreed agree chose chosen choose picked pick settled going gonna go goes gone
set sets setting changed change changes changing moved move moves moving switched switch switches
switching updated update updates bumped bump raised raise lowered lower increased increase reduced
reduce became become becomes turned turn makes make made uses use used using run runs running
listen listens listening bind binds bound expose exposes exposed serve serves served live lives
located stored keep keeps kept put stay stays remains remain want wants need needs let lets
new current actual correct right latest value exactly one rather instead like scheduled
approximately around roughly over every each after before starting effective happen happens
finally well really know knows said say says note remember reminder fyi btw take takes
upgrade upgraded upgrades downgrade downgraded pin pinned require requires migrate migrated
planned due starts start begins begin point
points configured sit sits found saved written allow allows allowed
"""
FILLER: Final = GRAMMAR | listed(_CHANGE_LINES)
"""What never tells one thing from another: grammar, verbs of change, time that has come."""

SAME_WORD: Final[dict[str, str]] = {
    "prod": "production",
    "stg": "staging",
    "stage": "staging",
    "dev": "development",
    "db": "database",
    "postgres": "postgresql",
    "pg": "postgresql",
    "mongo": "mongodb",
    "k8s": "kubernetes",
    "config": "configuration",
    "auth": "authentication",
    "nodejs": "node",
    "node.js": "node",
    "golang": "go-language",
    "ts": "typescript",
    "js": "javascript",
    "py": "python",
    "max": "limit",
    "maximum": "limit",
    "cap": "limit",
    "capped": "limit",
    "limited": "limit",
    "ceiling": "limit",
    "timeouts": "timeout",
    "listening-port": "port",
    "directory": "path",
    "folder": "path",
    "dir": "path",
    "location": "path",
    "hostname": "host",
    "retry": "retries",
    "timezone": "time-zone",
    "expiry": "ttl",
    "expiration": "ttl",
    "lifetime": "ttl",
    "frontend": "front-end",
    "backend": "back-end",
    "log-level": "level",
    "maintainer": "owner",
    "lead": "owner",
    "vcpus": "cpu",
    "cpus": "cpu",
    "gpus": "gpu",
    "cookies": "cookie",
    "movies": "movie",
}
"""Spellings and synonyms that are one word."""

CHINESE_WORDS: Final[dict[str, str]] = {
    "端口号": "port", "端口": "port", "版本号": "version", "版本": "version",
    "路径": "path", "目录": "path", "文件夹": "path", "位置": "path",
    "地址": "address", "网址": "url", "链接": "url", "主机名": "host", "主机": "host",
    "超时时间": "timeout", "超时": "timeout", "上限": "limit", "限制": "limit", "最多": "limit",
    "最大": "limit", "阈值": "threshold", "间隔": "interval", "频率": "rate", "配额": "quota",
    "有效期": "ttl", "过期时间": "ttl", "保留期": "retention", "保留": "retention",
    "副本数": "replicas", "副本": "replicas", "实例数": "instances", "实例": "instances",
    "并发数": "concurrency", "并发": "concurrency", "重试次数": "retries", "重试": "retries",
    "线程数": "threads", "连接数": "connections", "批大小": "batch-size", "大小": "size",
    "内存": "memory", "预算": "budget", "价格": "price", "数量": "count", "个数": "count",
    "默认分支": "default branch", "分支": "branch", "区域": "region", "地域": "region",
    "日志级别": "log level", "级别": "level", "时区": "time-zone", "格式": "format",
    "编码": "encoding", "语言": "language", "许可证": "license", "负责人": "owner",
    "截止日期": "deadline", "截止时间": "deadline", "截止": "deadline", "上线时间": "release date",
    "发布日期": "release date", "日期": "date", "名称": "name", "名字": "name", "域名": "domain",
    "数据库": "database", "服务器": "server", "服务": "service", "生产环境": "production",
    "生产": "production", "线上": "production", "预发环境": "staging", "预发布": "staging",
    "预发": "staging", "测试环境": "test", "测试": "test", "开发环境": "development",
    "开发": "development", "本地": "local", "订单": "order", "支付": "payment", "用户": "user",
    "网关": "gateway", "前端": "front-end", "后端": "back-end", "缓存": "cache", "队列": "queue",
    "消息": "message", "日志": "log", "登录": "login", "注册": "signup", "退款": "refund",
    "逻辑": "logic", "模块": "module", "功能": "feature", "页面": "page", "接口": "api",
    "上传": "upload", "下载": "download", "备份": "backup", "部署": "deploy", "发布": "release",
    "迁移": "migration", "定时任务": "cron-job", "任务": "job", "报表": "report", "搜索": "search",
    "密码": "password", "文件": "file", "代码": "code", "注释": "comment",
    "提交信息": "commit message",
    "提交": "commit", "会话": "session", "请求": "request", "令牌": "token", "框架": "framework",
    "构建": "build", "镜像": "image", "集群": "cluster", "监控": "monitoring", "告警": "alert",
    "邮件": "email", "通知": "notification", "库存": "inventory", "商品": "product",
    "结算": "checkout", "账单": "billing", "主分支": "main", "周一": "monday", "周二": "tuesday",
    "周三": "wednesday", "周四": "thursday", "周五": "friday", "周六": "saturday",
    "周日": "sunday", "星期一": "monday", "星期二": "tuesday", "星期三": "wednesday",
    "星期四": "thursday", "星期五": "friday", "星期六": "saturday", "星期日": "sunday",
    "每周一": "monday", "每周二": "tuesday", "每周三": "wednesday", "每周四": "thursday",
    "每周五": "friday", "每周六": "saturday", "每周日": "sunday",
    "每天": "daily", "每日": "daily", "每周": "weekly", "每月": "monthly", "每小时": "hourly",
    "每晚": "nightly", "凌晨": "am", "早上": "am", "上午": "am", "下午": "pm", "晚上": "pm",
    "包管理器": "package manager", "编辑器": "editor", "缩进": "indentation", "主题": "theme",
    "中文": "chinese", "英文": "english", "英语": "english", "汉语": "chinese",
    "日语": "japanese", "深色": "dark", "浅色": "light", "模式": "mode", "空格": "spaces",
    "例会": "meeting", "会议": "meeting", "周会": "weekly-meeting",
}  # fmt: skip
"""Longer ones win over shorter ones that they begin with."""

CHINESE_FILLER: Final = listed(
    """
    的 了 是 在 为 到 成 把 将 被 用 由 和 与 也 都 就 已 请 我 你 他 她 它 我们 你们
    他们 咱们 大家 现在 目前 已经 改成 改为 改到 改用 换成 换到 调整为 调整到 调到 调成
    更新为 更新到 升级到 升到 升级 降到 设为 设置为 设成 设置 设定为 变成 变为 迁到
    迁移到 移到 搬到 放在 存在 位于 跑在 运行在 运行 监听 使用 采用 选用 选择 决定 确定
    定为 定在 应该 需要 这个 那个 一下 记住 请记住 注意 更正 其实 不对 抱歉 对不起 说错了
    项目 仓库 环境 以后 从现在起 从 起 个 新 最新 当前 默认是 上 里 中 内 时 着 吧 啊 呢
    改 换 切 迁 反正 换回 用回 改回 切回 继续 还是 最后 最终 先 后 下 次 依然 仍然 直接 统一
    全部 那就 然后 一直 暂时 今天 明天 这边 那边 这块 那块 方面 的话 部分 那部分 其他 其它
    另外 算了 这套 那套
    哦 哈 刚才 之前 已 又 再 还 它们 所有 一律 都要 要 会 能 并 于 至 有 开 开始
    """
)
"""What Chinese grammar and verbs of change leave behind."""

PROPERTIES: Final[tuple[tuple[str, str], ...]] = (
    ("port", "number"),
    ("timeout", "duration number"),
    ("ttl", "duration number"),
    ("retention", "duration number"),
    ("interval", "duration number"),
    ("retries", "number"),
    ("replicas", "number"),
    ("instances", "number"),
    ("workers", "number"),
    ("threads", "number"),
    ("connections", "number"),
    ("concurrency", "number"),
    ("batch-size", "number"),
    ("quota", "number size money"),
    ("threshold", "number percent duration size"),
    ("limit", "number size duration percent money"),
    ("cpu", "number"),
    ("id", "number"),
    ("coverage", "percent number"),
    ("budget", "money number size"),
    ("price", "money number"),
    ("rate", "number percent money"),
    ("memory", "size number"),
    ("size", "size number"),
    ("count", "number"),
    ("deadline", "date weekday time"),
    ("date", "date weekday"),
    ("version", "version number"),
    ("email", "email"),
    ("branch", "name"),
    ("region", "region name"),
    ("level", "name"),
    ("time-zone", "name"),
    ("format", "name"),
    ("encoding", "name"),
    ("language", "name"),
    ("license", "name"),
    ("bucket", "name"),
    ("owner", "name"),
    ("name", "name"),
    ("channel", "name"),
    ("color", "name"),
    ("namespace", "name"),
    ("registry", "host url name"),
    ("framework", "name"),
    ("strategy", "name"),
    ("provider", "name"),
)
"""Nouns that name a property, with the kinds of value it takes. The first one that stands in a
statement is its attribute, whatever the order of the words; the others stay with the subject."""

IMPLIED_BY: Final[dict[str, frozenset[str]]] = {
    "size": frozenset({"size"}),
    "duration": frozenset({"time", "duration", "long"}),
    "version": frozenset({"version"}),
    "path": frozenset({"path", "file"}),
    "url": frozenset({"url", "address"}),
    "host": frozenset({"host", "address"}),
    "number": frozenset({"number"}),
    "money": frozenset({"dollar"}),
}
"""What a kind of value says by itself: "upload size limit 10 MB" is the "upload limit 10 MB"."""
