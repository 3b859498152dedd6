"""/tokenize in TGI's and llama-server's shape, /detokenize, and the way there and back."""

import json
import os
import random

import attnd_client

GOLDEN = json.load(open(os.path.join(attnd_client.DATA, "tiny-llama-q8_0.json"), encoding="utf-8"))


class Tokenize(attnd_client.ServerTest):
    def ok(self, path, body):
        r = self.post(path, body)
        self.assertEqual(200, r.status, r.text)
        return r.json()

    def test_tgi_shape(self):
        for p in GOLDEN["prompts"].values():
            if not p.get("text"):
                continue
            tokens = self.ok("/tokenize", {"inputs": p["text"]})
            self.assertEqual(p["ids"], [t["id"] for t in tokens])
            raw = p["text"].encode()
            for t in tokens:
                self.assertEqual(["id", "text", "start", "stop"], list(t))
                if t["stop"] > t["start"]:
                    self.assertEqual(raw[t["start"]:t["stop"]].decode("utf-8", "replace"), t["text"])
            self.assertEqual(len(raw), tokens[-1]["stop"])
        self.assertEqual(0, tokens[0]["stop"])  # BOS stands for no text

    def test_tgi_takes_a_whole_request(self):
        r = self.post("/tokenize", {"inputs": "a", "parameters": {"max_new_tokens": 4}})
        self.assertEqual(200, r.status)
        self.assertNotIn("x-attnd-ignored-fields", r.headers)

    def test_llama_shape(self):
        text = GOLDEN["prompts"]["plain"]["text"]
        ids = GOLDEN["prompts"]["plain"]["ids"]
        self.assertEqual({"tokens": ids[1:]}, self.ok("/tokenize", {"content": text}))
        self.assertEqual({"tokens": ids}, self.ok("/tokenize", {"content": text, "add_special": True}))
        pieces = self.ok("/tokenize", {"content": text, "with_pieces": True})["tokens"]
        self.assertEqual(ids[1:], [p["id"] for p in pieces])
        self.assertEqual(text, "".join(p["piece"] for p in pieces).lstrip(" "))
        self.assertEqual({"tokens": []}, self.ok("/tokenize", {"content": ""}))

    def test_pieces_that_are_no_text_are_bytes(self):
        pieces = self.ok("/tokenize", {"content": "\U0001f984", "with_pieces": True})["tokens"]
        got = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
        self.assertEqual("\U0001f984", got.decode().lstrip(" "))
        self.assertTrue(any(isinstance(p["piece"], list) for p in pieces))

    def test_control_tokens_only_when_asked(self):
        self.assertNotIn(2, self.ok("/tokenize", {"content": "a</s>b"})["tokens"])
        self.assertIn(2, self.ok("/tokenize", {"content": "a</s>b", "parse_special": True})["tokens"])
        self.assertEqual([1], [t["id"] for t in self.ok("/tokenize", {"inputs": "a</s>b"}) if t["id"] < 3])

    def test_detokenize(self):
        self.assertEqual({"content": ""}, self.ok("/detokenize", {"tokens": []}))
        self.assertIn("</s>", self.ok("/detokenize", {"tokens": [2]})["content"])

    def test_there_and_back(self):
        rng = random.Random(7)
        alphabets = ["abc xyz,.\n", "äöüßéñ", "漢字かな", "🙂🦄👩‍👩‍👧", "\t \u00a0\u200b", "0123456789"]
        for i in range(60):
            text = "".join(rng.choice(rng.choice(alphabets)) for _ in range(rng.randrange(1, 60)))
            tokens = self.ok("/tokenize", {"content": text})["tokens"]
            self.assertEqual(text, self.ok("/detokenize", {"tokens": tokens})["content"], ascii(text))

    def test_long_texts_are_linear(self):
        for text in ("a" * 500_000, " " * 500_000, "🙂" * 100_000):
            tokens = self.ok("/tokenize", {"content": text})["tokens"]
            self.assertGreater(len(tokens), 1000)

    def test_errors_have_the_shape_of_their_body(self):
        r = self.post("/tokenize", {"inputs": 5})
        self.assertEqual((422, {"error", "error_type"}), (r.status, set(r.json())))
        self.assert_error(self.post("/tokenize", {"content": 5}), 400, "invalid_request_error", "content")
        self.assert_error(self.post("/detokenize", {"tokens": [512]}), 400, "invalid_request_error", "tokens")


if __name__ == "__main__":
    attnd_client.main()
