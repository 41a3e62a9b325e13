"""Replies that only say that the assistant does not know: they are stored, and never recalled."""

import json
from pathlib import Path

import pytest

import recollect
from recollect.core.rules.noise import answers_nothing

NO_ANSWERS = """
I do not know the port.
I don't know which port the staging API uses.
I don't know.
Sorry, I don't know that.
I'm sorry, but I don't have any information about the staging port.
I'm not sure which port it uses. Could you check the configuration?
I have no record of that in our conversation.
I don't recall you mentioning the port.
You haven't told me which port the staging API uses.
You have not mentioned it yet. Please share the value, and I will remember it.
I cannot answer that.
I can't tell from this conversation which port is meant.
No idea, sorry.
Unfortunately, I do not have access to that information.
I don't have that information. If you tell me, I can help.
I was never told who owns the service.
Ich weiß es leider nicht.
Das ist mir nicht bekannt.
Dazu habe ich keine Informationen. Kannst du es mir sagen?
我不知道这个端口。
抱歉,我没有相关的信息。
I don't remember, could you remind me?
Honestly, I have no idea what the release key is called.
I am not aware of any decision on that. What did you decide?
I don't know your name. What should I call you?
Hmm, I don't know why error 4711 appears.
I do not know which database the reports use.
I don't actually know who is on call this week.
I'm afraid I don't know when the release is planned.
I have no information on the retention period.
I don't have any details about your sister's birthday.
Sorry! I can't remember what we agreed on. Can you tell me again?
You didn't tell me the name of the bucket.
I don't know yet. Tell me and I'll remember it.
I'm not sure who wrote that. Do you remember?
I'm unaware of any deadline for this.
Unfortunately I cannot say which region it runs in.
I've no idea which branch that was.
I do not have that information in my memory.
I cannot recall the name of the restaurant.
This was not discussed in our earlier messages.
I was not told which editor you prefer.
I don't know the answer to that question.
I honestly don't know. Could you look it up in the wiki?
I can't determine the owner from this conversation.
Hm, I don't know what the limit is.
I don't have access to your calendar, so I don't know when the meeting is.
Das weiß ich leider nicht.
Leider weiß ich nicht, welcher Port gemeint ist.
Keine Ahnung, tut mir leid.
我不清楚你说的是哪个端口。请告诉我。
抱歉，我不知道。
I don't know how the backups are rotated.
I'm sorry, I really don't know which vendor you chose.
I have no knowledge of your travel dates.
I cannot remember the code name of the project, sorry.
I'm not certain about that.
I do not have details on this customer. Please give me the name.
Honestly I don't know, could you tell me?
I haven't been told where the keys are. If you tell me, I will remember it.
I have no record of your shoe size.
I can't tell which of the two you mean. Do you mean the red one?
I'm not aware of that.
It has not been discussed yet.
I don't know when the certificate for api-eu-2 expires.
Ich weiß nicht, wann der Umzug ist.
Ich habe leider keine Angaben dazu.
我不记得了。
我没有关于这个项目的信息。
""".strip().splitlines()
ANSWERS = """
The cache must not be used in the chat.
It must never be written to the session history.
The tests do not cover the session history.
The lock is not held in this context.
You never told the client about the fee increase of Acme.
You didn't provide a lease contract for the flat in Bonn and the deposit was paid to Meyer.
I was never told the password. Please rotate the key of the billing service tonight.
There was no mention of a budget in our chat.
The port was never mentioned.
I don't know, but the config says 8443.
I don't know the staging port; production uses 8443.
I'm not sure, maybe 8443.
I don't know why it fails. The log shows a timeout in db.py.
I could not find any usage of parse_config in src.
I don't know Rust well, so we should write this in Go.
We don't know yet. The team decides on Friday.
It runs on port 8443.
I couldn't find the file, so I created config/ports.toml.
If you set PORT, it listens there.
You didn't mention the owner, so I assumed Anna.
I do not have access to the production database because the VPN is down.
The API key was not provided in the request. The server answers 401 then.
Not sure it matters: the cache is empty.
I think it is 80.
There is no rollback: migrations only go forward.
I can't recommend that. It would delete the volume.
You never told me about Paris! How was the Louvre? I loved the pyramid when I went.
I don't know anyone kinder than your sister.
I have no idea how you do it all with three kids.
Keine Ahnung, aber der Port steht in compose.yaml.
我不知道,但配置里是8443。
No, the port was changed on Monday.
I don't know of any other consumer, only billing uses it.
There's no mention of a license in the repository.
I haven't run the tests yet.
I did not change the API.
I never use tabs.
I don't know the exact number, around 40 users were affected.
I didn't know that! Congratulations on the new job.
I wasn't told to stop, and the job finished at noon.
I do not have write access to the repository, Anna has.
I don't remember the port but the host was db-eu.
Unfortunately the build failed in step two.
You never said goodbye. That made Ben sad.
I'm not sure about Redis. Postgres is the safer choice.
I cannot tell you how happy I am!
There is no index on the table users.
I have no details to add. The patch is merged.
I do not recommend Mongo for this.
You didn't mention tests, so I wrote none.
No idea is too small for the backlog.
I don't have a car, we take the train to Berlin.
I was never told about the outage until Ops called me on Sunday.
Please share the file with Tom by Friday.
If you send the form by May, you get the discount.
That is not stated in the contract, section nine says otherwise.
The port is not specified: the default applies.
Sorry, the server is down for maintenance.
I don't know Kotlin, use Java.
I could not say no to that dog.
I haven't been told the price; Maria said it is cheap.
Das weiß ich nicht, frag bitte Jonas aus dem Betrieb.
I don't know the details, ask Priya in Finance.
I don't know why, yet restarting the pod fixed it.
I have no access on weekends. Carla covers for me.
You didn't specify a limit, I used ten.
I'm not sure the cache helps: we measured no gain.
I did not know you moved to Oslo!
It was not discussed with legal, which is why the launch slipped.
I cannot determine the cause from the logs alone. The heap grows by a third per hour.
I don't remember ever being this tired.
I do not know a better library than polars.
There is no such option in the session settings.
I have no idea. Ask the wizard in the tower.
I'm not sure. Friday works for me.
We have no record of that invoice.
The owner is unknown to me but the repo names Kim.
""".strip().splitlines()


