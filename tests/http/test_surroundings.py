"""What surrounds the process is bad: closed standard streams, a log that nobody reads, few descriptors, a stopped process;
and answers larger than what a stream may have waiting. The server answers all the same."""

import atexit
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import attnd_client
import gguf_edit
from attnd_client import TINY_LLAMA
from raw_http import connect, long_context_model, post, read_to_end, wait_until

FOLDER = tempfile.mkdtemp(prefix="attnd-surroundings-")
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
SHORT = {"inputs": "a", "parameters": {"max_new_tokens": 3}}


class Started(attnd_client.Server):
    """A server whose process is prepared by `before`, a function that runs in the child; its log is lost or not read."""

    def __init__(self, *flags, before=None, log=subprocess.DEVNULL, env=None):
        super().__init__(TINY_LLAMA, *flags, env=env)
        self.before, self.log_to = before, log
        self.host = "127.0.0.1"

    def start(self):
        with attnd_client.socket.socket() as s:
            s.bind((self.host, 0))
            self.port = s.getsockname()[1]
        self.args[self.args.index("--port") + 1] = str(self.port)
        self.process = subprocess.Popen(self.args, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=self.log_to, preexec_fn=self.before)
        self.reader = threading.Thread(target=int)
        self.reader.start()
        if self.process.stderr is None:
            self.process.stderr = open(os.devnull, "rb")
        self.wait_ready()
        return self


class Surroundings(unittest.TestCase):
    def test_closed_standard_streams(self):
        """No socket may get the number of a closed stream: it would be sent the log."""
        with Started("--log-level", "debug", before=lambda: os.closerange(0, 3)) as s:
            for _ in range(5):
                r = s.post("/generate", SHORT)
                self.assertEqual((200, ["generated_text"]), (r.status, list(r.json())))
            for fd in range(3):
                self.assertEqual("/dev/null", os.readlink(f"/proc/{s.process.pid}/fd/{fd}"))

    def test_log_that_nobody_reads(self):
        reading, writing = os.pipe()
        with Started("--log-level", "debug", log=writing) as s:
            os.close(writing)
            conn = s.connection()
            for _ in range(3000):
                self.assertEqual(200, s.get("/livez", connection=conn).status)
            self.assertEqual(200, s.post("/generate", SHORT).status)
            conn.close()
            os.close(reading)  # nobody ever will
            self.assertEqual(200, s.post("/generate", SHORT).status)

    def test_few_descriptors(self):
        """More clients than descriptors: each is answered or cut, without spinning, and later ones are served."""
        with Started(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))) as s:
            held = []
            for _ in range(60):
                c = connect(s)
                c.sendall(post("/generate", SHORT)[:-5])
                held.append(c)
            cpu = s.cpu_seconds()
            time.sleep(1)
            self.assertLess(s.cpu_seconds() - cpu, 0.5)
            for c in held:
                c.close()
            wait_until(lambda: s.get("/livez").status == 200, "new clients are served")
            self.assertEqual(200, s.post("/generate", SHORT).status)

    def test_stopped_and_continued(self):
        """A process that slept finds its clients where they were; deadlines that passed have passed."""
        with attnd_client.Server(long_context_model(), "--kv-bytes", "64m") as s:
            with s.stream("/generate_stream", {"inputs": "a", "parameters": {"max_new_tokens": 400, "ignore_eos": True}}) as stream:
                events = iter(stream)
                next(events)
                late = connect(s)
                late.sendall(post("/generate", {"inputs": "a", "deadline_ms": 1000,
                                                "parameters": {"max_new_tokens": 8000, "ignore_eos": True}}))
                s.signal(signal.SIGSTOP)
                time.sleep(1.2)
                s.signal(signal.SIGCONT)
                self.assertEqual(399, len(list(events)))
                self.assertTrue(stream.clean)
                self.assertIn(b" 504 ", read_to_end(late)[:20])
                late.close()

    def test_event_larger_than_a_queue(self):
        """The last event repeats the whole text, which may be more than all that a stream may have waiting."""
        one = {"inputs": "a", "parameters": {"max_new_tokens": 1, "details": True, "top_n_tokens": 1}}
        with attnd_client.Server(TINY_LLAMA) as s:
            best = s.post("/generate", one).json()["details"]["tokens"][0]["id"]
        path = os.path.join(FOLDER, "wide.gguf")
        text = gguf_edit.widen_token(TINY_LLAMA, path, best, "w" * 9000)
        with attnd_client.Server(path) as s:
            body = {"inputs": "a", "parameters": {"max_new_tokens": 150, "ignore_eos": True, "logit_bias": {str(best): 100}}}
            with s.stream("/generate_stream", body) as stream:
                events = list(stream)
            self.assertTrue(stream.clean)
            self.assertEqual(150 * text, events[-1].json()["generated_text"])
            self.assertEqual([text] * 150, [e.json()["token"]["text"] for e in events])
            details = s.post("/generate", one).json()["details"]
            self.assertEqual(text, details["top_tokens"][0][0]["text"])


if __name__ == "__main__":
    attnd_client.main()
