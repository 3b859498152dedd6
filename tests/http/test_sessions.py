"""Sessions over HTTP: appending, reuse of the KV, owners, limits, order, deletion."""

import json
import os
import re
import tempfile
import threading
import time

import attnd_client

KEYS = {"one": "key-one-0123456789abcdef0123456789", "two": "key-two-0123456789abcdef0123456789"}


class SessionTest(attnd_client.ServerTest):
    def turn(self, text, session=None, status=200, n=6, headers=None, parameters=None, **top):
        body = {"inputs": text, "parameters": {"max_new_tokens": n, "details": True, **(parameters or {})}, **top}
        if session is not None:
            body["session_id"] = session
        r = self.post("/generate", body, headers=headers)
        self.assertEqual(status, r.status, r.text)
        self.last = r
        return r.json()

    def ids_of(self, answer):
        return [t["id"] for t in answer["details"]["tokens"] if not (t["special"] and t is answer["details"]["tokens"][-1])]

    def tokens(self, text, bos):
        return self.post("/tokenize", {"content": text, "add_special": bos}).json()["tokens"]

    def show(self, session, headers=None):
        r = self.get(f"/v1/sessions/{session}", headers=headers)
        self.assertEqual(200, r.status, r.text)
        return r.json()


class Sessions(SessionTest):
    flags = ["--backend", "naive", "--kv-type", "f32", "--log-level", "debug"]

    def test_appends_and_reuses(self):
        """Every turn gives what one prompt of all tokens gives, and says how much of it was cached."""
        history = []
        for i, text in enumerate(["Once upon a time", " the end of", " a story"]):
            answer = self.turn(text, "append", create=True)
            history += self.tokens(text, bos=i == 0)
            whole = self.post("/v1/completions", {"prompt": history, "max_tokens": 6, "temperature": 0})
            self.assertEqual(whole.json()["choices"][0]["text"], answer["generated_text"])
            h = self.last.headers
            self.assertEqual(("append", str(i + 1), str(len(history))), (h["x-session-id"], h["x-session-turn"], h["x-prompt-tokens"]))
            if i > 0:  # all but the last token, which was never computed
                self.assertEqual(before - 1, answer["details"]["cached_tokens"])
                self.assertEqual(str(before - 1), h["x-cached-tokens"])
            history += self.ids_of(answer)
            before = len(history)
        shown = self.show("append")
        self.assertEqual((len(history), 3, False, 0), (shown["tokens"], shown["turns"], shown["running"], shown["waiting"]))

    def test_stream_appends_too(self):
        with self.stream("/generate_stream", {"inputs": "a b", "parameters": {"max_new_tokens": 4, "details": True}, "session_id": "st", "create": True}) as s:
            self.assertEqual("st", s.headers["x-session-id"])
            events = [e.json() for e in s]
        self.assertEqual(0, events[-1]["details"]["cached_tokens"])
        self.turn(" c", "st")
        self.assertEqual(2, self.show("st")["turns"])

    def test_unknown(self):
        for stream in (False, True):
            j = self.turn("a", "nobody", 404, stream=stream)
            self.assertEqual({"error", "error_type"}, set(j))
        self.assert_error(self.get("/v1/sessions/nobody"), 404, "not_found_error", "session_id")
        self.assert_error(self.delete("/v1/sessions/nobody"), 404, "not_found_error", "session_id")
        self.assertIn(self.get("/v1/sessions/no%0Abody").status, (400, 404))

    def test_server_names_it(self):
        self.turn("a b", create=True)
        name = self.last.headers["x-session-id"]
        self.assertRegex(name, r"^s-[0-9a-f]{32}$")
        self.turn(" c", name)
        self.assertEqual("2", self.last.headers["x-session-turn"])

    def test_headers_name_it(self):
        self.turn("a", create=True, headers={"X-Session-Id": "head"})
        self.turn("a", headers={"X-Conversation-Id": "head"})
        self.turn("a", "head", headers={"x-session-id": "head"})
        self.assertEqual(3, self.show("head")["turns"])
        j = self.turn("a", "head", 422, headers={"x-session-id": "other"})
        self.assertIn("session_id", j["error"])

    def test_turn_numbers(self):
        self.turn("a", "numbered", create=True, turn=1)
        j = self.turn("a", "numbered", 409, turn=1)
        self.assertEqual("false", self.last.headers["x-should-retry"])
        self.assertIn("2", j["error"])
        self.turn("a", "numbered", turn=2)

    def test_failed_turns_roll_back(self):
        self.turn("a b c", "back", create=True)
        before = self.show("back")
        self.turn("x", "back", 422, n=256)
        self.turn("x " * 50, "back", 504, n=100, deadline_ms=1, parameters={"ignore_eos": True})
        with self.stream("/generate_stream", {"inputs": "x", "session_id": "back", "parameters": {"ignore_eos": True}}) as s:
            next(iter(s))
        self.assert_idle()
        deadline = time.monotonic() + 20
        while self.show("back")["running"] and time.monotonic() < deadline:
            time.sleep(0.02)
        after = self.show("back")
        self.assertEqual((before["tokens"], before["turns"]), (after["tokens"], after["turns"]))
        want = self.turn(" d", "back")["generated_text"]
        self.turn("a b c", "fresh", create=True)
        self.assertEqual(want, self.turn(" d", "fresh")["generated_text"])

    def test_a_failed_first_turn_leaves_no_session(self):
        self.turn("x", "stillborn", 422, n=1000, create=True)
        self.assertEqual(404, self.get("/v1/sessions/stillborn").status)

    def test_session_outgrows_its_limit(self):
        self.turn("a", "full", create=True, n=200, parameters={"ignore_eos": True})
        j = self.turn("b " * 60, "full", 422)
        self.assertIn("256", j["error"])
        self.assertEqual(1, self.show("full")["turns"])

    def test_one_turn_at_a_time(self):
        self.turn("a", "busy", create=True)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(self.post("/generate", {"inputs": " b", "session_id": "busy", "parameters": {"max_new_tokens": 8, "details": True, "ignore_eos": True}}))) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual([200] * 4, [a.status for a in answers])
        self.assertEqual([2, 3, 4, 5], sorted(int(a.headers["x-session-turn"]) for a in answers))
        lengths = sorted(int(a.headers["x-prompt-tokens"]) for a in answers)
        step = 8 + len(self.tokens(" b", bos=False))
        self.assertEqual([step] * 3, [b - a for a, b in zip(lengths, lengths[1:])])

    def test_delete(self):
        self.turn("a b", "gone", create=True)
        self.assertEqual(204, self.delete("/v1/sessions/gone").status)
        self.assertEqual(404, self.get("/v1/sessions/gone").status)
        self.turn("a", "gone", 404)
        self.turn("a b", "gone", create=True)
        self.assertEqual("0", self.last.headers["x-cached-tokens"])

    def test_delete_while_running(self):
        with self.stream("/generate_stream", {"inputs": "a", "session_id": "cut", "create": True, "parameters": {"ignore_eos": True}}) as s:
            events = iter(s)
            next(events)
            self.assertEqual(204, self.delete("/v1/sessions/cut").status)
            rest = list(events)
        last = rest[-1].json()
        if "error" in last:  # else the turn had ended already
            self.assertEqual("not_found_error", last["error_type"])
        self.assertEqual(404, self.get("/v1/sessions/cut").status)
        self.assert_idle()

    def test_objects(self):
        r = self.post("/v1/sessions", {"session_id": "made"})
        self.assertEqual(201, r.status)
        self.assertEqual(("made", "session", 0, 0), tuple(r.json()[k] for k in ("id", "object", "tokens", "turns")))
        self.assert_error(self.post("/v1/sessions", {"session_id": "made"}), 409, "conflict_error", "session_id")
        self.turn("a", "made")
        self.assertIn("made", [s["id"] for s in self.get("/v1/sessions").json()["data"]])
        r = self.request("POST", "/v1/sessions")
        self.assertEqual(201, r.status)
        self.assertRegex(r.json()["id"], r"^s-")

    def test_salt_is_a_domain_of_its_own(self):
        self.turn("a b", "salty", create=True, cache_salt="s1")
        self.turn("a", "salty", 404)
        self.turn("a", "salty", 404, cache_salt="s2")
        self.turn("a", "salty", cache_salt="s1")
        self.assertEqual(404, self.get("/v1/sessions/salty").status)
        self.assertEqual(2, self.show("salty", headers={"x-cache-salt": "s1"})["turns"])

    def test_openai_reuses_the_common_prefix(self):
        text = "Once upon a time there was a"
        a = self.post("/v1/completions", {"prompt": text, "max_tokens": 4, "temperature": 0, "session_id": "whole"})
        self.assertEqual((200, "whole"), (a.status, a.headers["x-session-id"]))
        self.assertEqual(0, a.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
        b = self.post("/v1/completions", {"prompt": text + " tree", "max_tokens": 4, "temperature": 0, "session_id": "whole"}).json()
        n = len(self.tokens(text, bos=True))
        self.assertGreaterEqual(b["usage"]["prompt_tokens_details"]["cached_tokens"], n - 1)
        fresh = self.post("/v1/completions", {"prompt": text + " tree", "max_tokens": 4, "temperature": 0}).json()
        self.assertEqual(fresh["choices"][0]["text"], b["choices"][0]["text"])

    def test_ids_in_the_log_stay_one_line(self):
        self.post("/generate", {"inputs": "a", "evil\r\n\x1bname": 1, "parameters": {"max_new_tokens": 1}})
        time.sleep(0.2)
        for line in self.server.lines:
            self.assertTrue(line.isprintable() or line.rstrip("\n").isprintable(), ascii(line))


class Limits(SessionTest):
    flags = ["--backend", "naive", "--max-sessions", "2", "--session-ttl", "2"]

    def test_full_table_then_expiry(self):
        self.turn("a", "x", create=True)
        self.turn("a", "y", create=True)
        j = self.turn("a", "z", 429, create=True)
        self.assertEqual("overloaded", j["error_type"])
        self.assertIn("2", j["error"])
        self.assertIn("retry-after", self.last.headers)
        deadline = time.monotonic() + 30
        while self.get("/v1/sessions").json()["data"] and time.monotonic() < deadline:
            time.sleep(0.1)
        self.turn("a", "x", 404)
        self.turn("a", "z", create=True)


class Owners(attnd_client.ServerTest):
    """Two keys: each sees its own sessions only."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = os.path.join(cls.folder.name, "keys")
        with open(path, "w", encoding="ascii") as f:
            for name, key in KEYS.items():
                f.write(f"{key} {name} infer\n")
        os.chmod(path, 0o600)
        cls.flags = ["--backend", "naive", "--api-key-file", path]
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def test_strangers_get_404(self):
        one, two = ({"Authorization": f"Bearer {KEYS[k]}"} for k in ("one", "two"))
        body = {"inputs": "a b c", "session_id": "mine", "parameters": {"max_new_tokens": 2}}
        self.assertEqual(200, self.post("/generate", {**body, "create": True}, headers=one).status)
        self.assertEqual(404, self.post("/generate", body, headers=two).status)
        self.assertEqual(404, self.get("/v1/sessions/mine", headers=two).status)
        self.assertEqual(404, self.delete("/v1/sessions/mine", headers=two).status)
        self.assertEqual([], self.get("/v1/sessions", headers=two).json()["data"])
        unknown = self.get("/v1/sessions/other", headers=two).text
        self.assertEqual(unknown, self.get("/v1/sessions/mine", headers=two).text)
        # The same name is another session, with nothing in its cache.
        r = self.post("/generate", {**body, "create": True}, headers=two)
        self.assertEqual(("1", "0"), (r.headers["x-session-turn"], r.headers["x-cached-tokens"]))
        self.assertEqual(1, len(self.get("/v1/sessions", headers=one).json()["data"]))
        self.assertEqual(401, self.get("/v1/sessions").status)


if __name__ == "__main__":
    attnd_client.main()
