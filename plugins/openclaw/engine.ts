/**
 * Recollect as a context engine: what the model is shown, what is kept, what is compacted.
 *
 * The daemon decides; this carries its answers over. Always holds: where it gives none, the
 * conversation goes out as OpenClaw has it, OpenClaw compacts by itself, and a turn that could not
 * be handed over stays in OpenClaw's queue.
 */
import type {
  AssembleCall,
  Assembled,
  CompactCall,
  Compacted,
  ContextEngine,
  EngineInfo,
  HostModel,
  Maintained,
  Message,
  SessionCall,
} from "./contract.ts";
import { isObject } from "./daemon.ts";
import type { Answer, Daemon } from "./daemon.ts";

export const ENGINE_ID = "recollect";

/** So long a turn waits, a daemon that has to be started included. */
const ASSEMBLE_MS = 4_000;
const COMMIT_MS = 8_000;
/** One step of a compaction; the model's own time is not in it. */
const STEP_MS = 130_000;
const CHARS_PER_TOKEN = 4;

export interface EngineOptions {
  readonly daemon: Pick<Daemon, "ask">;
  /** Names the memory: each folder has its own, unless `space` names one. */
  readonly folder: string;
  readonly space?: string | undefined;
  /** A turn ends only when a compaction that is due has ended: in a process that ends with it. */
  readonly waitForCompaction?: boolean | undefined;
  /** OpenClaw's own compaction. */
  readonly delegate: (call: CompactCall) => Promise<Compacted>;
}

interface LastView {
  readonly given: Message[];
  readonly view: Message[];
  readonly tokens: number;
}

export class RecollectEngine implements ContextEngine {
  readonly info: EngineInfo;
  readonly #options: EngineOptions;
  /** By session: within a turn OpenClaw hands back what it was given. */
  readonly #last = new Map<string, LastView>();

  constructor(options: EngineOptions) {
    this.#options = options;
    this.info = {
      id: ENGINE_ID,
      name: "Recollect",
      ownsCompaction: true,
      turnMaintenanceMode: options.waitForCompaction === true ? "foreground" : "background",
      transcriptSemantics: {
        currentTurnFence: "before-current-turn-entry-v1",
        turnAdvancementIdempotency: "atomic-idempotent-v1",
      },
    };
  }

