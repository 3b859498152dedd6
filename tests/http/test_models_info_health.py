"""/v1/models, /info, /, and the probes: shapes, limits, and what they say while the server drains."""

import signal
import time

import attnd_client


class ModelsInfoHealth(attnd_client.ServerTest):
    flags = ["--model-id", "org/tiny", "--max-sequences", "4"]

    def test_models_list(self):
        j = self.get("/v1/models").json()
        self.assertEqual("list", j["object"])
        (model,) = j["data"]
        self.assertEqual(("org/tiny", "model", "attnd"), (model["id"], model["object"], model["owned_by"]))
        self.assertIsInstance(model["created"], int)
        self.assertGreater(model["created"], 1_500_000_000)

    def test_model_by_id_with_a_slash(self):
        listed = self.get("/v1/models").json()["data"][0]
        for path in ("/v1/models/org/tiny", "/v1/models/org%2Ftiny"):
            r = self.get(path)
            self.assertEqual(200, r.status, r.text)
            self.assertEqual(listed, r.json())

    def test_unknown_model_is_not_found(self):
        for path in ("/v1/models/other", "/v1/models/org/tiny/x", "/v1/models/org"):
            error = self.assert_error(self.get(path), 404, "not_found_error")
            self.assertEqual("model_not_found", error["code"])
            self.assertNotIn("other", error["message"])

    def test_probes_are_ok(self):
        for path in ("/livez", "/readyz", "/health"):
            r = self.get(path)
            self.assertEqual((200, {"status": "ok"}), (r.status, r.json()), path)
            self.assertEqual((200, b""), (self.request("HEAD", path).status, self.request("HEAD", path).body))
            self.assert_error(self.post(path, {}), 405)

    def test_hello_names_the_routes(self):
        r = self.get("/")
        self.assertEqual(200, r.status)
        for word in ("/generate", "/v1/chat/completions", "/v1/completions", "/info", "/metrics"):
            self.assertIn(word, r.text)

    def test_info_in_tgi_shape(self):
        j = self.get("/info").json()
        for name in """model_id model_sha model_pipeline_tag max_concurrent_requests max_best_of max_stop_sequences
                max_input_tokens max_total_tokens validation_workers max_client_batch_size router version sha
                docker_label""".split():
            self.assertIn(name, j)
        self.assertEqual("org/tiny", j["model_id"])
        self.assertEqual("text-generation", j["model_pipeline_tag"])
        self.assertEqual("attnd", j["router"])
        self.assertEqual(256, j["max_total_tokens"])
        self.assertEqual(255, j["max_input_tokens"])

    def test_info_describes_backend_model_and_cache(self):
        j = self.get("/info").json()
        names = [b["name"] for b in j["backends"]]
        self.assertIn("naive", names)
        self.assertIn("openblas", names)
        (active,) = [b for b in j["backends"] if b["active"]]
        for b in j["backends"]:  # what each can do, in use or not
            self.assertEqual(b["name"] != "openblas", b["batch_invariant"], b)
            self.assertTrue(b["attention_probe"] and b["numerics"] and b["detail"], b)
        for name, kind in {"numerics": str, "detail": str, "batch_invariant": bool, "attention_probe": bool, "threads": int}.items():
            self.assertIsInstance(active[name], kind, name)
        model = j["model"]
        self.assertEqual(("llama", 2, 128, 4, 2, 512), tuple(model[k] for k in
                         ("architecture", "layers", "embedding", "heads", "kv_heads", "vocabulary")))
        self.assertEqual(467648, model["file_bytes"])
        self.assertGreater(model["weight_bytes"], 0)
        self.assertGreater(model["parameters"], 100_000)
        self.assertEqual(256, model["context"])
        kv = j["kv"]
        m = self.metrics()
        self.assertEqual(m["attnd_kv_pages"], kv["pages"])
        self.assertEqual(m["attnd_kv_bytes"], kv["bytes"])
        self.assertGreaterEqual(kv["full_contexts"], 1)
        self.assertEqual(0, kv["page_tokens"] % 32)
        self.assertIn(kv["type"], ("f16", "f32"))
        self.assertEqual("llama", j["tokenizer"]["kind"])
        self.assertEqual(512, j["tokenizer"]["vocabulary"])

    def test_info_says_how_chat_is_rendered(self):
        chat = self.get("/info").json()["chat"]
        self.assertEqual("plain", chat["template"])
        self.assertTrue(chat["available"])
        self.assertIn("no chat template", chat["detail"])

    def test_info_states_every_limit(self):
        limits = self.get("/info").json()["limits"]
        for name in """context body_bytes sequences waiting_requests choices stop_strings stop_string_bytes stop_ids
                logit_bias top_logprobs completion_logprobs prompts sessions session_ttl_seconds session_tokens
                turns_waiting""".split():
            self.assertIsInstance(limits[name], int, name)
        self.assertEqual((4, 16, 256, 20), (limits["sequences"], limits["stop_strings"], limits["stop_string_bytes"],
                                            limits["top_logprobs"]))
        # The stated limits are the ones in force.
        ok = {"prompt": "a", "max_tokens": 1, "stop": ["x"] * limits["stop_strings"]}
        self.assertEqual(200, self.post("/v1/completions", ok).status)
        over = {**ok, "stop": ["x"] * (limits["stop_strings"] + 1)}
        self.assert_error(self.post("/v1/completions", over), 400, param="stop")
        self.assertEqual(200, self.post("/v1/completions", {"prompt": ["a"] * limits["prompts"], "max_tokens": 1}).status)
        self.assert_error(self.post("/v1/completions", {"prompt": ["a"] * (limits["prompts"] + 1), "max_tokens": 1}), 400,
                          param="prompt")


