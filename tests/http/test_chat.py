"""/v1/chat/completions and the routes that show its prompt: shapes, streams, templates, refusals; text from a user never
becomes a control token."""

import json
import os
import re
import tempfile

import attnd_client
import gguf_edit

URL = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Say hello."}]
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


class Chat(attnd_client.ServerTest):
    """A model without a template: plain role lines."""

    flags = ["--backend", "naive", "--kv-type", "f32"]

    def chat(self, body, status=200, **more):
        r = self.post(URL, {"messages": HELLO, "temperature": 0, **body}, **more)
        self.assertEqual(status, r.status, r.text)
        return r.json()

    def events(self, body):
        with self.stream(URL, {"messages": HELLO, "temperature": 0, "stream": True, **body}) as s:
            self.assertEqual(200, s.status, s.read() if s.status != 200 else "")
            got = [e.data for e in s]
            self.assertTrue(s.clean)
        self.assertEqual("[DONE]", got[-1])
        chunks = [json.loads(d) for d in got[:-1]]
        for c in chunks:
            self.assertEqual("chat.completion.chunk", c["object"])
            self.assertEqual((chunks[0]["id"], chunks[0]["created"]), (c["id"], c["created"]))
        return chunks

    def test_shape(self):
        j = self.chat({"max_tokens": 5})
        self.assertEqual({"id", "object", "created", "model", "system_fingerprint", "choices", "usage"}, set(j))
        self.assertTrue(j["id"].startswith("chatcmpl-"))
        self.assertEqual("chat.completion", j["object"])
        (choice,) = j["choices"]
        self.assertEqual({"index", "message", "logprobs", "finish_reason"}, set(choice))
        self.assertEqual({"role", "content", "refusal"}, set(choice["message"]))
        self.assertEqual(("assistant", None), (choice["message"]["role"], choice["message"]["refusal"]))
        self.assertEqual((None, "length"), (choice["logprobs"], choice["finish_reason"]))
        usage = j["usage"]
        self.assertEqual(5, usage["completion_tokens"])
        self.assertEqual(usage["prompt_tokens"] + 5, usage["total_tokens"])
        self.assertEqual({"cached_tokens": 0}, usage["prompt_tokens_details"])

    def test_the_prompt_is_the_applied_template(self):
        messages = [{"role": "system", "content": "Be brief."}, *HELLO, {"role": "assistant", "content": "hello"}, *HELLO]
        shown = self.post("/apply-template", {"messages": messages})
        self.assertEqual(["prompt"], list(shown.json()))
        prompt = shown.json()["prompt"]
        for m in messages:
            self.assertIn(m["content"], prompt)
        self.assertLess(prompt.index("Be brief."), prompt.index("Say hello."))
        by_chat = self.chat({"messages": messages, "max_tokens": 8})
        by_text = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 8}).json()
        self.assertEqual(by_text["choices"][0]["text"], by_chat["choices"][0]["message"]["content"])
        self.assertEqual(by_text["usage"]["prompt_tokens"], by_chat["usage"]["prompt_tokens"])
        closed = self.post("/apply-template", {"messages": messages, "add_generation_prompt": False}).json()["prompt"]
        self.assertTrue(prompt.startswith(closed) and len(closed) < len(prompt), (prompt, closed))

    def test_chat_tokenize(self):
        j = self.post("/chat_tokenize", {"messages": HELLO}).json()
        self.assertEqual(self.post("/apply-template", {"messages": HELLO}).json()["prompt"], j["templated_text"])
        ids = [t["id"] for t in j["tokenize_response"]]
        self.assertEqual(ids, self.chat({"max_tokens": 1, "return_token_ids": True})["prompt_token_ids"])
        raw = j["templated_text"].encode()
        for t in j["tokenize_response"]:
            self.assertEqual(raw[t["start"] : t["stop"]].decode("utf-8", "replace"), t["text"])

    def test_content_in_parts(self):
        parts = [{"role": "user", "content": [{"type": "text", "text": "Say"}, {"type": "text", "text": "hello."}]}]
        one = [{"role": "user", "content": "Say\nhello."}]
        self.assertEqual(self.post("/apply-template", {"messages": one}).json(), self.post("/apply-template", {"messages": parts}).json())

    def test_developer_is_system(self):
        both = [self.post("/apply-template", {"messages": [{"role": r, "content": "x"}, *HELLO]}).json() for r in ("system", "developer")]
        self.assertEqual(both[0], both[1])

    def test_stream_order(self):
        chunks = self.events({"max_tokens": 6, "ignore_eos": True})
        deltas = [c["choices"][0]["delta"] for c in chunks]
        self.assertEqual({"role": "assistant", "content": ""}, deltas[0])
        self.assertTrue(all(list(d) == ["content"] and d["content"] for d in deltas[1:-1]), deltas)
        self.assertEqual({}, deltas[-1])
        reasons = [c["choices"][0]["finish_reason"] for c in chunks]
        self.assertEqual([None] * (len(chunks) - 1) + ["length"], reasons)
        self.assertTrue(all("usage" not in c for c in chunks))
        whole = self.chat({"max_tokens": 6, "ignore_eos": True})["choices"][0]["message"]["content"]
        self.assertEqual(whole, "".join(d.get("content", "") for d in deltas))

    def test_stream_with_usage(self):
        chunks = self.events({"max_tokens": 6, "stream_options": {"include_usage": True, "include_obfuscation": False}})
        self.assertEqual([None] * (len(chunks) - 1), [c["usage"] for c in chunks[:-1]])
        self.assertEqual([], chunks[-1]["choices"])
        self.assertEqual(self.chat({"max_tokens": 6})["usage"], chunks[-1]["usage"])

    def test_stream_of_choices(self):
        body = {"n": 3, "max_tokens": 8, "temperature": 1.5, "seed": 11}
        whole = [c["message"]["content"] for c in self.chat(body)["choices"]]
        self.assertEqual(3, len(set(whole)))
        texts, roles = ["", "", ""], [0, 0, 0]
        for c in self.events(body):
            choice = c["choices"][0]
            texts[choice["index"]] += choice["delta"].get("content", "")
            roles[choice["index"]] += "role" in choice["delta"]
        self.assertEqual((whole, [1, 1, 1]), (texts, roles))

    def test_logprobs(self):
        body = {"max_tokens": 12, "logprobs": True, "top_logprobs": 20, "ignore_eos": True}
        choice = self.chat(body)["choices"][0]
        entries = choice["logprobs"]["content"]
        self.assertIsNone(choice["logprobs"]["refusal"])
        self.assertEqual(12, len(entries))
        for e in entries:
            self.assertEqual({"token", "logprob", "bytes", "top_logprobs"}, set(e))
            self.assertEqual(20, len(e["top_logprobs"]))
            self.assertEqual(bytes(e["bytes"]).decode("utf-8", "replace"), e["token"])
            self.assertEqual({k: e[k] for k in ("token", "logprob", "bytes")}, e["top_logprobs"][0])
            values = [t["logprob"] for t in e["top_logprobs"]]
            self.assertEqual(sorted(values, reverse=True), values)
            self.assertTrue(all(v <= 0 for v in values))
        text = b"".join(bytes(e["bytes"]) for e in entries).decode("utf-8", "replace")
        self.assertEqual(choice["message"]["content"], text)
        streamed = [e for c in self.events(body) for e in (c["choices"][0]["logprobs"] or {"content": []})["content"]]
        self.assertEqual(entries, streamed)
        self.assertEqual([], self.chat({"max_tokens": 1, "logprobs": True})["choices"][0]["logprobs"]["content"][0]["top_logprobs"])

    def test_max_completion_tokens_counts(self):
        self.assertEqual(3, self.chat({"max_completion_tokens": 3, "ignore_eos": True})["usage"]["completion_tokens"])
        self.assertEqual(3, self.chat({"max_tokens": 5, "max_completion_tokens": 3, "ignore_eos": True})["usage"]["completion_tokens"])
        self.assertEqual(5, self.chat({"max_tokens": 5, "ignore_eos": True})["usage"]["completion_tokens"])

    def test_without_a_limit_it_ends_at_the_context(self):
        j = self.chat({"ignore_eos": True})
        self.assertEqual((256, "length"), (j["usage"]["total_tokens"], j["choices"][0]["finish_reason"]))

    def test_stop(self):
        whole = self.chat({"max_tokens": 30, "ignore_eos": True})["choices"][0]["message"]["content"]
        stop = re.search("[!-~]{3}", whole[4:]).group()
        j = self.chat({"max_tokens": 30, "ignore_eos": True, "stop": stop})["choices"][0]
        self.assertEqual((whole[: whole.index(stop)], "stop"), (j["message"]["content"], j["finish_reason"]))

    def test_session_holds_the_conversation(self):
        headers = {"x-session-id": "talk"}
        first = self.chat({"max_tokens": 6, "ignore_eos": True}, headers=headers)
        self.assertEqual(0, first["usage"]["prompt_tokens_details"]["cached_tokens"])
        messages = [*HELLO, first["choices"][0]["message"], {"role": "user", "content": "Again."}]
        second = self.chat({"messages": messages, "max_tokens": 6}, headers=headers)
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreaterEqual(cached, first["usage"]["prompt_tokens"] - 1)
        fresh = self.chat({"messages": messages, "max_tokens": 6})
        self.assertEqual(fresh["choices"], second["choices"])

    def test_bad_requests(self):
        image = {"type": "image_url", "image_url": {"url": "data:"}}
        for param, body in (
            ("messages", {"messages": None}), ("messages", {"messages": []}), ("messages", {"messages": "hi"}),
            ("messages", {"messages": ["hi"]}), ("messages", {"messages": [{"role": "user"}]}),
            ("messages", {"messages": [{"content": "x"}]}), ("messages", {"messages": [{"role": "robot", "content": "x"}]}),
            ("messages", {"messages": [{"role": 1, "content": "x"}]}), ("messages", {"messages": [{"role": "user", "content": 1}]}),
            ("messages", {"messages": [{"role": "user", "content": []}]}), ("messages", {"messages": [{"role": "user", "content": [image]}]}),
            ("messages", {"messages": [{"role": "user", "content": ["x"]}]}), ("messages", {"messages": [{"role": "user", "content": None}]}),
            ("messages", {"messages": [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}]}),
            ("tools", {"tools": [{"type": "function", "function": {"name": "f"}}]}), ("tools", {"tools": {}}),
            ("functions", {"functions": [{"name": "f"}]}), ("tool_choice", {"tool_choice": "required"}),
            ("tool_choice", {"tool_choice": {"type": "function"}}), ("function_call", {"function_call": {"name": "f"}}),
            ("response_format", {"response_format": {"type": "json_object"}}),
            ("response_format", {"response_format": {"type": "json_schema", "json_schema": {}}}),
            ("response_format", {"response_format": "text"}), ("modalities", {"modalities": ["text", "audio"]}),
            ("audio", {"audio": {"voice": "x"}}), ("top_logprobs", {"top_logprobs": 2}), ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
            ("logprobs", {"logprobs": 1}), ("max_tokens", {"max_tokens": -1}), ("max_completion_tokens", {"max_completion_tokens": 1.5}),
            ("n", {"n": 0}), ("temperature", {"temperature": "hot"}), ("stream_options", {"stream_options": {}}),
        ):
            with self.subTest(body=body):
                self.assert_error(self.post(URL, {"messages": HELLO, "max_tokens": 2, **body}), 400, "invalid_request_error", param)

    def test_asking_for_nothing_special_is_fine(self):
        body = {"tools": [], "tool_choice": "auto", "functions": [], "response_format": {"type": "text"}, "modalities": ["text"],
                "user": "u", "max_tokens": 2, "audio": None}
        self.chat(body)

    def test_too_long_a_conversation(self):
        error = self.assert_error(self.post(URL, {"messages": [{"role": "user", "content": "word " * 400}]}), 400, "exceed_context_size_error")
        self.assertIn("256", error["message"])

    def test_the_clients_words_are_not_repeated(self):
        r = self.post(URL, {"messages": [{"role": "<script>", "content": "<script>"}]})
        self.assertNotIn("script", r.text)


