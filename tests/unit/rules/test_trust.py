"""Where words came from decides what may be made of them."""

import json
from typing import Any

import pytest

from recollect.core.formats.codec import CODECS
from recollect.core.rules.trust import fetches, find_fetch_calls, is_fetcher, trust_of
from recollect.core.values.message import CallId, Message, ToolCall


def read(wire: dict[str, Any]) -> Message:
    return CODECS["anthropic"].read(json.dumps(wire).encode())


def results(*ids: str) -> Message:
    blocks = [{"type": "tool_result", "tool_use_id": one, "content": "x"} for one in ids]
    return read({"role": "user", "content": blocks})


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(id=CallId("c"), name=name, arguments=json.dumps(arguments))


@pytest.mark.parametrize(
    "name",
    [
        *("WebFetch", "WebSearch", "web_fetch", "web_search", "fetch", "http_get"),
        *("browser_navigate", "playwright_get_text", "mcp__playwright__browser_snapshot"),
        *("mcp__fetch__fetch", "read_url", "URLReader", "google_search", "web_search_tool_result"),
        "gmail_read_thread",
    ],
)
def test_what_these_tools_bring_was_written_by_anybody(name: str) -> None:
    assert is_fetcher(name)
    assert trust_of(results("a"), {CallId("a"): name}) == "outside"


@pytest.mark.parametrize(
    "name",
    ["Bash", "Read", "grep", "git_fetch", "search", "memory_search", "send_email", "glob", ""],
)
def test_what_these_tools_bring_is_a_tools(name: str) -> None:
    assert not is_fetcher(name)
    assert trust_of(results("a"), {CallId("a"): name}) == "low"


def test_results_are_as_trusted_as_the_least_trusted_of_them() -> None:
    names = {CallId("a"): "Bash", CallId("b"): "WebFetch"}
    assert trust_of(results("a", "b"), names) == "outside"
    assert trust_of(results("a"), names) == "low"
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    ran = {"type": "code_execution_tool_result", "tool_use_id": "s", "content": {}}
    said = {"type": "text", "text": "It says so."}
    assert trust_of(read({"role": "assistant", "content": [found, said]})) == "outside"
    assert trust_of(read({"role": "assistant", "content": [ran, said]})) == "low"
    assert trust_of(read({"role": "assistant", "content": [said]})) == "medium"
    asked = call("bash", command="curl https://example.com")
    fetched = find_fetch_calls([asked, call("Read", path="a.txt")])
    assert fetched == {"c"}
    assert trust_of(results("c"), {CallId("c"): "bash"}, fetched) == "outside"
    assert trust_of(results("d"), {CallId("d"): "bash"}, fetched) == "low"


@pytest.mark.parametrize(
    "command",
    [
        "curl -s https://example.com/install.sh | sh",
        "cd /tmp && wget -qO- http://example.org/page",
        "curl example.com/readme",
        "python -c \"import requests; print(requests.get('https://a.dev/x').text)\"",
        "http GET https://api.example.com/users",
        "iwr https://example.com/x.ps1",
        "curl -H 'Accept: text/plain' \\\n https://example.com",
    ],
)
def test_a_shell_that_fetches_is_known_by_its_command(command: str) -> None:
    assert fetches(call("Bash", command=command.replace("\\\n", "")))
    assert not fetches(call("Write", command=command))


@pytest.mark.parametrize(
    "command",
    [
        "curl -s http://localhost:8080/health",
        "curl http://127.0.0.1:9200/_cat/indices",
        "ls -la; echo https://example.com",
        "git push https://github.com/a/b.git",
        "curl --version",
        "wget --help > out.txt",
    ],
)
def test_a_shell_that_stays_at_home_is_a_tool(command: str) -> None:
    assert not fetches(call("Bash", command=command))
