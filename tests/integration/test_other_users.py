"""Another user of this machine at a gateway: sees no activity, joins no session, reads no file."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.harness.gateway import PATHS, ask, records, settings_for, turn
from tests.harness.inspector import Visit, inspector, said, store_session
from tests.harness.model_server import ModelServer

from recollect.hosts.gateway.running import BackgroundGateway
from recollect.system.loopback import peer_user
from recollect.testing.scripted_model import Says

SETPRIV = shutil.which("setpriv")
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or SETPRIV is None or not Path("/usr/bin/python3").exists(),
    reason="needs root and setpriv to be another user",
)
ATTACK = """
import json, os, sys, urllib.error, urllib.request
address, home = sys.argv[1:]
seen = {"uid": os.getuid(), "statuses": [], "words": "", "read": []}

def asked(path, body=None, **headers):
    request = urllib.request.Request(address + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            status, content = reply.status, reply.read()
    except urllib.error.HTTPError as error:
        status, content = error.code, error.read()
    seen["statuses"].append(status)
    seen["words"] += content.decode(errors="replace")

body = json.dumps({"model": "m", "max_tokens": 9, "messages": [
    {"role": "user", "content": "What is the code of the crane?"}]}).encode()
for path in ("/recollect/activity?follow=0", "/recollect/reports/", "/recollect/reports/mine"):
    asked(path)
for token in ("", "mine", "x" * 43):
    asked("/v1/messages", body, **{"x-recollect-session": "mine", "x-recollect-token": token})
    asked(f"/~{token}/v1/messages", body, **{"x-recollect-session": "mine"})
for folder, _, files in os.walk(home):
    for file in files:
        try:
            with open(os.path.join(folder, file), "rb") as opened:
                opened.read()
            seen["read"].append(file)
        except OSError:
            pass
try:
    seen["listed"] = os.listdir(os.path.join(home, "gateway", "running"))
except OSError:
    seen["listed"] = []
print(json.dumps(seen))
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data folder in a folder that everybody may enter."""
    open_folder = Path(tempfile.mkdtemp(prefix="recollect-open-"))
    open_folder.chmod(0o755)
    monkeypatch.setenv("RECOLLECT_HOME", str(open_folder / "data"))
    yield open_folder / "data"
    shutil.rmtree(open_folder)


def as_nobody(address: str, home: Path) -> dict[str, Any]:
    """What another user gets who tries everything."""
    return dict(run_as_nobody(ATTACK, address, str(home)))


def run_as_nobody(program: str, *arguments: str) -> Any:
    assert SETPRIV is not None
    done = subprocess.run(
        [
            *(SETPRIV, "--reuid=65534", "--regid=65534", "--clear-groups"),
            *("/usr/bin/python3", "-c", program, *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd="/",
    )
    return json.loads(done.stdout)


@needs_root
@pytest.mark.parametrize("agent", ["", "codex"])
def test_another_user_lists_joins_and_reads_nothing(home: Path, agent: str) -> None:
    """Nor with the token, where it may be seen in an agent's arguments."""
    says = Says(text="The crane has the code QX-4417.")
    with (
        ModelServer(lambda _: says) as server,
        BackgroundGateway(settings_for(server), agent=agent) as running,
    ):
        own = turn(["Remember: the crane has the code QX-4417."])
        assert ask(running.url, PATHS["anthropic"], own, x_recollect_session="mine").status == 200
        records(running, 1)
        asked = len(server.asked)
        seen = as_nobody(running.url if agent else running.address, home)
        assert seen["uid"] == 65534
        assert set(seen["statuses"]) == {401}
        assert "QX-4417" not in seen["words"] and "mine" not in seen["words"]
        assert (seen["read"], seen["listed"]) == ([], [])
        assert len(server.asked) == asked, "nothing went on to the provider"
        files = [path for path in home.rglob("*") if path.is_file()]
    assert any(path.parent.name == "running" for path in files)


VISIT = """
import json, sys, urllib.error, urllib.request
cookie, *addresses = sys.argv[1:]
seen = []
for address in addresses:
    for body in (None, b"space=quay&matching=crane"):
        request = urllib.request.Request(address, body, {"cookie": cookie})
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                seen.append([reply.status, reply.read().decode()])
        except urllib.error.HTTPError as error:
            seen.append([error.code, error.read().decode()])
print(json.dumps(seen))
"""


@needs_root
@pytest.mark.parametrize("host", ["ui", "gateway", "gateway of an agent"])
def test_another_user_sees_no_page_of_the_inspector(home: Path, host: str) -> None:
    """Even with a fresh link, the address of the pages, and the cookie of a signed-in browser."""
    store_session("quay", "s", [[said("user", "The crane is yellow.")]])
    with ExitStack() as opened:
        if host == "ui":
            visit = opened.enter_context(inspector())
            fresh = visit.new_link()
        else:
            server = opened.enter_context(ModelServer(lambda _: Says(text="Aye.")))
            agent = "codex" if host == "gateway of an agent" else ""
            running = opened.enter_context(BackgroundGateway(settings_for(server), agent=agent))
            pages, address = running.gateway.inspector, running.address
            visit = Visit(address, pages.link(address)).sign_in()
            fresh = pages.link(address)
        paths = ("/", "/session?space=quay&session=s", "/live?space=quay&session=s", "/forget")
        assert "The crane is yellow." in visit.ask(paths[1]).words
        seen = run_as_nobody(VISIT, visit.cookie, fresh, *(visit.pages + path for path in paths))
        assert {status for status, _ in seen} == {403}
        assert not any("quay" in text or "crane" in text for _, text in seen)
        assert "The crane is yellow." in visit.ask(paths[1]).words


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux names the user")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::"])
def test_a_connection_belongs_to_its_user_until_it_is_closed(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    both = address == "::"
    with socket.create_server((address, 0), family=family, dualstack_ipv6=both) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1" if both else address, port))
        accepted, peer = server.accept()
        with accepted:
            ends = [(end[0], end[1]) for end in (peer, accepted.getsockname())]
            assert peer_user(*ends) == os.geteuid()
            client.close()
            assert peer_user(*ends) == -1, "the request of a process that has gone is nobody's"