class StrictModel(attnd_client.ServerTest):
    flags = ["--strict-model"]

    def test_only_its_own_name(self):
        own = self.get("/v1/models").json()["data"][0]["id"]
        self.assertEqual("tiny-llama-q8_0", own)
        for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
            body = {**body, "max_tokens": 1}
            self.assertEqual(200, self.post(path, {**body, "model": own}).status)
            self.assertEqual(200, self.post(path, body).status)
            error = self.assert_error(self.post(path, {**body, "model": "gpt-4"}), 404, "not_found_error", "model")
            self.assertEqual("model_not_found", error["code"])


class Drain(attnd_client.ServerTest):
    """Each test has a server of its own: it ends with it."""

    flags = ["--drain-timeout", "30"]

    def test_probes_while_a_stream_finishes(self):
        with attnd_client.Server(attnd_client.TINY_GPT2, *self.flags) as server:
            kept = server.connection()  # opened before: a draining server may refuse new ones
            self.assertEqual(200, server.get("/readyz", connection=kept).status)
            body = {"prompt": "a", "max_tokens": 250, "stream": True, "ignore_eos": True, "n": 8}
            with server.stream("/v1/completions", body) as s:
                events = iter(s)
                next(events)
                server.signal(signal.SIGTERM)
                answers, deadline = {}, time.monotonic() + attnd_client.TIMEOUT
                while time.monotonic() < deadline:
                    try:
                        r = server.get("/readyz")
                    except OSError:
                        break
                    if r.status == 503:
                        answers = {p: server.get(p) for p in ("/readyz", "/health", "/readyz?drain=404", "/livez")}
                        break
                rest = [e.data for e in events]
                self.assertEqual("[DONE]", rest[-1])
                self.assertTrue(s.clean)
            kept.close()
        self.assertEqual({"/readyz": 503, "/health": 503, "/readyz?drain=404": 404, "/livez": 200},
                         {p: r.status for p, r in answers.items()})
        self.assertEqual({"message", "type", "param", "code"}, set(answers["/readyz"].json()["error"]))


if __name__ == "__main__":
    attnd_client.main()
