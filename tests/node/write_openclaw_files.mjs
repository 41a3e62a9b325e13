// Writes segments.jsonl, knowledge.jsonl and vectors.bin as OpenClaw's plugin lays them out,
// with content that is hard to carry. Written from the layout, not from our code.
// Usage: node write_openclaw_files.mjs FOLDER [SEGMENTS [ending-newline: yes|no]]
import { writeFileSync } from "node:fs";
import { join } from "node:path";

const [folder, wanted = "60", newline = "yes"] = process.argv.slice(2);
const DIMENSIONS = 384;
const TRICKY = [
  "plain words about the webhook of the payment service",
  "emoji 👩‍👩‍👧‍👦 and flags 🇨🇭, skin tones 👍🏽",
  "我们决定使用 PostgreSQL 而不是 MySQL，因为需要行级安全",
  "決済サービスのウェブフックは署名を検証する 결제 서비스",
  "line separator \u2028 and paragraph separator \u2029 inside, next line \u0085 too",
  "control characters \u0000 \u0001 \u0007 \b \f \n \r \t \u001f \u007f end",
  "a lone high surrogate \ud83d and a lone low one \udc00 in the middle",
  'quotes " and \\ backslashes / slashes </script> <recalled-context>',
  "  leading and trailing space  ",
  "ok",
  "",
  "e\u0301 composed or not é, ligature ﬁ, full width ＡＢＣ, İstanbul",
  "x".repeat(3000) + " long line " + "word ".repeat(400),
  "\ufeffa byte order mark inside",
];

let seed = 42;
const random = () => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return seed / 2 ** 32;
};
const uuid = () =>
  "xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx".replace(/x/g, () =>
    Math.floor(random() * 16).toString(16),
  );

const segments = [];
for (let at = 0; at < Number(wanted); at++) {
  const segment = { id: at === 7 ? "not-a-uuid-文字-👍" : uuid(), sessionId: `session-${at % 3}` };
  if (at % 2) segment.sessionKey = `agent:main:telegram:${at}`;
  segment.timestamp = at === 3 ? 1771000000123.5 : 1771000000000 + at * 61007;
  segment.role = at % 4 === 3 ? "assistant" : "user";
  const content = TRICKY[at % TRICKY.length];
  segment.content = at < TRICKY.length ? content : `${content} number ${at}`;
  segment.tokens = Math.ceil(segment.content.length / 3);
  segment.metadata = { topics: at % 5 ? [] : ["payments", "支付"], entities: at % 7 ? [] : ["Stripe"] };
  if (at % 6 === 1) {
    segment.extra = {
      large: 1e21,
      larger: 1.5e300,
      small: 0.000001,
      smaller: 1e-7,
      float: 0.1 + 0.2,
      negative: -0.5,
      whole: 100.0,
      unsafe: 2 ** 60,
      minus_zero: -0,
      nothing: null,
      yes: true,
      nested: [[], {}, [{ a: [1, 2.5, "\ud800"] }]],
      10: "integer keys come first",
    };
  }
  segments.push(segment);
}

const types = ["decision", "implementation", "config", "issue", "task_state", "architecture"];
const facts = types.map((type, at) => ({
  id: uuid(),
  type,
  content: `${TRICKY[at]} as a fact`,
  context: at % 2 ? "" : TRICKY[at + 3],
  timestamp: 1771000000000 - at * 1000, // newest first: the order of the file is not that of time
}));
facts[1].supersededBy = facts[4].id;
facts[2].confidence = 0.85;

const lines = (objects) =>
  objects.map((object) => JSON.stringify(object)).join("\n") + (newline === "yes" ? "\n" : "");

// every third segment has no vector, and the file is in an order of its own
const vectors = segments.filter((_, at) => at % 3 !== 2).reverse();
const parts = [];
const header = Buffer.alloc(16);
header.writeUInt32LE(0x4d454d56, 0);
header.writeUInt32LE(1, 4);
header.writeUInt32LE(DIMENSIONS, 8);
header.writeUInt32LE(vectors.length, 12);
parts.push(header);
for (const segment of vectors) {
  const id = Buffer.from(segment.id, "utf8");
  const length = Buffer.alloc(2);
  length.writeUInt16LE(id.length, 0);
  const values = Buffer.alloc(DIMENSIONS * 4);
  const drawn = Array.from({ length: DIMENSIONS }, () => random() * 2 - 1);
  const norm = Math.hypot(...drawn);
  drawn.forEach((value, at) => values.writeFloatLE(value / norm, at * 4));
  parts.push(length, id, values);
}

writeFileSync(join(folder, "segments.jsonl"), lines(segments));
writeFileSync(join(folder, "knowledge.jsonl"), lines(facts));
writeFileSync(join(folder, "vectors.bin"), Buffer.concat(parts));
