"""What no client should send: every case gets the right 4xx, a JSON error that names the field, and disturbs nobody.

One table a route. After every case a normal request gives the same text as before all of them."""

import json

import attnd_client

TGI = {"/generate", "/generate_stream", "/", "/tokenize", "/chat_tokenize"}
VOCAB, CONTEXT = 512, 256
MAX_BODY = 512 * 1024

# A request that is fine, for each route with a body; the faults below are put into it.
FINE = {
    "/generate": {"inputs": "a b", "parameters": {"max_new_tokens": 2}},
    "/generate_stream": {"inputs": "a b", "parameters": {"max_new_tokens": 2}},
    "/": {"inputs": "a b", "parameters": {"max_new_tokens": 2}},
    "/tokenize": {"inputs": "a b"},
    "/detokenize": {"tokens": [5]},
    "/v1/completions": {"prompt": "a b", "max_tokens": 2},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2},
    "/apply-template": {"messages": [{"role": "user", "content": "a"}]},
    "/chat_tokenize": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/sessions": {"session_id": "bad-input"},
}

# Bodies that are no JSON object: (name, bytes, words of the error).
BODIES = [
    ("empty", b"", "empty"),
    ("null", b"null", "JSON"),
    ("array", b"[]", "object"),
    ("string", b'"x"', "JSON"),
    ("number", b"1", "JSON"),
    ("truncated", b'{"inputs":"a', "too early"),
    ("trailing", b'{"inputs":"a"} x', "follows"),
    ("two values", b"{}{}", "follows"),
    ("byte order mark", b'\xef\xbb\xbf{"inputs":"a"}', "JSON"),
    ("comment", b'{"inputs":"a" /* x */}', "JSON"),
    ("trailing comma", b'{"inputs":"a",}', "JSON"),
    ("single quotes", b"{'inputs':'a'}", "JSON"),
    ("duplicate key", b'{"n":1,"n":99}', "duplicate"),
    ("NaN", b'{"x":NaN}', "JSON"),
    ("Infinity", b'{"x":-Infinity}', "JSON"),
    ("1e999", b'{"x":1e999}', "range"),
    ("2^63", b'{"x":9223372036854775808}', "range"),
    ("2^64", b'{"x":18446744073709551616}', "range"),
    ("5000 digits", b'{"x":' + b"9" * 5000 + b"}", "range"),
    ("leading zero", b'{"x":01}', "JSON"),
    ("bad UTF-8", b'{"inputs":"\xff"}', "UTF-8"),
    ("overlong UTF-8", b'{"inputs":"\xc0\x80"}', "UTF-8"),
    ("surrogate bytes", b'{"inputs":"\xed\xa0\x80"}', "UTF-8"),
    ("lone surrogate", b'{"inputs":"\\ud800"}', "JSON"),
    ("NUL escape", b'{"inputs":"\\u0000"}', "NUL"),
    ("raw NUL", b'{"inputs":"\x00"}', "JSON"),
    ("raw newline in a string", b'{"inputs":"\n"}', "JSON"),
    ("65 levels", b'{"x":' + b"[" * 64 + b"]" * 64 + b"}", "deeper"),
    ("60,000 levels", b"[" * 60000, "deeper"),
    ("40,000 objects", b'{"x":[' + b",".join([b"{}"] * 15000) + b"," + b",".join([b"[]"] * 25000) + b"]}", None),
    ("binary", bytes(range(256)), "JSON"),
    ("form", b"inputs=a&parameters=b", "JSON"),
]

INTS = [True, "3", 1.5, [], {}, 2**53 + 1, 2**63 - 1, 1e308]  # no integer of any field's range


def numbers(low, high):
    """Values outside of low .. high, and values of other types."""
    return [low, high, True, "1", [], {}, 1e308, -1e308]


BOOLEANS = ["x", 1, 0, 0.5, [], {}]
STOPS = ["", [""], ["a", ""], [1], 5, {}, [["a"]], ["a"] * 17, ["x" * 257], "x" * 257, [None]]

