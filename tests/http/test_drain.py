"""SIGTERM: readiness goes at once, what runs may end, what comes is refused, and the exit status is 0. The rest is cut at the
drain timeout, so that the client can tell; a second signal ends the process at once."""

import os
import signal
import threading
import unittest

import attnd_client
from attnd_client import Server
from raw_http import ask, connect, long_context_model, post, read_to_end, request, wait_until

LONG_CONTEXT = long_context_model()
ENDLESS = {"inputs": "a", "parameters": {"max_new_tokens": 8000, "ignore_eos": True, "top_n_tokens": 5}}
SHORT = {"inputs": "a", "parameters": {"max_new_tokens": 3, "ignore_eos": True}}
HELD = os.path.join(os.environ.get("ATTND_BUILD", os.path.join(attnd_client.ROOT, "build", "release")), "tests", "libheld_load.so")
FLAGS = ["--kv-bytes", "256m", "--max-sequences", "64", "--stall-timeout", "600", "--threads", "1"]


def endless(server):
    """A stream that runs until somebody ends it: its client reads the head only, so it stops where the buffers are full."""
    s = connect(server, receive_buffer=4096)
    s.sendall(post("/generate_stream", ENDLESS))
    assert s.recv(20).startswith(b"HTTP/1.1 200"), "the stream begins"
    return s


