"""Large bodies are parsed and tokenized beside the loop: they get the answers that small ones get, while everybody else is
served; what their clients leave behind, or what a drain meets, ends well."""

import json
import signal
import threading
import time
import unittest

import attnd_client
from attnd_client import Server
from raw_http import connect, long_context_model, post, read_to_end, split_answers, wait_until

LONG_CONTEXT = long_context_model()
MEGABYTE = 1 << 20
WORDS = "the sea is wide and blue, "
TEXT = (WORDS * (MEGABYTE // len(WORDS) + 1))[:MEGABYTE]
FLAGS = ["--kv-bytes", "64m", "--threads", "1"]


class LargeBodies(attnd_client.ServerTest):
    flags = FLAGS
    model = LONG_CONTEXT

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = 1 + len(cls.server.post("/tokenize", {"content": TEXT}).json()["tokens"])  # and BOS

    def test_others_are_served_meanwhile(self):
        body = json.dumps({"inputs": TEXT, "parameters": {"truncate": 4, "max_new_tokens": 4, "ignore_eos": True}}).encode()
        stream = {"inputs": "a b c", "parameters": {"max_new_tokens": 600, "ignore_eos": True}}
        want = self.post("/generate", stream).json()["generated_text"]
        answers, health, done = [], [], threading.Event()

        def client():
            for _ in range(2):
                answers.append(self.post("/generate", body))

        def probe():
            while not done.is_set():
                health.append(self.get("/health").status)
                time.sleep(0.002)

        clients = [threading.Thread(target=client) for _ in range(8)]
        prober = threading.Thread(target=probe)
        for t in [*clients, prober]:
            t.start()
        texts = []
        while not texts or any(t.is_alive() for t in clients):
            with self.stream("/generate_stream", stream) as s:
                events = [e.json() for e in s]
                texts.append((s.clean, events[-1]["generated_text"], "".join(e["token"]["text"] for e in events if not e["token"]["special"])))
        for t in clients:
            t.join()
        done.set()
        prober.join()
        self.assertEqual({(True, want, want)}, set(texts))
        self.assertEqual([200] * 16, [r.status for r in answers], [r.text for r in answers if r.status != 200])
        self.assertEqual(1, len({r.text for r in answers}))
        self.assertEqual({200}, set(health))
        self.assert_idle()

    def test_truncated(self):
        parameters = {"truncate": 16, "max_new_tokens": 5, "decoder_input_details": True}
        short = self.post("/generate", {"inputs": TEXT[-2000:], "parameters": parameters})
        long = self.post("/generate", {"inputs": TEXT, "parameters": parameters})
        self.assertEqual(200, long.status, long.text)
        self.assertEqual(16, len(long.json()["details"]["prefill"]))
        self.assertEqual(short.json(), long.json())

    def test_beyond_the_context(self):
        r = self.post("/generate", {"inputs": TEXT})
        self.assertEqual(422, r.status)
        self.assertIn(f"the prompt has {self.tokens} tokens", r.json()["error"])
        self.assertIn("the context holds 8192", r.json()["error"])
        error = self.assert_error(self.post("/v1/completions", {"prompt": TEXT}), 400, "exceed_context_size_error", "prompt")
        self.assertIn(f" {self.tokens} ", error["message"])
        chat = {"messages": [{"role": "user", "content": TEXT}]}
        error = self.assert_error(self.post("/v1/chat/completions", chat), 400, "exceed_context_size_error", "messages")
        n = len(self.post("/chat_tokenize", chat).json()["tokenize_response"])
        self.assertIn(f" {n} ", error["message"])
        self.assertEqual({"prompt": f"user: {TEXT}\nassistant:"}, self.post("/apply-template", chat).json())
        self.assert_idle()

    def test_there_and_back(self):
        ids = self.post("/tokenize", {"content": TEXT[:200_000]}).json()["tokens"]
        self.assertEqual({"content": TEXT[:200_000]}, self.post("/detokenize", {"tokens": ids}).json())

    def test_faults(self):
        pad = " " * MEGABYTE
        self.assert_error(self.post("/v1/completions", b'{"prompt":"a",' + pad.encode() + b"}"), 400, "invalid_request_error")
        self.assert_error(self.post("/v1/completions", {"prompt": "a", "n": "x", "pad": pad}), 400, "invalid_request_error", "n")
        r = self.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "pad": pad})
        self.assertEqual((200, "1"), (r.status, r.headers["x-attnd-ignored-fields"]))

    def test_clients_that_leave(self):
        self.assert_idle()
        fds = self.server.fds()
        for path, fields in (
            ("/generate", {"inputs": TEXT, "parameters": {"truncate": 4, "ignore_eos": True}}),
            ("/generate_stream", {"inputs": TEXT, "parameters": {"truncate": 4, "ignore_eos": True}}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": TEXT}]}),
            ("/tokenize", {"inputs": TEXT}),
        ):
            data = post(path, fields)
            for _ in range(3):
                s = connect(self.server)
                s.sendall(data)
                s.close()
        self.assert_idle()
        self.server.wait_fds(fds)


class Drain(unittest.TestCase):
    def start(self, *flags):
        s = Server(LONG_CONTEXT, *FLAGS, *flags).start()
        self.addCleanup(s.stop)
        return s

    def in_the_middle(self, server):
        """Clients whose bodies are being parsed."""
        clients = []
        while not server.metrics()["attnd_parsing_bytes"]:
            s = connect(server)
            s.sendall(post("/tokenize", {"content": TEXT}))
            clients.append(s)
        return clients

    def assert_ends(self, server):
        self.assertEqual(0, server.process.wait(attnd_client.TIMEOUT), server.log())
        self.assertEqual([], server.faults(), server.log())

    def test_bodies_being_parsed_are_answered(self):
        s = self.start("--drain-timeout", "600")
        clients = self.in_the_middle(s)
        s.signal()
        statuses = []
        for c in clients:
            statuses += [a.status for a in split_answers(read_to_end(c))]
            c.close()
        self.assertEqual(200, statuses[0])
        self.assertEqual(len(clients), len(statuses))
        self.assertLessEqual(set(statuses), {200, 503})  # the last body may have come after the signal
        self.assert_ends(s)

    def test_a_server_that_must_go_now(self):
        s = self.start("--drain-timeout", "0")
        clients = [c for _ in range(3) for c in self.in_the_middle(s)]
        s.signal()
        self.assert_ends(s)
        for c in clients:
            c.close()

    def test_second_signal(self):
        s = self.start("--drain-timeout", "600")
        clients = self.in_the_middle(s)
        s.signal(signal.SIGINT)
        wait_until(lambda: "draining" in s.log(), "the server drains")
        s.signal(signal.SIGINT)
        self.assert_ends(s)
        for c in clients:
            c.close()


if __name__ == "__main__":
    attnd_client.main()
