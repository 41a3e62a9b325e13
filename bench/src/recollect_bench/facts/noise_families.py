"""What people and models say that is noise, in English: it states nothing that lasts.

Owns the wording of noise and who says it. Must never hold a statement that a fair judge would keep
as a fact, recalled blocks and loops aside: those look like facts on purpose. `$name` is filled in
by `fill`; a family whose `lines` is set writes that many of its templates below each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from recollect.values.message import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Templates of one kind of noise."""

    name: str
    role: Role
    share: float
    """How much of the noise it is, beside the shares of the others."""
    templates: tuple[str, ...] = field(repr=False)
    lines: tuple[int, int] | None = None
    tool: str | None = None
    head: str = ""
    tail: str = ""


RECALLED: Final = "recalled"
"""The family whose words memory said itself."""

SPEECH: Final = (
    Family(
        name="heartbeats",
        role="assistant",
        share=6,
        templates=(
            "HEARTBEAT_OK",
            "NO_REPLY",
            "HEARTBEAT_OK - nothing needs attention ($time)",
            "Heartbeat received at $time. No pending reminders, no new mail. HEARTBEAT_OK",
            "pong $n",
        ),
    ),
    Family(
        name="heartbeat prompts",
        role="user",
        share=6,
        templates=(
            "Read HEARTBEAT.md and act on it. If this heartbeat has nothing, say HEARTBEAT_OK.",
            "(scheduler) $word-sync woke up at $time, run $n",
            "System: [$date $time UTC] Exec finished ($word-$word, code 0)",
            "ping $n",
            "[$date $time] watchdog: poll $n of $n, still alive",
            "Current time: $date $time (UTC). Check whether anything is due.",
            "[cron:$hash nightly-$word] tick $n at $time",
        ),
    ),
    Family(
        name="status pings",
        role="assistant",
        share=6,
        templates=(
            "Build $n finished in $n s.",
            "Disk check: / at $pct%, /var at $pct%.",
            "Still waiting for the job ($n of $n steps).",
            "Step $n of $n ...",
            "Running the tests now.",
            "Let me look at the output first.",
            "I'll check $path.py next.",
            "Tests are running, $pct% so far.",
            "Poll $n: queue has $n items, $n workers busy.",
            "Checking again in $n seconds.",
            "Reading $path.py ...",
            "Let me add a print there and run it again.",
            "port scan: 22 open, $port closed",
        ),
    ),
    Family(
        name="channel bots",
        role="user",
        share=6,
        templates=(
            "[CI] build $n passed in $n s on runner-$n",
            "[ci-bot] pipeline #$n for $hash: success ($n jobs)",
            "[alert] CPU on $word-$n is at $pct% (resolved)",
            "[uptime] $word.example.org responded in $ms ms",
            "[deploy] $word@$hash rolled out to $n of $n pods",
            "Slack: 3 new messages in #$word",
            "[backup] snapshot $hash finished, $n MB in $n s",
            "dependabot opened #$n: bump $pkg from $ver to $ver",
            "Queue depth $n, oldest $n s",
        ),
    ),
    Family(
        name="chatter",
        role="user",
        share=9,
        templates=(
            "ok",
            "continue",
            "go on",
            "thanks!",
            "hi again",
            "good morning :)",
            "yes please",
            "hm, try it once more",
            "and now?",
            "what does the output say?",
            "run it again with -v",
            "can you show me line $n?",
            "lol",
            "one sec, phone",
            "did that work?",
            "ok wait, don't run it yet",
            "back now, where were we?",
            "nice, next one",
            "maybe we could try $word there, not sure",
            "what if we used $word instead?",
            "should this be $n or $n?",
        ),
    ),
    Family(
        name="replies",
        role="assistant",
        share=7,
        templates=(
            "You're welcome!",
            "Sure, one moment.",
            "Good morning! What shall we look at?",
            "Here is the output you asked for.",
            "Done.",
            "It printed nothing. Shall I run it again?",
            "Would you like me to go on with $path.py?",
            "I could use $word or $word here; which one do you want?",
            "That may be a cache problem, or the network. I am not sure yet.",
            "Hm, the same error again. Let me try without the cache.",
        ),
    ),
    Family(
        name=RECALLED,
        role="user",
        share=3,
        templates=(
            "$recalled",
            "$recalled\n\ncontinue",
            "$recalled\n\nwhat does the output say?",
            "$recalled\n$recalled\nrun it again please",
        ),
    ),
    Family(
        name=RECALLED,
        role="assistant",
        share=1,
        templates=("$recalled", "$recalled\n\nLet me look at the output first."),
    ),
)

RECALLED_STATEMENTS: Final = (
    "We decided to use $word for the $word service.",
    "The $word API listens on port $port.",
    "Remember: never deploy $word on Fridays.",
    "I prefer $word over $word.",
    "Config for $word lives in /etc/$word/$word.toml.",
    "$word is blocked by $word.",
    "以后一律用 $word，不要用 $word。",
    "$word 的端口是 $port。",
    "我们决定采用 $word。",
)
"""What stands in recalled blocks: facts, were they said by anybody."""

LOOPS: Final = (
    "I have set the retry limit of the uploader to 7 and the service now listens on port 18080.",
    "The migration is done and the table orders_archive is no longer used.",
    "As decided, we will always use the shared queue for notifications.",
    "The parser crashes when the input has no trailing newline, so I always add one.",
    "Let me check the file again. Let me check the file again. Let me check the file again.",
    "I will now fix the remaining test. The remaining test is still failing.",
    "我已经把超时时间改成 45 秒,配置文件在 srv/relay/conf.yaml。",
    "好的，我再检查一遍。好的，我再检查一遍。好的，我再检查一遍。",
)
"""What a looping model says hundreds of times; invented, and worded like facts."""
