"""/metrics: every line parses, every family is there from the first scrape, counters only grow, and after a known set of
requests they equal the client's own ledger."""

import re
import socket
import time

import attnd_client

SAMPLE = re.compile(r"([a-z_:][a-z0-9_:]*)(\{([a-z_]+=\"[^\"\\\n]*\"(,[a-z_]+=\"[^\"\\\n]*\")*)\})? (\S+)$")
LABEL = re.compile(r'([a-z_]+)="([^"]*)"')

GAUGES = """requests_waiting requests_running kv_cache_usage_ratio cache_config_info kv_pages kv_pages_free kv_pages_kept
    sessions sessions_resident parsing_bytes batch_tokens batch_sequences weights_bytes kv_bytes scratch_bytes build_info"""
COUNTERS = """steps_total prompt_tokens_total prompt_tokens_cached_total generation_tokens_total requests_admitted_total
    requests_refused_total requests_finished_total sessions_evicted_total"""
HISTOGRAMS = """time_to_first_token_seconds inter_token_latency_seconds e2e_request_latency_seconds request_queue_time_seconds
    request_prefill_time_seconds request_decode_time_seconds step_tokens"""
FAMILIES = {
    **{f"attnd_{name}": "gauge" for name in GAUGES.split()},
    **{f"attnd_{name}": "counter" for name in COUNTERS.split()},
    **{f"attnd_{name}": "histogram" for name in HISTOGRAMS.split()},
    "process_resident_memory_bytes": "gauge",
    "process_open_fds": "gauge",
    "process_cpu_seconds_total": "counter",
}


def parse(text):
    """{family: (type, {(sample name, ((label, value), ...)): number})}; raises ValueError at the first line out of form."""
    families, current = {}, None
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    for number, line in enumerate(text[:-1].split("\n"), 1):
        words = line.split(" ", 3)
        if line.startswith("# HELP "):
            if words[2] in families or len(words) < 4 or not words[3]:
                raise ValueError(f"line {number}: {line}")
            current = words[2]
            families[current] = [None, {}]
        elif line.startswith("# TYPE "):
            if words[2] != current or families[current][0] is not None or words[3] not in ("gauge", "counter", "histogram"):
                raise ValueError(f"line {number}: {line}")
            families[current][0] = words[3]
        else:
            match = SAMPLE.match(line)
            if not match or families[current][0] is None:
                raise ValueError(f"line {number}: {line}")
            name, value = match.group(1), float(match.group(5))
            kinds = ("_bucket", "_sum", "_count") if families[current][0] == "histogram" else ("",)
            if name not in [current + k for k in kinds] or value != value:
                raise ValueError(f"line {number}: {line}")
            key = (name, tuple(LABEL.findall(match.group(3) or "")))
            if key in families[current][1]:
                raise ValueError(f"line {number} comes twice: {line}")
            families[current][1][key] = value
    return {name: tuple(v) for name, v in families.items()}


