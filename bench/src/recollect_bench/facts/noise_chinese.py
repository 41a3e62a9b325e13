"""The noise of the facts bench, in Chinese; see `noise_families`."""

from __future__ import annotations

from typing import Final

from recollect_bench.facts.noise_families import Family

CHINESE: Final = (
    Family(
        name="chatter zh",
        role="user",
        share=5,
        templates=(
            "好的",
            "继续",
            "嗯嗯",
            "谢谢啦",
            "早上好～",
            "再跑一遍看看",
            "现在呢？",
            "输出是什么？",
            "等一下，先别跑",
            "要不要试试 $word？",
            "或许可以用 $word，不确定",
            "这里到底该是 $n 还是 $n？",
            "哈哈哈",
            "我去吃个饭，马上回来",
            "帮我看一下第 $n 行",
        ),
    ),
    Family(
        name="replies zh",
        role="assistant",
        share=4,
        templates=(
            "好的，请稍等。",
            "不客气！",
            "我先看一下输出。",
            "正在运行测试，目前 $pct%。",
            "第 $n 步，共 $n 步……",
            "可能是缓存的问题，也可能是网络，暂时还不确定。",
            "要我继续看 $path.py 吗？",
            "当前进度 $n/$n，预计 $time 结束。",
            "任务 $n 运行中，队列里还有 $n 个。",
        ),
    ),
    Family(
        name="channel bots zh",
        role="user",
        share=4,
        templates=(
            "[构建] #$n 成功，用时 $n 秒",
            "[监控] $word-$n CPU $pct%，已恢复",
            "[定时任务] $time 心跳 $n",
            "[备份] 快照 $hash 完成，共 $n MB",
            "[部署] $word@$hash 已发布到 $n/$n 个节点",
        ),
    ),
    Family(
        name="logs zh",
        role="tool",
        tool="bash",
        share=4,
        lines=(3, 16),
        templates=(
            "$date $time [信息] $word 服务启动，监听端口 $port",
            "$date $time [警告] 连接 $host 超时，第 $n 次重试",
            "$date $time [错误] 必须设置 $word 参数",
            "处理进度：$n/$n，剩余 $n 秒",
            "测试 $word 通过（$ms 毫秒）",
            "已完成：$word 不要重复执行",
        ),
    ),
)