# Sampling fields that all generating routes share: field -> bad values.
SAMPLING = {
    "temperature": numbers(-0.1, 100.5),
    "top_p": numbers(0, 1.0001),
    "min_p": numbers(-0.1, 2),
    "typical_p": numbers(0, 1.1),
    "top_k": [-2, 2**31] + INTS,
    "repetition_penalty": numbers(0, 1e30),
    "frequency_penalty": numbers(-2.1, 2.1),
    "presence_penalty": numbers(-2.1, 2.1),
    "seed": [-1, True, "100", 1.5, [], 1e300],
    "stop": STOPS,
    "stop_token_ids": [[-1], [VOCAB], [2**31], [1.5], ["1"], [None], [[1]], 5, "1", [1] * 65],
    "logit_bias": [{"-1": 1}, {str(VOCAB): 1}, {"2147483648": 1}, {"4294967297": 1}, {"AI": 1}, {"": 1}, {"01": 1}, {"1.5": 1}, {"1": 1e300},
                   {"1": -101}, {"1": "x"}, {"1": None}, {"1": True}, [[1, 2]], 5, {str(i): 1 for i in range(1025)}],
    "ignore_eos": BOOLEANS,
}
TOP = {  # members of every generating body
    "session_id": ["", "a b", "a/b", "../x", ".x", "é", "a\r\nb", "x" * 129, 5, [], True],
    "create": BOOLEANS,
    "turn": [0, -1, 2**32] + INTS,
    "cache_salt": [5, [], "s" * 257],
    "deadline_ms": [0, -1, 86400001] + INTS,
    "stream": ["x", 1, [], {}],
}
TGI_PARAMETERS = {
    **SAMPLING,
    "max_new_tokens": [-1, 2**31, CONTEXT + 1, 2**31 - 1] + INTS,
    "best_of": [0, -1, 17, 1000000] + INTS,
    "top_n_tokens": [-1, 21, 2**31] + INTS,
    "truncate": [0, -1, 2**31] + INTS,
    "do_sample": BOOLEANS,
    "details": BOOLEANS,
    "decoder_input_details": BOOLEANS,
    "return_full_text": BOOLEANS,
    "watermark": [True, 1, "x"],
    "grammar": [{"type": "regex", "value": "(a"}, {"type": "json", "value": {}}, "x", True],
    "adapter_id": ["x", 5],
}
TEXTS = [None, "", 5, True, 1.5, {}, []]  # no prompt
TGI_TOP = {**TOP, "inputs": TEXTS + [["a"], [1, 2]], "parameters": [[], 5, "x", True], "attention": [{"top_k": 4}, True], "interventions": [[], {}]}
OPENAI_TOP = {**TOP, **SAMPLING, "n": [0, -1, 17, 1000000] + INTS, "max_tokens": [-1, 2**31, CONTEXT + 1, 2**31 - 1] + INTS,
              "stream_options": [5, "x", []]}
COMPLETIONS = {
    **OPENAI_TOP,
    "prompt": TEXTS + [[-1], [VOCAB], [2**31], [1.5], [1, "a"], ["a", 1], [[1], "a", 5], [[]], [[[1]]], [True], [None], [{}], [""], ["a", ""], ["a"] * 10000, [1] * (CONTEXT + 1)],
    "logprobs": [-1, 21, 2**31] + INTS,
    "best_of": [0, 17, 1000000] + INTS,
    "echo": BOOLEANS,
    "suffix": ["x"],
}
MESSAGES = [None, [], 5, "a", {}, [5], [None], [[]], [{}], [{"role": "user"}], [{"content": "a"}], [{"role": "robot", "content": "a"}],
            [{"role": 5, "content": "a"}], [{"role": "user", "content": 5}], [{"role": "user", "content": {}}], [{"role": "user", "content": []}],
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}], [{"role": "user", "content": [5]}],
            [{"role": "user", "content": "a"}] * 3 + [{"role": "x\r\ny", "content": "a"}]]
CHAT = {**OPENAI_TOP, "messages": MESSAGES, "top_logprobs": [-1, 21, 2**31, 5] + INTS, "logprobs": BOOLEANS, "tools": [[{}], 5],
        "response_format": [5, {"type": "json_object"}]}