class Metrics(attnd_client.ServerTest):
    flags = ["--max-sequences", "4"]

    def scrape(self):
        r = self.get("/metrics")
        self.assertEqual(200, r.status)
        self.assertRegex(r.headers["content-type"], r"^text/plain; version=0\.0\.4")
        return parse(r.text)

    def check(self, families):
        for name, (kind, samples) in families.items():
            self.assertTrue(samples, f"{name} has no sample")
            self.assertEqual(kind == "counter", name.endswith("_total"), name)
            for (sample, labels), value in samples.items():
                self.assertGreaterEqual(value, 0, sample)
            if kind == "histogram":
                buckets = [(float(dict(l)["le"].replace("+Inf", "inf")), v) for (s, l), v in samples.items() if s == name + "_bucket"]
                self.assertEqual(sorted(buckets), buckets, name)
                self.assertEqual(sorted(v for _, v in buckets), [v for _, v in buckets], name)
                self.assertEqual(float("inf"), buckets[-1][0], name)
                self.assertEqual(samples[(name + "_count", ())], buckets[-1][1], name)
                self.assertGreater(len(buckets), 5, f"{name}: too few buckets to see anything")

    def test_first_scrape_has_every_family(self):
        families = self.scrape()
        self.check(families)
        for name, kind in FAMILIES.items():
            self.assertIn(name, families)
            self.assertEqual(kind, families[name][0], name)
        reasons = {dict(labels)["reason"] for _, labels in families["attnd_requests_finished_total"][1]}
        self.assertEqual({"stop", "length", "cancelled", "deadline", "error"}, reasons)
        ((_, labels),) = families["attnd_cache_config_info"][1]
        labels = dict(labels)
        self.assertGreaterEqual(int(labels["block_size"]), 32)
        self.assertEqual(int(labels["num_gpu_blocks"]), self.metrics()["attnd_kv_pages"])

    def test_counters_equal_the_ledger_and_only_grow(self):
        before, m0 = self.scrape(), self.assert_idle()
        prompt = generated = length = 0
        for i in range(12):
            r = self.post("/v1/completions", {"prompt": "a b c " * (i + 1), "max_tokens": i + 1, "temperature": 0, "ignore_eos": True})
            self.assertEqual(200, r.status, r.text)
            usage = r.json()["usage"]
            prompt += usage["prompt_tokens"]
            generated += usage["completion_tokens"]
            length += r.json()["choices"][0]["finish_reason"] == "length"
            self.assertEqual(i + 1, usage["completion_tokens"])
        refused = self.post("/v1/completions", {"prompt": "a", "max_tokens": 100000})
        self.assert_error(refused, 400)
        m1 = self.assert_idle()
        grown = {name: m1[name] - m0[name] for name in m1 if name in m0}
        self.assertEqual(12, length)
        self.assertEqual(12, grown['attnd_requests_finished_total{reason="length"}'])
        self.assertEqual(12, grown["attnd_requests_admitted_total"])
        self.assertEqual(prompt, grown["attnd_prompt_tokens_total"])
        self.assertEqual(generated, grown["attnd_generation_tokens_total"])
        for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds"):
            self.assertEqual(12, grown[f"attnd_{name}_count"], name)
            self.assertGreater(grown[f"attnd_{name}_sum"], 0, name)
        self.assertEqual(generated - 12, grown["attnd_inter_token_latency_seconds_count"])
        self.assertGreater(grown["attnd_steps_total"], 0)
        self.assertEqual(0, m1["attnd_kv_cache_usage_ratio"])
        after = self.scrape()
        self.check(after)
        for name, (kind, samples) in after.items():
            for key, value in samples.items():
                if kind == "counter" or kind == "histogram":
                    self.assertGreaterEqual(value, before[name][1][key], key)

    def test_a_running_request_shows(self):
        with self.stream("/v1/completions", {"prompt": "a", "max_tokens": 200, "stream": True, "ignore_eos": True}) as s:
            next(iter(s))
            m = self.metrics()
            self.assertEqual(1, m["attnd_requests_running"])
            self.assertGreater(m["attnd_kv_cache_usage_ratio"], 0)
            self.assertLessEqual(m["attnd_kv_cache_usage_ratio"], 1)
        self.assert_idle()
        self.assertEqual(0, self.metrics()["attnd_kv_cache_usage_ratio"])

    def test_a_client_that_left_is_counted_as_cancelled(self):
        name = 'attnd_requests_finished_total{reason="cancelled"}'
        before = self.metrics()[name]
        s = self.stream("/v1/completions", {"prompt": "a", "max_tokens": 200, "stream": True, "ignore_eos": True, "n": 2})
        next(iter(s))
        s.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        s.close()
        deadline = time.monotonic() + attnd_client.TIMEOUT
        while self.metrics()[name] == before and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertGreater(self.metrics()[name], before)
        self.assert_idle()

    def test_head_has_no_body(self):
        r = self.request("HEAD", "/metrics")
        self.assertEqual((200, b""), (r.status, r.body))


if __name__ == "__main__":
    attnd_client.main()
