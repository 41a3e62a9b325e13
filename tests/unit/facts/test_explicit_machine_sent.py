"""Messages of the user's role that no person typed hold no fact; what people type still does."""

from __future__ import annotations

import pytest
from tests.unit.facts.saying import only, said

from recollect.facts.statements import find_statements

SENT_BY_MACHINES: tuple[str, ...] = (
    # a scheduler's check-in, with rules for the turn in it
    "Evening routine: close what is done, never message anyone. If nothing is open, say so.",
    "Scheduled check-in: look at the board. Always answer in bullet points.",
    "Look through the inbox. Don't open attachments. Reply INBOX_CLEAR if there is none.",
    "HEARTBEAT: always read the checklist first.",
    "⏰ 08:30 daily planning. Don't ask questions, always list three priorities.",
    "You were woken up. Read today.md, then tell the user what must be done first.",
    "This is an automated message. Never answer it.",
    "【定时唤醒】请检查待办，不要打扰任何人，没有事项就回复 NO_REPLY。",
    "自动巡检：磁盘 81%，内存 62%，一切正常则无需回复。",
    "[系统消息] 请务必把当前进度写入 notes 文件后继续。",
    "会话即将压缩，必须把重要结论写进笔记。",
    # what bots and hooks report
    "[CI] build 4711 failed on branch fix/login, timeout is 30 minutes",
    "Disk alert: /var on db-1 is at 91%",
    "webhook: status=ok rows=381 next_run=02:00",
    "Background task bg_8 was killed after exceeding 600 s, the limit is 600 s.",
    "Backup report: finished at 03:12, size is 31 GB, retention is 7 days",
    "🔴 主从延迟 412s，阈值是 60s",
    "【部署通知】order-api v3.18.2 已发布到 prod",
)


@pytest.mark.parametrize("text", SENT_BY_MACHINES)
def test_what_a_machine_sent_holds_no_fact(text: str) -> None:
    assert find_statements(said(text)).drafts == ()


def test_why_it_was_left_out_is_said() -> None:
    refused = find_statements(said("HEARTBEAT: always read the checklist first.")).refused
    assert [one.reason for one in refused] == ["a machine's message"]


@pytest.mark.parametrize(
    "text",
    [
        "our cron job runs every 5 minutes",
        "the heartbeat interval is 30s",
        "the alert threshold is 90%",
        "nightly backups run at 03:30",
        "build server is at ci.corp.internal:8080",
        "Always notify me when a deploy fails",
        "[note] the staging port is 8443",
        "[Anna] please remember that our staging port is 8443",
        "监控服务的端口是 9100",
        "定时任务：每天凌晨 2 点跑",
        "【重要】以后提交信息一律用英文",
    ],
)
def test_what_people_say_of_machines_is_still_taken(text: str) -> None:
    assert only(text).trust == "high"
