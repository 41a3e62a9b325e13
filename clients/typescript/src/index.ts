/**
 * A client of `recollect serve`. Its types are generated from the service's OpenAPI document.
 *
 *     const memory = memoryClient({ url: "http://127.0.0.1:8789", key });
 *     const path = { space: "user-17", session: "chat-3" };
 *     const { data, error } = await memory.POST("/v1/spaces/{space}/sessions/{session}/prepare",
 *       { params: { path }, body: { request } });
 */
import createClient, { type Client } from "openapi-fetch";
import type { components, paths } from "./schema.js";

export type { components, operations, paths } from "./schema.js";
/** Why the service refused a request. */
export type Problem = components["schemas"]["ProblemAnswer"];
export type MemoryClient = Client<paths>;

export interface MemoryOptions {
  /** The address of a node or a load balancer. */
  url: string;
  /** A key that `recollect key create` printed. */
  key: string;
  /** Limits one attempt. */
  seconds?: number;
  /** Limits all attempts of a call. */
  patienceSeconds?: number;
}

/** Statuses after which the same request is sent again. */
const AGAIN = new Set([409, 503, 504]);
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;

/** Requests that make a key. The service does not store keys, so a second request would make another one. */
const MAKES_KEY = /\/keys(\/[^/]+\/rotate)?$/;

/** Make a client. A request that changes data has an idempotency key, so that it can be repeated safely. A request
 * that makes a key is sent once. */
export function memoryClient(options: MemoryOptions): MemoryClient {
  const { seconds = 30, patienceSeconds = 60 } = options;
  const key = options.key.trim();

  async function patiently(request: Request): Promise<Response> {
    const headers = new Headers(request.headers);
    headers.set("authorization", `Bearer ${key}`);
    headers.set("x-request-timeout", String(seconds));
    if (request.method !== "GET" && !headers.has("idempotency-key")) {
      headers.set("idempotency-key", crypto.randomUUID());
    }
    const body = request.body === null ? undefined : await request.arrayBuffer();
    const { method, signal, url } = request;
    const once = method === "POST" && MAKES_KEY.test(new URL(url).pathname);
    const until = Date.now() + 1_000 * patienceSeconds;
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      let wait = pause;
      let answer: Response | undefined;
      let failure: unknown;
      try {
        const limit = AbortSignal.any([signal, AbortSignal.timeout(1_000 * (seconds + 5))]);
        answer = await fetch(url, { method, headers, body, signal: limit });
        if (!AGAIN.has(answer.status) || once) return answer;
        const asked = 1_000 * Number(answer.headers.get("retry-after"));
        // a proxy may send a date, which is no number
        if (Number.isFinite(asked)) wait = Math.max(wait, Math.min(asked, LONGEST_PAUSE_MS));
      } catch (error) {
        if (signal.aborted || once) throw error;
        failure = error;
      }
      if (Date.now() + wait > until) {
        if (answer === undefined) throw failure;
        return answer;
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  return createClient<paths>({ baseUrl: options.url, fetch: patiently });
}