  async assemble(call: AssembleCall): Promise<Assembled> {
    const budget = call.tokenBudget;
    const last = this.#last.get(call.sessionId);
    const again = last !== undefined && sameMessages(last.view, call.messages) ? last : undefined;
    if (again !== undefined && (budget === undefined || again.tokens <= budget)) {
      return { messages: call.messages, estimatedTokens: again.tokens };
    }
    const given = again?.given ?? call.messages;
    const answer = await this.#ask("assemble", call, ASSEMBLE_MS, {
      messages: given,
      prompt: call.prompt ?? "",
      model: call.model ?? "",
      ...(budget === undefined ? {} : { windowTokens: budget }),
    });
    const view = placed(answer?.["messages"], given);
    if (view === undefined) {
      return {
        messages: call.messages,
        estimatedTokens: Math.ceil(JSON.stringify(call.messages).length / CHARS_PER_TOKEN),
        promptAuthority: "preassembly_may_overflow",
      };
    }
    const tokens = numberAt(answer, "estimatedTokens");
    this.#last.set(call.sessionId, { given, view, tokens });
    return { messages: view, estimatedTokens: tokens };
  }

  async commitTurn(
    call: SessionCall & { messages: Message[] },
  ): Promise<{ status: "committed" | "duplicate" }> {
    const status = await this.#keep(call, call.messages);
    if (status === undefined) {
      throw new Error("recollect did not take the turn; it is handed over again before the next one");
    }
    return { status };
  }

  async ingest(call: SessionCall & { message: Message }): Promise<{ ingested: boolean }> {
    return { ingested: (await this.#keep(call, [call.message])) === "committed" };
  }

  async ingestBatch(
    call: SessionCall & { messages: Message[] },
  ): Promise<{ ingestedCount: number }> {
    const status = await this.#keep(call, call.messages);
    return { ingestedCount: status === "committed" ? call.messages.length : 0 };
  }

  /** Behind a reply: compact where the window is full, while nobody waits. */
  async maintain(call: SessionCall & { abortSignal?: AbortSignal }): Promise<Maintained> {
    const behindTheReply = call.runtimeContext?.allowDeferredCompactionExecution === true;
    if (behindTheReply || this.#options.waitForCompaction === true) {
      await this.#compact(call, { ifDue: true }, call.abortSignal);
    }
    return { changed: false, bytesFreed: 0, rewrittenEntries: 0 };
  }

  async compact(call: CompactCall): Promise<Compacted> {
    const instructions = call.customInstructions ?? "";
    const done = await this.#compact(call, { instructions }, call.abortSignal);
    if (done?.["compacted"] !== true) return await this.#options.delegate(call);
    return {
      ok: true,
      compacted: true,
      reason: textAt(done, "reason"),
      result: {
        summary: textAt(done, "summary"),
        tokensBefore: numberAt(done, "tokensBefore"),
        tokensAfter: numberAt(done, "tokensAfter"),
      },
    };
  }

  /** How a compaction in the daemon ended; its questions are asked of OpenClaw's model. */
  async #compact(
    call: SessionCall,
    order: object,
    signal: AbortSignal | undefined,
  ): Promise<Answer | undefined> {
    const model = call.runtimeContext?.llm;
    let step = await this.#ask("compact", call, STEP_MS, {
      ...order,
      hostAnswers: model !== undefined,
    });
    while (step !== undefined && isObject(step["ask"])) {
      if (signal?.aborted === true) return undefined;
      const { compaction, id } = step["ask"];
      const said = await answered(model, step["ask"], signal);
      step = await this.#ask("answer", call, STEP_MS, { compaction, id, ...said });
    }
    return step;
  }

  async #keep(
    call: SessionCall,
    messages: Message[],
  ): Promise<"committed" | "duplicate" | undefined> {
    const answer = await this.#ask("commit", call, COMMIT_MS, { messages });
    const status = answer?.["status"];
    return status === "committed" || status === "duplicate" ? status : undefined;
  }

  #ask(
    what: string,
    call: SessionCall,
    milliseconds: number,
    more: object,
  ): Promise<Answer | undefined> {
    const { daemon, folder, space } = this.#options;
    const whose = { session: call.sessionId, folder, ...(space === undefined ? {} : { space }) };
    return daemon.ask(`/openclaw/${what}`, { ...whose, ...more }, milliseconds);
  }
}

/** The answer of OpenClaw's model; an empty one where it gives none, which ends the compaction. */
async function answered(
  model: HostModel | undefined,
  asked: Record<string, unknown>,
  signal: AbortSignal | undefined,
): Promise<{ text: string; stop: string }> {
  try {
    const said = await model?.complete({
      messages: [{ role: "user", content: textAt(asked, "text") }],
      systemPrompt: textAt(asked, "system"),
      maxTokens: numberAt(asked, "maxTokens"),
      purpose: "recollect: summary of what leaves the window",
      ...(signal === undefined ? {} : { signal }),
    });
    return { text: said?.text ?? "", stop: said?.stopReason ?? "stop" };
  } catch {
    return { text: "", stop: "error" };
  }
}

/** The view: numbers stand for messages as they were given, the rest are the daemon's own. */
function placed(rows: unknown, given: Message[]): Message[] | undefined {
  if (!Array.isArray(rows)) return undefined;
  const view: Message[] = [];
  for (const row of rows as unknown[]) {
    const message = typeof row === "number" ? given[row] : row;
    if (!isObject(message)) return undefined;
    view.push(message);
  }
  return view;
}

function sameMessages(one: Message[], other: Message[]): boolean {
  return (
    one.length === other.length &&
    one.every((message, at) => {
      const beside = other[at];
      return message === beside || JSON.stringify(message) === JSON.stringify(beside);
    })
  );
}

function textAt(from: Answer | undefined, key: string): string {
  const value = from?.[key];
  return typeof value === "string" ? value : "";
}

function numberAt(from: Answer | undefined, key: string): number {
  const value = from?.[key];
  return typeof value === "number" ? value : 0;
}
