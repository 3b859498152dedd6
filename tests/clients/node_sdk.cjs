// npm `openai` and `@huggingface/inference` against the server at URL (see node_sdk.py). Ends with a status other than 0 at
// the first thing that is not as it should be.
const assert = require("assert");
const OpenAI = require("openai");
const { InferenceClient } = require("@huggingface/inference");

const url = process.env.URL;
const messages = [{ role: "user", content: "Say hello." }];

async function openai() {
  const client = new OpenAI({ baseURL: url + "/v1", apiKey: "none", maxRetries: 0 });
  const models = await client.models.list();
  assert.strictEqual(models.data[0].id, "tiny-llama-q8_0");

  const whole = await client.chat.completions.create({ model: "m", messages, max_tokens: 8, temperature: 0 });
  assert.strictEqual(whole.choices[0].finish_reason, "length");
  let text = "", usage = null;
  const stream = await client.chat.completions.create({
    model: "m", messages, max_tokens: 8, temperature: 0, stream: true, stream_options: { include_usage: true },
  });
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.strictEqual(text, whole.choices[0].message.content);
  assert.deepStrictEqual(usage, whole.usage);

  const c = await client.completions.create({ model: "m", prompt: ["a", "b"], max_tokens: 3, n: 2, logprobs: 1 });
  assert.deepStrictEqual(c.choices.map((x) => x.index), [0, 1, 2, 3]);
  assert.strictEqual(c.choices[3].logprobs.tokens.length, 3);

  await assert.rejects(client.chat.completions.create({ model: "m", messages, temperature: -1 }), OpenAI.BadRequestError);
  await assert.rejects(client.models.retrieve("no/such"), OpenAI.NotFoundError);
  // An error after the first token arrives as an APIError, not as a crash and not as a clean end.
  const late = { model: "m", prompt: "a", max_tokens: 250, n: 16, stream: true, ignore_eos: true };
  let seen = false;
  for (let deadline_ms = 60; !seen && deadline_ms > 0; deadline_ms -= 3) {
    try {
      for await (const _ of await client.completions.create({ ...late, deadline_ms })) {
      }
    } catch (e) {
      assert(e instanceof OpenAI.APIError, e);
      seen = true;
    }
  }
  assert(seen, "no deadline struck");
}

async function huggingface() {
  const client = new InferenceClient(undefined, { endpointUrl: url });
  const out = await client.textGeneration({ inputs: "Once", parameters: { max_new_tokens: 5 } }).catch((e) => e);
  assert(typeof out.generated_text === "string" && out.generated_text.length > 0, String(out));
  const chat = await client.chatCompletion({ messages, max_tokens: 4 });
  assert.strictEqual(chat.choices[0].message.role, "assistant");
  let n = 0;
  for await (const chunk of client.chatCompletionStream({ messages, max_tokens: 4 })) n += chunk.choices.length;
  assert(n > 0);
}

(async () => {
  for (const part of [openai, huggingface]) {
    await part();
    console.log(`${part.name}: ok`);
  }
})().catch((e) => {
  console.error(e);
  process.exit(1);
});
