// Reads a pi session file of version 3 from standard input, in its own way, and says how it
// would be written again and what the model would be shown. Written from the format's
// description, not from our code. Prints one JSON object:
// {"respelled": [numbers of lines that JSON.stringify spells differently],
//  "entries": how many lines behind the header, "shown": [messages], "model", "thinking"}
import { readFileSync } from "node:fs";

const respelled = [];
const lines = readFileSync(0, "utf8").split("\n");
const values = [];
lines.forEach((line, at) => {
  if (!line.trim()) return;
  const value = JSON.parse(line);
  if (JSON.stringify(value) !== line) respelled.push(at + 1);
  values.push(value);
});

const entries = values.slice(1);
const known = new Map(entries.map((entry) => [entry.id, entry]));
const path = [];
for (let at = entries.at(-1); at && !path.includes(at); at = known.get(at.parentId)) path.unshift(at);

const wrapped = (opening, summary, closing, at) => ({
  role: "user",
  content: [{ type: "text", text: opening + summary + closing }],
  timestamp: new Date(at).getTime(),
});
const spoken = (entry) => {
  if (entry.type === "message") return entry.message.excludeFromContext ? [] : [entry.message];
  if (entry.type === "custom_message") {
    const { content } = entry;
    const blocks = typeof content === "string" ? [{ type: "text", text: content }] : content;
    return [{ role: "user", content: blocks, timestamp: new Date(entry.timestamp).getTime() }];
  }
  if (entry.type === "branch_summary" && entry.summary) {
    const opening =
      "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n";
    return [wrapped(opening, entry.summary, "</summary>", entry.timestamp)];
  }
  return [];
};

const cut = path.findLastIndex((entry) => entry.type === "compaction");
let shown = [];
if (cut < 0) {
  shown = path.flatMap(spoken);
} else {
  const compaction = path[cut];
  const opening =
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n";
  shown.push(wrapped(opening, compaction.summary, "\n</summary>", compaction.timestamp));
  if (compaction.retainedTail) {
    shown.push(...compaction.retainedTail);
  } else {
    const first = path.findIndex((entry) => entry.id === compaction.firstKeptEntryId);
    if (first >= 0 && first < cut) shown.push(...path.slice(first, cut).flatMap(spoken));
  }
  shown.push(...path.slice(cut + 1).flatMap(spoken));
}

let model = null;
let thinking = "off";
for (const entry of path) {
  if (entry.type === "thinking_level_change") thinking = entry.thinkingLevel;
  if (entry.type === "model_change") model = [entry.provider, entry.modelId];
  if (entry.type === "message" && entry.message.role === "assistant")
    model = [entry.message.provider, entry.message.model];
}
process.stdout.write(
  JSON.stringify({ respelled, entries: entries.length, shown, model, thinking }),
);
