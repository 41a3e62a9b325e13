/** Talks to a server that is busy at first: `node retries.js URL`. Prints the status of each answer as JSON. */
import { memoryClient } from "../src/index.js";

declare const process: { argv: string[] };
const memory = memoryClient({ url: process.argv[2] ?? "", key: "any", seconds: 5, patienceSeconds: 10 });
const searched = await memory.POST("/v1/spaces/{space}/search", {
  params: { path: { space: "s" } },
  body: { query: "harbour" },
});
const key = await memory.POST("/v1/admin/tenants/{tenant}/keys", {
  params: { path: { tenant: "acme" } },
  body: { scopes: ["read"] },
});
console.log(JSON.stringify([searched.response.status, key.response.status]));
