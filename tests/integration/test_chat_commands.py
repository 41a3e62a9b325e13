"""Commands of a chat in a real terminal, and what they leave for the next run."""

import re
from pathlib import Path

from tests.harness.chat import MODELS, chatting
from tests.harness.model_server import Asked, ModelServer, Step

from recollect.testing.scripted_model import Says, ScriptedCall

CTRL_D = "\x04"


def newest_result(asked: Asked) -> str:
    """What the last tool answered; empty where the user spoke last."""
    last = asked.body["messages"][-1]
    return str(last["content"]) if last["role"] == "tool" else ""


def test_the_person_is_asked_what_may_be_forgotten(tmp_path: Path) -> None:
    """Shown whole, forgotten only with a yes, and told apart from a command that is to be run."""
    fact = "The harbour gate has the code gull-" + "7" * 90
    answers: list[str] = []

    def answer(asked: Asked) -> Step:
        result = newest_result(asked)
        if not result:
            store = ScriptedCall(id=f"s{len(answers)}", name="memory_store", input={"text": fact})
            return Says(calls=(store,))
        if "forgotten" in result.lower():
            answers.append(result)
            return Says(text=f"answer {len(answers)}")
        (id_,) = re.findall(r"\[([0-9a-f]{24})\]", result)
        forget = ScriptedCall(id=f"f{len(answers)}", name="memory_forget", input={"ids": [id_]})
        return Says(calls=(forget,))

    with chatting(tmp_path, answer, "--window", "64k", columns=70) as chat:
        chat.say("forget it")
        chat.terminal.wait_for("forget it? y / n, then Enter:")
        assert "memory_forget wants to forget this permanently" in "\n".join(chat.terminal.shown())
        assert "gull-" + "7" * 90 in "".join(chat.terminal.shown()).replace(" ", "")
        chat.terminal.send("n\r")
        chat.terminal.wait_for("answer 1")
        chat.say("again")
        chat.terminal.wait_for("forget it? y / n, then Enter:", times=2)
        chat.terminal.send("y\r")
        chat.terminal.wait_for("answer 2")
        chat.terminal.send(CTRL_D)
        assert chat.terminal.wait_until_ended() == 0
    assert "did not confirm" in answers[0]
    assert "Forgotten permanently: 1 facts" in answers[1]


def test_no_command_reaches_the_model(tmp_path: Path) -> None:
    with chatting(tmp_path, [Says(text="Hello."), Says(text="Yes.")], "--window", "64k") as chat:
        (chat.workspace / "AGENTS.md").write_text("Be brief. " * 2_500)
        chat.say("the blue door")
        chat.terminal.wait_for("Hello.")
        for line, answer in (
            ("/context list", "AGENTS.md        25,000 characters, 19,999 sent, truncated"),
            ("/context detail", "19,999 sent, truncated, 5,069 tokens"),
            ("/facts", "There is no command /facts"),
            ("/sessions", "There is no command /sessions"),
            ("/reset", "A new session has begun"),
            ("/memory forget 1.0000", "no message or fact with the id '1.0000'"),
        ):
            chat.say(line)
            chat.terminal.wait_for(answer)
        chat.say("the green door")
        chat.terminal.wait_for("Yes.")
        assert chat.users() == ["the green door"]
        chat.terminal.send(CTRL_D)
        assert chat.terminal.wait_until_ended() == 0


def test_a_model_is_changed_for_the_chat(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Step:
        return Says(text=f"from {asked.body['model']}")

    with ModelServer(answer, pages=MODELS) as server, chatting(tmp_path, server) as chat:
        chat.say("the blue door")
        chat.terminal.wait_for("from scripted")
        chat.say("/model other")
        chat.terminal.wait_for("other answers from now on")
        chat.say("the green door")
        chat.terminal.wait_for("from other")
        assert chat.users() == ["the blue door", "the green door"]
        chat.terminal.wait_for("%  other")
