#!/usr/bin/env python3
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at:
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""How long pings were without an answer.

    ping-silence.py OUTPUT-OF-PING MS

The pings are a hundred a second ("ping -i 0.01"), and the silence is counted in
pings: those that were sent since the last one that is answered, 10 ms each.  So
the time for which the machine did not run ping itself does not count.  Fails if
there was a longer silence than MS, if the last half second had no answer, or if
nearly nothing was sent."""

import re
import sys

INTERVAL = 10                   # ms
ANSWER = r"^\[([0-9.]+)\] .*icmp_seq=(\d+) .*time=([0-9.]+) ms"


def silence(answers):
    """The most pings that had been sent, when an answer came, since the last
    one that was answered before."""
    worst = answered = sent = 0
    by_sending = sorted(answers, key=lambda answer: answer[1])
    for when, seq, _ in sorted(answers):
        while by_sending and by_sending[0][2] <= when:
            sent = max(sent, by_sending.pop(0)[1])
        if answered:
            worst = max(worst, max(sent, seq) - answered - 1)
        answered = max(answered, seq)
    return worst, answered


def main():
    name, limit = sys.argv[1], int(sys.argv[2])
    with open(name) as f:
        text = f.read()
    answers = []
    for match in re.finditer(ANSWER, text, re.M):
        when, rtt = float(match[1]), float(match[3]) / 1000
        answers.append((when, int(match[2]), when - rtt))
    sent = int(re.search(r"^(\d+) packets transmitted", text, re.M)[1])
    worst, answered = silence(answers)
    worst, last = worst * INTERVAL, (sent - answered) * INTERVAL
    print(f"{name}: {len(answers)} answers, silent for {worst} ms, "
          f"in the end for {last} ms")
    if worst >= limit or last >= 500 or len(answers) <= 50:
        sys.exit(1)


if __name__ == "__main__":
    main()
