"""`huggingface_hub.InferenceClient` against a running server: text generation on TGI's routes, chat on OpenAI's.

    ATTND_BIN=build/release/attnd VENV/bin/python tests/clients/huggingface_sdk.py
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import attnd_client  # noqa: E402
from huggingface_hub import InferenceClient  # noqa: E402
from huggingface_hub.errors import HfHubHTTPError, ValidationError  # noqa: E402

HELLO = [{"role": "user", "content": "Say hello."}]


class HuggingFace(attnd_client.ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = InferenceClient(base_url=f"http://{cls.server.host}:{cls.server.port}", timeout=60)

    def test_text_generation(self):
        text = self.client.text_generation("Once upon a time", max_new_tokens=8)
        self.assertTrue(text)
        detailed = self.client.text_generation("Once upon a time", max_new_tokens=8, details=True, decoder_input_details=True, top_n_tokens=2)
        self.assertEqual(text, detailed.generated_text)
        self.assertEqual(("length", 8), (detailed.details.finish_reason, detailed.details.generated_tokens))
        self.assertEqual(8, len(detailed.details.tokens))
        self.assertEqual(2, len(detailed.details.top_tokens[0]))
        self.assertIsNone(detailed.details.prefill[0].logprob)
        full = self.client.text_generation("Once upon a time", max_new_tokens=8, return_full_text=True)
        self.assertEqual("Once upon a time" + text, full)

    def test_text_generation_stream(self):
        text = self.client.text_generation("Once upon a time", max_new_tokens=8)
        events = list(self.client.text_generation("Once upon a time", max_new_tokens=8, stream=True, details=True))
        self.assertEqual(8, len(events))
        self.assertEqual(text, events[-1].generated_text)
        self.assertEqual("length", events[-1].details.finish_reason)
        plain = list(self.client.text_generation("Once upon a time", max_new_tokens=8, stream=True))
        self.assertEqual(8, len(plain))

    def test_parameters(self):
        kw = {"max_new_tokens": 8, "do_sample": True, "temperature": 0.9, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.2, "seed": 4}
        self.assertEqual(self.client.text_generation("a", **kw), self.client.text_generation("a", **kw))
        self.assertTrue(self.client.text_generation("a", max_new_tokens=4, best_of=2, do_sample=True, details=True).details.best_of_sequences)

    def test_errors(self):
        with self.assertRaises(ValidationError):
            self.client.text_generation("a", max_new_tokens=100000)
        with self.assertRaises(HfHubHTTPError):
            self.client.chat_completion(HELLO, temperature=-1)

    def test_chat(self):
        c = self.client.chat_completion(HELLO, max_tokens=5, temperature=0, logprobs=True, top_logprobs=2)
        self.assertEqual(("assistant", "length"), (c.choices[0].message.role, c.choices[0].finish_reason))
        self.assertEqual(5, c.usage.completion_tokens)
        pieces = [chunk.choices[0].delta.content or "" for chunk in self.client.chat_completion(HELLO, max_tokens=5, temperature=0, stream=True)]
        self.assertEqual(c.choices[0].message.content, "".join(pieces))


if __name__ == "__main__":
    attnd_client.main()