@pytest.mark.parametrize("text", NO_ANSWERS)
def test_a_reply_without_an_answer(text: str) -> None:
    assert answers_nothing(text)


@pytest.mark.parametrize("text", ANSWERS)
def test_a_reply_that_tells_something(text: str) -> None:
    assert not answers_nothing(text)


def test_a_long_reply_tells_something() -> None:
    assert not answers_nothing("I do not know the port of the staging API. " * 20)


QUESTION = "Which port does the staging API use?"
REPLIES = [text for text in NO_ANSWERS if "port" in text or "staging" in text]


def said_in_a_run(file: Path, prompt: str, reply: str) -> str:
    """What a run of the README's example sends, when the model replies so."""
    with recollect.open_blocking_memory(store=file, embedders=[]) as memory:
        request = {"model": "claude-x", "max_tokens": 100}
        asked = {**request, "messages": [{"role": "user", "content": prompt}]}
        context = memory.prepare("my-session", asked)
        content = [{"type": "text", "text": reply}]
        memory.observe("my-session", {"role": "assistant", "content": content})
        return json.dumps(context.request["messages"], ensure_ascii=False)


@pytest.mark.parametrize("reply", REPLIES)
def test_a_second_run_does_not_recall_it(tmp_path: Path, reply: str) -> None:
    said_in_a_run(tmp_path / "m.db", QUESTION, reply)
    assert "recalled-context" not in said_in_a_run(tmp_path / "m.db", QUESTION, reply)


def test_an_answer_is_recalled_next_to_it(tmp_path: Path) -> None:
    for reply in ("I do not know the port of the staging API.", "The staging API uses port 8443."):
        said_in_a_run(tmp_path / "m.db", QUESTION, reply)
    sent = said_in_a_run(tmp_path / "m.db", QUESTION, "It uses port 8443.")
    assert "8443" in sent
    assert "do not know" not in sent
