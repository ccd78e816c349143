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

"""How long it took until pings were answered again.

    ping-gap.py OUTPUT-OF-PING-D TIME SECONDS

Fails unless pings were answered before TIME, again within SECONDS after it, and
mostly from then on."""

import re
import sys


def main():
    name, now, limit = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    with open(name) as f:
        answers = [float(m.group(1)) for m in
                   re.finditer(r"^\[([0-9.]+)\] \d+ bytes from.*icmp_seq",
                               f.read(), re.M)]
    before = [t for t in answers if t < now]
    after = [t for t in answers if t >= now]
    if not before:
        sys.exit(f"{name}: no answer before")
    if not after:
        sys.exit(f"{name}: no answer after")
    gap = after[0] - now
    outage = after[0] - before[-1]
    print(f"{name}: answered again after {gap:.2f} s, "
          f"silent for {outage:.2f} s")
    if gap > limit:
        sys.exit(f"{name}: answered again after {gap:.2f} s only")
    if len(after) < 0.8 * 10 * (after[-1] - after[0]):
        sys.exit(f"{name}: {len(after)} answers in "
                 f"{after[-1] - after[0]:.2f} s")
    # The pings stop at about 2 s after the limit.
    if after[-1] < now + limit + 1:
        sys.exit(f"{name}: the last answer was at {after[-1] - now:.2f} s")


if __name__ == "__main__":
    main()
