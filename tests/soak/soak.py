#!/usr/bin/env python3
"""Soak: requests of every kind at random moments, for as long as you like (./dev soak --seconds 600 --seed 7).

Arrivals are an open-loop Poisson process. A server with little KV, four sequences and a short queue gets whole answers,
streams, sessions of several turns, clients that leave, slow readers, deadlines and hostile bytes. Every answer that came
whole is compared with what the same request gave alone on a quiet server before: it must be the same bytes, since the
naive backend is batch-invariant. Then the books: what was admitted has ended, every page is free or kept, no descriptor
and no memory grows, and nothing is logged as an error.
"""

import argparse
import json
import os
import random
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import attnd_client  # noqa: E402

FLAGS = ["--backend", "naive", "--context", "256", "--max-sequences", "4", "--max-waiting", "8", "--step-tokens", "24",
         "--kv-bytes", "896k", "--stall-timeout", "2", "--max-sessions", "64"]
# Freed memory that a sanitizer holds back would look like a leak.
ENV = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64"}
MOST_AT_ONCE = 64
WORDS = ["the", "a", "cat", "sat", "on", "mat", "über", "日本", "🙂", "x1", "\n", "::", "q", "and then", "42", "é̂"]
REFUSED = (400, 404, 405, 408, 413, 414, 415, 422, 429, 431, 501, 503, 505)


def words(dice, most):
    return " ".join(dice.choice(WORDS) for _ in range(dice.randint(1, most)))


def make_body(dice):
    """One request as (path, body without stream); what it answers depends on nothing else."""
    sampled = dice.random() < 0.5
    fields = {"ignore_eos": dice.random() < 0.7}
    if sampled:
        fields |= {"temperature": dice.choice([0.3, 0.9, 2.0]), "seed": dice.randrange(1 << 53), "top_k": dice.choice([0, 3, 40])}
    if dice.random() < 0.3:
        fields["stop"] = [dice.choice(["a", "e", "\n", "th", "é", "<", "zz"]) for _ in range(dice.randint(1, 3))]
    n_new = dice.choice([1, 2, 7, 20, 60])
    if dice.random() < 0.5:
        fields |= {"prompt": words(dice, 40), "max_tokens": n_new}
        fields |= {} if sampled else {"temperature": 0}
        if dice.random() < 0.3:
            fields["n"] = dice.randint(2, 3)
        if dice.random() < 0.3:
            fields["logprobs"] = dice.randint(0, 5)
        return "/v1/completions", fields
    fields |= {"max_new_tokens": n_new, "details": True, "do_sample": sampled}
    if dice.random() < 0.2:
        fields["decoder_input_details"] = True
    if dice.random() < 0.3:
        fields["top_n_tokens"] = dice.randint(1, 5)
    return "/generate", {"inputs": words(dice, 40), "parameters": fields}


def essence(path, answer):
    """What of a whole answer must not change."""
    if path == "/generate":
        return {k: v for k, v in answer.items()}
    return [(c["text"], c["finish_reason"], c["logprobs"]) for c in answer["choices"]]


def essence_of_stream(path, events):
    if path == "/generate_stream":
        last = json.loads(events[-1])
        return last["generated_text"], [json.loads(e)["token"] for e in events]
    assert events[-1] == "[DONE]", events[-1]
    texts, ends = {}, {}
    for e in events[:-1]:
        for c in json.loads(e)["choices"]:
            texts[c["index"]] = texts.get(c["index"], "") + c["text"]
            ends[c["index"]] = c["finish_reason"] or ends.get(c["index"])
    return texts, ends


def as_stream(path, body):
    if path == "/generate":
        parameters = {k: v for k, v in body["parameters"].items() if k != "decoder_input_details"}
        return "/generate_stream", {**body, "parameters": parameters}
    return path, {**body, "stream": True}


