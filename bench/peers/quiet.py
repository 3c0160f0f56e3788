"""Measures when nobody else uses the CPUs: a shared machine is quiet between its other work."""

import os
import resource
import time

TICKS = os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """CPU seconds, of all CPUs, that somebody has used, or that the host has taken away."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


def own_seconds():
    """CPU seconds of this process and of what it has started and seen end."""
    return sum(usage.ru_utime + usage.ru_stime for usage in
               map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def add_options(parser):
    parser.add_argument("--others", type=float, default=0.05,
                        help="share of the CPUs that others may take during a run; else it is "
                             "repeated")
    parser.add_argument("--patience", type=float, default=3600,
                        help="seconds of waiting and repeating, for each model")


class Quiet:
    """Repeats what was disturbed. `most` is the share of all CPUs that others may take meanwhile;
    after `patience` seconds in all, things are taken as they are, and `worst` tells."""

    def __init__(self, most, patience):
        self.most, self.deadline = most, time.monotonic() + patience
        self.worst, self.repeated = 0.0, 0

    def measure(self, action):
        while True:
            self._await_quiet()
            begin, busy, own = time.monotonic(), busy_seconds(), own_seconds()
            result = action()
            wall = time.monotonic() - begin
            others = busy_seconds() - busy - (own_seconds() - own)
            share = max(0.0, others) / (wall * os.cpu_count())
            if share <= self.most or time.monotonic() > self.deadline:
                self.worst = max(self.worst, share)
                return result
            self.repeated += 1

    def _await_quiet(self):
        while time.monotonic() < self.deadline:
            before = busy_seconds()
            time.sleep(1)
            if busy_seconds() - before <= 1.5 * self.most * os.cpu_count():
                return

    def __str__(self):
        return (f"others took {100 * self.worst:.1f}% of the CPUs at most; "
                f"{self.repeated} disturbed runs were repeated")
