"""First use of an installed package, run by the Python of its environment:

    python -I smoke.py EXTRA,EXTRA

Every module must import, or need an extra that is not installed. Every installed extra must work,
and every other must work too or raise the error that names it. Imports nothing of `tools`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, Final

import recollect
from recollect.errors import EmbedderError, MissingExtra, SettingsError

BIN: Final = Path(sys.executable).parent
SERVERS: Final = {"gateway", "hooks", "mcp", "serve", "ui"}
PAGES: Final = {"gateway", "serve", "ui"}
NEEDS: Final = {
    "recollect.adapters.stores.postgres": {"postgres", "serve"},
    "recollect.agent.chat.terminal": {"chat"},
    "recollect.frameworks.langchain": {"langchain"},
    "recollect.frameworks.langgraph": {"langchain"},
    "recollect.frameworks.openai_agents": {"openai-agents"},
    "recollect.frameworks.pydantic_ai": {"pydantic-ai"},
    "recollect.hosts.daemon.server": SERVERS,
    "recollect.hosts.gateway.running": SERVERS,
    "recollect.hosts.gateway.server": SERVERS,
    "recollect.hosts.gateway.shaping": SERVERS,
    "recollect.hosts.http": SERVERS,
    "recollect.hosts.inspector": PAGES,
    "recollect.hosts.mcp.server": {"mcp"},
    "recollect.hosts.service.admin": SERVERS,
    "recollect.hosts.service.api": SERVERS,
    "recollect.hosts.service.app": SERVERS,
    "recollect.hosts.service.inspector": {"serve"},
    "recollect.hosts.service.mcp": {"mcp"},
    "recollect.hosts.service.metrics": {"serve"},
    "recollect.hosts.service.operations": SERVERS,
    "recollect.hosts.service.requests": SERVERS,
}
"""Modules, with those inside them, that one of these extras enables; all others import always."""
SAID: Final = "We decided to run the staging API on port 8443, behind the proxy."
SECONDS: Final = 60


def import_modules(extras: set[str]) -> int:
    """Import every module that these extras enable; its number."""
    names = ["recollect"]
    for found in walk_packages(recollect.__path__, "recollect.", onerror=lambda _: None):
        if found.name != "recollect.__main__":
            names.append(found.name)
    count = 0
    for name in names:
        needed = next((NEEDS[root] for root in NEEDS if f"{name}.".startswith(f"{root}.")), None)
        if needed is None or needed & extras:
            import_module(name)
            count += 1
    return count


def command(*words: str, given: str = "") -> str:
    """Run `recollect …`; what it prints. MissingExtra if it asks for an extra."""
    done = subprocess.run(
        [BIN / "recollect", *words], input=given, capture_output=True, text=True, timeout=SECONDS
    )
    if done.returncode:
        raise_missing(done.stderr)
        raise AssertionError(f"recollect {' '.join(words)}: {done.stderr}")
    return done.stdout


def raise_missing(text: str) -> None:
    """Raise MissingExtra if the text names an extra to install."""
    if named := re.search(r"recollect\[([\w-]+)\]", text):
        raise MissingExtra(feature=text.strip(), extra=named[1])


def round_trip(place: Path, **settings: str) -> None:
    """Store messages, prepare a request, and find what was said."""

    async def talk() -> None:
        store = place / "memory.db"
        async with recollect.open_memory(store=store, settings=settings) as memory:
            rows = [{"role": "user", "content": SAID}, {"role": "assistant", "content": "Noted."}]
            await memory.ingest("first", rows)
            question = {"role": "user", "content": "Which port does staging use?"}
            request = {"model": "claude-x", "max_tokens": 100, "messages": [*rows, question]}
            context = await memory.prepare("second", request)
            assert context.request["messages"][-1]["role"] == "user"
            await memory.settle(jobs=True)
            found = await memory.search("staging port")
            assert any("8443" in passage.text for passage in found.passages), found
            assert not context.report.failures, context.report

    place.mkdir()
    asyncio.run(talk())


@contextmanager
def provider() -> Iterator[str]:
    """A provider of models on this machine; its address."""
    from recollect.testing.scripted_model import Says, whole_reply

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            wire: Any = "anthropic" if "messages" in self.path else "openai-responses"
            body = json.dumps(whole_reply(wire, Says(text="Aye."), model="x")).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def listening(*words: str) -> Iterator[str]:
    """A server that `recollect …` starts on a free port; its address."""
    run = subprocess.Popen([BIN / "recollect", *words], stderr=subprocess.PIPE, text=True)
    try:
        assert run.stderr is not None
        heard = ""
        for line in run.stderr:
            heard += line
            if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield address[0]
                return
        raise_missing(heard)
        raise AssertionError(heard)
    finally:
        run.terminate()
        run.wait(SECONDS)


def post(url: str, headers: dict[str, str], **fields: Any) -> Any:
    body = json.dumps(fields).encode()
    sent = urllib.request.Request(url, body, {"content-type": "application/json", **headers})
    for _ in range(40):
        try:
            with urllib.request.urlopen(sent, timeout=SECONDS) as reply:
                return json.loads(reply.read())
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise AssertionError(f"{url} does not answer")


def use_postgres(_: Path) -> None:
    """Without a server: everything loads."""
    import_module("recollect.adapters.stores.postgres.store")


def use_encrypted(place: Path) -> None:
    from recollect.adapters.stores.sqlite.connection import check_encryption, read_key

    check_encryption()
    with suppress(SettingsError):  # no entry, or no keyring on this machine
        read_key("keyring:recollect/smoke")
    os.environ["SMOKE_KEY"] = "a key that is long enough"
    round_trip(place / "encrypted", **{"store.key": "env:SMOKE_KEY"})
    stored = [file for file in (place / "encrypted").rglob("*") if file.is_file()]
    assert stored
    assert not any(b"8443" in file.read_bytes() for file in stored)


def use_static(place: Path) -> None:
    from recollect.adapters.wiring.models import choose

    chosen = choose("static", models=())
    near, far = asyncio.run(chosen.used[0].embed(["the harbour is calm", "SELECT 1"]))
    assert near != far
    round_trip(place / "static", **{"recall.embedder": "static"})


def use_onnx(_: Path) -> None:
    """Without a model, which is a download: everything up to the lookup of one."""
    from recollect.adapters.wiring.models import choose

    try:
        choose("onnx", models=())
    except EmbedderError:
        for name in ("onnxruntime", "tokenizers", "httpx2"):
            import_module(name)


def use_remote(_: Path) -> None:
    from recollect.adapters.providers.anthropic import AnthropicModel
    from recollect.client import MemoryClient
    from recollect.core.values.model import Prompt

    MemoryClient("http://127.0.0.1:1", "key").close()

    async def ask(url: str) -> str:
        model = AnthropicModel(model="x", base_url=url, key="k")
        return (await model.ask(Prompt(text="Hello", max_output_tokens=10))).text

    with provider() as url:
        assert asyncio.run(ask(url)) == "Aye."


def use_gateway(_: Path) -> None:
    from recollect.hosts.gateway.upstream import decompress

    os.environ["RECOLLECT_GATEWAY_TOKEN"] = "t" * 40
    with provider() as url:
        os.environ["RECOLLECT_GATEWAY__UPSTREAM__ANTHROPIC"] = url
        with listening("gateway", "--port", "0") as address:
            rows = [{"role": "user", "content": SAID}]
            target = f"{address}/~{'t' * 40}/v1/messages"
            reply = post(target, {"x-api-key": "k"}, model="x", max_tokens=9, messages=rows)
            assert reply["content"][0]["text"] == "Aye.", reply
    assert decompress(b"\x0b\x00\x80a\x03", "br") == b"a"
    assert decompress(_packed(b"a"), "zstd") == b"a"


def _packed(data: bytes) -> bytes:
    """One raw block in Zstandard: magic, a frame of one segment, its size, the block."""
    head = b"\x28\xb5\x2f\xfd\x20" + bytes([len(data)])
    return head + ((len(data) << 3) | 1).to_bytes(3, "little") + data


def use_hooks(place: Path) -> None:
    from recollect.core.formats.transcripts.records import unpack

    assert unpack(_packed(b"{}")) == b"{}"
    command("daemon", "start")
    try:
        event = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": SAID}
        done = subprocess.run(
            [BIN / "recollect-hook", "claude-code"],
            input=json.dumps({**event, "cwd": str(place), "transcript_path": str(place / "s")}),
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0 and not done.stderr, done.stderr
    finally:
        command("daemon", "stop")


def use_mcp(_: Path) -> None:
    shown = {"protocolVersion": "2025-06-18", "capabilities": {}}
    shown["clientInfo"] = {"name": "smoke", "version": "1"}
    search = {"name": "memory_search", "arguments": {"query": "staging port"}}
    calls: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": shown},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": search},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", **call}) for call in calls]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    answers: dict[int, Any] = {}
    with subprocess.Popen([BIN / "recollect", "mcp"], text=True, **pipes) as server:
        assert server.stdin is not None and server.stdout is not None and server.stderr is not None
        with suppress(BrokenPipeError):
            server.stdin.write("".join(f"{line}\n" for line in lines))
            server.stdin.flush()
        # on a busy machine an answer can take longer than the server waits after the input's end
        while 3 not in answers and (line := server.stdout.readline()):
            answer = json.loads(line)
            answers[answer["id"]] = answer["result"]
        with suppress(BrokenPipeError):
            server.stdin.close()
        if not answers:
            raise_missing(server.stderr.read())
    assert answers[2]["tools"], answers
    assert not answers[3].get("isError"), answers


def use_serve(_: Path) -> None:
    """Without a database: metrics, and the HTTP server with an application of our own."""
    from recollect.hosts import require_extra
    from recollect.hosts.service.telemetry import telling

    require_extra("serve")
    http, routing = import_module("recollect.hosts.http"), import_module("starlette.routing")

    async def answer(request: Any) -> Any:
        del request
        return http.JsonAnswer("Aye.")

    async def serve() -> None:
        server = http.HttpServer(http.application([routing.Route("/", answer, methods=["POST"])]))
        with socket.create_server(("127.0.0.1", 0)) as opened:
            running = asyncio.create_task(server.serve(sockets=[opened]))
            url = f"http://127.0.0.1:{opened.getsockname()[1]}"
            assert await asyncio.to_thread(post, url, {}) == "Aye."
            server.should_exit = True
            await running

    import_module("recollect.hosts.service.app")
    loaded = recollect.load_settings(arguments={"telemetry.metrics_port": 0})
    with telling(loaded.settings) as metrics:
        assert metrics is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics") as page:
            assert b"recollect_" in page.read()
    asyncio.run(serve())
    use_postgres(Path())


def use_chat(_: Path) -> None:
    import_module("recollect.agent.chat.terminal")


def use_langchain(place: Path) -> None:
    from recollect.frameworks.langchain import RecollectMiddleware
    from recollect.frameworks.langgraph import RecollectStore

    agents = import_module("langchain.agents")
    fakes = import_module("langchain_core.language_models.fake_chat_models")
    with recollect.open_blocking_memory(store=place / "langchain.db") as memory:
        model = fakes.FakeListChatModel(responses=["Aye."])
        agent = agents.create_agent(model, [], middleware=[RecollectMiddleware(memory, "s")])
        done = agent.invoke({"messages": [{"role": "user", "content": SAID}]})
        assert done["messages"][-1].content == "Aye."
        assert len(memory.messages("s")) == 2
        store = RecollectStore(memory)
        store.put(("users", "ada"), "likes", {"text": "pizza"})
        assert store.search(("users", "ada"), query="pizza")[0].key == "likes"


def use_openai_agents(place: Path) -> None:
    from recollect.frameworks.openai_agents import RecollectSession

    agents, openai = import_module("agents"), import_module("openai")

    async def talk(url: str, memory: recollect.BlockingEngine) -> str:
        async with openai.AsyncOpenAI(base_url=url, api_key="k") as client:
            agents.set_tracing_disabled(True)
            model = agents.OpenAIResponsesModel("x", client)
            session = RecollectSession("s", memory)
            agent = agents.Agent(name="harbour", model=model)
            config = session.run_config()
            done = await agents.Runner.run(agent, SAID, session=session, run_config=config)
            return str(done.final_output)

    with provider() as url, recollect.open_blocking_memory(store=place / "agents.db") as memory:
        assert asyncio.run(talk(url, memory)) == "Aye."
        assert memory.messages("s")


def use_ui(_: Path) -> None:
    with listening("ui", "--no-browser") as address:
        for _try in range(40):
            try:
                urllib.request.urlopen(address, timeout=SECONDS)
            except urllib.error.HTTPError as refused:
                assert refused.code == 401  # nobody is signed in
                assert b"recollect ui" in refused.read()
                return
            except urllib.error.URLError:
                time.sleep(0.1)
        raise AssertionError("the inspector lets anybody in, or does not answer")


def use_pydantic_ai(place: Path) -> None:
    from recollect.frameworks.pydantic_ai import RecollectCapability

    pydantic_ai, models = import_module("pydantic_ai"), import_module("pydantic_ai.models.test")
    with recollect.open_blocking_memory(store=place / "pydantic.db") as memory:
        model = models.TestModel(custom_output_text="Aye.")
        agent = pydantic_ai.Agent(model, capabilities=[RecollectCapability(memory, session="s")])
        assert agent.run_sync(SAID).output == "Aye."
        assert memory.messages("s")


AGENT_PARTS: Final = ("gateway", "hooks", "mcp", "ui")
"""The extras that `agent` contains."""


def use_agent(place: Path) -> None:
    for part in AGENT_PARTS:
        USES[part](place / part)


USES: Final[dict[str, Callable[[Path], None]]] = {
    "agent": use_agent,
    "postgres": use_postgres,
    "encrypted": use_encrypted,
    "static": use_static,
    "onnx": use_onnx,
    "remote": use_remote,
    "gateway": use_gateway,
    "serve": use_serve,
    "ui": use_ui,
    "langchain": use_langchain,
    "openai-agents": use_openai_agents,
    "pydantic-ai": use_pydantic_ai,
    "mcp": use_mcp,
    "hooks": use_hooks,
    "chat": use_chat,
}


def check_extra(name: str, place: Path, *, installed: bool, alone: bool) -> str:
    """Use an extra; the problem, or nothing. `alone`: no extra is installed at all."""
    try:
        USES[name](place)
    except MissingExtra as missing:
        if installed:
            return f"{name}: is installed, and reported as missing: {missing}"
        named = (name, *(AGENT_PARTS if name == "agent" else ()))
        return "" if missing.extra in named else f"{name}: the error names {missing.extra}"
    except Exception as error:  # noqa: BLE001 - a list of all problems helps more than the first
        return f"{name}: {type(error).__name__}: {error}"
    return f"{name}: works without the extra" if alone else ""


def main() -> int:
    extras = {name for name in sys.argv[1].split(",") if name}
    with tempfile.TemporaryDirectory(prefix="rc") as folder:
        place = Path(folder)
        os.environ.update(HOME=folder, RECOLLECT_HOME=str(place / "home"))
        os.chdir(place)
        count = import_modules(extras)
        assert command("--version").split()[-1] == recollect.__version__
        assert "Usage" in command("--help")
        round_trip(place / "core")
        found = [
            check_extra(name, place, installed=name in extras, alone=not extras) for name in USES
        ]
    problems = [problem for problem in found if problem]
    print("\n".join(problems) or f"{count} modules import, and every extra behaves")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
