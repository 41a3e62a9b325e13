// Reads JSONL from standard input and writes each line as JSON.stringify spells it.
import { readFileSync } from "node:fs";

const lines = readFileSync(0, "utf8").split("\n");
for (const line of lines) {
  if (line) process.stdout.write(`${JSON.stringify(JSON.parse(line))}\n`);
}
