"""Trust in a message by its author: "high" for user and operator, "medium" for the model, "low" for
tool output, "outside" for fetched content. A message is trusted no more than its least trusted
part. A tool's name shows whether it fetches content; for a shell, its command does."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Final

from recollect.core.values.message import CallId, Message, Other, Part, Role, ToolCall, ToolResult
from recollect.core.values.segment import Trust

TRUST_ORDER: Final[tuple[Trust, ...]] = ("high", "medium", "low", "outside")

_BY_ROLE: Final[dict[Role, Trust]] = {
    "system": "high",
    "user": "high",
    "assistant": "medium",
    "tool": "low",
}
_PLACE: Final = {trust: place for place, trust in enumerate(TRUST_ORDER)}
_ATTACHED: Final = frozenset({"document", "search_result", "input_file", "file"})
"""Blocks with documents and search results, which somebody else wrote."""
# Blocks with results of a provider's own tools: web pages, files, output of MCP servers.
_BROUGHT_IN: Final = ("_tool_result", "_call", "_output")

# Splits a tool's name into words: `mcp__fetch__get`, `WebSearch`, `browser_click`.
_NAME_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_FETCHING_LINES: Final = """
web webfetch websearch webpage url urls http https fetch browse browser browsing playwright
puppeteer selenium crawl crawler crawling scrape scraper scraping firecrawl tavily exa
duckduckgo bing serpapi wikipedia arxiv rss internet online perplexity jina
mail email emails gmail imap inbox outlook
"""
_FETCHING: Final = frozenset(_FETCHING_LINES.split())
_GOOGLE_SEARCH: Final = frozenset({"google", "brave", "search"})
_NOT_FROM_ELSEWHERE: Final = frozenset({"git", "send", "db", "sql", "store"})
"""Words that show that a tool fetches no outside content: `git_fetch` returns commits, `send_email`
a receipt, `fetch_from_db` the user's own rows."""
_SHELL_LINES: Final = """
bash sh zsh shell terminal exec execute command cmd powershell console run process
"""
_SHELLS: Final = frozenset(_SHELL_LINES.split())
_MOST_COMMAND_CHARS: Final = 20_000  # not measured; bounds the search in one call
_FETCHERS: Final = re.compile(
    r"(?:^|(?<=[\s;&|`\"'(]))(?:curl|wget|https?|xh|aria2c|lynx|w3m|iwr|irm"
    r"|Invoke-WebRequest|Invoke-RestMethod|requests\.\w{3,7}|httpx\.\w{3,7}|urlopen|fetch)(?=[\s(])"
    r"(?P<rest>[^\n|;]{1,500})",
    re.IGNORECASE,
)
_ADDRESS: Final = re.compile(
    r"(?:https?|ftp)://(?:[^/@\s\"']{1,100}@)?(?P<host>\[[0-9a-f:]{2,40}\]|[\w.-]{1,253})"
    r"|(?<=\s)(?P<bare>(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})(?=[/:\s\"'?#]|$)",
    re.IGNORECASE,
)
_OWN_MACHINE: Final = re.compile(
    r"localhost|127(?:\.\d{1,3}){3}|0\.0\.0\.0|\[::1?\]|host\.docker\.internal", re.IGNORECASE
)
# After an option of a fetching command, a word with one of these endings is a file, not a host.
_FILE_END: Final = re.compile(r"\.(?:json|txt|html?|sh|gz|zip|tar|tgz|md|py|js|ya?ml|log|xml|csv)$")


def trust_of_role(role: Role) -> Trust:
    return _BY_ROLE[role]


def lowest_trust(trusts: Iterable[Trust]) -> Trust:
    return max(trusts, key=_PLACE.__getitem__, default="high")


def is_below(trust: Trust, other: Trust) -> bool:
    return _PLACE[trust] > _PLACE[other]


def trust_of(
    message: Message,
    tool_names: Mapping[CallId, str] | None = None,
    fetched_ids: Container[CallId] = frozenset(),
) -> Trust:
    """Return the trust of a message: that of its role, or less if it contains tool results or a
    summary. `tool_names` maps calls to tools. `fetched` lists calls that fetch outside content,
    whatever their tool (see `fetched_calls`)."""
    role_trust: Trust = (
        "medium" if message.summary and message.role != "tool" else _BY_ROLE[message.role]
    )
    return lowest_trust(
        [
            role_trust,
            *(_trust_of_part(part, tool_names or {}, fetched_ids) for part in message.parts),
        ]
    )


def fetches(call: ToolCall) -> bool:
    """Return whether a call fetches outside content, by its tool's name or its shell command."""
    if is_fetcher(call.name):
        return True
    return bool(_words(call.name) & _SHELLS) and _fetches_by_shell(call.arguments)


def find_fetch_calls(parts: Iterable[Part]) -> frozenset[CallId]:
    return frozenset(part.id for part in parts if isinstance(part, ToolCall) and fetches(part))


def is_fetcher(tool: str) -> bool:
    """Return whether a tool with this name fetches content that others wrote."""
    words = _words(tool)
    if words & _NOT_FROM_ELSEWHERE:
        return False
    return bool(words & _FETCHING) or len(words & _GOOGLE_SEARCH) > 1


def tool_of(result: ToolResult, names: Mapping[CallId, str]) -> str:
    """Return the name of the tool that made a result; empty if `names` has no such call."""
    name = result.name or names.get(result.call_id, "")
    if not name and result.alternative is not None:
        return names.get(result.alternative, "")
    return name


def is_brought_in(part: Part) -> bool:
    """Return whether a part holds what neither the user nor the model wrote: a document, a search
    result, or the result of a tool that the provider runs."""
    return isinstance(part, Other) and (part.kind in _ATTACHED or part.kind.endswith(_BROUGHT_IN))


def _trust_of_part(
    part: Part, names: Mapping[CallId, str], fetched_ids: Container[CallId]
) -> Trust:
    if isinstance(part, ToolResult):
        is_fetched = part.call_id in fetched_ids or part.alternative in fetched_ids
        is_fetched = is_fetched or any(
            isinstance(p, Other) and p.kind in _ATTACHED for p in part.content
        )
        return "outside" if is_fetched or is_fetcher(tool_of(part, names)) else "low"
    if isinstance(part, Other) and is_brought_in(part):
        # what servers of others answer counts as fetched: files, MCP servers
        fetched_kind = part.kind in _ATTACHED or part.kind.startswith(("mcp_", "file_search"))
        return "outside" if fetched_kind or is_fetcher(part.kind) else "low"
    return "high"


def _words(tool: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _NAME_WORDS.findall(tool[:200]))


def _fetches_by_shell(arguments: str) -> bool:
    for command in _FETCHERS.finditer(arguments[:_MOST_COMMAND_CHARS]):
        for match in _ADDRESS.finditer(command["rest"]):
            host = match["host"] or match["bare"]
            if match["bare"] and _FILE_END.search(host):
                continue
            if not _OWN_MACHINE.fullmatch(host):
                return True
    return False
