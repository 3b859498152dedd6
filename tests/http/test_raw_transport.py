"""The wire, byte by byte: messages whose length two readers could see differently, targets and hosts that are not what they
seem, bodies too large, cut off or too many."""

import os
import random
import re
import socket
import struct

import attnd_client
from raw_http import RawTest, ask, connect, post, read_to_end, request, split_answers, wait_until

SMUGGLED = request(target="/livez?smuggled")
LAST = [("Connection", "close")]
SHORT = {"inputs": "a", "parameters": {"max_new_tokens": 3, "ignore_eos": True}}


class MessageLength(RawTest):
    def test_length_and_coding(self):
        body = b"0\r\n\r\n" + SMUGGLED
        for order in (["Content-Length", "Transfer-Encoding"], ["Transfer-Encoding", "Content-Length"]):
            values = {"Content-Length": "3", "Transfer-Encoding": "chunked"}
            data = request("POST", "/generate", [(name, values[name]) for name in order], body)
            answer = self.assert_refused(data, 400)
            self.assertIn("conflicting message length", answer.json()["error"]["message"])

    def test_get_with_length_and_coding(self):
        self.assert_refused(request("GET", "/livez", [("Content-Length", "3"), ("Transfer-Encoding", "chunked")], b"0\r\n\r\n" + SMUGGLED), 400)

    def test_two_lengths(self):
        for second in ("4", "3"):
            data = request("POST", "/generate", [("Content-Length", "3"), ("Content-Length", second)], b"abc" + SMUGGLED)
            self.assert_refused(data, 400)

    def test_header_names(self):
        for line in ("Content-Length : 3", "Content-Length\t: 3", "Content Length: 3", "X\xe4: 3", "X(y): 3"):
            data = b"POST /generate HTTP/1.1\r\nHost: localhost\r\n" + line.encode("latin-1") + b"\r\n\r\n" + SMUGGLED
            self.assert_refused(data, 400)

    def test_nul_in_header_name_and_value(self):
        self.assert_library_refuses(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX\0y: 3\r\n\r\n" + SMUGGLED, 400, None)
        # The library ends a value at a NUL. A length or coding cut short so must not let a second request through.
        for line, body in ((b"Content-Length: 3\0", b"abc"), (b"Content-Length: 3\0 9", b"abc"), (b"Transfer-Encoding: chunked\0x", b"0\r\n\r\n")):
            answers = ask(self.server, b"POST /generate HTTP/1.1\r\nHost: localhost\r\n" + line + b"\r\n\r\n" + body + SMUGGLED)
            self.assertEqual(1, len(answers), answers)
            self.assertEqual("close", answers[0].headers["connection"])

    def test_transfer_codings(self):
        for coding in ("xchunked", "gzip, chunked", "chunked, chunked", "chunked,", "identity", "chunked;x=1", '"chunked"'):
            data = request("POST", "/generate", [("Transfer-Encoding", coding)], b"0\r\n\r\n" + SMUGGLED)
            self.assert_refused(data, 501)
        data = request("POST", "/generate", [("Transfer-Encoding", "chunked")] * 2, b"0\r\n\r\n" + SMUGGLED)
        self.assert_refused(data, 400)

    def test_folded_header(self):
        """The library glues a folded line to the header's name. Nobody can see that, so the connection ends with the answer."""
        for head, fold, body in (
            (b"Content-Lengt: 3", b" h", b"abc"),
            (b"Transfer-Encodin: chunked", b" g", b"0\r\n\r\n"),
        ):
            for method, target in ((b"GET", b"/livez"), (b"POST", b"/generate"), (b"HEAD", b"/livez")):
                data = method + b" " + target + b" HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n" + fold + b"\r\n\r\n" + body + SMUGGLED
                answers = ask(self.server, data, heads=(0,) if method == b"HEAD" else ())
                self.assertEqual(1, len(answers), answers)
                self.assertEqual("close", answers[0].headers["connection"])

    def test_every_answer_to_a_body_closes(self):
        for data in (post("/generate", SHORT), post("/nowhere", SHORT), request("DELETE", "/v1/sessions/none"),
                     request("GET", "/livez", [("Content-Length", "3")], b"abc"), request("PUT", "/livez")):
            answers = ask(self.server, data + SMUGGLED)
            self.assertEqual(1, len(answers), answers)
            self.assertEqual("close", answers[0].headers["connection"])

    def test_malformed_lengths(self):
        for length in ("+3", "-1", "0x3", "3, 3", "3 3", "abc", "18446744073709551616"):
            got = self.assert_library_refuses(request("POST", "/generate", [("Content-Length", length)], b"abc" + SMUGGLED), 400, 413)
            self.assertLessEqual(got.count(b"HTTP/1.1 "), 2)  # the library's page repeats its status line in its body

    def test_huge_lengths(self):
        for length in ("18446744073709551615", str(2**63), str(2**62), str(3 << 20)):
            answer = self.assert_refused(request("POST", "/tokenize", [("Content-Length", length)], b"abc"), 413)
            self.assertIn("2097152", str(answer.json()))

    def test_malformed_chunks(self):
        for chunk in (b"-2\r\nab\r\n", b"0x3\r\nabc\r\n", b"fffffffffffffffff\r\n", b"+3\r\nabc\r\n", b" 3\r\nabc\r\n", b"\r\n", b"3\r\nabcde\r\n0\r\n\r\n", b"zz\r\n"):
            self.assert_library_refuses(request("POST", "/generate", [("Transfer-Encoding", "chunked")], chunk), 400, 413)

    def test_chunked_body_is_one_body(self):
        body = b'{"inputs": "a", "parameters": {"max_new_tokens": 1}}'
        chunks = b"".join(b"%x;ext=1\r\n%c\r\n" % (1, byte) for byte in body) + b"0\r\nTrailer: x\r\n\r\n"
        data = request("POST", "/generate", [("Transfer-Encoding", "chunked"), ("Content-Type", "application/json")], chunks)
        answers = ask(self.server, data)
        self.assertEqual([200], [a.status for a in answers], answers)

    def test_endless_chunk_extension(self):
        with connect(self.server) as s:
            s.sendall(request("POST", "/generate", [("Transfer-Encoding", "chunked")], b"3;"))
            try:
                for _ in range(200):
                    s.sendall(b"x" * 4096)
            except (ConnectionResetError, BrokenPipeError):
                pass
            self.assertRegex(read_to_end(s), rb"^(HTTP/1\.1 4\d\d |$)")
        self.assert_alive()


class Targets(RawTest):
    def test_targets_that_are_refused(self):
        for target in ("/livez%00x", "/livez%00", "/a%zz", "/a%4", "/a%0a", "*", "http://localhost/livez", "livez", "/a#b", "/a b", "/a\xe4"):
            answers = ask(self.server, request("GET", target, LAST))
            self.assertEqual([400], [a.status for a in answers], target)

    def test_raw_nul_in_the_target(self):
        answers = ask(self.server, b"GET /livez\0.txt HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertEqual([400], [a.status for a in answers])

    def test_paths_that_do_not_exist(self):
        for target in ("/../livez", "//livez", "/livez/", "/LIVEZ", "/livez%2f", "/v1/sessions/a/b", "/livez.txt", "/%2e%2e/livez"):
            answers = ask(self.server, request("GET", target, LAST))
            self.assertEqual([404], [a.status for a in answers], target)

    def test_escapes_and_queries(self):
        for target in ("/livez?a=%00&b", "/%6civez", "/livez?", "/livez?/../x"):
            answers = ask(self.server, request("GET", target, LAST))
            self.assertEqual([200], [a.status for a in answers], target)

    def test_methods(self):
        for method in ("OPTIONS", "TRACE", "PUT", "PATCH", "DELETE", "FROB", "get"):
            answers = ask(self.server, request(method, "/livez"))
            self.assertEqual([405], [a.status for a in answers], method)
            self.assertEqual("GET, HEAD", answers[0].headers["allow"])
        answers = ask(self.server, request("GET", "/generate", LAST))
        self.assertEqual((405, "POST"), (answers[0].status, answers[0].headers["allow"]))
        for data in (request("OPTIONS", "*"), request("CONNECT", "localhost:80")):
            self.assert_refused(data, 400)

    def test_many_query_arguments(self):
        for n in (64, 499, 500, 5000):
            answers = ask(self.server, request("GET", "/livez?" + "&".join(["x=1"] * n), LAST))
            self.assertEqual([200], [a.status for a in answers], n)

    def test_too_much_head(self):
        for data in (
            request("GET", "/livez", [("X", "a" * 40000)]),
            request("GET", "/livez", [(f"X-{i}", "a") for i in range(2000)]),
            request("GET", "/livez", [("Cookie", "a=b; " * 10000)]),
            request("GET", "/" + "a" * 40000),
        ):
            self.assert_library_refuses(data, 400, 414, 431, None)
        answer = self.assert_refused(request("GET", "/livez", [(f"X-{i}", "a") for i in range(200)]), 400)
        self.assertIn("128", answer.json()["error"]["message"])

    def test_endless_trailers(self):
        with connect(self.server) as s:
            s.sendall(request("POST", "/generate", [("Transfer-Encoding", "chunked")], b"0\r\n"))
            try:
                for i in range(20000):
                    s.sendall(b"X-%d: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" % i)
            except (ConnectionResetError, BrokenPipeError):
                pass
            self.assertRegex(read_to_end(s), rb"^(HTTP/1\.1 4\d\d |$)")
        self.assert_alive()


class Hosts(RawTest):
    flags = ["--allow-host", "attnd.example,other.example"]

    def test_hosts(self):
        for host, status in (
            ("localhost", 200), ("LocalHost:99", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("10.0.0.7:80", 200),
            ("attnd.example", 200), ("OTHER.example:8080", 200),
            ("evil.com", 403), ("localhost.evil.com", 403), ("attnd.example.evil.com", 403), ("", 400), ("a b", 400), (None, 400),
        ):
            answers = ask(self.server, request("GET", "/livez", LAST, host=host))
            self.assertEqual([status], [a.status for a in answers], host)

    def test_two_hosts(self):
        answers = ask(self.server, request("GET", "/livez", [("Host", "localhost"), *LAST]))
        self.assertEqual([400], [a.status for a in answers])

    def test_foreign_origin_gets_no_permission(self):
        answers = ask(self.server, request("GET", "/livez", [("Origin", "http://evil.com"), *LAST]))
        self.assertEqual(200, answers[0].status)
        self.assertFalse([name for name in answers[0].headers if name.startswith("access-control")])


class Versions(RawTest):
    def test_other_versions(self):
        for data in (
            b"GET /livez HTTP/1.2\r\nHost: localhost\r\n\r\n", b"GET /livez HTTP/2.0\r\nHost: localhost\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /livez\r\n\r\n", b"GET /livez http/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /livez HTTP/1.1x\r\nHost: localhost\r\n\r\n", b"GET /livez HTTP/11\r\nHost: localhost\r\n\r\n",
        ):
            self.assert_library_refuses(data, 400, 505)

    def test_noise(self):
        hello = bytes.fromhex("16030100c8010000c40303") + bytes(random.Random(1).randbytes(200)) + b"\r\n\r\n"
        lines = len(self.server.lines)
        for data in (hello, random.Random(2).randbytes(65536), b"\0" * 5000, b"\r\n" * 5000 + b"x\r\n\r\n", b" / \r\n\r\n"):
            with connect(self.server) as s:
                try:
                    s.sendall(data)
                    s.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
                self.assertRegex(read_to_end(s), rb"^(HTTP/1\.1 [45]\d\d |$)")
        self.assert_alive()
        self.assertEqual(lines, len(self.server.lines), self.server.log())

    def test_http_1_0(self):
        body = b'{"inputs": "a", "parameters": {"max_new_tokens": 3, "ignore_eos": true}}'
        head = [("Content-Type", "application/json"), ("Content-Length", len(body))]
        answers = ask(self.server, request("POST", "/generate_stream", head, body, version="HTTP/1.0"))
        self.assertEqual([200], [a.status for a in answers])
        self.assertNotIn("transfer-encoding", answers[0].headers)
        self.assertTrue(answers[0].body.startswith(b"data:"), answers)
        self.assertTrue(answers[0].body.endswith(b"\n\n"), answers)
        answers = ask(self.server, request("GET", "/livez", version="HTTP/1.0", host=None))
        self.assertEqual([200], [a.status for a in answers])


class Sequence(RawTest):
    def test_pipelined_requests(self):
        data = b"".join(request("GET", target, [("x-request-id", f"id-{i}")]) for i, target in enumerate(("/livez", "/info", "/nowhere")))
        answers = ask(self.server, data + request("GET", "/readyz", [("x-request-id", "id-3"), *LAST]))
        self.assertEqual([200, 200, 404, 200], [a.status for a in answers])
        self.assertEqual(["id-0", "id-1", "id-2", "id-3"], [a.headers["x-request-id"] for a in answers])

    def test_a_stream_ends_its_connection(self):
        answers = ask(self.server, request("GET", "/livez") + post("/generate_stream", SHORT) + SMUGGLED)
        self.assertEqual([200, 200], [a.status for a in answers])
        self.assertEqual("text/event-stream", answers[1].headers["content-type"])
        self.assertEqual("close", answers[1].headers["connection"])

    def test_head(self):
        with open(os.path.join(attnd_client.ROOT, "server", "api", "routes.c")) as f:
            routes = re.findall(r'\{"(GET|POST|DELETE)", "([^"]+)"', f.read())
        self.assertGreater(len(routes), 10)
        for method, path in routes:
            target = path.replace("{id}", "none")
            data = request("HEAD", target) + request("GET", "/livez", LAST)
            answers = ask(self.server, data, heads=(0,))
            self.assertEqual(2, len(answers), (target, answers))
            self.assertEqual(200, answers[1].status)
            if method == "POST" and ("GET", path) not in routes:
                self.assertEqual(405, answers[0].status, target)

    def test_request_ids(self):
        for sent, echoed in (("abc.DEF_1-2", True), ("a" * 64, True), ("a" * 65, False), ("a b", False), ("a/b", False), ("\xe4", False)):
            answers = ask(self.server, request("GET", "/livez", [("X-Request-ID", sent), *LAST]))
            got = answers[0].headers["x-request-id"]
            self.assertEqual(echoed, got == sent, sent)
            self.assertRegex(got, r"^[A-Za-z0-9._-]{1,64}$")
        made = {ask(self.server, request("GET", "/livez", LAST))[0].headers["x-request-id"] for _ in range(5)}
        self.assertEqual(5, len(made))
        refused = ask(self.server, request("GET", "/nowhere", [("x-request-id", "kept"), *LAST]))
        self.assertEqual("kept", refused[0].headers["x-request-id"])

    def test_one_write_a_chunk(self):
        with self.stream("/generate_stream", SHORT) as s:
            chunks = list(s.chunks())
        self.assertTrue(s.clean)
        self.assertEqual(3, len([c for c in chunks if c.startswith(b"data:")]), chunks)
        self.assertTrue(all(c.endswith(b"\n\n") for c in chunks), chunks)


class Bodies(RawTest):
    flags = ["--max-body", "64k"]

    def test_too_large_by_length(self):
        body = b'{"inputs": "' + b"a" * 65536 + b'"}'
        answer = self.assert_refused(post("/generate", body), 413)
        self.assertIn("65536", str(answer.json()))

    def test_expect_continue(self):
        with connect(self.server) as s:
            s.sendall(request("POST", "/generate", [("Content-Length", 1 << 20), ("Expect", "100-continue")]))
            answers = split_answers(read_to_end(s))
        self.assertEqual([413], [a.status for a in answers])
        body = b'{"inputs": "a", "parameters": {"max_new_tokens": 1}}'
        with connect(self.server) as s:
            s.sendall(request("POST", "/generate", [("Content-Type", "application/json"), ("Content-Length", len(body)), ("Expect", "100-continue")]))
            self.assertEqual(b"HTTP/1.1 100 Continue\r\n\r\n", s.recv(25))
            s.sendall(body)
            self.assertEqual([200], [a.status for a in split_answers(read_to_end(s))])

    def test_unknown_expectation_is_ignored(self):
        answers = ask(self.server, request("GET", "/livez", [("Expect", "a-miracle"), *LAST]))
        self.assertEqual([200], [a.status for a in answers])

    def test_many_bodies_at_once(self):
        """Unfinished bodies of all requests together are bounded, at 32 of the largest."""
        part = b'{"inputs": "' + b"a" * 60000
        sockets = [connect(self.server) for _ in range(50)]
        for s in sockets:
            s.sendall(request("POST", "/generate", [("Content-Type", "application/json"), ("Content-Length", 65000)], part))
        wait_until(lambda: self.metrics()["attnd_http_refused_total"] >= 10, "bodies are refused")
        refused = []
        for s in sockets:
            s.setblocking(False)
            try:
                refused.append(s.recv(4096))
            except BlockingIOError:
                pass
        self.assertGreaterEqual(len(refused), 10)
        self.assertLess(len(refused), 20)
        for got in refused:
            answer = split_answers(got)[0]
            self.assertEqual((429, "close"), (answer.status, answer.headers["connection"]))
            self.assertIn("retry-after", answer.headers)
            self.assertIn("too many request bodies", str(answer.json()))
        for s in sockets:
            s.close()
        wait_until(lambda: self.metrics()["attnd_http_connections"] <= 1, "connections close")
        for _ in range(40):
            self.assertEqual(422, self.post("/generate", {"no_inputs": "a" * 60000}).status)

    def test_endless_chunked_body(self):
        before = self.server.rss_bytes()
        with connect(self.server) as s:
            s.sendall(request("POST", "/generate", [("Transfer-Encoding", "chunked")]))
            sent = 0
            try:
                while sent < 64 << 20:
                    s.sendall(b"4000\r\n" + b"a" * 0x4000 + b"\r\n")
                    sent += 0x4000
            except (ConnectionResetError, BrokenPipeError):
                pass
            got = read_to_end(s)
        if got:  # what was sent behind the limit may reset the connection before the answer is read
            self.assertEqual([413], [a.status for a in split_answers(got)])
        self.assertLess(self.server.rss_bytes() - before, 8 << 20)
        self.assert_alive()

    def test_chunked_body_just_over_the_limit(self):
        data = request("POST", "/generate", [("Transfer-Encoding", "chunked")], b"10001\r\n" + b"a" * 0x10001 + b"\r\n")
        answers = ask(self.server, data)
        self.assertEqual([413], [a.status for a in answers])
        self.assertIn("65536", str(answers[0].json()))

    def test_cut_off_body(self):
        before = self.metrics()["attnd_http_connections"]
        sockets = []
        for close in ("half", "close", "reset"):
            s = connect(self.server)
            s.sendall(request("POST", "/generate", [("Content-Length", "1000")], b"abc"))
            if close == "half":
                s.shutdown(socket.SHUT_WR)
                sockets.append(s)
            elif close == "reset":
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                s.close()
            else:
                s.close()
        wait_until(lambda: self.metrics()["attnd_http_connections"] <= before, "connections of cut-off bodies close", 20)
        self.assertEqual(b"", read_to_end(sockets[0]))
        sockets[0].close()

    def test_cut_off_head(self):
        before = self.metrics()["attnd_http_connections"]
        with connect(self.server) as s:
            s.sendall(b"GET /livez HTTP/1.1\r\nHost: loc")
            s.shutdown(socket.SHUT_WR)
            self.assertEqual(b"", read_to_end(s))
        wait_until(lambda: self.metrics()["attnd_http_connections"] <= before, "connection of a cut-off head closes", 20)


if __name__ == "__main__":
    attnd_client.main()
