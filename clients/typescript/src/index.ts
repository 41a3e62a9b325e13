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

/** Make a client. Each request that changes data has an idempotency key, so that it can be repeated safely. */
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
    const until = Date.now() + 1_000 * patienceSeconds;
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      let wait = pause;
      let answer: Response | undefined;
      let failure: unknown;
      try {
        const limit = AbortSignal.any([signal, AbortSignal.timeout(1_000 * (seconds + 5))]);
        answer = await fetch(url, { method, headers, body, signal: limit });
        if (!AGAIN.has(answer.status)) return answer;
        wait = Math.max(wait, Math.min(1_000 * Number(answer.headers.get("retry-after")), LONGEST_PAUSE_MS));
      } catch (error) {
        if (signal.aborted) throw error;
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
