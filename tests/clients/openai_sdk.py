"""The official `openai` Python client against a running server: what it parses is what it would parse from OpenAI.

    ATTND_BIN=build/release/attnd VENV/bin/python tests/clients/openai_sdk.py
"""

import asyncio
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import attnd_client  # noqa: E402
import openai  # noqa: E402

HELLO = [{"role": "user", "content": "Say hello."}]


class OpenAISdk(attnd_client.ServerTest):
    flags = ["--max-waiting", "64"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.url = f"http://{cls.server.host}:{cls.server.port}/v1"
        cls.client = openai.OpenAI(base_url=cls.url, api_key="none", max_retries=0, timeout=60)

    def test_models(self):
        (model,) = self.client.models.list().data
        self.assertEqual("tiny-llama-q8_0", model.id)
        self.assertEqual(model, self.client.models.retrieve(model.id))
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.models.retrieve("other/model")
        self.assertEqual("model_not_found", caught.exception.code)

    def test_completion(self):
        c = self.client.completions.create(model="m", prompt="Once upon a time", max_tokens=6, logprobs=2, echo=True, n=2)
        self.assertEqual(["length", "length"], [x.finish_reason for x in c.choices])
        self.assertTrue(c.choices[0].text.startswith("Once upon a time"))
        lp = c.choices[0].logprobs
        self.assertEqual(len(lp.tokens), len(lp.token_logprobs))
        self.assertEqual(12, c.usage.completion_tokens)
        self.assertEqual(0, c.usage.prompt_tokens_details.cached_tokens)

    def test_completion_stream(self):
        kw = {"model": "m", "prompt": "Once", "max_tokens": 12, "temperature": 0}
        whole = self.client.completions.create(**kw)
        chunks = list(self.client.completions.create(**kw, stream=True, stream_options={"include_usage": True}))
        self.assertEqual(whole.choices[0].text, "".join(c.choices[0].text for c in chunks if c.choices))
        self.assertEqual(whole.usage, chunks[-1].usage)

    def test_chat(self):
        c = self.client.chat.completions.create(model="m", messages=HELLO, max_tokens=5, logprobs=True, top_logprobs=3)
        self.assertEqual("assistant", c.choices[0].message.role)
        self.assertEqual(5, len(c.choices[0].logprobs.content))
        self.assertEqual(3, len(c.choices[0].logprobs.content[0].top_logprobs))
        raw = self.client.chat.completions.with_raw_response.create(model="m", messages=HELLO, max_tokens=1)
        self.assertEqual("assistant", raw.parse().choices[0].message.role)

    def test_chat_stream(self):
        kw = {"model": "m", "messages": HELLO, "max_tokens": 12, "temperature": 0}
        whole = self.client.chat.completions.create(**kw)
        chunks = list(self.client.chat.completions.create(**kw, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("assistant", chunks[0].choices[0].delta.role)
        self.assertEqual(whole.choices[0].message.content, "".join(c.choices[0].delta.content or "" for c in chunks if c.choices))
        self.assertEqual("length", [c.choices[0].finish_reason for c in chunks if c.choices][-1])
        self.assertEqual(whole.usage, chunks[-1].usage)

    def test_chat_stream_helper_collects_the_message(self):
        kw = {"model": "m", "messages": HELLO, "max_tokens": 30, "temperature": 0}
        whole = self.client.chat.completions.create(**kw).choices[0].message.content
        kw["stop"] = re.search("[!-~]{3}", whole[3:]).group()  # the helper takes an end by length for an error
        with self.client.chat.completions.stream(**kw) as s:
            kinds = {event.type for event in s}
            final = s.get_final_completion()
        self.assertTrue({"chunk", "content.delta", "content.done"} <= kinds, kinds)
        self.assertEqual(whole[: whole.index(kw["stop"])], final.choices[0].message.content)
        self.assertEqual("stop", final.choices[0].finish_reason)

    def test_errors_are_typed(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model="m", messages=HELLO, temperature=-1)
        self.assertEqual("temperature", caught.exception.param)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model="m", prompt=[300] * 300)
        self.assertEqual("exceed_context_size_error", caught.exception.type)
        with self.assertRaises(openai.BadRequestError):
            self.client.chat.completions.create(model="m", messages=HELLO, tools=[{"type": "function", "function": {"name": "f"}}])
        with self.assertRaises(openai.BadRequestError):
            self.client.chat.completions.create(model="m", messages=HELLO, temperature=-1, stream=True)

    def test_error_in_the_middle_of_a_stream(self):
        extra = {"ignore_eos": True, "deadline_ms": 60}
        with self.assertRaises(openai.APIError):
            for _ in range(20):  # the deadline has to strike after the first token
                for _ in self.client.completions.create(model="m", prompt="a", max_tokens=250, n=16, stream=True, extra_body=extra):
                    pass
                extra["deadline_ms"] -= 3
        self.assert_idle()

    def test_leaving_a_stream_frees_its_work(self):
        stream = self.client.completions.create(model="m", prompt="a", max_tokens=250, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.assert_idle()

    def test_session_header_and_extra_body(self):
        kw = {"model": "m", "prompt": "A story that is told twice", "max_tokens": 2}
        self.client.completions.create(**kw, extra_headers={"x-session-id": "sdk"})
        again = self.client.completions.create(**kw, extra_body={"session_id": "sdk"})
        self.assertGreater(again.usage.prompt_tokens_details.cached_tokens, 0)

    def test_async_client_many_at_once(self):
        async def go():
            async with openai.AsyncOpenAI(base_url=self.url, api_key="none", max_retries=0, timeout=120) as client:
                async def one(i):
                    text = ""
                    async for chunk in await client.chat.completions.create(
                        model="m", messages=[{"role": "user", "content": f"{i}"}], max_tokens=10, stream=True
                    ):
                        text += chunk.choices[0].delta.content or ""
                    return text

                return await asyncio.gather(*[one(i) for i in range(32)])

        self.assertEqual(32, len(asyncio.run(go())))


if __name__ == "__main__":
    attnd_client.main()