FIELDS = {
    "/generate": TGI_TOP,
    "/generate_stream": TGI_TOP,
    "/": TGI_TOP,
    "/tokenize": {"inputs": TEXTS},
    "/detokenize": {"tokens": [None, 5, "a", {}, [-1], [VOCAB], [2**31], [1.5], ["1"], [None], [[1]], [True]]},
    "/v1/completions": COMPLETIONS,
    "/v1/chat/completions": CHAT,
    "/apply-template": {"messages": MESSAGES},
    "/chat_tokenize": {"messages": MESSAGES},
    "/v1/sessions": {k: TOP[k] for k in ("session_id", "create", "turn", "cache_salt")},
}
# Faults that only show together: (route, members, parameter named, status or None for the route's own).
TOGETHER = [
    ("/v1/completions", {"prompt": "a " * 400}, "prompt", None),
    ("/v1/completions", {"prompt": [1] * 20, "max_tokens": CONTEXT - 19}, "max_tokens", None),
    ("/v1/completions", {"stream_options": {"include_usage": True}}, "stream_options", None),
    ("/v1/completions", {"stream": True, "stream_options": {"include_usage": 1}}, "include_usage", None),
    ("/v1/completions", {"prompt": ["a", "b"], "session_id": "two"}, "session_id", None),
    ("/v1/completions", {"turn": 1}, "turn", None),
    ("/v1/completions", {"session_id": "turned", "turn": 2}, "turn", 409),
    ("/v1/completions", {"best_of": 2, "stream": True}, "best_of", None),
    ("/v1/completions", {"n": 3, "best_of": 2}, "best_of", None),
    ("/v1/chat/completions", {"top_logprobs": 2}, "top_logprobs", None),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a " * 400}]}, "messages", None),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}] * 10000}, "messages", None),
    ("/generate", {"inputs": "a " * 400}, "inputs", None),
    ("/generate", {"turn": 1}, "turn", None),
    ("/generate", {"session_id": "unknown"}, "session", 404),
    ("/generate", {"parameters": {"best_of": 2}}, "best_of", None),
    ("/generate_stream", {"parameters": {"decoder_input_details": True}}, "decoder_input_details", None),
]


