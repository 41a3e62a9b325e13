"""Another user of this machine at a gateway: sees no activity, joins no session, reads no file."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.harness.gateway import PATHS, ask, records, settings_for, turn
from tests.harness.model_server import ModelServer

from recollect.hosts.gateway.running import BackgroundGateway
from recollect.testing.scripted_model import Says

SETPRIV = shutil.which("setpriv")
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
    assert SETPRIV is not None
    done = subprocess.run(
        [
            *(SETPRIV, "--reuid=65534", "--regid=65534", "--clear-groups"),
            *("/usr/bin/python3", "-c", ATTACK, address, str(home)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd="/",
    )
    return dict(json.loads(done.stdout))


@pytest.mark.skipif(
    os.geteuid() != 0 or SETPRIV is None or not Path("/usr/bin/python3").exists(),
    reason="needs root and setpriv to be another user",
)
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
