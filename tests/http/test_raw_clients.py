"""Clients that are slow, that leave, or that are too many: each has a deadline, none holds what others need."""

import socket
import struct
import time

import attnd_client
from raw_http import RawTest, ask, connect, long_context_model, post, read_to_end, request, split_answers, wait_until

LONG_CONTEXT = long_context_model()
LONG = {"inputs": "a", "parameters": {"max_new_tokens": 7000, "ignore_eos": True, "top_n_tokens": 5}}
SHORT = {"inputs": "a", "parameters": {"max_new_tokens": 3, "ignore_eos": True}}


class SlowClients(RawTest):
    def test_slow_head_and_slow_body(self):
        """A byte now and then keeps no connection alive: a head has 10 s, a body 30 s."""
        heads = [connect(self.server) for _ in range(200)]
        silent = connect(self.server)
        body = connect(self.server)
        body.sendall(request("POST", "/generate", [("Content-Length", "1000")]))
        second = connect(self.server)
        second.sendall(request("GET", "/livez"))
        self.assertTrue(second.recv(1000).startswith(b"HTTP/1.1 200"))
        text, sent, ended, answers = b"GET /livez HTTP/1.1\r\nX: " + b"a" * 1000, 0, set(), {}
        end = time.monotonic() + attnd_client.TIMEOUT
        while len(ended) < len(heads) + 3:
            self.assertLess(time.monotonic(), end, "a slow connection lives on")
            self.assert_alive()
            for s in [*heads, silent, body, second]:
                if s in ended:
                    continue
                s.setblocking(False)
                try:
                    got = s.recv(4096)
                    if got:
                        answers[s] = answers.get(s, b"") + got
                    else:
                        ended.add(s)
                except BlockingIOError:
                    pass
                except ConnectionResetError:
                    ended.add(s)
                try:
                    if s not in ended and s is not silent:
                        s.send(b"x" if s is body else text[sent : sent + 1])
                except OSError:
                    pass
            sent += 1
            time.sleep(0.5)
        self.assertEqual([408], [a.status for a in split_answers(answers[body])])
        self.assertEqual("invalid_request_error", answers and split_answers(answers[second])[0].json()["error"]["type"])
        self.assertNotIn(silent, answers)
        for s in [*heads, silent, body, second]:
            s.close()
        self.assertGreaterEqual(self.metrics()["attnd_http_timeouts_total"], 203)


class Leavers(RawTest):
    model = LONG_CONTEXT
    flags = ["--max-sequences", "2", "--kv-bytes", "256m"]

    def start(self, fields=LONG, target="/generate_stream"):
        s = connect(self.server, receive_buffer=4096)
        s.sendall(post(target, fields))
        return s

    def test_closed_half_closed_and_reset_streams(self):
        for how in ("close", "half", "reset"):
            for target in ("/generate_stream", "/generate"):
                with self.subTest(how=how, target=target):
                    s = self.start(target=target)
                    if target == "/generate_stream":
                        self.assertTrue(s.recv(20).startswith(b"HTTP/1.1 200"))
                    else:
                        wait_until(lambda: self.metrics()["attnd_requests_running"] > 0, "the request runs")
                    if how == "reset":
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    if how == "half":
                        s.shutdown(socket.SHUT_WR)
                        if target == "/generate":
                            self.assertEqual(b"", read_to_end(s))
                    else:
                        s.close()
                    self.assert_idle()
                    s.close()

    def test_leaving_while_waiting(self):
        running = [self.start() for _ in range(2)]
        wait_until(lambda: self.metrics()["attnd_requests_running"] == 2, "two streams run")
        waiting = [self.start() for _ in range(4)]
        wait_until(lambda: self.metrics()["attnd_requests_waiting"] == 4, "four wait")
        for s in waiting:
            s.close()
        wait_until(lambda: self.metrics()["attnd_requests_waiting"] == 0, "nobody waits")
        for s in running:
            s.close()
        self.assert_idle()

    def test_sent_and_gone(self):
        for _ in range(20):
            s = self.start()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
        self.assert_idle()
        wait_until(lambda: self.get("/metrics").status == 200 and self.metrics()["attnd_http_connections"] <= 1, "connections close")


