/** The engine with a real daemon, which it starts itself (TESTED_PROGRAM, RECOLLECT_HOME). */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

import type { AssembleCall, Assembled, Compacted, Message } from "../contract.ts";
import { Daemon } from "../daemon.ts";
import { RecollectEngine } from "../engine.ts";

const command = process.env["TESTED_PROGRAM"] ?? "recollect";
const home = process.env["RECOLLECT_HOME"] ?? "";
const folder = mkdtempSync(join(tmpdir(), "workspace-"));
const DECISION = "For the billing service we decided to store amounts as integers in cents.";
const paths: string[] = [];

const daemon = new Daemon({ command, home });
const counting = {
  ask: (path: string, body: object, milliseconds: number) => {
    paths.push(path);
    return daemon.ask(path, body, milliseconds);
  },
};

after(() => {
  execFileSync(command, ["daemon", "stop"]);
});

function engine(): RecollectEngine {
  const delegate = (): Promise<Compacted> => Promise.resolve({ ok: true, compacted: false });
  return new RecollectEngine({ daemon: counting, folder, delegate });
}

/** The view that the daemon gave; on a busy machine a turn may have gone without while it starts. */
async function shown(one: RecollectEngine, call: AssembleCall): Promise<Assembled> {
  for (let tries = 0; ; tries++) {
    const view = await one.assemble(call);
    if (view.promptAuthority === undefined) return view;
    assert.ok(tries < 5, "the daemon never answered");
  }
}

const user = (text: string): Message => ({ role: "user", content: text, timestamp: 1 });
const reply = (text: string): Message => ({
  role: "assistant",
  content: [{ type: "text", text }],
  stopReason: "stop",
  timestamp: 2,
});
const long = (name: string): string =>
  Array.from({ length: 400 }, (_, at) => `${name}${String(at)}x${String(at * 7)}`).join(" ");

test("starts the daemon, gives untouched messages back as they are, and recalls", async () => {
  const one = engine();
  const first = await shown(one, { sessionId: "a", messages: [], prompt: DECISION });
  assert.deepEqual(first.messages, []);
  const turn = [user(DECISION), reply("Noted.")];
  assert.equal((await one.commitTurn({ sessionId: "a", messages: turn })).status, "committed");
  assert.equal((await one.commitTurn({ sessionId: "a", messages: turn })).status, "duplicate");
  const given = [user("Good morning."), reply("Good morning.")];
  const prompt = "How does the billing service store amounts?";
  const view = await one.assemble({ sessionId: "b", messages: given, prompt, tokenBudget: 20_000 });
  assert.equal(view.messages[0], given[0]);
  assert.equal(view.messages[1], given[1]);
  assert.match(JSON.stringify(view.messages[2]), /integers in cents/u);
  const asked = paths.length;
  const again = await one.assemble({
    sessionId: "b",
    messages: view.messages.map((message) => ({ ...message })),
    prompt,
    tokenBudget: 90_000,
  });
  assert.equal(paths.length, asked, "within the turn the view stands");
  assert.equal(again.messages.length, 3);
});

test("a full window is compacted behind the reply, by the host's model", async () => {
  const one = engine();
  const messages: Message[] = [];
  const call = { sessionId: "c", tokenBudget: 5_000 };
  for (const said of [DECISION, long("crate"), long("barrel"), long("sack"), long("keg")]) {
    await one.assemble({ ...call, messages: [...messages], prompt: said });
    const turn = [user(said), reply("Read.")];
    messages.push(...turn);
    await one.commitTurn({ sessionId: "c", messages: turn });
  }
  const prompts: string[] = [];
  const llm = {
    complete: (request: { messages: { content: string }[] }) => {
      const text = request.messages.map((message) => message.content).join("\n");
      prompts.push(text);
      return Promise.resolve({ text: `Amounts are integers in cents. ${String(prompts.length)}` });
    },
  };
  await one.maintain({ sessionId: "c", runtimeContext: { llm } });
  assert.equal(prompts.length, 0, "before a turn nobody is kept waiting");
  const runtimeContext = { llm, allowDeferredCompactionExecution: true };
  await one.maintain({ sessionId: "c", runtimeContext });
  assert.ok(prompts.join("\n").includes(DECISION));
  const view = await one.assemble({ ...call, messages, prompt: "Go on." });
  assert.ok(view.messages.length < messages.length);
  assert.match(JSON.stringify(view.messages[0]), /Amounts are integers in cents/u);
  const before = prompts.length;
  await one.maintain({ sessionId: "c", runtimeContext });
  assert.equal(prompts.length, before, "once is enough");
});

test("a daemon that was killed is started again by the next turn", async () => {
  const { pid } = JSON.parse(execFileSync(command, ["daemon", "status", "--json"], { encoding: "utf8" })) as {
    pid: number;
  };
  process.kill(pid, "SIGKILL");
  const one = engine();
  const view = await shown(one, { sessionId: "d", messages: [], prompt: "How are amounts stored?" });
  assert.match(JSON.stringify(view.messages), /integers in cents/u);
  assert.ok(!readFileSync(join(home, "daemon", "daemon.log"), "utf8").includes("failed"));
});
