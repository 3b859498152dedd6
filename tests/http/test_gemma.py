"""The real model over HTTP: the reference's tokens for every golden prompt, alone and many at once, and 64 streams together."""
import json
import os
import threading
import time
import unittest

import attnd_client

GOLDEN = os.path.join(attnd_client.DATA, "gemma3_270m.json")
with open(GOLDEN) as f:
    GOLDENS = json.load(f)
SMALLEST_SAFE_GAP = 0.002  # twice the tolerance of a logit on the f32 path; the goldens' smallest gap is 0.0124


class Gemma(attnd_client.ServerTest):
    model = attnd_client.real_model()
    flags = ["--backend", "openblas", "--kv-type", "f32", "--max-sequences", "64", "--max-waiting", "64", "--step-tokens", "256",
             "--context", "2048"]

    def prompts(self):
        for p in [*GOLDENS["prompts"].values()] if isinstance(GOLDENS["prompts"], dict) else GOLDENS["prompts"]:
            self.assertGreater(min(s["gap"] for s in p["steps"]), SMALLEST_SAFE_GAP)
            yield p

    def ask(self, prompt, n):
        r = self.post("/generate", {"inputs": prompt["text"], "parameters": {"max_new_tokens": n, "details": True}}, )
        self.assertEqual(200, r.status, r.text)
        return r.json()

    def test_greedy_tokens_are_the_references(self):
        for p in self.prompts():
            got = self.ask(p, len(p["greedy_ids"]))
            self.assertEqual(p["greedy_ids"], [t["id"] for t in got["details"]["tokens"]], p["text"])
            for token, step in zip(got["details"]["tokens"], p["steps"]):
                self.assertAlmostEqual(step["top5"][0][1] - step["logsumexp"], token["logprob"], delta=5e-4)
            if p.get("greedy_text") is not None:
                self.assertEqual(p["greedy_text"], got["generated_text"])

    def test_prompt_logprobs_are_the_references(self):
        for p in self.prompts():
            r = self.post("/generate", {"inputs": p["text"], "parameters": {"max_new_tokens": 1, "decoder_input_details": True}})
            self.assertEqual(200, r.status, r.text)
            prefill = r.json()["details"]["prefill"]
            self.assertEqual(p["ids"], [t["id"] for t in prefill])
            self.assertIsNone(prefill[0]["logprob"])
            for token, want in list(zip(prefill, p["prompt_logprobs"]))[1:]:
                self.assertAlmostEqual(want, token["logprob"], delta=5e-4)

    def test_past_the_window(self):
        p = GOLDENS["long_prompt"]
        got = self.ask(p, len(p["greedy_ids"]))
        self.assertEqual(p["greedy_ids"], [t["id"] for t in got["details"]["tokens"]])

    def test_64_streams_at_once(self):
        """All end well, streamed and whole answers agree, and the engine steps on while anything waits or runs."""
        prompts = list(self.prompts())
        results, stalls, done = {}, [], threading.Event()

        def stream(i):
            p = prompts[i % len(prompts)]
            body = {"inputs": p["text"], "parameters": {"max_new_tokens": 8, "details": True}}
            with self.stream("/generate_stream", body, timeout=300) as s:
                events = [e.json() for e in s]
                results[i] = (s.status, s.clean, [e["token"]["id"] for e in events], events[-1])

        def watch():
            """The engine is never idle while work waits: its step counter moves. Only a hang is slower than the limit."""
            last, since = None, time.monotonic()
            while not done.wait(0.5):
                m = self.metrics()
                now = (m["attnd_steps_total"], m["attnd_requests_running"] + m["attnd_requests_waiting"] > 0)
                if now != last or not now[1]:
                    last, since = now, time.monotonic()
                elif time.monotonic() - since > attnd_client.TIMEOUT:
                    stalls.append(now)
                    return

        watcher = threading.Thread(target=watch)
        watcher.start()
        threads = [threading.Thread(target=stream, args=(i,)) for i in range(64)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        done.set()
        watcher.join()
        self.assertEqual([], stalls)
        self.assertEqual(64, len(results))
        for i, (status, clean, ids, last) in results.items():
            p = prompts[i % len(prompts)]
            self.assertEqual((200, True), (status, clean))
            self.assertEqual(p["greedy_ids"][:8], ids, f"stream {i}: {p['text']}")
            self.assertEqual(8, last["details"]["generated_tokens"])
        self.assert_idle()


class Idle(unittest.TestCase):
    def test_ready_only_once_loaded(self):
        """The server listens before the model is there, and says so."""
        with attnd_client.Server(attnd_client.real_model(), "--backend", "openblas", wait=False) as s:
            self.assertEqual(200, s.get("/livez").status)
            first = s.get("/readyz").status
            self.assertIn(first, (200, 503))
            deadline = time.monotonic() + 60
            while s.get("/readyz").status != 200 and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertEqual(200, s.get("/readyz").status)


if __name__ == "__main__":
    attnd_client.main()
