/** The engine where no daemon answers: OpenClaw goes on as if it were not there. */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { createServer as httpServer } from "node:http";
import type { Server } from "node:net";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { test } from "node:test";

import type { Compacted, Message } from "../contract.ts";
import { Daemon } from "../daemon.ts";
import { RecollectEngine } from "../engine.ts";

const messages: Message[] = [
  { role: "user", content: "hello", timestamp: 1 },
  { role: "assistant", content: [{ type: "text", text: "hi" }], timestamp: 2 },
];
const delegated: Compacted = { ok: true, compacted: true, reason: "by OpenClaw" };

function engine(home: string, warned: string[] = []): RecollectEngine {
  const command = join(home, "no-such-program");
  const daemon = new Daemon({ command, home, warn: (text) => warned.push(text) });
  return new RecollectEngine({ daemon, folder: home, delegate: () => Promise.resolve(delegated) });
}

/** A data folder whose daemon is said to listen on this server. */
async function homeOf(server?: Server): Promise<string> {
  const home = mkdtempSync(join(tmpdir(), "recollect-"));
  if (server !== undefined) {
    // a socket's path has at most 107 bytes, and a temporary folder may be deep
    const path = relative(process.cwd(), join(home, "daemon.sock"));
    await new Promise<void>((resolve) => server.listen(path, resolve));
    mkdirSync(join(home, "daemon"));
    writeFileSync(join(home, "daemon", "socket.path"), path);
  }
  return home;
}

async function goesOn(one: RecollectEngine): Promise<void> {
  const view = await one.assemble({ sessionId: "s", messages, prompt: "and?", tokenBudget: 9_000 });
  assert.equal(view.messages, messages);
  assert.ok(view.estimatedTokens > 0);
  assert.equal(view.promptAuthority, "preassembly_may_overflow");
}

test("without a program nothing is changed, turns stay queued, OpenClaw compacts", async () => {
  const warned: string[] = [];
  const one = engine(await homeOf(), warned);
  const began = performance.now();
  await goesOn(one);
  await assert.rejects(one.commitTurn({ sessionId: "s", messages }), /handed over again/u);
  assert.deepEqual(await one.ingest({ sessionId: "s", message: messages[0] as Message }), { ingested: false });
  assert.deepEqual(await one.compact({ sessionId: "s" }), delegated);
  const runtimeContext = { allowDeferredCompactionExecution: true };
  assert.equal((await one.maintain({ sessionId: "s", runtimeContext })).changed, false);
  assert.ok(performance.now() - began < 1_000);
  assert.equal(warned.length, 1, "said once, not with every turn");
});

test("a daemon that hangs is waited for four seconds, not longer", async () => {
  const held = new Set<import("node:net").Socket>();
  const server = createServer((socket) => held.add(socket.on("error", () => undefined)));
  const one = engine(await homeOf(server));
  const began = performance.now();
  await goesOn(one);
  assert.ok(performance.now() - began < 5_000);
  for (const socket of held) socket.destroy();
  server.close();
});

for (const [what, status, headers, body] of [
  ["another program on its socket", 200, {}, '{"messages":[]}'],
  ["an error", 500, { "x-recollect-version": "1" }, '{"error":"no"}'],
  ["no JSON", 200, { "x-recollect-version": "1" }, "<html>"],
  ["no answer", 200, { "x-recollect-version": "1" }, "{}"],
  ["a view of messages that there are not", 200, { "x-recollect-version": "1" }, '{"messages":[7]}'],
  ["a view of no messages", 200, { "x-recollect-version": "1" }, '{"messages":["x"]}'],
] as const) {
  test(`${what}: nothing is changed`, async () => {
    const server = httpServer((_, reply) => {
      reply.writeHead(status, headers).end(body);
    });
    const one = engine(await homeOf(server));
    await goesOn(one);
    await assert.rejects(one.commitTurn({ sessionId: "s", messages }));
    assert.deepEqual(await one.compact({ sessionId: "s" }), delegated);
    server.close();
  });
}

test("a connection that breaks off in an answer changes nothing", async () => {
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", () => {
      socket.write("HTTP/1.1 200 OK\r\nx-recollect-version: 1\r\ncontent-length: 100\r\n\r\n{");
      socket.destroy();
    });
  });
  const one = engine(await homeOf(server));
  await goesOn(one);
  server.close();
});
