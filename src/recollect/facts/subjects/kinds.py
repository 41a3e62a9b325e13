"""What kind of thing a name stands for: of two of a kind, one excludes the other.

Owns the names that are known. A name that is missing has no kind, and then nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from recollect.facts.subjects.values import Token, cut
from recollect.facts.subjects.words import GRAMMAR

_KIND_LINES: Final = """
database: postgresql mysql mariadb sqlite mongodb oracle cockroachdb dynamodb cassandra duckdb
queue: kafka rabbitmq sqs nats pulsar celery
cache: redis memcached valkey
package manager: npm pnpm yarn bun pip poetry uv pipenv conda
editor: vim neovim emacs vscode pycharm intellij sublime helix zed cursor
theme: dark light
indentation: tabs spaces indentation
quotes: single-quote double-quote
shell: bash zsh fish powershell
api style: rest graphql grpc soap
cloud: aws gcp azure hetzner digitalocean
ci: jenkins circleci travis github-actions gitlab-ci buildkite
front-end framework: react vue angular svelte solid
bundler: webpack vite rollup parcel esbuild
language: python typescript javascript rust go go-language java kotlin ruby php elixir scala c++ c#
reply language: english chinese german french spanish japanese
os: mac macos linux windows ubuntu
test framework: pytest unittest jest vitest mocha junit
web framework: django flask fastapi rails express spring
formatter: black ruff prettier yapf gofmt
orchestrator: kubernetes nomad swarm ecs
drink: tea coffee 茶 咖啡
"""
KINDS: Final[dict[str, str]] = {
    word: kind
    for line in _KIND_LINES.strip().splitlines()
    for kind, _, words in [line.partition(": ")]
    for word in words.split()
}
"""What kind of thing a name is: two of a kind exclude each other where the rest is the same."""


def value_of(text: str) -> str:
    """What is said in a few words, normalised; empty where it takes more."""
    words = [token.text for token in _said(text)]
    return " ".join(words) if len(words) <= 4 else ""


def kind_of(text: str) -> str:
    """The one kind of what is said; empty where it has none, or several."""
    joined = "-".join(token.text for token in _said(text))
    if joined in KINDS:
        return KINDS[joined]
    kinds = {KINDS[token.text] for token in _said(text) if token.text in KINDS}
    return kinds.pop() if len(kinds) == 1 else ""


def kinds_in(text: str) -> frozenset[tuple[str, str]]:
    """Every known name in a text, with its kind."""
    return frozenset((KINDS[token.text], token.text) for token in cut(text) if token.text in KINDS)


def _said(text: str) -> Iterator[Token]:
    return (token for token in cut(text) if token.text not in GRAMMAR)
