/**
 * Asks the recollect daemon over its unix socket, and starts the daemon if none answers.
 *
 * Always holds: an answer comes within the given time or not at all, and nothing is thrown. A
 * daemon that could not be started is left alone for a minute.
 */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { Agent, request } from "node:http";
import { homedir, platform } from "node:os";
import { join } from "node:path";

export type Answer = Readonly<Record<string, unknown>>;

export interface DaemonOptions {
  readonly command?: string | undefined;
  readonly home?: string | undefined;
  readonly warn?: ((text: string) => void) | undefined;
}

const START_MS = 8_000;
const AGAIN_MS = 60_000;
const MOST_BYTES = 64_000_000;
const OURS = "x-recollect-version";

/** One connection per request: nothing is left open. */
const agent = new Agent({ keepAlive: false });

export class Daemon {
  readonly #command: string;
  readonly #home: string;
  readonly #warn: (text: string) => void;
  #starting: Promise<boolean> | undefined;
  #failedAt = Number.NEGATIVE_INFINITY;

  constructor(options: DaemonOptions = {}) {
    this.#command = options.command ?? "recollect";
    this.#home = options.home ?? dataFolder();
    this.#warn = options.warn ?? (() => undefined);
  }

  /** What the daemon answers; undefined where it does not, or not in time. */
  async ask(path: string, body: object, milliseconds: number): Promise<Answer | undefined> {
    const until = performance.now() + milliseconds;
    const text = JSON.stringify(body);
    const first = await this.#once(path, text, milliseconds);
    if (first !== "away") return first;
    if (!(await within(this.#started(), until))) return undefined;
    const second = await this.#once(path, text, until - performance.now());
    return second === "away" ? undefined : second;
  }

  async #once(path: string, text: string, milliseconds: number): Promise<Answer | undefined | "away"> {
    const socketPath = await this.#socketPath();
    if (socketPath === undefined) return "away";
    return await post(socketPath, path, text, Math.max(1, Math.ceil(milliseconds)));
  }

  async #socketPath(): Promise<string | undefined> {
    try {
      return await readFile(join(this.#home, "daemon", "socket.path"), "utf8");
    } catch {
      return undefined;
    }
  }

  /** See that a daemon runs; however many ask, one starts it. */
  #started(): Promise<boolean> {
    if (performance.now() - this.#failedAt < AGAIN_MS) return Promise.resolve(false);
    this.#starting ??= this.#start().finally(() => {
      this.#starting = undefined;
    });
    return this.#starting;
  }

  #start(): Promise<boolean> {
    const env = { ...process.env, RECOLLECT_HOME: this.#home };
    return new Promise((resolve) => {
      execFile(this.#command, ["daemon", "start"], { timeout: START_MS, env }, (error) => {
        if (error !== null) {
          this.#failedAt = performance.now();
          this.#warn(`recollect does not run (${String(error.code ?? error.signal)}): turns go on without it`);
        }
        resolve(error === null);
      });
    });
  }
}

function post(
  socketPath: string,
  path: string,
  text: string,
  milliseconds: number,
): Promise<Answer | undefined | "away"> {
  return new Promise((resolve) => {
    const signal = AbortSignal.timeout(milliseconds);
    /** One that was killed breaks off: it is asked again, which does nothing twice. */
    const brokenOff = (): void => resolve(signal.aborted ? undefined : "away");
    const asked = request(
      {
        agent,
        socketPath,
        method: "POST",
        path,
        headers: {
          host: "localhost",
          "content-type": "application/json",
          "content-length": Buffer.byteLength(text),
        },
        signal,
      },
      (reply) => {
        const parts: Buffer[] = [];
        let bytes = 0;
        reply.on("data", (part: Buffer) => {
          parts.push(part);
          bytes += part.length;
          if (bytes > MOST_BYTES) asked.destroy();
        });
        reply.on("error", brokenOff);
        reply.on("close", brokenOff);
        reply.on("end", () => {
          const ours = reply.headers[OURS] !== undefined && reply.statusCode === 200;
          resolve(ours ? parsed(Buffer.concat(parts)) : undefined);
        });
      },
    );
    asked.on("error", brokenOff);
    asked.end(text);
  });
}

function parsed(body: Buffer): Answer | undefined {
  try {
    const value: unknown = JSON.parse(body.toString("utf8"));
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Whether it came true in time. */
async function within(work: Promise<boolean>, until: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(resolve, Math.max(1, until - performance.now()), false);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Where recollect keeps its data, by the same rule as its own. */
function dataFolder(): string {
  const { RECOLLECT_HOME: given, XDG_DATA_HOME: data } = process.env;
  if (given) return given.startsWith("~/") ? join(homedir(), given.slice(2)) : given;
  if (data) return join(data, "recollect");
  const usual = platform() === "darwin" ? "Library/Application Support" : ".local/share";
  return join(homedir(), usual, "recollect");
}
