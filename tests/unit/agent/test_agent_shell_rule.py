"""How far the model's commands are trusted: asked for, turned off, or inside bubblewrap."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import AgentHarness

from recollect.agent.tools.confine import ShellRule, ToolOutcome, ToolScope, bubblewrap_works
from recollect.agent.tools.shell import NOBODY_ASKED, NOT_ALLOWED, SHELL_OFF, bash_tool
from recollect.testing.scripted_model import ScriptedModel

OUTSIDE_WORD = "nobody-may-read-this"


async def _ran(command: str, root: Path, rule: ShellRule) -> ToolOutcome:
    return await bash_tool(ToolScope(root=root, shell=rule)).run(
        {"command": command, "timeout": 20}
    )


def ran(command: str, root: Path, rule: ShellRule) -> ToolOutcome:
    return asyncio.run(_ran(command, root, rule))


def test_a_command_runs_only_when_somebody_allows_it(tmp_path: Path) -> None:
    asked: list[str] = []

    async def confirm(command: str) -> bool:
        asked.append(command)
        return "yes" in command

    rule = ShellRule(mode="asked", confirm=confirm)
    assert ran("touch yes", tmp_path, rule).text == "(no output)"
    assert ran("touch no", tmp_path, rule).text == NOT_ALLOWED
    assert ran("touch no", tmp_path, ShellRule(mode="asked")).text == NOBODY_ASKED
    assert ran("touch no", tmp_path, ShellRule(mode="off")).text == SHELL_OFF
    assert [path.name for path in tmp_path.iterdir()] == ["yes"]
    assert asked == ["touch yes", "touch no"]


@pytest.mark.parametrize(
    ("given", "lacking"),
    [
        ({"read_only": True}, {"write", "edit", "bash"}),
        ({"shell": ShellRule(mode="off")}, {"bash"}),
    ],
)
def test_what_is_not_allowed_is_not_offered(
    tmp_path: Path, given: dict[str, Any], lacking: set[str]
) -> None:
    model = ScriptedModel(["Yes."])
    harness = AgentHarness(tmp_path, model, **given)
    harness.say("Hello")
    offered = {tool["name"] for tool in model.requests[0]["tools"]}
    assert {"read", "write", "edit", "bash"} - offered == lacking


@pytest.fixture
def confined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace beside a file that must be neither read nor changed."""
    root = tmp_path / "work"
    root.mkdir()
    if not bubblewrap_works(root):
        pytest.skip("no bubblewrap here, or the system does not let it make namespaces")
    (tmp_path / "outside").write_text(OUTSIDE_WORD)
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "folder").symlink_to(tmp_path, target_is_directory=True)
    monkeypatch.setenv("OPENAI_API_KEY", OUTSIDE_WORD)
    return root


ESCAPES = (
    "cat ../outside",
    "cat link",
    "cat folder/outside",
    "cat {outside}",
    "cat $PWD/../outside",
    "cat /proc/self/root{outside}",
    "cat /proc/1/root{outside}",
    "cat /proc/1/environ | tr '\\0' '\\n'",
    "ls /proc/*/cwd/../outside && cat /proc/*/cwd/../outside",
    "find / -path /usr -prune -o -name outside -exec cat {{}} + 2>/dev/null",
    "env; echo $OPENAI_API_KEY",
    "cd ..; cat outside",
    "bash -c 'cd / && cat .{outside}'",
    "python3 -c \"print(open('{outside}').read())\"",
    "ln -s {outside} another && cat another",
    "ln {outside} hard && cat hard",
    "cp {outside} copy && cat copy",
    "unshare -rm sh -c 'mount --bind / /mnt && cat /mnt{outside}'",
    "unshare -r chroot / cat {outside}",
    "chroot /proc/1/root cat {outside}",
    "nsenter -t 1 -m cat {outside}",
    "exec 9<{outside} && cat <&9",
    "cat < folder/outside",
    "echo evil > ../outside",
    "echo evil > link",
    "echo evil > folder/outside",
    "echo evil > {outside}",
    "rm -rf {outside} ../outside folder/outside",
    "mv ../outside ./taken",
    "truncate -s 0 {outside}",
    "sed -i s/nobody/evil/ {outside}",
    "touch {parent}/new",
    "mkdir -p {parent}/new",
    "ln -sf /etc/passwd {outside}",
    "tee {outside} <<< evil",
    "dd if=/dev/zero of={outside} count=1",
    "mknod sda b 8 0 && head -c 16 sda",
    "unshare -rm umount -l /tmp ; cat {outside}",
    "kill -9 1; cat {outside}",
    "(setsid sleep 300 &) ; cat {outside}",
    "echo evil > /etc/recollect-escape",
)


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_confined_command_stays_inside(confined: Path, escape: str) -> None:
    outside = confined.parent / "outside"
    command = escape.format(outside=outside, parent=confined.parent)
    outcome = ran(command, confined, ShellRule(mode="confined"))
    assert OUTSIDE_WORD not in outcome.text
    assert outside.read_text() == OUTSIDE_WORD
    assert not outside.is_symlink()
    assert sorted(path.name for path in confined.parent.iterdir()) == ["outside", "work"]
    assert not Path("/etc/recollect-escape").exists()


def test_a_confined_command_works_in_the_workspace(confined: Path) -> None:
    outcome = ran("echo one > a; mkdir b; pwd; cat a", confined, ShellRule(mode="confined"))
    assert not outcome.is_error
    assert outcome.text == f"{confined}\none"
    assert (confined / "a").read_text() == "one\n"


def test_a_confined_command_changes_no_settings(confined: Path) -> None:
    for name in ("recollect.toml", "openclaw.json", "named.toml"):
        (confined / name).write_text("ours")
        scope = ToolScope(
            root=confined, shell=ShellRule(mode="confined"), settings_file=confined / "named.toml"
        )
        tries = f"cat {name}; echo evil > {name}; rm -f {name}; mv {name} x; ln {name} y"
        outcome = asyncio.run(_used(scope, f"{tries}; echo evil > z; mv -f z {name}"))
        assert outcome.text.startswith("ours")
        assert (confined / name).read_text() == "ours"


async def _used(scope: ToolScope, command: str) -> ToolOutcome:
    return await bash_tool(scope).run({"command": command})


def test_a_confined_command_sees_no_data_folder(
    confined: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(confined / "data"))
    (confined / "data").mkdir()
    (confined / "data/other.jsonl").write_text(OUTSIDE_WORD)
    command = "cat data/*; grep -r nobody . ; rm -f data/other.jsonl; echo evil > data/other.jsonl"
    assert OUTSIDE_WORD not in ran(command, confined, ShellRule(mode="confined")).text
    assert (confined / "data/other.jsonl").read_text() == OUTSIDE_WORD


def test_a_confined_command_reaches_the_network_only_where_it_may(confined: Path) -> None:
    """Which interfaces it sees: alone with itself, or those of this machine."""
    command = "ls /sys/class/net 2>/dev/null; cat /proc/net/dev"
    alone = ran(command, confined, ShellRule(mode="confined")).text
    assert "lo:" in alone
    ours = Path("/proc/net/dev").read_text()
    shared = ran(command, confined, ShellRule(mode="confined", network=True)).text
    for name in (line.split(":")[0].strip() for line in ours.splitlines()[2:]):
        assert f"{name}:" in shared
        assert name == "lo" or f"{name}:" not in alone
