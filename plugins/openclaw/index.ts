/**
 * Registers Recollect as a context engine of OpenClaw (docs/guides/openclaw.md).
 *
 * A plugin that cannot be loaded stops OpenClaw's commands, so nothing here depends on what another
 * version may lack: OpenClaw's own compaction is imported when it is needed.
 */
import type { CompactCall, Compacted, PluginApi } from "./contract.ts";
import { Daemon } from "./daemon.ts";
import { ENGINE_ID, RecollectEngine } from "./engine.ts";

export default function register(api: PluginApi): void {
  if (typeof api.registerContextEngine !== "function") {
    api.logger?.warn?.("this OpenClaw has no context engines: recollect is not used");
    return;
  }
  const config = api.pluginConfig ?? {};
  const daemon = new Daemon({
    command: given(config, "command"),
    home: given(config, "home"),
    warn: (text) => api.logger?.warn?.(text),
  });
  api.registerContextEngine(
    ENGINE_ID,
    (context) =>
      new RecollectEngine({
        daemon,
        folder: context.workspaceDir ?? process.cwd(),
        space: given(config, "space"),
        waitForCompaction: config["waitForCompaction"] === true,
        delegate,
      }),
  );
}

async function delegate(call: CompactCall): Promise<Compacted> {
  const host = await import("openclaw/plugin-sdk/core");
  return (await host.delegateCompactionToRuntime(call)) as Compacted;
}

function given(config: Readonly<Record<string, unknown>>, key: string): string | undefined {
  const value = config[key];
  return typeof value === "string" && value !== "" ? value : undefined;
}
