"""/v1/completions: shapes, the numbers of the reference, choices, stop strings, log-probabilities, streams, refusals."""

import json
import os
import re

import attnd_client


def golden(name):
    with open(os.path.join(attnd_client.DATA, name + ".json"), encoding="utf-8") as f:
        return json.load(f)


GOLDEN = golden("tiny-llama-q8_0")
PLAIN = GOLDEN["prompts"]["plain"]
TOLERANCE = GOLDEN["tolerance"]["f32_path"]["suggested"]["logprob"]
URL = "/v1/completions"
USAGE = {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details"}


class Completions(attnd_client.ServerTest):
    # With f32 throughout, the answers are the reference's.
    flags = ["--backend", "naive", "--kv-type", "f32"]

    def complete(self, body, status=200, **more):
        r = self.post(URL, {"prompt": PLAIN["text"], "temperature": 0, **body}, **more)
        self.assertEqual(status, r.status, r.text)
        return r.json()

    def events(self, body):
        """The chunks of a stream, its end checked."""
        with self.stream(URL, {"prompt": PLAIN["text"], "temperature": 0, "stream": True, **body}) as s:
            self.assertEqual(200, s.status, s.read() if s.status != 200 else "")
            self.assertTrue(s.headers["content-type"].startswith("text/event-stream"))
            got = [e.data for e in s]
            self.assertTrue(s.clean)
        self.assertEqual("[DONE]", got[-1])
        chunks = [json.loads(d) for d in got[:-1]]
        for c in chunks:
            self.assertEqual("text_completion", c["object"])
            self.assertEqual((chunks[0]["id"], chunks[0]["created"]), (c["id"], c["created"]))
        return chunks

    @staticmethod
    def joined(chunks, index=0):
        """(text, finish reason, logprobs) of one choice of a stream."""
        mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        reasons = [c["finish_reason"] for c in mine if c["finish_reason"]]
        assert len(reasons) == 1 and mine[-1]["finish_reason"], mine
        logprobs = {}
        for c in mine:
            for name, part in (c["logprobs"] or {}).items():
                logprobs[name] = (logprobs.get(name) or []) + part if part is not None else None
        return "".join(c["text"] for c in mine), reasons[0], logprobs

    # ---- shapes ----

    def test_shape(self):
        j = self.complete({"max_tokens": 4})
        self.assertEqual({"id", "object", "created", "model", "system_fingerprint", "choices", "usage"}, set(j))
        self.assertTrue(j["id"].startswith("cmpl-"))
        self.assertEqual("text_completion", j["object"])
        self.assertEqual("tiny-llama-q8_0", j["model"])
        self.assertTrue(j["system_fingerprint"])
        (choice,) = j["choices"]
        self.assertEqual({"index", "text", "logprobs", "finish_reason"}, set(choice))
        self.assertEqual((0, None, "length"), (choice["index"], choice["logprobs"], choice["finish_reason"]))
        self.assertEqual(USAGE, set(j["usage"]))
        n = len(PLAIN["ids"])
        self.assertEqual((n, 4, n + 4), tuple(j["usage"][k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")))
        self.assertEqual({"cached_tokens": 0}, j["usage"]["prompt_tokens_details"])

    def test_default_is_sixteen_tokens(self):
        self.assertEqual(16, self.complete({"ignore_eos": True})["usage"]["completion_tokens"])

    def test_greedy_ids_are_the_references(self):
        j = self.complete({"max_tokens": 16, "return_token_ids": True})
        self.assertEqual(PLAIN["greedy_ids"], j["choices"][0]["token_ids"])
        self.assertEqual(PLAIN["ids"], j["choices"][0]["prompt_token_ids"])

    def test_text_is_the_references_bytes(self):
        want = bytes.fromhex(PLAIN["greedy_hex"].replace(" ", "")).decode("utf-8", "replace")
        self.assertEqual(want, self.complete({"max_tokens": 16})["choices"][0]["text"])

    def test_token_array_equals_its_text(self):
        by_text = self.complete({"max_tokens": 8})["choices"]
        by_ids = self.complete({"prompt": PLAIN["ids"], "max_tokens": 8})["choices"]
        self.assertEqual(by_text, by_ids)

    # ---- several prompts, several choices ----

    def test_prompts_have_their_own_choices(self):
        texts = [p["text"] for p in GOLDEN["prompts"].values()]
        alone = [self.complete({"prompt": t, "max_tokens": 6})["choices"][0]["text"] for t in texts]
        j = self.complete({"prompt": texts, "max_tokens": 6})
        self.assertEqual(list(range(len(texts))), [c["index"] for c in j["choices"]])
        self.assertEqual(alone, [c["text"] for c in j["choices"]])
        self.assertEqual(sum(len(p["ids"]) for p in GOLDEN["prompts"].values()), j["usage"]["prompt_tokens"])
        mixed = self.complete({"prompt": [texts[0], GOLDEN["prompts"]["spaces"]["ids"]], "max_tokens": 6})
        self.assertEqual(alone[:2], [c["text"] for c in mixed["choices"]])
        chunks = self.events({"prompt": texts, "max_tokens": 6})
        self.assertEqual(alone, [self.joined(chunks, i)[0] for i in range(len(texts))])

    def test_n_choices_differ_and_repeat_with_the_seed(self):
        body = {"n": 4, "max_tokens": 12, "temperature": 1.5, "seed": 7}
        first = [c["text"] for c in self.complete(body)["choices"]]
        self.assertEqual(4, len(set(first)))
        self.assertEqual(first, [c["text"] for c in self.complete(body)["choices"]])
        chunks = self.events(body)
        self.assertEqual(first, [self.joined(chunks, i)[0] for i in range(4)])
        other = [c["text"] for c in self.complete({**body, "seed": 8})["choices"]]
        self.assertNotEqual(first, other)
        two = self.complete({**body, "n": 2, "prompt": [PLAIN["text"], "other"]})["choices"]
        self.assertEqual([0, 1, 2, 3], [c["index"] for c in two])
        self.assertEqual(first[:2], [c["text"] for c in two[:2]])

    def test_best_of_returns_the_likeliest(self):
        body = {"max_tokens": 6, "temperature": 1.5, "seed": 3, "logprobs": 0, "ignore_eos": True}
        every = self.complete({**body, "n": 6})["choices"]
        mean = lambda c: sum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["token_logprobs"])
        want = sorted(every, key=mean, reverse=True)[:2]
        j = self.complete({**body, "n": 2, "best_of": 6})
        self.assertEqual([c["text"] for c in want], [c["text"] for c in j["choices"]])
        self.assertEqual([c["logprobs"] for c in want], [c["logprobs"] for c in j["choices"]])
        self.assertEqual([0, 1], [c["index"] for c in j["choices"]])
        self.assertEqual(36, j["usage"]["completion_tokens"])

    # ---- stopping ----

    def test_stop_string_is_cut_off(self):
        body = {"max_tokens": 40, "ignore_eos": True}
        whole = self.complete(body)["choices"][0]["text"]
        stop = re.search("[!-~]{3}", whole[5:]).group()
        cut = whole[: whole.index(stop)]
        j = self.complete({**body, "stop": ["never to be seen", stop]})
        self.assertEqual((cut, "stop"), (j["choices"][0]["text"], j["choices"][0]["finish_reason"]))
        self.assertEqual((cut, "stop"), self.joined(self.events({**body, "stop": stop}))[:2])
        j = self.complete({**body, "stop": "never to be seen"})
        self.assertEqual((whole, "length"), (j["choices"][0]["text"], j["choices"][0]["finish_reason"]))
        self.assertEqual(whole, self.joined(self.events({**body, "stop": "never to be seen"}))[0])

    def test_stop_token_id(self):
        stop = PLAIN["greedy_ids"][5]
        j = self.complete({"max_tokens": 16, "stop_token_ids": [stop], "return_token_ids": True})
        self.assertEqual("stop", j["choices"][0]["finish_reason"])
        self.assertEqual(PLAIN["greedy_ids"][:6], j["choices"][0]["token_ids"])

    def test_end_token_ends_unless_ignored(self):
        eos = {"logit_bias": {"2": 100}, "max_tokens": 5}
        j = self.complete(eos)
        self.assertEqual(("", "stop"), (j["choices"][0]["text"], j["choices"][0]["finish_reason"]))
        j = self.complete({**eos, "ignore_eos": True})
        self.assertEqual(("length", 5), (j["choices"][0]["finish_reason"], j["usage"]["completion_tokens"]))

    # ---- log-probabilities ----

    def check_step(self, i, logprob, top):
        """Against the reference's logits of the i-th generated token."""
        step = PLAIN["steps"][i]
        want = [logit - step["logsumexp"] for _, logit in step["top5"]]
        self.assertAlmostEqual(want[0], logprob, delta=TOLERANCE)
        for a, b in zip(want, sorted(top.values(), reverse=True)):
            self.assertAlmostEqual(a, b, delta=TOLERANCE)

    def test_logprobs_are_the_references(self):
        lp = self.complete({"max_tokens": 16, "logprobs": 5})["choices"][0]["logprobs"]
        self.assertEqual({"tokens", "token_logprobs", "top_logprobs", "text_offset"}, set(lp))
        self.assertEqual([16] * 4, [len(v) for v in lp.values()])
        for i in range(16):
            self.check_step(i, lp["token_logprobs"][i], lp["top_logprobs"][i])
            self.assertEqual(lp["token_logprobs"][i], lp["top_logprobs"][i][lp["tokens"][i]])

    def test_logprobs_zero_has_no_alternatives(self):
        lp = self.complete({"max_tokens": 3, "logprobs": 0})["choices"][0]["logprobs"]
        self.assertIsNone(lp["top_logprobs"])
        self.assertEqual(3, len(lp["token_logprobs"]))

    def test_text_offset_points_into_the_text(self):
        choice = self.complete({"prompt": "a", "max_tokens": 40, "logprobs": 0, "ignore_eos": True})["choices"][0]
        lp, text = choice["logprobs"], choice["text"]
        ends = lp["text_offset"][1:] + [len(text)]
        seen = 0
        for token, start, end in zip(lp["tokens"], lp["text_offset"], ends):
            if not token.startswith("bytes:") and text[start:end] == token:
                seen += 1
            self.assertLessEqual(start, end)
        self.assertGreater(seen, 20)

    def test_echo_with_logprobs_scores_the_prompt(self):
        for name, p in GOLDEN["prompts"].items():
            j = self.complete({"prompt": p["text"], "max_tokens": 0, "echo": True, "logprobs": 1})
            choice = j["choices"][0]
            self.assertEqual((p["text"], "length", 0), (choice["text"], choice["finish_reason"], j["usage"]["completion_tokens"]))
            lp = choice["logprobs"]
            self.assertEqual(len(p["ids"]), len(lp["tokens"]), name)
            self.assertIsNone(lp["token_logprobs"][0])
            self.assertIsNone(lp["top_logprobs"][0])
            for got, want in zip(lp["token_logprobs"][1:], p["prompt_logprobs"][1:]):
                self.assertAlmostEqual(want, got, delta=TOLERANCE + 1e-5)
            # BOS has no text, the first word begins where the text does.
            self.assertEqual([0, 0], lp["text_offset"][:2])
            for token, start in list(zip(lp["tokens"], lp["text_offset"]))[2:]:
                if not token.startswith("bytes:"):
                    self.assertEqual(token, p["text"][start : start + len(token)], name)

    def test_echo_goes_on_with_the_answer(self):
        plain = self.complete({"max_tokens": 6, "logprobs": 2})["choices"][0]
        echo = self.complete({"max_tokens": 6, "echo": True, "logprobs": 2})["choices"][0]
        self.assertEqual(PLAIN["text"] + plain["text"], echo["text"])
        self.assertEqual(plain["logprobs"]["tokens"], echo["logprobs"]["tokens"][-6:])
        shift = len(PLAIN["text"])
        self.assertEqual([o + shift for o in plain["logprobs"]["text_offset"]], echo["logprobs"]["text_offset"][-6:])
        self.assertEqual(PLAIN["text"] + plain["text"], self.complete({"max_tokens": 6, "echo": True})["choices"][0]["text"])
        ids = self.complete({"prompt": PLAIN["ids"], "max_tokens": 6, "echo": True})["choices"][0]["text"]
        self.assertEqual(PLAIN["text"] + plain["text"], ids)

    # ---- streams ----

    def test_stream_equals_the_whole_answer(self):
        for body in ({"max_tokens": 30, "logprobs": 3, "ignore_eos": True}, {"max_tokens": 9, "echo": True, "logprobs": 0},
                     {"max_tokens": 12, "temperature": 1, "seed": 5, "n": 3, "top_k": 40, "top_p": 0.9}):
            whole, chunks = self.complete(body)["choices"], self.events(body)
            for choice in whole:
                text, reason, logprobs = self.joined(chunks, choice["index"])
                self.assertEqual((choice["text"], choice["finish_reason"]), (text, reason))
                self.assertEqual(choice["logprobs"] or {}, logprobs)
            self.assertTrue(all("usage" not in c for c in chunks))

    def test_stream_with_usage(self):
        chunks = self.events({"max_tokens": 5, "stream_options": {"include_usage": True}})
        self.assertEqual([None] * (len(chunks) - 1), [c["usage"] for c in chunks[:-1]])
        self.assertEqual([], chunks[-1]["choices"])
        self.assertEqual(self.complete({"max_tokens": 5})["usage"], chunks[-1]["usage"])

    def test_stream_of_token_ids(self):
        chunks = self.events({"max_tokens": 16, "return_token_ids": True})
        ids = [i for c in chunks for i in c["choices"][0]["token_ids"]]
        self.assertEqual(PLAIN["greedy_ids"], ids)
        self.assertEqual(PLAIN["ids"], chunks[0]["choices"][0]["prompt_token_ids"])
        self.assertTrue(all(c["choices"][0]["prompt_token_ids"] is None for c in chunks[1:]))

    def test_characters_are_never_cut(self):
        # The tiny model writes single bytes of characters: every chunk must be UTF-8 by itself (the reader decodes strictly).
        for seed in range(5):
            body = {"max_tokens": 60, "temperature": 2, "seed": seed, "ignore_eos": True}
            self.assertEqual(self.complete(body)["choices"][0]["text"], self.joined(self.events(body))[0])

    # ---- sessions ----

    def test_session_reuses_the_common_prefix(self):
        body = {"max_tokens": 4, "ignore_eos": True}
        first = self.complete({**body, "session_id": "s1"})
        self.assertEqual(0, first["usage"]["prompt_tokens_details"]["cached_tokens"])
        longer = {**body, "prompt": PLAIN["text"] + first["choices"][0]["text"] + " and more words follow"}
        fresh = self.complete(longer)
        again = self.complete(longer, headers={"x-session-id": "s1"})
        self.assertEqual(fresh["choices"], again["choices"])
        self.assertGreaterEqual(again["usage"]["prompt_tokens_details"]["cached_tokens"], len(PLAIN["ids"]) - 1)
        self.assertEqual(0, fresh["usage"]["prompt_tokens_details"]["cached_tokens"])

    def test_salt_separates(self):
        body = {"max_tokens": 2, "session_id": "s2"}
        self.complete({**body, "cache_salt": "a"})
        other = self.complete({**body, "cache_salt": "b"})
        self.assertEqual(0, other["usage"]["prompt_tokens_details"]["cached_tokens"])
        same = self.complete({**body, "cache_salt": "a"})
        self.assertGreater(same["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    # ---- parameters that change the answer ----

    def test_penalties_and_bias_reach_the_sampler(self):
        greedy = self.complete({"max_tokens": 16, "return_token_ids": True})["choices"][0]["token_ids"]
        banned = self.complete({"max_tokens": 16, "return_token_ids": True, "logit_bias": {str(greedy[0]): -100}})
        self.assertNotIn(greedy[0], banned["choices"][0]["token_ids"])
        forced = self.complete({"max_tokens": 3, "return_token_ids": True, "logit_bias": {"300": 100}})
        self.assertEqual([300] * 3, forced["choices"][0]["token_ids"])
        top1 = self.complete({"max_tokens": 8, "return_token_ids": True, "temperature": 5, "top_k": 1})
        self.assertEqual(greedy[:8], top1["choices"][0]["token_ids"])
        for name, value in (("min_p", 1.0), ("top_p", 1e-6)):
            j = self.complete({"max_tokens": 8, "return_token_ids": True, "temperature": 5, name: value})
            self.assertEqual(greedy[:8], j["choices"][0]["token_ids"], name)
        # Among twelve tokens that alone are likely, a penalty makes the choice more even.
        body = {"max_tokens": 40, "return_token_ids": True, "logit_bias": {str(i): 100 for i in range(300, 312)}}
        distinct = lambda more: len(set(self.complete({**body, **more})["choices"][0]["token_ids"]))
        usual = distinct({})
        for name, value in (("presence_penalty", 2), ("frequency_penalty", 2), ("repetition_penalty", 4)):
            self.assertGreater(distinct({name: value}), usual, name)

    def test_default_temperature_is_one(self):
        texts = {self.post(URL, {"prompt": "a", "max_tokens": 8, "seed": s}).json()["choices"][0]["text"] for s in range(8)}
        self.assertGreater(len(texts), 4)

    # ---- refusals and tolerance ----

    def test_bad_requests(self):
        for param, body in (
            ("prompt", {"prompt": None}), ("prompt", {"prompt": ""}), ("prompt", {"prompt": []}), ("prompt", {"prompt": [[]]}),
            ("prompt", {"prompt": [""]}), ("prompt", {"prompt": {}}), ("prompt", {"prompt": 5}), ("prompt", {"prompt": [1, "a"]}),
            ("prompt", {"prompt": [512]}), ("prompt", {"prompt": [-1]}), ("prompt", {"prompt": [1.5]}), ("prompt", {"prompt": ["a", 1]}),
            ("prompt", {"prompt": [["a"]]}), ("max_tokens", {"max_tokens": -1}), ("max_tokens", {"max_tokens": "4"}),
            ("n", {"n": 0}), ("n", {"n": 17}), ("n", {"n": True}), ("logprobs", {"logprobs": 6}), ("logprobs", {"logprobs": -1}),
            ("logprobs", {"logprobs": True}), ("best_of", {"n": 2, "best_of": 1}), ("best_of", {"best_of": 2, "stream": True}),
            ("suffix", {"suffix": "x"}), ("temperature", {"temperature": -0.1}), ("temperature", {"temperature": "1"}),
            ("top_p", {"top_p": 0}), ("top_p", {"top_p": 1.1}), ("top_k", {"top_k": -2}), ("min_p", {"min_p": 2}),
            ("presence_penalty", {"presence_penalty": 2.1}), ("frequency_penalty", {"frequency_penalty": -2.1}),
            ("repetition_penalty", {"repetition_penalty": 0}), ("stop", {"stop": 5}), ("stop", {"stop": [""]}),
            ("stop", {"stop": ["x" * 257]}), ("stop", {"stop": ["x"] * 17}), ("logit_bias", {"logit_bias": {"512": 1}}),
            ("logit_bias", {"logit_bias": {"a": 1}}), ("logit_bias", {"logit_bias": {"1": 101}}), ("seed", {"seed": -1}),
            ("seed", {"seed": 1.5}), ("stream", {"stream": "yes"}), ("echo", {"echo": 1}), ("stop_token_ids", {"stop_token_ids": [512]}),
            ("stream_options", {"stream_options": {"include_usage": True}}), ("stream_options", {"stream": True, "stream_options": 3}),
            ("include_usage", {"stream": True, "stream_options": {"include_usage": 1}}), ("model", {"model": 7}),
            ("session_id", {"session_id": "a b"}), ("deadline_ms", {"deadline_ms": 0}), ("ignore_eos", {"ignore_eos": "x"}),
            ("return_token_ids", {"return_token_ids": 2}),
        ):
            with self.subTest(body=body):
                self.assert_error(self.post(URL, {"prompt": "a", "max_tokens": 2, **body}), 400, "invalid_request_error", param)

    def test_too_long_is_refused_with_numbers(self):
        for body in ({"prompt": [300] * 257, "max_tokens": 1}, {"prompt": [300] * 250, "max_tokens": 7}):
            error = self.assert_error(self.post(URL, body), 400, "exceed_context_size_error")
            self.assertIn("256", error["message"])
        self.assertEqual(200, self.post(URL, {"prompt": [300] * 250, "max_tokens": 6}).status)

    def test_refusal_of_a_stream_is_no_stream(self):
        for body in ({"prompt": [300] * 257}, {"prompt": "a", "top_p": 9}):
            with self.stream(URL, {**body, "stream": True}) as s:
                self.assertEqual(400, s.status)
                self.assertIn("error", s.json())

    def test_unknown_members_and_models_are_taken(self):
        r = self.post(URL, {"prompt": "a", "max_tokens": 1, "model": "anything/at:all", "user": "u", "frobnicate": 1, "x": {}})
        self.assertEqual(200, r.status)
        self.assertEqual("2", r.headers["x-attnd-ignored-fields"])
        self.assertEqual("tiny-llama-q8_0", r.json()["model"])
        nulls = {k: None for k in "suffix stop logprobs n best_of stream stream_options seed logit_bias user model".split()}
        self.assertEqual(200, self.post(URL, {"prompt": "a", "max_tokens": 1, **nulls}).status)

    def test_a_deadline_ends_it(self):
        body = {"prompt": [300] * 100, "max_tokens": 150, "ignore_eos": True, "n": 16, "deadline_ms": 1}
        self.assert_error(self.post(URL, body), 504, "timeout_error")
        self.assert_idle()


class FewSequences(attnd_client.ServerTest):
    """Three sequences and the pages of one full context: what needs more is refused in the client's own words."""

    flags = ["--max-sequences", "3", "--kv-bytes", "128k"]

    def test_choices(self):
        info = self.get("/info").json()
        self.assertEqual((3, 3, 8), (info["max_best_of"], info["limits"]["choices"], info["kv"]["pages"]))
        body = {"prompt": "a", "max_tokens": 2}
        self.assertEqual(3, len(self.post("/v1/completions", {**body, "n": 3}).json()["choices"]))
        for field in ("n", "best_of"):
            error = self.assert_error(self.post("/v1/completions", {**body, field: 4}), 400, "invalid_request_error", field)
            self.assertIn("3", error["message"])
        r = self.post("/generate", {"inputs": "a", "parameters": {"do_sample": True, "best_of": 4}})
        self.assertEqual(422, r.status)
        self.assertIn("best_of must be an integer in 1 .. 3", r.json()["error"])

    def test_pages(self):
        for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
            error = self.assert_error(self.post(path, {**body, "max_tokens": 200, "n": 3}), 400, "exceed_context_size_error", min(body))
            self.assertIn("8", error["message"])
        self.assertEqual(200, self.post("/v1/completions", {"prompt": "a", "max_tokens": 200}).status)


class Gpt2(attnd_client.ServerTest):
    model = attnd_client.TINY_GPT2
    flags = ["--backend", "naive", "--kv-type", "f32"]

    def test_byte_level_model_without_bos(self):
        for name, p in golden("tiny-gpt2-f16")["prompts"].items():
            r = self.post(URL, {"prompt": p["text"], "max_tokens": 16, "temperature": 0, "echo": True, "logprobs": 1})
            choice = r.json()["choices"][0]
            want = bytes.fromhex(p["greedy_hex"]).decode("utf-8", "replace") if p["greedy_text"] is None else p["greedy_text"]
            self.assertEqual(p["text"] + want, choice["text"], name)
            lp = choice["logprobs"]
            n = len(p["ids"])
            for got, ref in zip(lp["token_logprobs"][1:n], p["prompt_logprobs"][1:]):
                self.assertAlmostEqual(ref, got, delta=TOLERANCE + 1e-5)
            joined = "".join(t for t in lp["tokens"][:n])
            if "bytes:" not in joined:
                self.assertEqual(p["text"], joined)


if __name__ == "__main__":
    attnd_client.main()