def hostile(dice, port):
    """Bytes that deserve a refusal or no answer at all."""
    head = f"POST /generate HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\n".encode()
    return dice.choice([
        lambda: dice.randbytes(dice.randrange(1, 3000)),
        lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + dice.randbytes(200),
        lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        lambda: head + b"Content-Length: 10\r\n\r\n{\"inp",
        lambda: head + b"Content-Length: 99999999999\r\n\r\n",
        lambda: head + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        lambda: head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        lambda: head + b"Content-Length: 200000\r\n\r\n" + b"[" * 200000,
        lambda: head + b"Content-Length: 30\r\n\r\n" + b'{"inputs":"\xff\xfe bad utf-8"}   '[:30].ljust(30),
        lambda: head + b"X: " + b"a" * 40000 + b"\r\n\r\n",
        lambda: b"GET /" + b"a" * 60000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        lambda: head + "".join(f"h{i}: {i}\r\n" for i in range(2000)).encode() + b"\r\n",
        lambda: (lambda b: head + f"Content-Length: {len(b)}\r\n\r\n".encode() + b)(json.dumps(
            {"inputs": "a", "parameters": {dice.choice(["max_new_tokens", "top_k", "seed", "temperature", "top_p", "best_of"]):
                                           dice.choice([-2, 1e308, 2**63, "3", [], {}])}}).encode()),
    ])()


