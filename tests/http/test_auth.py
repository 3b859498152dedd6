"""Keys: every route that is not public refuses a request without one, rights are looked up in the route table, and nothing
about a key is told. The routes are read from the table in the source, so that a new one is tested by being there."""

import os
import re
import tempfile

import attnd_client
from raw_http import ask, connect, read_to_end, request

ROUTE = re.compile(r'\{"(GET|POST|DELETE)", "([^"]+)", (0|RIGHT_\w+(?: \| RIGHT_\w+)*),')
PUBLIC = {"/livez", "/readyz", "/health", "/"}
KEYS = "k-infer-0123456789 ann infer\nk-admin-0123456789 bob admin\nk-all-0123456789 eve all\n"


def routes():
    with open(os.path.join(attnd_client.ROOT, "server", "api", "routes.c")) as f:
        return [(method, path.replace("{id}", "none"), rights) for method, path, rights in ROUTE.findall(f.read())]


class KeysTest(attnd_client.ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = os.path.join(cls.folder.name, "keys")
        with open(path, "w") as f:
            f.write(KEYS)
        cls.flags = ["--api-key-file", path]
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def status(self, method, target, *headers):
        data = request(method, target, [("Connection", "close"), *headers])
        answers = ask(self.server, data)
        self.assertEqual(1, len(answers), answers)
        return answers[0]

    def test_every_route(self):
        table = routes()
        self.assertGreater(len(table), 15)
        for method, target, rights in table:
            with self.subTest(route=f"{method} {target}"):
                answer = self.status(method, target)
                if rights == "0":
                    self.assertIn(target, PUBLIC)
                    self.assertEqual(("GET", 200), (method, answer.status))
                    continue
                self.assertEqual(401, answer.status)
                self.assertEqual("Bearer", answer.headers["www-authenticate"])
                self.assertIn("authentication_error", answer.body.decode())
                for key, has in (("k-infer-0123456789", {"RIGHT_INFER"}), ("k-admin-0123456789", {"RIGHT_ADMIN"})):
                    allowed = set(rights.split(" | ")) <= has
                    answer = self.status(method, target, ("Authorization", f"Bearer {key}"))
                    self.assertEqual(not allowed, answer.status == 403, answer)
                    self.assertNotEqual(401, answer.status)
                self.assertNotIn(self.status(method, target, ("x-api-key", "k-all-0123456789")).status, (401, 403))

    def test_wrong_keys(self):
        for headers in (
            [("Authorization", "Bearer wrong")],
            [("Authorization", "Bearer k-infer-012345678")],
            [("Authorization", "Bearer k-infer-0123456789x")],
            [("Authorization", "Bearer")],
            [("Authorization", "Basic k-infer-0123456789")],
            [("Authorization", "k-infer-0123456789")],
            [("x-api-key", "")],
            [("x-api-key", "K-INFER-0123456789")],
            [("Authorization", "Bearer " + "x" * 20000)],
            [("Cookie", "key=k-infer-0123456789")],
        ):
            answer = self.status("GET", "/v1/models", *headers)
            self.assertEqual(401, answer.status, headers[0][1][:40])
            self.assertNotIn(b"k-", answer.body)
        self.assertEqual(401, self.status("GET", "/v1/models?api_key=k-infer-0123456789").status)
        self.assertEqual(200, self.status("GET", "/v1/models", ("authorization", "bearer k-infer-0123456789")).status)
        with connect(self.server) as s:  # does not fit a head: the library's own page, or a reset while it is still sent
            try:
                s.sendall(request("GET", "/v1/models", [("x-api-key", "x" * (1 << 20))]))
            except (ConnectionResetError, BrokenPipeError):
                pass
            self.assertRegex(read_to_end(s), rb"^(HTTP/1\.1 431 |$)")

    def test_refused_before_the_body(self):
        answers = ask(self.server, request("POST", "/generate", [("Content-Length", 1 << 20)]))
        self.assertEqual([401], [a.status for a in answers])

    def test_nothing_is_told_in_the_log(self):
        self.status("GET", "/v1/models", ("x-api-key", "k-infer-0123456789"))
        self.assertNotIn("k-infer", self.server.log())

    def test_sessions_of_another_key_do_not_exist(self):
        mine, other = {"x-api-key": "k-infer-0123456789"}, {"x-api-key": "k-all-0123456789"}
        body = {"inputs": "a", "session_id": "s1", "create": True, "parameters": {"max_new_tokens": 2}}
        self.assertEqual(200, self.post("/generate", body, headers=mine).status)
        self.assertEqual(200, self.get("/v1/sessions/s1", headers=mine).status)
        self.assertEqual(404, self.get("/v1/sessions/s1", headers=other).status)
        self.assertNotIn("s1", self.get("/v1/sessions", headers=other).text)
        self.assertEqual(404, self.delete("/v1/sessions/s1", headers=other).status)
        self.assertEqual(200, self.get("/v1/sessions/s1", headers=mine).status)


class WithoutKeys(attnd_client.ServerTest):
    def test_everything_is_open(self):
        for method, target, rights in routes():
            answers = ask(self.server, request(method, target, [("Connection", "close"), ("x-api-key", "whatever")]))
            self.assertNotIn(answers[0].status, (401, 403), target)


if __name__ == "__main__":
    attnd_client.main()
