"""What charts and drawings make of a page; `python3 -m unittest discover -s tools/docs -p '*_test.py'`."""

import pathlib
import re
import tempfile
import unittest

import charts
import drawings

TABLE = """
Words before.

| codec | GB/s | before, after | |
|---|---|---|---|
| `f32` | 1,021.5 (9) | 4.80, .59 ms | x |
| e3m0 | -3e-2 | n/a | y |
"""


class Charts(unittest.TestCase):
    def test_a_cell_is_read_by_the_place_of_the_number(self):
        self.assertEqual(charts.number("1,021.5 (9)"), 1021.5)
        self.assertEqual(charts.number("4.80, .59 ms", 2), 0.59)
        self.assertEqual(charts.number("**84, 83**"), 84)
        self.assertEqual(charts.number("10938 (10342-11071)", 3), 11071)
        self.assertIsNone(charts.number("n/a"))
        self.assertIsNone(charts.number("4.80", 2))

    def test_bars_say_the_numbers_of_the_table(self):
        svg = charts.chart("bars; of: GB/s | before, after (2) as ms; by: codec", TABLE)
        self.assertEqual(re.findall(r'class="value">([^<]*)<', svg), ["1,021.5", "0.59", "-0.03"])
        self.assertIn(">f32<", svg)

    def test_bars_are_as_long_as_their_numbers(self):
        svg = charts.chart("bars; of: v; by: k", "| k | v |\n|---|---|\n| a | 2 |\n| b | 8 |\n")
        short, long = (float(w) for w in re.findall(r'width="([\d.]+)" height="14"', svg))
        self.assertAlmostEqual(long / short, 4, places=1)

    def test_what_the_table_does_not_have_is_an_error(self):
        for mark, part in [
            ("bars; of: GiB/s; by: codec", "GiB/s"),
            ("bars; of: codec; by: GB/s", "no numbers"),
            ("pie; of: GB/s; by: codec", "pie"),
            ("bars; of: GB/s", "`by`"),
        ]:
            with self.assertRaisesRegex(ValueError, part):
                charts.chart(mark, TABLE)
        with self.assertRaisesRegex(ValueError, "no table"):
            charts.chart("bars; of: a; by: b", "text")


class Lanes(unittest.TestCase):
    def drawn(self, text):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "x.lanes").write_text(text)
            return drawings.drawing(pathlib.Path(folder), "x")

    def test_messages_and_notes_are_written(self):
        svg = self.drawn("// t\nlanes: one | two\none, two: note\none -> two: Ready: 1\n")
        self.assertEqual(svg.count('class="note"'), 2)
        self.assertIn(">Ready: 1<", svg)
        self.assertEqual(svg.count('class="head"'), 1)

    def test_a_lane_that_is_not_there_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "three"):
            self.drawn("// t\nlanes: one | two\none -> three: Ready\n")
        with self.assertRaisesRegex(ValueError, "there is no"):
            drawings.drawing(pathlib.Path("."), "nothing")


if __name__ == "__main__":
    unittest.main()