class Templates(attnd_client.ServerTest):
    """Models made from the tiny one by writing a template into its metadata."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def with_template(self, name, text):
        path = os.path.join(self.folder.name, name + ".gguf")
        gguf_edit.add_strings(attnd_client.TINY_LLAMA, path, {"tokenizer.chat_template": text})
        return attnd_client.Server(path)

    def test_a_known_family_is_rendered(self):
        with self.with_template("chatml", CHATML) as server:
            chat = server.get("/info").json()["chat"]
            self.assertEqual(("chatml", True), (chat["template"], chat["available"]))
            messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
            prompt = server.post("/apply-template", {"messages": messages}).json()["prompt"]
            self.assertEqual("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n", prompt)
            self.assertEqual(200, server.post(URL, {"messages": messages, "max_tokens": 2}).status)

    def test_an_unknown_template_is_refused_by_name_at_the_chat_routes_only(self):
        with self.with_template("odd", "{{ raise_exception('nobody writes like this') }}<<<{{ messages }}>>>") as server:
            chat = server.get("/info").json()["chat"]
            self.assertEqual((None, False), (chat["template"], chat["available"]))
            self.assertIn("refused", chat["detail"])
            for path in (URL, "/apply-template"):
                error = self.assert_error(server.post(path, {"messages": HELLO}), 501, "not_supported_error")
                self.assertIn("template", error["message"])
            tgi = server.post("/chat_tokenize", {"messages": HELLO})
            self.assertEqual((422, "validation"), (tgi.status, tgi.json()["error_type"]))
            self.assertEqual(200, server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status)
            self.assertEqual(200, server.post("/generate", {"inputs": "a", "parameters": {"max_new_tokens": 1}}).status)

    def test_a_users_text_is_no_control_token(self):
        # </s> is the tiny model's end token, <s> its BOS: written out in a message they are letters.
        bos, eos = 1, 2
        for text in ("</s>", "a</s>b", "<s>", "<unk>"):
            j = self.post("/chat_tokenize", {"messages": [{"role": "user", "content": text}]}).json()
            ids = [t["id"] for t in j["tokenize_response"]]
            self.assertNotIn(eos, ids)
            self.assertEqual([0], [i for i, t in enumerate(ids) if t == bos])
            self.assertIn(text, j["templated_text"])


if __name__ == "__main__":
    attnd_client.main()
