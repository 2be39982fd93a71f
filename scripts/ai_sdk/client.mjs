// The npm package @ai-sdk/openai-compatible, which opencode and many programs speak through, against dgemma-server.
//
// Called by ai_sdk.sh with two addresses: the demo checkpoint, and the server of examples/scripted.rs, whose replies are known. What
// is checked is what such a program relies on: text, streams, thoughts, calls and their answers, objects, usage, and an end on abort.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const [demo, scripted] = process.argv.slice(2);
const provider = (baseURL) =>
  createOpenAICompatible({
    name: "diffgemma",
    baseURL: `${baseURL}/v1`,
    apiKey: "unused",
    includeUsage: true,
    supportsStructuredOutputs: true,
  });

// The order of these is that of DGEMMA_SCRIPT in ai_sdk.sh.
const [PLAIN, THOUGHT, CALLS, LONG] = [0, 1, 2, 3];
const model = provider(scripted)("scripted");

async function text() {
  const reply = await generateText({ model, prompt: "Hi", seed: PLAIN, maxRetries: 0 });
  assert.equal(reply.text, "Hello, 東京 🙂!");
  assert.equal(reply.finishReason, "stop");
  assert.ok(reply.usage.inputTokens > 0 && reply.usage.outputTokens > 0, JSON.stringify(reply.usage));
  const short = await generateText({ model, prompt: "Hi", seed: PLAIN, maxOutputTokens: 2, maxRetries: 0 });
  assert.equal(short.finishReason, "length");
  assert.equal(short.usage.outputTokens, 2);
}

async function thoughts() {
  const plain = await generateText({ model: provider(scripted)("scripted:think"), prompt: "Hi", seed: THOUGHT });
  assert.equal(plain.reasoningText, "Two and two.");
  assert.equal(plain.text, "Four.");
  const stream = streamText({ model: provider(scripted)("scripted:think"), prompt: "Hi", seed: THOUGHT });
  const kinds = [];
  for await (const part of stream.fullStream) if (kinds.at(-1) !== part.type) kinds.push(part.type);
  assert.ok(kinds.indexOf("reasoning-end") < kinds.indexOf("text-start"), kinds.join(" "));
  assert.equal(await stream.reasoningText, "Two and two.");
  assert.equal(await stream.text, "Four.");
  assert.ok((await stream.usage).outputTokens > 0);
}

async function calls() {
  const weather = tool({
    description: "Weather of a city",
    inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" }, days: { type: "integer" } } }),
    execute: async ({ city, days }) => `${city}: dry for ${days} days`,
  });
  for (const run of [generateText, streamText]) {
    const asked = [];
    const reply = await run({
      model,
      prompt: "Rain?",
      tools: { weather },
      seed: CALLS,
      stopWhen: stepCountIs(2),
      // The second request carries the calls and their answers back.
      prepareStep: ({ messages }) => {
        asked.push(messages.length);
        return {};
      },
    });
    if (run === streamText) await reply.consumeStream();
    const steps = await reply.steps;
    assert.deepEqual(
      steps[0].toolCalls.map((call) => [call.toolName, call.input]),
      [
        ["weather", { city: 'Köln {"x"}', days: 2 }],
        ["weather", { city: "Bonn", days: 3 }],
      ],
    );
    assert.equal(new Set(steps[0].toolCalls.map((call) => call.toolCallId)).size, 2);
    assert.equal(steps[0].finishReason, "tool-calls");
    assert.equal(steps[0].toolResults[1].output, "Bonn: dry for 3 days");
    assert.equal(steps.length, 2);
    assert.ok(asked[1] > asked[0], `${asked}`);
  }
  // The SDK throws when a reply has calls although none are allowed.
  const none = await generateText({ model, prompt: "Rain?", tools: { weather }, toolChoice: "none", seed: CALLS });
  assert.equal(none.finishReason, "stop");
  assert.deepEqual(none.toolCalls, []);
}

async function objects() {
  const schema = jsonSchema({
    type: "object",
    properties: {
      team: { type: "string", enum: ["billing", "support", "engineering"], description: "Owning team" },
      urgent: { type: "boolean" },
      stars: { type: "integer", minimum: 1, maximum: 5 },
    },
    required: ["team", "urgent", "stars"],
  });
  const reply = await generateObject({ model: provider(demo)("demo-model"), schema, prompt: "The database is down!" });
  assert.ok(["billing", "support", "engineering"].includes(reply.object.team), JSON.stringify(reply.object));
  assert.equal(typeof reply.object.urgent, "boolean");
  assert.ok(Number.isInteger(reply.object.stars) && reply.object.stars >= 1 && reply.object.stars <= 5);
  const open = jsonSchema({ type: "object", properties: { name: { type: "string" } } });
  const refusal = await generateObject({ model, schema: open, prompt: "x", maxRetries: 0 }).catch((error) => error);
  assert.equal(refusal.statusCode, 400);
  assert.match(refusal.message, /hint:/);
}

// The demo checkpoint was trained on decisions only: its words mean nothing, and their form must be right all the same.
async function realModel() {
  const settings = { model: provider(demo)("demo-model"), prompt: "Write something.", seed: 5, maxOutputTokens: 40 };
  const plain = await generateText(settings);
  const stream = streamText(settings);
  let streamed = "";
  for await (const piece of stream.textStream) streamed += piece;
  assert.equal(streamed, plain.text);
  assert.ok(!streamed.includes("<|") && !streamed.includes("|>"), streamed);
  assert.deepEqual((await stream.usage).outputTokens, plain.usage.outputTokens);
}

const cancelled = async () => Number((await (await fetch(`${scripted}/metrics`)).text()).match(/^dgemma_cancelled_total (\d+)$/m)[1]);

async function abort() {
  const before = await cancelled();
  const controller = new AbortController();
  const stream = streamText({ model, prompt: "Go", seed: LONG, abortSignal: controller.signal, onError: () => {} });
  for await (const part of stream.fullStream) if (part.type === "text-delta") break;
  controller.abort();
  const end = Date.now() + 20_000;
  while ((await cancelled()) === before) {
    assert.ok(Date.now() < end, "the server did not notice the abort");
    await new Promise((done) => setTimeout(done, 50));
  }
}

for (const check of [text, thoughts, calls, objects, realModel, abort]) {
  await check();
  console.log(`ai sdk: ${check.name}: as expected`);
}
