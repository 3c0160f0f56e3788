#!/usr/bin/env python3
"""Reads our event files with TensorBoard's own reader.

    python3 -m venv .venv-golden
    .venv-golden/bin/pip install tensorboard==2.21.0
    ATOLL_TENSORBOARD_GOLDEN=DIRECTORY build/release/src/atoll/watch_test --gtest_filter='*Library*'
    .venv-golden/bin/python tools/golden/tensorboard_oracle.py DIRECTORY

The test writes a run of the steps 0..19, and goes on after step 9 with steps 10..14 under another
loss: the reader must show steps 0..14, each once, with the later values.
"""

import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def main():
    accumulator = EventAccumulator(sys.argv[1])
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    assert sorted(tags) == ["eval/loss", "train/loss", "train/tokens"], tags
    for tag, of_step in (
        ("train/loss", lambda step: 0.5 * step + (100 if step >= 10 else 0)),
        ("train/tokens", lambda step: 1024 * step),
    ):
        events = accumulator.Scalars(tag)
        assert [event.step for event in events] == list(range(15)), events
        for event in events:
            assert event.value == of_step(event.step), event
            assert event.wall_time == 1000.25 + event.step, event
    print(f"{sys.argv[1]}: TensorBoard reads it")


if __name__ == "__main__":
    main()
