"""What holds for the moment only, was passed on, or is explained, is never taken for a fact."""

from __future__ import annotations

import pytest
from tests.unit.facts.saying import only, said

from recollect.facts.statements import find_statements

OF_THE_MOMENT: dict[str, tuple[str, ...]] = {
    "orders for this turn": (
        "rename the variable in main.go and show me the diff, don't commit",
        "please don't apologise, just fix the import",
        "把这段删掉，先不要提交",
        "别解释了，直接给代码",
        "不要用 emoji，这条消息重写一下",
    ),
    "what is being looked into": (
        "dbt run fails on fct_refunds, been staring at it for an hour",
        "the node crashes every few minutes, any ideas?",
        "I bumped the heap to 4g and it still dies",
        "我把 heap 调到 4G 了，还是 OOM",
        "线上导出时会崩溃，帮我看看",
        "网关超时了三次，第四次才通",
    ),
    "what others said": (
        "the customer wrote that the app crashes when they rotate the phone",
        "VP 说 we're going with Opsgenie",
        "帮我 draft 一封 email 给 landlord，说 dishwasher 坏了",
        "docs 上写 default port 是 6379",
        "隔壁组都在用 Go 1.22",
    ),
    "tags that ask": (
        "the library we link is eskf 0.9, right",
        "端口是 9000，对吧",
    ),
    "what was passed on": (
        "供应商发来的，你看看啥意思：\n---\n王工您好，\n请务必升级，地址一律改为 https://v.example/4。",
        "got this, what's it about?\n\nDear customer,\nClients must use TLS 1.3. Port is 8443.",
        "fix the grammar: We never store user data. All backups are kept for 30 days.",
        "Team,\n---\nThe port is 8443 and must never change.\n---\nshorten it",
    ),
}
OF_A_MODEL: tuple[str, ...] = (
    "Postgres listens on 5432 by default and stores data in /var/lib/postgresql.",
    "The function reads `config.toml` and writes to `/tmp/out`.",
    "The job reads the payments before the import is done.",
    "3 of 12 files are done.",
    "I've added a print statement in `loop.py` to see the value.",
    "**Model Definition**: Defined a `Transaction` model for ORM usage.",
    "Ensure `index.html` is in `public/`.",
    "如果真停服，推送就会全部失败。",
    "都是 checkout.spec.ts 超时。",
    "我会把配置放在 `config/app.yaml`。",
    "已经跑了 12 个 case，过了 9 个。",
    "gRPC 默认使用 HTTP/2，消息上限 4MB。",
)


@pytest.mark.parametrize(
    ("why", "text"), [(why, text) for why, texts in OF_THE_MOMENT.items() for text in texts]
)
def test_what_holds_for_the_moment_is_not_taken(why: str, text: str) -> None:
    drafts = find_statements(said(text)).drafts
    assert not drafts, f"{why}: taken as {[draft.content for draft in drafts]}"


@pytest.mark.parametrize("text", OF_A_MODEL)
def test_a_models_steps_and_explanations_are_not_taken(text: str) -> None:
    assert find_statements(said(text, "assistant")).drafts == ()


@pytest.mark.parametrize(
    "text",
    [
        "I put a nullif into `stg_refunds.sql`.",
        "Root cause: the cache key ignores the locale.",
        "The pool size is now 20 in `db.yaml`.",
        "根因是连接池没有释放。",
        "已把超时设为 12 秒，在 `client.ts` 里。",
        "登录重构已完成。",
    ],
)
def test_what_a_model_did_and_found_is_taken(text: str) -> None:
    assert only(text, "assistant").trust == "medium"


def test_of_a_long_answer_only_what_the_model_did_itself_counts() -> None:
    told = "Caches keep answers near those who ask, which is a matter of taste and of money. " * 20
    done = "The pool size is now 20 in `db.yaml`."
    own = "I've moved the parser to `src/parse.py`."
    drafts = find_statements(said(f"{told}\n{done}\n{own}", "assistant")).drafts
    assert [draft.content for draft in drafts] == [own]


def test_beside_a_long_paste_only_plainly_own_words_count() -> None:
    paste = "```\n" + "at app.handlers.pay(pay.py:31)\n" * 20 + "```\n"
    text = f"{paste}\nthe port is 8443\n\nwe decided to use Redis"
    assert [draft.content for draft in find_statements(said(text)).drafts] == [
        "we decided to use Redis"
    ]


def test_a_standing_rule_beside_an_order_is_taken() -> None:
    assert only("fix the import, and from now on don't use relative imports").type == "preference"


def test_a_title_does_not_end_a_sentence() -> None:
    assert only("please remember that our landlord is Ms. Petrova").content.endswith("Ms. Petrova")
