"""A statement stands where the words it rests on say so, and nowhere else."""

import pytest

from recollect.core.facts.support import (
    find_quote,
    is_anchored,
    is_supported,
    sentence_before,
    sentences_around,
    states_nothing,
)


@pytest.mark.parametrize(
    ("content", "span"),
    [
        ("The Stripe mock listens on 12111.", "btw the local stripe mock listens on 12111"),
        ("We round per line item.", "we decided to round per line item and not on the total"),
        ("Reports are built with Typst.", "I've chosen Typst over LaTeX for building the reports"),
        ("Don't use the port 8000.", "please don't use port 8000, it is taken"),
        ("Port 8000 must not be used.", "please don't use port 8000"),
        ("The port is 9000.", "sorry, the port is 9000, not 8000"),
        ("The client ping interval is 25s.", "the client ping interval is now 25s in `a/b.ts`"),
        (
            "库存服务测试环境的地址是 stock-test.mall.internal",
            "库存服务测试环境的地址是 stock-test.mall.internal",
        ),
        ("改用 Kafka，不要 RabbitMQ", "最后改用 Kafka，RabbitMQ 那套不要了"),
        ("不要在 2:30 排重算任务", "别把重算任务排在 2:30 那个点上"),
        ("Redis is used for sessions.", "We used Redis for sessions, not Memcached."),
    ],
)
def test_what_was_said_is_supported(content: str, span: str) -> None:
    assert is_supported(content, [span])


@pytest.mark.parametrize(
    ("content", "span"),
    [
        ("The mock listens on 12112.", "the mock listens on 12111"),
        ("Config lives in /etc/app/a.yaml.", "config lives in /etc/app/b.yaml"),
        ("We deploy with DeployBot2.", "we deploy with the bot of ours"),
        ("The API is owned by Marta.", "the API is owned by Anna"),
        ("We run on version 2.1.4.", "we run on version 2.1.3"),
        ("Use Redis for sessions.", "don't use Redis for sessions"),
        ("Use MySQL for orders.", "we never use MySQL for orders"),
        ("Memcached is used.", "We use Redis, not Memcached."),
        ("We no longer deploy on Friday.", "we deploy on Friday"),
        (
            "We decided not to round per line item.",
            "we decided to round per line item and not on the total",
        ),
        ("The port is 8000.", "sorry, the port is 9000, not 8000"),
        ("The port of it is 8000.", "the port of it is 9000 not 8000"),
        ("RabbitMQ 那套要了", "最后改用 Kafka，RabbitMQ 那套不要了"),
        ("旧的对账服务还没有下线", "旧的对账服务已经下线了"),
        ("重算任务排在 2:30", "别把重算任务排在 2:30"),
        ("使用 MySQL 存订单", "订单不使用 MySQL 存"),
        ("The queue is RabbitMQ.", "should the queue be RabbitMQ?"),
        ("队列用 RabbitMQ", "队列用 RabbitMQ 吗"),
        ("The cache is Kafka based.", "maybe the cache could be Kafka based"),
        ("缓存用 Kafka 实现", "缓存也许用 Kafka 实现"),
        ("Invoices are archived nightly.", "the garden needs water in summer"),
        ("Is the port 9000?", "the port is 9000"),
        ("The database password is [REDACTED:password].", "the db password is x"),
        ("The database host is db1.", "host db1, password [REDACTED:password]"),
        ("local stripe mock", "the local stripe mock listens on 12111"),
        ("Container", "the container is built in two stages"),
        ("Anything goes here.", " "),
    ],
)
def test_what_was_not_said_is_refused(content: str, span: str) -> None:
    assert not is_supported(content, [span])


def test_a_secret_in_a_statement_is_refused() -> None:
    assert is_supported("the deploy key is in the vault", ["the deploy key is in the vault"])
    said = "the deploy key is ghp_" + "aB3dE5gH7jK9" * 3
    assert not is_supported(said, [said])


def test_a_neighbouring_sentence_lends_names_but_no_numbers() -> None:
    content, span = "The Grafana board listens on 3001.", "It listens on 3001."
    assert not is_supported(content, [span])
    assert is_supported(content, [span], context="The staging box runs the Grafana board.")
    assert not is_supported("Grafana listens on 3001.", ["It listens."], context="Grafana 3001")


def test_question_and_answer_say_together_what_neither_says() -> None:
    content = "The staging API listens on port 8443."
    spans = ["Which port does the staging API listen on?", "8443, behind the proxy"]
    assert is_supported(content, spans)
    assert not is_supported(content, spans[:1])
    assert not is_supported(content, spans[1:])


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("the Mock listens", "the mock  listens"),
        ("the “build” tools", 'the "build" tools'),
        ("`COPY . /app` brings", "COPY . /app brings"),
        ("Mock listens on 12111...", "mock  listens\non 12111"),
    ],
)
def test_a_quotation_is_found_whatever_its_white_space_and_case(quote: str, found: str) -> None:
    text = f"Well. {found} here, 好的"
    start, end = find_quote(quote, text, len(text))
    assert text[start:end] == found


@pytest.mark.parametrize("quote", ["listens in", "ab", "", "…", "the moc listens"])
def test_what_is_not_there_letter_by_letter_is_not_found(quote: str) -> None:
    assert find_quote(quote, "the mock listens on 12111. ab", 29) == (0, 0)


def test_a_quotation_is_widened_to_its_sentence_so_that_no_not_is_cut_off() -> None:
    text = "Hi there. Please do not use Redis for it. Thanks."
    start, end = find_quote("use Redis for it", text, len(text))
    first, last = sentences_around(text, start, end, last=len(text))
    assert text[first:last] == "Please do not use Redis for it."
    assert sentence_before(text, first) == "Hi there."


@pytest.mark.parametrize(
    "sentence",
    [
        "which port is it?",
        "maybe we could use Kafka for the events",
        "ok",
        "in my last job we decided on Oracle for everything",
    ],
)
def test_some_sentences_state_nothing_whatever_is_made_of_them(sentence: str) -> None:
    assert states_nothing(sentence)


def test_a_restatement_is_about_a_quotation_where_what_is_exact_stands_there() -> None:
    quote = "库存服务测试环境的地址是 stock-test.mall.internal"
    assert is_anchored("The address of the stock service is stock-test.mall.internal.", quote)
    assert not is_anchored("The address of the stock service is other.mall.internal.", quote)
    assert not is_anchored("The address of the stock service was given.", quote)
    ports = "The compose file maps 8080:8443 for `stock cache`"
    assert is_anchored("The address maps 8080:8443 for the service `stock cache`.", ports)
    assert not is_anchored("The address of the stock service has the port 8080.", ports)
    assert not is_anchored("The gateway reads its sessions from the `redis cluster`.", ports)
