"""Memory runs out at every moment: while a request is parsed, admitted, computed, rendered and sent, and while the server
starts. The client gets an error, a cut connection or the whole answer, never a wrong one; the next request is served; nothing
is lost; and a server that cannot start says so."""

import atexit
import http.client
import json
import mmap
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

import attnd_client
from attnd_client import TINY_LLAMA
from raw_http import wait_until

SHIM = os.path.join(os.environ.get("ATTND_BUILD", os.path.join(attnd_client.ROOT, "build", "release")), "tests", "libfailing_malloc.so")
FOLDER = tempfile.mkdtemp(prefix="attnd-memory-")
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
FLAGS = ["--threads", "1", "--kv-bytes", "2m", "--max-sequences", "4", "--backend", "naive"]
START_STEP = 3  # of the allocations at start, every third fails in turn

GENERATE = ("POST", "/generate", {"inputs": "hello there", "parameters": {
    "max_new_tokens": 5, "details": True, "top_n_tokens": 2, "stop": ["zz", "y"], "decoder_input_details": True}})
REQUESTS = [
    GENERATE,
    ("POST", "/generate_stream", {"inputs": "hello there", "parameters": {"max_new_tokens": 5, "top_n_tokens": 1}}),
    ("POST", "/generate", {"inputs": "hello there", "session_id": "s", "create": True, "parameters": {"max_new_tokens": 5}}),
    ("POST", "/v1/completions", {"prompt": ["ab", "cd"], "n": 2, "max_tokens": 4, "logprobs": 2, "logit_bias": {"5": 1},
                                 "echo": True, "temperature": 0}),
    ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "temperature": 0,
                                      "logprobs": True, "top_logprobs": 2}),
    ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "temperature": 0,
                                      "logprobs": True, "stream": True, "stream_options": {"include_usage": True}}),
    ("POST", "/tokenize", {"inputs": "hello there"}),
    ("POST", "/detokenize", {"tokens": [5, 6, 7]}),
    ("GET", "/v1/sessions", None),
    ("GET", "/v1/models", None),
    ("GET", "/health", None),
]


def without_names(body):
    return re.sub(rb'"(id|created)":("[^"]*"|\d{9,})', b"", body)


class Control:
    """The page that the shim reads."""

    def __init__(self):
        self.path = os.path.join(FOLDER, "control")
        with open(self.path, "wb") as f:
            f.write(bytes(mmap.PAGESIZE))
        with open(self.path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), mmap.PAGESIZE)
        self.env = {"LD_PRELOAD": SHIM, "FAILING_MALLOC": self.path}

    def fail(self, k, forever=False):
        self.map[0:16] = struct.pack("<qq", k, forever)

    def count(self):
        return struct.unpack_from("<q", self.map, 16)[0]


class Running(unittest.TestCase):
    def ask(self, method, path, body):
        """status, body; status None: cut off."""
        conn = self.server.connection()
        try:
            data = None if body is None else json.dumps(body)
            conn.request(method, path, data, {} if body is None else {"Content-Type": "application/json"})
            answer = conn.getresponse()
            return answer.status, without_names(answer.read())
        except (ConnectionError, http.client.HTTPException):
            return None, b""
        finally:
            conn.close()

    def check(self, request, good, k, answer):
        status, body = answer
        self.assertIsNone(self.server.process.poll(), f"{request}, allocation {k}: the server died\n{self.server.log()}")
        if status == 200 and body != good:
            events = body.split(b"\n\n")  # of a stream: those that came before the error are as they should be
            self.assertIn(b'"error"', events[-2] if len(events) > 1 else b"", f"{request}, allocation {k}: {body!r} instead of {good!r}")
            self.assertEqual(good.split(b"\n\n")[: len(events) - 2], events[:-2])
        elif status is not None and status != 200:
            self.assertEqual(429, status, f"{request}, allocation {k}: {body}")

    def sweep(self, request, forever):
        self.drop_session()
        good = self.ask(*request)
        self.assertEqual(200, good[0], good)
        self.drop_session()
        before = self.control.count()
        self.ask(*request)
        wait_until(lambda: self.server.metrics()["attnd_requests_running"] == 0, "nothing runs")
        for k in range(1, self.control.count() - before + 1, 7 if forever else 1):
            self.drop_session()
            self.control.fail(k, forever)
            answer = self.ask(*request)
            self.control.fail(0)
            self.check(request, good[1], k, answer)
            self.assertEqual(self.expected, self.ask(*GENERATE), f"after {request}, allocation {k}")

    def drop_session(self):
        self.ask("DELETE", "/v1/sessions/s", None)

    def test_every_allocation_of_a_request(self):
        self.control = Control()
        with attnd_client.Server(TINY_LLAMA, *FLAGS, env=self.control.env) as self.server:
            self.expected = self.ask(*GENERATE)
            fds = self.server.fds()
            for request in REQUESTS:
                for forever in (False, True):
                    with self.subTest(request=request[:2], forever=forever):
                        self.sweep(request, forever)
            self.drop_session()
            wait_until(lambda: (lambda m: m["attnd_kv_pages_free"] + m["attnd_kv_pages_kept"] == m["attnd_kv_pages"])(self.server.metrics()),
                       "every page is free or kept: what cannot be told to go stays until its room is needed")
            self.server.wait_fds(fds)
            m = self.server.metrics()
            self.assertEqual(m["attnd_requests_admitted_total"],
                             sum(v for k, v in m.items() if k.startswith("attnd_requests_finished_total")))


class Starting(unittest.TestCase):
    def start(self, control):
        """Starts, and stops what became ready. Returns status and log."""
        args = [attnd_client.binary(), "--model", TINY_LLAMA, "--port", "0", *FLAGS]
        p = subprocess.Popen(args, env={**os.environ, **control.env}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE)
        log = b""
        for line in p.stderr:
            log += line
            if b"info ready" in line:
                control.fail(0)
                p.send_signal(signal.SIGTERM)
        p.stderr.close()
        return p.wait(attnd_client.TIMEOUT), log

    def test_every_allocation_of_the_start(self):
        control = Control()
        self.assertEqual(0, self.start(control)[0])
        total, failed = control.count(), 0
        self.assertGreater(total, 50)
        for k in range(1, total, START_STEP):
            control.fail(k)
            status, log = self.start(control)
            self.assertIn(status, (0, 1, 2), f"allocation {k} of {total}: {log}")
            if status != 0:
                self.assertIn(b"attnd: ", log, f"allocation {k} of {total}")
                failed += 1
            control.fail(0)
        self.assertGreater(failed, total / START_STEP / 2)


if __name__ == "__main__":
    if not os.path.exists(SHIM):  # a sanitizer brings an allocator of its own
        print("built with a sanitizer: allocations do not fail here")
        sys.exit(0)
    attnd_client.main()
