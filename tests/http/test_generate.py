"""The native door: /generate, /generate_stream and / in TGI's shape, against the reference and against each other."""

import json
import os

import attnd_client

GOLDEN = json.load(open(os.path.join(attnd_client.DATA, "tiny-llama-q8_0.json"), encoding="utf-8"))
PLAIN = GOLDEN["prompts"]["plain"]
TOLERANCE = GOLDEN["tolerance"]["f32_path"]["suggested"]["logprob"]
TEXT = PLAIN["text"]
N = len(PLAIN["ids"])
TIMES = ["x-total-time", "x-queue-time", "x-inference-time", "x-time-per-token"]


class Generate(attnd_client.ServerTest):
    flags = ["--backend", "naive", "--kv-type", "f32", "--ping-interval", "1"]

    def generate(self, parameters=None, status=200, path="/generate", **top):
        body = {"inputs": TEXT, **top}
        if parameters is not None:
            body["parameters"] = parameters
        r = self.post(path, body)
        self.assertEqual(status, r.status, r.text)
        self.last = r
        return r.json()

    def events(self, parameters, path="/generate_stream", **top):
        with self.stream(path, {"inputs": TEXT, "parameters": parameters, **top}) as s:
            self.assertEqual(200, s.status, s.read() if s.status != 200 else "")
            self.assertEqual("text/event-stream", s.headers["content-type"])
            self.stream_headers = s.headers
            got = [e for e in s]
            self.assertTrue(s.clean)
        for e in got:
            self.assertTrue(e.raw.startswith(b"data:{"), e.raw)
            self.assertEqual(1, len(e.raw.splitlines()), e.raw)
        return [e.json() for e in got]

    def refused(self, parameters, param, status=422, kind="validation", path="/generate", **top):
        j = self.generate(parameters, status, path=path, **top)
        self.assertEqual({"error", "error_type"}, set(j))
        self.assertEqual(kind, j["error_type"])
        self.assertIn(param, j["error"])

    # ---- one object ----

    def test_bare(self):
        j = self.generate({"max_new_tokens": 4})
        self.assertEqual(["generated_text"], list(j))
        h = self.last.headers
        self.assertEqual((str(N), "4", "cpu"), (h["x-prompt-tokens"], h["x-generated-tokens"], h["x-compute-type"]))
        for name in TIMES:
            self.assertTrue(h[name].isdigit(), name)
        self.assertNotIn("x-session-id", h)
        self.assertNotIn("x-attnd-ignored-fields", h)

    def test_tokens_are_the_references(self):
        d = self.generate({"max_new_tokens": 16, "details": True})["details"]
        self.assertEqual(["finish_reason", "generated_tokens", "seed", "prefill", "tokens"], list(d))
        self.assertEqual(("length", 16, None, []), (d["finish_reason"], d["generated_tokens"], d["seed"], d["prefill"]))
        self.assertEqual(PLAIN["greedy_ids"], [t["id"] for t in d["tokens"]])
        for t in d["tokens"]:
            self.assertEqual(["id", "text", "logprob", "special"], list(t))
            self.assertLessEqual(t["logprob"], 0)

    def test_token_texts_join_to_the_text(self):
        j = self.generate({"max_new_tokens": 30, "details": True, "ignore_eos": True})
        shown = [t["text"] for t in j["details"]["tokens"] if not t["special"]]
        self.assertEqual(j["generated_text"], "".join(shown))

    def test_prefill(self):
        d = self.generate({"max_new_tokens": 1, "decoder_input_details": True})["details"]
        self.assertEqual(PLAIN["ids"], [t["id"] for t in d["prefill"]])
        self.assertIsNone(d["prefill"][0]["logprob"])
        want = [x for x in PLAIN["prompt_logprobs"] if x is not None]
        got = [t["logprob"] for t in d["prefill"][1:]]
        self.assertEqual(N - 1, len(got))
        for a, b in zip(want[-(N - 1):], got):
            self.assertAlmostEqual(a, b, delta=TOLERANCE)

    def test_top_tokens(self):
        d = self.generate({"max_new_tokens": 3, "details": True, "top_n_tokens": 3})["details"]
        self.assertEqual(3, len(d["top_tokens"]))
        for token, top in zip(d["tokens"], d["top_tokens"]):
            self.assertEqual(3, len(top))
            self.assertEqual(token["id"], top[0]["id"])  # greedy takes the best
            self.assertEqual(token["logprob"], top[0]["logprob"])
            self.assertEqual(sorted((t["logprob"] for t in top), reverse=True), [t["logprob"] for t in top])
        self.assertNotIn("top_tokens", self.generate({"max_new_tokens": 3, "details": True})["details"])

    def test_full_text(self):
        plain = self.generate({"max_new_tokens": 4})["generated_text"]
        self.assertEqual(TEXT + plain, self.generate({"max_new_tokens": 4, "return_full_text": True})["generated_text"])

    def test_truncate_keeps_the_end_and_bos(self):
        d = self.generate({"max_new_tokens": 1, "truncate": 4, "decoder_input_details": True})["details"]
        self.assertEqual(PLAIN["ids"][:1] + PLAIN["ids"][-3:], [t["id"] for t in d["prefill"]])

    def test_compat_route(self):
        want = self.generate({"max_new_tokens": 4})
        self.assertEqual([want], self.generate({"max_new_tokens": 4}, path="/"))
        self.assertEqual(4, len(self.events({"max_new_tokens": 4}, path="/", stream=True)))

    def test_zero_tokens(self):
        d = self.generate({"max_new_tokens": 0, "details": True})
        self.assertEqual(("", "length", 0), (d["generated_text"], d["details"]["finish_reason"], d["details"]["generated_tokens"]))

    def test_no_limit_goes_to_the_context(self):
        d = self.generate({"ignore_eos": True, "details": True})["details"]
        self.assertEqual(("length", 256), (d["finish_reason"], N + d["generated_tokens"]))

    # ---- a stream ----

    def test_stream(self):
        whole = self.generate({"max_new_tokens": 20, "details": True, "top_n_tokens": 2})
        events = self.events({"max_new_tokens": 20, "details": True, "top_n_tokens": 2})
        self.assertEqual("no", self.stream_headers["x-accel-buffering"])
        self.assertEqual(list(range(1, len(events) + 1)), [e["index"] for e in events])
        self.assertEqual(whole["details"]["tokens"], [e["token"] for e in events])
        self.assertEqual(whole["details"]["top_tokens"], [e["top_tokens"] for e in events])
        for e in events[:-1]:
            self.assertEqual((None, None), (e["generated_text"], e["details"]))
        last = events[-1]
        self.assertEqual(["index", "token", "top_tokens", "generated_text", "details"], list(last))
        self.assertEqual(whole["generated_text"], last["generated_text"])
        want = {k: whole["details"][k] for k in ("finish_reason", "generated_tokens", "seed")}
        self.assertEqual({**want, "input_length": N}, last["details"])

    def test_stream_without_details(self):
        last = self.events({"max_new_tokens": 2}, path="/generate", stream=True)[-1]
        self.assertIsNone(last["details"])
        self.assertIsNotNone(last["generated_text"])
        self.assertNotIn("top_tokens", last)

    # ---- stops ----

    def test_stop_string_is_part_of_the_text(self):
        text = self.generate({"max_new_tokens": 24})["generated_text"]
        stop = next(text[i:i + 3] for i in range(6, len(text)) if "\ufffd" not in text[i:i + 3])
        end = text.index(stop) + len(stop)
        d = self.generate({"max_new_tokens": 24, "stop": [stop, "never seen"], "details": True})
        self.assertEqual(text[:end], d["generated_text"])
        self.assertEqual("stop_sequence", d["details"]["finish_reason"])
        streamed = self.events({"max_new_tokens": 24, "stop": [stop], "details": True})[-1]
        self.assertEqual((text[:end], "stop_sequence"), (streamed["generated_text"], streamed["details"]["finish_reason"]))

    def test_stop_at_the_first_token(self):
        first = self.generate({"max_new_tokens": 1})["generated_text"]
        d = self.generate({"max_new_tokens": 8, "stop": first, "details": True, "top_n_tokens": 1})
        self.assertEqual(("stop_sequence", 1), (d["details"]["finish_reason"], d["details"]["generated_tokens"]))
        self.assertEqual(first, d["generated_text"])

    def test_stop_token_ids(self):
        d = self.generate({"max_new_tokens": 16, "stop_token_ids": [PLAIN["greedy_ids"][2]], "details": True})["details"]
        n = PLAIN["greedy_ids"].index(PLAIN["greedy_ids"][2]) + 1
        self.assertEqual(("stop_sequence", n), (d["finish_reason"], d["generated_tokens"]))

    def test_eos(self):
        bias = {"2": 100}
        d = self.generate({"max_new_tokens": 8, "logit_bias": bias, "details": True})
        self.assertEqual(("eos_token", 1, ""), (d["details"]["finish_reason"], d["details"]["generated_tokens"], d["generated_text"]))
        self.assertEqual({"id": 2, "text": "</s>", "special": True}, {k: v for k, v in d["details"]["tokens"][0].items() if k != "logprob"})
        d = self.generate({"max_new_tokens": 8, "logit_bias": bias, "details": True, "ignore_eos": True})["details"]
        self.assertEqual(("length", 8), (d["finish_reason"], d["generated_tokens"]))

    # ---- sampling ----

    def sampled(self, **more):
        return self.generate({"max_new_tokens": 16, "do_sample": True, "details": True, **more})["details"]

    def test_do_sample_is_off_unless_said(self):
        self.assertEqual(PLAIN["greedy_ids"], [t["id"] for t in self.generate({"max_new_tokens": 16, "temperature": 5.0, "details": True})["details"]["tokens"]])
        self.assertIsNone(self.generate({"temperature": 5.0, "max_new_tokens": 1, "details": True})["details"]["seed"])

    def test_seeds(self):
        a, b, c = (self.sampled(temperature=2.0, seed=s) for s in (2**53, 2**53 + 1, 2**53 + 1))
        self.assertEqual((2**53, 2**53 + 1), (a["seed"], b["seed"]))
        self.assertEqual(b, c)
        self.assertNotEqual(a["tokens"], b["tokens"])
        self.assertEqual(2**63 - 1, self.sampled(seed=2**63 - 1)["seed"])

    def test_a_drawn_seed_repeats_the_answer(self):
        a = self.sampled(temperature=2.0)
        self.assertIsInstance(a["seed"], int)
        self.assertEqual(a, self.sampled(temperature=2.0, seed=a["seed"]))
        self.assertNotEqual(a["tokens"], self.sampled(temperature=2.0)["tokens"])

    def test_ways_to_say_greedy(self):
        greedy = [t["id"] for t in self.generate({"max_new_tokens": 16, "details": True})["details"]["tokens"]]
        for how in ({"temperature": 0}, {"temperature": 1e-30}, {"top_k": 1}, {"top_p": 1e-320}, {"min_p": 1}):
            self.assertEqual(greedy, [t["id"] for t in self.sampled(**how)["tokens"]], how)

    def test_values_that_mean_off(self):
        want = self.sampled(seed=5)["tokens"]
        for off in ({"top_k": 0}, {"top_k": -1}, {"top_k": 2**31 - 1}, {"top_p": 1}, {"top_p": 1.0}, {"min_p": 0}, {"typical_p": 1},
                    {"repetition_penalty": 1}, {"frequency_penalty": 0}, {"presence_penalty": 0}, {"temperature": 1},
                    {"logit_bias": {}}, {"stop": []}, {"stop_token_ids": []}, {"seed": 5, "top_p": None, "grammar": None},
                    {"watermark": False}):
            self.assertEqual(want, self.sampled(**{"seed": 5, **off})["tokens"], off)

    def test_logit_bias_bans(self):
        first = PLAIN["greedy_ids"][0]
        d = self.generate({"max_new_tokens": 1, "logit_bias": {str(first): -100}, "details": True})["details"]
        self.assertNotEqual(first, d["tokens"][0]["id"])

    def test_penalties_change_the_answer(self):
        plain = self.generate({"max_new_tokens": 24})["generated_text"]
        self.assertNotEqual(plain, self.generate({"max_new_tokens": 24, "repetition_penalty": 3.0})["generated_text"])

    def test_best_of(self):
        d = self.sampled(best_of=3, temperature=2.0)
        others = d["best_of_sequences"]
        self.assertEqual(2, len(others))
        mean = lambda s: sum(t["logprob"] for t in s["tokens"]) / len(s["tokens"])
        for o in others:
            self.assertEqual({"generated_text", "finish_reason", "generated_tokens", "seed", "prefill", "tokens"}, set(o))
            self.assertLessEqual(mean(o), mean(d))
        self.assertEqual(3, len({tuple(t["id"] for t in s["tokens"]) for s in [d] + others}))
        self.assertNotIn("best_of_sequences", self.sampled(best_of=1))
        self.refused({"best_of": 2}, "do_sample")
        self.refused({"best_of": 2, "do_sample": True, "seed": 1}, "seed")
        self.refused({"best_of": 2, "do_sample": True}, "streaming", path="/generate_stream")
        self.refused({"best_of": 2, "do_sample": True}, "session", session_id="b", create=True)

    # ---- refusals ----

    def test_refused_before_the_headers(self):
        for path in ("/generate", "/generate_stream", "/"):
            self.refused({"max_new_tokens": 256}, "256", path=path)
            self.refused({"grammar": {"type": "regex", "value": "a"}}, "grammar", path=path)
            self.refused({"adapter_id": "x"}, "adapter_id", path=path)
            self.refused({"watermark": True}, "watermark", path=path)
        self.refused({"decoder_input_details": True}, "decoder_input_details", path="/generate_stream")

    def test_context_is_exact(self):
        room = 256 - N
        self.assertEqual(room, self.generate({"max_new_tokens": room, "ignore_eos": True, "details": True})["details"]["generated_tokens"])
        j = self.generate({"max_new_tokens": room + 1}, 422)
        for number in (N, room + 1, 256):
            self.assertIn(str(number), j["error"])

    def test_ignored_fields_are_counted(self):
        self.generate({"max_new_tokens": 1, "x": 1, "y": {}}, z=[])
        self.assertEqual("3", self.last.headers["x-attnd-ignored-fields"])
        self.events({"max_new_tokens": 1, "x": 1})
        self.assertEqual("1", self.stream_headers["x-attnd-ignored-fields"])

    def test_deadline(self):
        self.refused({"ignore_eos": True}, "deadline", 504, "timeout", deadline_ms=1, inputs="a " * 80)
        self.assert_idle()

    def test_control_tokens_in_text_stay_text(self):
        d = self.generate({"max_new_tokens": 1, "decoder_input_details": True}, inputs="a</s><s>")["details"]
        self.assertEqual([1], [t["id"] for t in d["prefill"] if t["id"] in (1, 2)])

    def test_client_that_leaves_frees_its_work(self):
        for _ in range(5):
            with self.stream("/generate_stream", {"inputs": TEXT, "parameters": {"ignore_eos": True}}) as s:
                next(iter(s))
        self.assert_idle()


if __name__ == "__main__":
    attnd_client.main()
