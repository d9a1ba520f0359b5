// The npm client's share of what test_npm_client.py asks. Arguments: the server's base URL, the model, and the most tokens
// of a reply (a real model may talk on for long). Prints one JSON object.
"use strict";

const OpenAI = require("openai").default ?? require("openai");

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const model = process.argv[3] ?? "fake/tiny";
const limits = process.argv[4] ? { max_tokens: Number(process.argv[4]) } : {};
const messages = [{ role: "user", content: "hi" }];
const tools = [
  { type: "function", function: { name: "now", parameters: { type: "object", properties: { zone: { enum: ["UTC", "CET"] } }, required: ["zone"], additionalProperties: false } } },
];
const person = { type: "object", properties: { age: { type: "integer" } }, required: ["age"], additionalProperties: false };

async function streamed(fields) {
  const seen = { text: "", calls: [], finish: [], usage: null };
  for await (const chunk of await client.chat.completions.create({ model, messages, stream: true, ...limits, ...fields })) {
    for (const choice of chunk.choices) {
      seen.text += choice.delta.content ?? "";
      for (const call of choice.delta.tool_calls ?? []) {
        seen.calls[call.index] ??= { name: call.function.name, arguments: "" };
        seen.calls[call.index].arguments += call.function.arguments ?? "";
      }
      if (choice.finish_reason) seen.finish.push(choice.finish_reason);
    }
    seen.usage = chunk.usage ?? seen.usage;
  }
  return seen;
}

async function refused(ask) {
  try {
    await ask();
  } catch (error) {
    return { kind: error.constructor.name, status: error.status ?? null, code: error.code ?? null, param: error.param ?? null, type: error.type ?? null };
  }
  return null;
}

async function main() {
  const ask = (fields) => client.chat.completions.create({ model, messages, ...limits, ...fields });
  const say = {};
  say.models = (await client.models.list()).data.map((it) => it.id);
  say.chat = await ask({ seed: 3, logprobs: true, top_logprobs: 2 });
  say.again = await ask({ seed: 3 });
  say.several = await ask({ n: 3, seed: 3 });
  say.streamed = await streamed({ seed: 3, stream_options: { include_usage: true } });
  say.stopped = await ask({ seed: 3, stop: [say.chat.choices[0].message.content.slice(4, 6)] });
  say.completion = await client.completions.create({ model, prompt: "ab", echo: true, logprobs: 1, max_tokens: 4 });
  say.schema = await ask({ response_format: { type: "json_schema", json_schema: { name: "p", schema: person, strict: true } } });
  say.called = await ask({ tools, tool_choice: "required", parallel_tool_calls: false, seed: 1 });
  say.calling = await streamed({ tools, tool_choice: "required", parallel_tool_calls: false, seed: 1 });
  say.unknown = await refused(() => client.chat.completions.create({ model: "other", messages }));
  say.wrong = await refused(() => ask({ temperature: 3 }));
  console.log(JSON.stringify(say));
}

main();
