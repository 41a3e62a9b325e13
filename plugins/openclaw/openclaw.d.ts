/** What the plugin imports of OpenClaw, which is there when OpenClaw loads it. */
declare module "openclaw/plugin-sdk/core" {
  export function delegateCompactionToRuntime(call: object): Promise<unknown>;
}