class BadInput(attnd_client.ServerTest):
    flags = ["--backend", "naive", "--max-body", str(MAX_BODY)]
    cases = 0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.before = cls.normal()

    @classmethod
    def normal(cls):
        r = cls.post("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 4}})
        return r.status, r.text

    @classmethod
    def tearDownClass(cls):
        print(f"{cls.cases} cases", flush=True)
        super().tearDownClass()

    def check(self, path, response, status, param, name):
        """status None: the route's own for a bad request."""
        if status is None:
            status = 422 if path in TGI else 400
        self.assertEqual(status, response.status, f"{path} {name}: {response.text[:300]}")
        self.assertEqual("application/json", response.headers["content-type"], f"{path} {name}")
        j = response.json()
        if path in TGI:
            self.assertEqual({"error", "error_type"}, set(j), f"{path} {name}")
            message = j["error"]
            if param:
                self.assertIn(param, message, f"{path} {name}")
        else:
            self.assertEqual(["error"], list(j), f"{path} {name}")
            self.assertEqual({"message", "type", "param", "code"}, set(j["error"]), f"{path} {name}")
            message = j["error"]["message"]
            self.assertEqual(param, j["error"]["param"], f"{path} {name}: {message}")
        self.assertTrue(message.isprintable(), ascii(message))
        self.assertEqual(self.before, self.normal(), f"after {path} {name}")
        type(self).cases += 1
        return message

    def test_fine(self):
        """The requests that the faults are put into are good ones."""
        for path, body in FINE.items():
            r = self.post(path, body)
            self.assertIn(r.status, (200, 201), f"{path}: {r.text}")

    def test_bodies(self):
        for path in FINE:
            for name, body, words in BODIES:
                if path == "/v1/sessions" and (not body or len(body) > 64 * 1024):
                    continue  # nothing is fine there, and more is too much: see test_too_large
                message = self.check(path, self.request("POST", path, body), None, None, name)
                if words is not None:
                    self.assertIn(words, message, f"{path} {name}")

    def test_no_echo(self):
        for path in FINE:
            r = self.request("POST", path, b'{"secret-words": secretwords}')
            self.assertNotIn("secret", self.check(path, r, None, None, "echo"))

    def run_fields(self, path):
        for field, values in FIELDS[path].items():
            for value in values:
                body = json.loads(json.dumps(FINE[path]))
                if value is None:
                    body.pop(field, None)
                else:
                    body[field] = value
                self.check(path, self.post(path, body), None, self.named(path, field), f"{field}={str(value)[:60]}")

    @staticmethod
    def named(path, field):
        return field

    def run_parameters(self, path):
        for field, values in TGI_PARAMETERS.items():
            for value in values:
                body = {**FINE[path], "parameters": {"max_new_tokens": 2, field: value}}
                self.check(path, self.post(path, body), None, field, f"{field}={str(value)[:60]}")

    def test_wrong_types(self):
        for path in FINE:
            r = self.request("POST", path, json.dumps(FINE[path]).encode(), headers={"Content-Type": "text/plain"})
            self.check(path, r, 415, None, "text/plain")
            r = self.request("POST", path, json.dumps(FINE[path]).encode(), headers={"Content-Type": "application/x-www-form-urlencoded"})
            self.check(path, r, 415, None, "a form")

    def test_no_type(self):
        """Fine from a program; from a web page, which may send that to any site without asking first, it is not."""
        for path in FINE:
            for headers, status in (({}, 200), ({"Origin": "http://evil.example"}, 415), ({"Origin": "null"}, 415)):
                conn = self.server.connection()
                conn.request("POST", path, json.dumps(FINE[path]).encode(), headers)
                r = conn.getresponse()
                answer = attnd_client.Response(r.status, r.getheaders(), r.read())
                conn.close()
                if status == 415:
                    self.check(path, answer, 415, None, f"no type, {headers}")
                else:
                    self.assertIn(answer.status, (200, 201, 409), path)  # 409: the session exists by now

    def test_other_json_types_are_fine(self):
        for kind in ("application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.api+json"):
            r = self.request("POST", "/tokenize", b'{"inputs":"a"}', headers={"Content-Type": kind})
            self.assertEqual(200, r.status, kind)

    def test_too_large(self):
        """Refused by its announced length, before a byte of it is sent."""
        for path in FINE:
            limit = 64 * 1024 if path == "/v1/sessions" else MAX_BODY
            conn = self.server.connection()
            conn.putrequest("POST", path)
            conn.putheader("Content-Type", "application/json")
            conn.putheader("Content-Length", str(limit + 1))
            conn.endheaders()
            r = conn.getresponse()
            answer = attnd_client.Response(r.status, r.getheaders(), r.read())
            conn.close()
            self.check(path, answer, 413, None, "body over the limit")

    def test_exactly_the_limit(self):
        text = "a" * (MAX_BODY - len('{"content":""}'))
        r = self.request("POST", "/tokenize", b'{"content":"' + text.encode() + b'"}')
        self.assertEqual(200, r.status)

    def test_wrong_methods(self):
        for path in FINE:
            for method in ("PUT", "DELETE", "PATCH"):
                r = self.request(method, path, b"{}")
                self.assertEqual(405, r.status, f"{method} {path}")
                self.assertIn("POST", r.headers["allow"])
                self.assertEqual("application/json", r.headers["content-type"])
                r.json()
                type(self).cases += 1
        r = self.get("/generate")
        self.assertEqual((405, "POST"), (r.status, r.headers["allow"]))
        self.assertEqual(404, self.post("/nowhere", {}).status)
        self.assertEqual(self.before, self.normal())

    def test_together(self):
        for path, members, param, status in TOGETHER:
            r = self.post(path, {**FINE[path], **members})
            message = self.check(path, r, status, param, str(members)[:80])
            if "context" in message:
                self.assertIn(str(CONTEXT), message)

    def test_bad_session_headers(self):
        for value in ("", "a b", "a/b", "x" * 129, ".."):
            r = self.post("/v1/completions", FINE["/v1/completions"], headers={"x-session-id": value})
            self.check("/v1/completions", r, None, "session_id", f"header {value!r}")

    def test_long_unknown_members_do_no_harm(self):
        r = self.post("/generate", {**FINE["/generate"], "x" * 5000: 1, "y": ["z"] * 1000})
        self.assertEqual((200, "2"), (r.status, r.headers["x-attnd-ignored-fields"]))

    def test_nothing_is_left(self):
        self.assert_idle()


def add_cases():
    """One test a route and table."""
    for path in FIELDS:
        name = path.strip("/").replace("/", "_").replace("-", "_") or "root"
        setattr(BadInput, f"test_fields_{name}", lambda self, p=path: self.run_fields(p))
        if "parameters" in FINE[path]:
            setattr(BadInput, f"test_parameters_{name}", lambda self, p=path: self.run_parameters(p))


add_cases()

if __name__ == "__main__":
    attnd_client.main()