class SlowReader(RawTest):
    model = LONG_CONTEXT
    flags = ["--kv-bytes", "256m", "--stall-timeout", "2", "--max-sequences", "4"]

    def test_slow_reader_is_cut_and_others_are_not(self):
        slow = connect(self.server, receive_buffer=4096)
        slow.sendall(post("/generate_stream", LONG))
        time.sleep(0.2)
        with self.stream("/generate_stream", SHORT) as s:
            self.assertEqual(3, len(list(s)))
        self.assertTrue(s.clean)
        self.assert_idle()
        got = read_to_end(slow)
        slow.close()
        self.assertTrue(got.startswith(b"HTTP/1.1 200"))
        self.assertLess(got.count(b'"token"'), LONG["parameters"]["max_new_tokens"])
        self.assertNotIn(b'"finish_reason":"length"', got)


class ConnectionLimit(RawTest):
    model = LONG_CONTEXT
    flags = ["--max-connections", "8", "--max-sequences", "1", "--kv-bytes", "128m"]

    def test_silent_connections_make_room(self):
        silent = [connect(self.server) for _ in range(300)]
        for _ in range(20):
            self.assert_alive()
        self.assertEqual(200, self.post("/generate", SHORT).status)
        for s in silent:
            s.close()
        self.assertGreater(self.metrics()["attnd_http_connections_evicted_total"], 200)

    def test_busy_connections_get_429(self):
        streams = [connect(self.server, receive_buffer=4096) for _ in range(8)]
        for s in streams:
            s.sendall(post("/generate_stream", LONG))
        wait_until(lambda: ask(self.server, post("/tokenize", {"inputs": "a"}))[0].status == 429, "all places are taken")
        answers = ask(self.server, post("/generate", SHORT))
        self.assertEqual([429], [a.status for a in answers])
        self.assertEqual("1", answers[0].headers["retry-after"])
        self.assertEqual("overloaded", answers[0].json()["error_type"])
        self.assertIn("too many connections", str(answers[0].json()))
        self.assert_alive()
        for s in streams:
            s.close()
        wait_until(lambda: self.post("/generate", SHORT).status == 200, "places are free again")


class QueueLimit(RawTest):
    """Whatever waits for its turn waits no longer than --queue-timeout: for room, and in a session's line."""

    model = LONG_CONTEXT
    flags = ["--max-sequences", "1", "--queue-timeout", "1", "--ping-interval", "0", "--stall-timeout", "600", "--kv-bytes", "128m"]

    def assert_late(self, answer):
        self.assertEqual(504, answer.status, answer.text)
        self.assertIn("waited 1 s for its turn", answer.text)

    def test_waits_end(self):
        holder = connect(self.server, receive_buffer=4096)
        holder.sendall(post("/generate_stream", {**LONG, "session_id": "s", "create": True}))
        self.assertTrue(holder.recv(20).startswith(b"HTTP/1.1 200"))
        for body in (SHORT, {**SHORT, "deadline_ms": 3600000}, {**SHORT, "session_id": "s"}):
            self.assert_late(self.post("/generate", body))
            with self.server.stream("/generate_stream", body) as s:
                self.assertEqual(504, s.status)
        late = self.post("/v1/completions", {"prompt": "a", "max_tokens": 3})
        self.assert_late(late)
        self.assertEqual("timeout_error", late.json()["error"]["type"])
        self.assertEqual(504, self.post("/generate", {**SHORT, "deadline_ms": 10}).status)
        self.assertEqual(1, self.metrics()["attnd_requests_running"])
        holder.close()
        wait_until(lambda: self.post("/generate", SHORT).status == 200, "the place is free again")
        self.assert_idle()


if __name__ == "__main__":
    attnd_client.main()