class Drain(unittest.TestCase):
    def server(self, *flags):
        s = Server(LONG_CONTEXT, *FLAGS, *flags).start()
        self.addCleanup(s.stop)
        return s

    def assert_sound(self, server):
        self.assertEqual([], server.faults(), server.log())

    def test_idle_server_stops(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            s = self.server()
            s.signal(number)
            self.assertEqual(0, s.process.wait(attnd_client.TIMEOUT))
            self.assert_sound(s)

    def test_running_streams_end(self):
        s = self.server("--drain-timeout", "600")
        fields = {"inputs": "a", "parameters": {"max_new_tokens": 400, "ignore_eos": True}}
        streams = [s.stream("/generate_stream", fields) for _ in range(50)]
        s.signal()
        wait_until(lambda: "draining" in s.log(), "the server drains")
        for stream in streams:
            self.assertEqual(400, len(list(stream)))
            self.assertTrue(stream.clean)
            stream.close()
        self.assertEqual(0, s.process.wait(attnd_client.TIMEOUT), s.log())
        self.assert_sound(s)

    def test_while_draining(self):
        s = self.server("--drain-timeout", "600")
        held = endless(s)
        kept_alive = s.connection()
        self.assertEqual(200, s.request("GET", "/readyz", connection=kept_alive).status)
        s.signal()
        wait_until(lambda: s.get("/readyz").status == 503, "readiness goes")
        answer = s.request("GET", "/readyz", connection=kept_alive)
        self.assertEqual((503, "close"), (answer.status, answer.headers["connection"]))
        self.assertEqual(503, s.get("/health").status)
        self.assertEqual(200, s.get("/livez").status)
        self.assertEqual(200, s.get("/metrics").status)
        for target in ("/generate", "/generate_stream"):
            refused = s.post(target, SHORT)
            self.assertEqual(503, refused.status)
            self.assertIn("retry-after", refused.headers)
        self.assertEqual(503, s.post("/v1/completions", {"prompt": "a", "max_tokens": 3}).status)
        held.close()
        self.assertEqual(0, s.process.wait(attnd_client.TIMEOUT), s.log())
        self.assert_sound(s)

    def test_cut_at_the_timeout(self):
        s = self.server("--drain-timeout", "1")
        held = [endless(s) for _ in range(50)]
        whole = connect(s)
        whole.sendall(post("/generate", ENDLESS))
        wait_until(lambda: s.metrics()["attnd_requests_running"] == 51, "all run")
        told = []
        listener = threading.Thread(target=lambda: told.append(read_to_end(held.pop())))
        listener.start()
        s.signal()
        self.assertEqual(0, s.process.wait(attnd_client.TIMEOUT), s.log())
        self.assert_sound(s)
        listener.join()
        self.assertIn(b'data:{"error":"the server is stopping', told[0][-2000:], "who listens is told")
        self.assertNotIn(b'"generated_text":"', told[0])
        for stream in held:
            events = read_to_end(stream)
            if events.endswith(b"0\r\n\r\n"):
                self.assertIn(b'data:{"error":"the server is stopping', events[-2000:], "a cut stream must not look complete")
            stream.close()
        self.assertTrue(read_to_end(whole).startswith(b"HTTP/1.1 503 "))
        whole.close()

    def test_second_signal(self):
        s = self.server("--drain-timeout", "600")
        held = [endless(s) for _ in range(3)]
        s.signal()
        wait_until(lambda: "draining" in s.log(), "the server drains")
        self.assertIsNone(s.process.poll())
        s.signal()
        self.assertEqual(0, s.process.wait(attnd_client.TIMEOUT), s.log())
        self.assert_sound(s)
        for stream in held:
            stream.close()

    def test_signal_while_the_model_loads(self):
        s = Server(LONG_CONTEXT, *FLAGS, wait=False).start()
        self.addCleanup(s.stop)
        answers = ask(s, b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        self.assertEqual([200], [a.status for a in answers])
        s.signal()
        self.assertEqual(0, s.process.wait(attnd_client.TIMEOUT), s.log())
        self.assert_sound(s)


@unittest.skipUnless(os.path.exists(HELD), "a sanitizer cannot be preloaded before")
class LongLoad(unittest.TestCase):
    """Loading that never ends: a signal ends the process all the same."""

    def server(self, *flags):
        s = Server(LONG_CONTEXT, *FLAGS, *flags, env={"LD_PRELOAD": HELD, "HELD_FILE": LONG_CONTEXT}, wait=False).start()
        self.addCleanup(s.stop)
        self.assertEqual(503, s.get("/readyz").status)
        return s

    def half_a_request(self, server):
        c = connect(server)
        self.addCleanup(c.close)
        c.sendall(request("POST", "/generate", [("Content-Length", "10"), ("Content-Type", "application/json"), ("Expect", "100-continue")]))
        self.assertTrue(c.recv(100).startswith(b"HTTP/1.1 100"), "the head was read")

    def assert_ends(self, server, *words):
        self.assertEqual(0, server.process.wait(attnd_client.TIMEOUT), server.log())
        self.assertEqual([], server.faults(), server.log())
        for w in words:
            wait_until(lambda w=w: w in server.log(), w)

    def test_nothing_in_flight(self):
        s = self.server("--drain-timeout", "600")
        s.signal()
        self.assert_ends(s, "stopped while the model was loading")

    def test_the_drain_timeout(self):
        s = self.server("--drain-timeout", "1")
        self.half_a_request(s)
        s.signal()
        self.assert_ends(s, "stopped while the model was loading")

    def test_a_second_signal(self):
        s = self.server("--drain-timeout", "600")
        self.half_a_request(s)
        s.signal()
        wait_until(lambda: "draining" in s.log(), "the server drains")
        s.signal()
        self.assert_ends(s, "stopping at once")


class Start(unittest.TestCase):
    def test_alive_before_ready(self):
        """The port answers while the model loads. Loading here is short, so this catches it in some starts of several."""
        seen = set()
        for _ in range(30):
            with Server(LONG_CONTEXT, *FLAGS, wait=False) as s:
                self.assertEqual(200, s.get("/livez").status)
                answer = s.get("/readyz")
                seen.add(answer.status)
                s.wait_ready()
                self.assertEqual(200, s.get("/readyz").status)
            if 503 in seen:
                break
        self.assertIn(503, seen)


if __name__ == "__main__":
    attnd_client.main()
