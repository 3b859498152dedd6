"""A few seconds of tests/soak/soak.py: requests of every kind at random moments, every whole answer equal to the one it has
alone, and the books balanced after. ./dev soak runs it for longer."""

import os
import sys
import unittest

import attnd_client

sys.path.insert(0, os.path.join(attnd_client.ROOT, "tests", "soak"))
import soak  # noqa: E402


class ShortSoak(unittest.TestCase):
    def test_a_few_seconds(self):
        s = soak.Soak(seed=11, seconds=6, rate=30)
        self.assertEqual([], s.run(n_requests=30, n_stories=4))
        for kind in ("whole", "streamed", "left", "hostile", "crowd"):
            self.assertGreater(s.ledger.get(kind, 0), 0, s.ledger)


if __name__ == "__main__":
    attnd_client.main()
