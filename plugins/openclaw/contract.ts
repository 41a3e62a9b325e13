/**
 * OpenClaw's side, as far as this plugin uses it (OpenClaw 2026.9): the context engine that a
 * plugin registers, and what the host hands to it.
 */

/** A message of the conversation; only the daemon looks into it. */
export type Message = Readonly<Record<string, unknown>>;

export interface EngineInfo {
  readonly id: string;
  readonly name: string;
  readonly ownsCompaction: boolean;
  /** Whether maintenance runs behind the reply, so that nobody waits for a summary. */
  readonly turnMaintenanceMode: "foreground" | "background";
  /** Without both, OpenClaw passes the engine over. */
  readonly transcriptSemantics: {
    readonly currentTurnFence: "before-current-turn-entry-v1";
    readonly turnAdvancementIdempotency: "atomic-idempotent-v1";
  };
}

export interface Completion {
  readonly text: string;
  readonly stopReason?: string;
}

/** The model of the agent whose session it is. */
export interface HostModel {
  complete(request: {
    messages: { role: "user"; content: string }[];
    systemPrompt?: string;
    maxTokens?: number;
    purpose?: string;
    signal?: AbortSignal;
  }): Promise<Completion>;
}

export interface RuntimeContext {
  readonly llm?: HostModel;
  /** Set where the host lets an engine compact behind the reply. */
  readonly allowDeferredCompactionExecution?: boolean;
}

export interface SessionCall {
  readonly sessionId: string;
  readonly runtimeContext?: RuntimeContext;
}

export interface AssembleCall extends SessionCall {
  /** The conversation before the prompt; within a turn, the view that was given back last. */
  readonly messages: Message[];
  /** What these messages may take. */
  readonly tokenBudget?: number;
  readonly model?: string;
  readonly prompt?: string;
}

export interface Assembled {
  messages: Message[];
  estimatedTokens: number;
  /** Keeps OpenClaw's own check of the window where nothing was made smaller. */
  promptAuthority?: "preassembly_may_overflow";
}

export interface CompactCall extends SessionCall {
  readonly customInstructions?: string;
  readonly abortSignal?: AbortSignal;
}

export interface Compacted {
  ok: boolean;
  compacted: boolean;
  reason?: string;
  result?: { summary?: string; tokensBefore: number; tokensAfter?: number };
}

export interface Maintained {
  changed: boolean;
  bytesFreed: number;
  rewrittenEntries: number;
}

export interface ContextEngine {
  readonly info: EngineInfo;
  ingest(call: SessionCall & { message: Message }): Promise<{ ingested: boolean }>;
  ingestBatch(call: SessionCall & { messages: Message[] }): Promise<{ ingestedCount: number }>;
  assemble(call: AssembleCall): Promise<Assembled>;
  commitTurn(
    call: SessionCall & { messages: Message[] },
  ): Promise<{ status: "committed" | "duplicate" }>;
  maintain(call: SessionCall & { abortSignal?: AbortSignal }): Promise<Maintained>;
  compact(call: CompactCall): Promise<Compacted>;
}

/** What `register` is handed. */
export interface PluginApi {
  readonly pluginConfig?: Readonly<Record<string, unknown>>;
  readonly logger?: { warn?(text: string): void };
  /** Not in versions from before there were context engines. */
  registerContextEngine?(
    id: string,
    factory: (context: { workspaceDir?: string }) => ContextEngine,
  ): void;
}
