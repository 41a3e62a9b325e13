/** Talks to a live node: `node live.js URL KEY`. Prints what it found as JSON. */
import { memoryClient, type Problem } from "../src/index.js";

declare const process: { argv: string[] };
const [, , url = "", key = ""] = process.argv;
const memory = memoryClient({ url, key, seconds: 20, patienceSeconds: 30 });
const path = { space: "a/b", session: "s 1" };
const message = { role: "user", content: "The deploy key is under the mat." };
const request = { model: "claude-sonnet-5-5", max_tokens: 100, messages: [message] };

const prepared = await memory.POST("/v1/spaces/{space}/sessions/{session}/prepare", {
  params: { path },
  body: { request },
});
const found = await memory.POST("/v1/spaces/{space}/search", {
  params: { path: { space: path.space } },
  body: { query: "deploy key" },
});
const spaces = await memory.GET("/v1/spaces", { params: { query: { limit: 10 } } });
const missing = await memory.GET("/v1/spaces/{space}/facts", { params: { path: { space: "none" } } });
const refused: Problem | undefined = missing.error;
console.log(
  JSON.stringify({
    turn: prepared.data?.turn,
    request: prepared.data?.request,
    texts: found.data?.passages.map((one) => one.text),
    spaces: spaces.data?.spaces.map((one) => one.name),
    problem: refused?.type,
    status: missing.response.status,
  }),
);
