"""Weights that are no numbers: the sequence that meets one ends with an error that says so, before the headers or in the
stream; its pages harm nobody after it, and its neighbours in the batch give the bytes that they give alone."""

import atexit
import os
import shutil
import struct
import tempfile
import threading

import attnd_client
import gguf_edit
from attnd_client import TINY_LLAMA

FOLDER = tempfile.mkdtemp(prefix="attnd-nonfinite-")
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
BAD = 77  # the token whose embedding is poisoned
BLOCK = 34  # bytes of 32 weights in q8_0, the f16 scale first
NAN, INF = struct.pack("<H", 0x7E00), struct.pack("<H", 0x7C00)


def poisoned(name, tensor, row, scale):
    (width, _), kind, at = gguf_edit.tensors(TINY_LLAMA)[tensor]
    assert kind == 8, "q8_0"
    path = os.path.join(FOLDER, name)
    gguf_edit.overwrite(TINY_LLAMA, path, at + row * width // 32 * BLOCK, scale)
    return path


GOOD = {"prompt": [5, 6, 7, 8], "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logit_bias": {str(BAD): -100}}


class OneBadToken:
    """Its embedding has one block of NaN or infinity."""

    def fails(self, path, body, status):
        answer = self.post(path, body)
        self.assertEqual(status, answer.status, answer.text)
        return answer

    def good(self, **more):
        answer = self.post("/v1/completions", {**GOOD, **more})
        self.assertEqual(200, answer.status, answer.text)
        return [c["text"] for c in answer.json()["choices"]]

    def test_in_the_prompt(self):
        before = self.good()
        bad = {**GOOD, "prompt": [5, 6, BAD, 8]}
        for more in ({}, {"stream": True}, {"n": 3, "temperature": 1}, {"logprobs": 3, "echo": True}, {"max_tokens": 1},
                     {"prompt": [5, 6, 8, BAD]}, {"prompt": [[5, 6], [BAD]]}):
            with self.subTest(**more):
                self.assert_error(self.fails("/v1/completions", {**bad, **more}, 500), 500, "server_error")
                self.assertEqual(before, self.good())
        self.assert_idle()

    def test_in_the_answer(self):
        """The model chooses the bad token itself: the stream has begun, so the error is an event."""
        before = self.good()
        body = {**GOOD, "logit_bias": {str(BAD): 100}, "stream": True}
        with self.stream("/v1/completions", body) as s:
            self.assertEqual(200, s.status)
            events = list(s)
        self.assertEqual(["error"], list(events[-1].json()))
        self.assertEqual(2, len(events), "one token came before")
        self.fails("/v1/completions", {**body, "stream": False}, 500)
        self.fails("/generate", {"inputs": "a", "parameters": {"logit_bias": {str(BAD): 100}, "max_new_tokens": 5}}, 424)
        self.assertEqual(before, self.good())

    def test_in_a_session(self):
        """The failed turn rolls back, and what it computed is not kept."""
        first = self.good(session_id="s")
        whole = GOOD["prompt"] + [9]
        expected = self.good(prompt=whole)
        self.fails("/v1/completions", {**GOOD, "prompt": [5, 6, 7, BAD], "session_id": "s"}, 500)
        self.assertEqual(1, self.get("/v1/sessions/s").json()["turns"])
        self.assertEqual(expected, self.good(prompt=whole, session_id="s"))
        self.assertEqual(204, self.delete("/v1/sessions/s").status)
        self.assertEqual(first, self.good())


class NanNaive(OneBadToken, attnd_client.ServerTest):
    model = poisoned("nan.gguf", "token_embd.weight", BAD, NAN)
    flags = ["--backend", "naive", "--step-tokens", "8", "--max-sequences", "8"]

    def test_neighbours(self):
        before, got, stop = self.good(), [], threading.Event()

        def attack():
            while not stop.is_set():
                got.append(self.post("/v1/completions", {**GOOD, "prompt": [BAD, 6, 7], "n": 2, "temperature": 1}).status)

        attackers = [threading.Thread(target=attack) for _ in range(2)]
        for t in attackers:
            t.start()
        try:
            for _ in range(20):
                self.assertEqual(before, self.good())
        finally:
            stop.set()
            for t in attackers:
                t.join()
        self.assertEqual({500}, set(got))
        m = self.assert_idle()
        self.assertEqual(m["attnd_kv_pages"], m["attnd_kv_pages_free"] + m["attnd_kv_pages_kept"])


class InfOpenblas(OneBadToken, attnd_client.ServerTest):
    model = poisoned("inf.gguf", "token_embd.weight", BAD, INF)
    flags = ["--backend", "openblas"]


class NoGoodAnswer(attnd_client.ServerTest):
    """One row of the output matrix is NaN, so no token can be chosen for anybody; everything else works."""

    model = poisoned("all.gguf", "output.weight", 3, NAN)

    def test_all_fail_and_the_server_lives(self):
        for _ in range(5):
            self.assert_error(self.post("/v1/completions", {"prompt": "a", "max_tokens": 3}), 500, "server_error")
            self.assertEqual(424, self.post("/generate_stream", {"inputs": "a"}).status)
        self.assertEqual(200, self.get("/health").status)
        self.assertEqual(200, self.post("/tokenize", {"inputs": "a"}).status)
        self.assertEqual(10, self.assert_idle()['attnd_requests_finished_total{reason="error"}'])


if __name__ == "__main__":
    attnd_client.main()