class Soak:
    def __init__(self, seed, seconds, rate, flags=(), model=attnd_client.TINY_LLAMA):
        self.dice = random.Random(seed)
        self.seconds, self.rate = seconds, rate
        self.model, self.flags = model, [*FLAGS, *flags]
        self.lock = threading.Lock()
        self.ledger, self.faults = {}, []
        self.requests, self.stories = [], []
        self.names = 0

    def count(self, what):
        with self.lock:
            self.ledger[what] = self.ledger.get(what, 0) + 1

    def fault(self, what):
        with self.lock:
            self.faults.append(what)

    # ---- what every request gives alone ----

    def prepare(self, n_requests, n_stories):
        with attnd_client.Server(self.model, *self.flags, env=ENV) as quiet:
            while len(self.requests) < n_requests:
                path, body = make_body(self.dice)
                r = quiet.post(path, body)
                if r.status != 200:
                    raise RuntimeError(f"{path} {body}: {r.status} {r.text}")
                s_path, s_body = as_stream(path, body)
                with quiet.stream(s_path, s_body) as s:
                    streamed = essence_of_stream(s_path, [e.data for e in s])
                self.requests.append((path, body, essence(path, r.json()), s_path, s_body, streamed))
            for i in range(n_stories):
                turns = [words(self.dice, 8) for _ in range(self.dice.randint(2, 12))]
                answers = [self.turn(quiet, f"s{i}", t)[1] for t in turns]
                whole = len([a for a in answers if a is not None])  # the turns behind these would not fit the context
                self.stories.append((turns[:whole], answers[:whole]))

    @staticmethod
    def turn(server, name, text):
        r = server.post("/generate", {"inputs": text, "session_id": name, "create": True, "parameters": {"max_new_tokens": 8}})
        return r.status, r.json().get("generated_text"), r

    # ---- the kinds of client ----

    def refused(self, status, headers):
        if status == 429 and "retry-after" not in headers:
            self.fault("429 without Retry-After")
        self.count(f"status {status}")
        return status == 429

    def whole(self, dice):
        path, body, expected, *_ = dice.choice(self.requests)
        r = self.server.post(path, body)
        if self.refused(r.status, r.headers):
            return
        if r.status != 200 or essence(path, r.json()) != expected:
            self.fault(f"{path} {body}: {r.status} {r.text[:600]} instead of {expected}")
        self.count("whole")

    def streamed(self, dice):
        *_, path, body, expected = dice.choice(self.requests)
        with self.server.stream(path, body) as s:
            if self.refused(s.status, s.headers):
                return
            got = essence_of_stream(path, [e.data for e in s])
            if s.status != 200 or not s.clean or got != expected:
                self.fault(f"stream {path} {body}: {got} instead of {expected}")
        self.count("streamed")

    def leave(self, dice):
        """Leaves at any moment: before, while or after the answer comes; by FIN, by RST, or with the sending side only."""
        entry = dice.choice(self.requests)
        path, body = dice.choice([(entry[0], entry[1]), (entry[3], entry[4])])
        raw = json.dumps({**body, **({"session_id": f"left{dice.randrange(4)}", "create": True}
                                     if dice.random() < 0.3 and "n" not in body else {})}).encode()
        with socket.create_connection((self.server.host, self.server.port), timeout=60) as s:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
            data = head.encode() + raw
            s.sendall(data if dice.random() < 0.9 else data[: dice.randrange(len(data))])
            time.sleep(dice.choice([0, 0.001, 0.01, 0.05, 0.2]) * dice.random())
            how = dice.randrange(3)
            if how == 0:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif how == 1:
                s.shutdown(socket.SHUT_WR)
                time.sleep(0.3)
        self.count("left")

    def slow(self, dice):
        """Reads a few bytes at a time, or stops reading; the server may cut it, others must not notice."""
        body = {"prompt": "slow", "max_tokens": 200, "ignore_eos": True, "stream": True, "n": 2, "logprobs": 5}
        raw = json.dumps(body).encode()
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            s.settimeout(60)
            s.connect((self.server.host, self.server.port))
            s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n"
                      "Content-Type: application/json\r\n\r\n".encode() + raw)
            end = time.monotonic() + dice.uniform(0.5, 4)
            while time.monotonic() < end and s.recv(512):
                time.sleep(0.05)
        self.count("slow")

    def late(self, dice):
        path, body, expected, *_ = dice.choice(self.requests)
        r = self.server.post(path, {**body, "deadline_ms": dice.choice([1, 2, 5, 10, 30])})
        if self.refused(r.status, r.headers):
            return
        if r.status not in (200, 504) or (r.status == 200 and essence(path, r.json()) != expected):
            self.fault(f"with a deadline: {path} {body}: {r.status} {r.text[:600]} instead of {expected}")
        self.count("late")

    def story(self, dice):
        """A session: every turn equals the one of the session that was alone. A turn refused for load is tried again."""
        turns, answers = dice.choice(self.stories)
        with self.lock:
            self.names += 1
            name = f"story{self.names}"
        for text, expected in zip(turns, answers):
            for _ in range(200):
                status, got, r = self.turn(self.server, name, text)
                if not self.refused(status, r.headers):
                    break
                time.sleep(0.3)
            if status != 200 or got != expected:
                self.fault(f"session {name}, turn {text!r}: {status} {r.text[:300]} instead of {expected!r}")
                return
            time.sleep(dice.random() * 0.05)
        if self.server.delete(f"/v1/sessions/{name}").status != 204:
            self.fault(f"session {name} was not there to delete")
        self.count("story")

    def crowd(self, dice):
        """Turns of one session at once, and its deletion in the middle: answers, or 404 once it is gone; never anything else."""
        name = f"crowd{dice.randrange(3)}"
        if dice.random() < 0.2:
            status = self.server.delete(f"/v1/sessions/{name}").status
            allowed = (204, 404)
        else:
            status, _, r = self.turn(self.server, name, words(dice, 3))
            allowed = (200, 404, 422, 429)  # 422: the session has outgrown the context
        if status not in allowed:
            self.fault(f"crowd on {name}: {status}")
        self.count("crowd")

    def attack(self, dice):
        with socket.create_connection((self.server.host, self.server.port), timeout=60) as s:
            got = b""
            try:
                s.sendall(hostile(dice, self.server.port))
                s.shutdown(socket.SHUT_WR)
                while True:
                    part = s.recv(65536)
                    if not part:
                        break
                    got += part
            except OSError:  # cut in the middle: as good as refused
                pass
        if got and (not got.startswith(b"HTTP/1.1 ") or int(got.split()[1]) not in REFUSED):
            self.fault(f"hostile bytes were answered {got[:200]!r}")
        self.count("hostile")

    def look(self, dice):
        status = self.server.get(dice.choice(["/metrics", "/health", "/info", "/v1/sessions", "/v1/models"])).status
        if status != 200:
            self.fault(f"a look gave {status}")
        self.count("look")

    # ---- the run ----

    def one(self, kind, seed):
        try:
            kind(random.Random(seed))
        except Exception as e:  # noqa: BLE001: all of them are reported together
            self.fault(f"{kind.__name__}: {e!r}")

    def arrivals(self, end):
        kinds = [(self.whole, 25), (self.streamed, 30), (self.leave, 12), (self.attack, 5), (self.late, 6), (self.story, 6),
                 (self.crowd, 6), (self.slow, 2), (self.look, 8)]
        threads, marks = [], []
        while time.monotonic() < end and not self.faults:
            time.sleep(self.dice.expovariate(self.rate))
            threads = [t for t in threads if t.is_alive()]
            if len(threads) < MOST_AT_ONCE:
                kind = self.dice.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
                t = threading.Thread(target=self.one, args=(kind, self.dice.random()))
                t.start()
                threads.append(t)
            marks.append((time.monotonic(), self.server.rss_bytes()))
        for t in threads:
            t.join()
        return marks

    def idle(self, kept_too=True):
        """Waits until nothing runs and every page is free, or with kept_too free or kept. Returns the metrics."""
        end = time.monotonic() + attnd_client.TIMEOUT
        while True:
            m = self.server.metrics()
            if m["attnd_requests_running"] == m["attnd_requests_waiting"] == 0 and \
                    m["attnd_kv_pages_free"] + kept_too * m["attnd_kv_pages_kept"] == m["attnd_kv_pages"]:
                return m
            if time.monotonic() > end:
                self.fault(f"not idle: { {k: v for k, v in m.items() if 'pages' in k or 'requests' in k} }")
                return m
            time.sleep(0.05)

    def check_books(self, fds, marks):
        m = self.idle()
        ended = sum(v for k, v in m.items() if k.startswith("attnd_requests_finished_total"))
        if m["attnd_requests_admitted_total"] != ended:
            self.fault(f"{m['attnd_requests_admitted_total']} admitted, {ended} ended")
        if m['attnd_requests_finished_total{reason="error"}'] != 0:
            self.fault("the engine counted errors")
        for s in self.server.get("/v1/sessions").json()["data"]:
            self.server.delete(f"/v1/sessions/{s['id']}")
        self.idle(kept_too=False)
        self.server.wait_fds(fds)
        fifth = len(marks) // 5
        if self.seconds >= 60 and fifth > 0:
            early, late = (sorted(rss for _, rss in part)[len(part) // 2] for part in (marks[fifth : 2 * fifth], marks[-fifth:]))
            print(f"memory: {early >> 10} KiB early, {late >> 10} KiB late")
            if late - early > 4 << 20:
                self.fault(f"memory grew from {early} to {late} bytes")
        errors = [line for line in self.server.lines if " error " in line]
        if errors:
            self.fault(f"logged: {errors[:5]}")

    def run(self, n_requests=60, n_stories=8):
        """Returns the faults found; none: []."""
        self.prepare(n_requests, n_stories)
        with attnd_client.Server(self.model, *self.flags, env=ENV) as self.server:
            for kind in (self.whole, self.streamed, self.look, self.attack):
                self.one(kind, 0)
            self.idle()
            fds = self.server.fds()
            marks = self.arrivals(time.monotonic() + self.seconds)
            self.check_books(fds, marks)
            if self.faults:
                print(self.server.log()[-attnd_client.LOG_TAIL :])
        return self.faults


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--seconds", type=float, default=240)
    p.add_argument("--seed", type=int, default=int(time.time()))
    p.add_argument("--rate", type=float, default=40, help="arrivals a second")
    args = p.parse_args()
    print(f"seed {args.seed}", flush=True)
    soak = Soak(args.seed, args.seconds, args.rate)
    faults = soak.run()
    print(", ".join(f"{v} {k}" for k, v in sorted(soak.ledger.items())))
    for f in faults[:20]:
        print(f"FAULT: {f}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
