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

"""Judges what the conformance suite printed (TAP): every case passes, but for
those that a file names, and each of those is named again here, so that the
file shrinks.  See tests/conformance/run."""

import argparse
import fnmatch
import pathlib
import re
import sys


def read_cases(path):
    """{case: tags}, from the suite's --list."""
    pattern = re.compile(r"(\S+)  \[(.*)\]$")
    found = (pattern.match(line) for line in open(path))
    return {m[1]: m[2].split(", ") for m in found if m}


def read_known(path):
    """{case: why}: lines of a name and, after a '#', the reason."""
    known = {}
    for line in pathlib.Path(path).read_text().splitlines():
        name, _, why = line.partition("#")
        if name.strip():
            known[name.strip()] = why.strip()
    return known


def read_tap(path):
    """[(case, result, reason, details)], the plan, and why it bailed out."""
    results, plan, bail = [], 0, None
    for line in pathlib.Path(path).read_text(errors="replace").splitlines():
        if m := re.match(r"1\.\.(\d+)", line):
            plan = int(m[1])
        elif m := re.match(r"(ok|not ok) \d+ - (\S+)(?: # (.*))?$", line):
            result, name, reason = m[1], m[2], m[3] or ""
            if reason.startswith("SKIP"):
                result, reason = "skip", reason[5:]
            results.append((name, result, reason, []))
        elif line.startswith("Bail out!"):
            bail = line[9:].strip()
        elif line.startswith("  ") and results:
            results[-1][3].append(line)
    return results, plan, bail


class Judge:
    def __init__(self, cases, known, passed, failed, skipped):
        self.cases, self.known = cases, known
        self.passed, self.failed, self.skipped = passed, failed, skipped
        self.expected, self.good = {}, {}

    def fail(self, name, reason, details=()):
        self.failed += 1
        print(f"FAIL {name}: {reason}")
        for line in details:
            print(f"     {line.strip()}")

    def run(self, path):
        results, plan, bail = read_tap(path)
        part = pathlib.Path(path).stem
        for name, result, reason, details in results:
            label = f"{part}: {name}"
            if result == "skip":
                self.skip(label, name, reason, part)
            elif result == "ok":
                self.passed += 1
                self.good.setdefault(name, []).append(part)
                print(f"PASS {label}")
            elif name in self.known:
                self.expected.setdefault(name, []).append((part, reason))
            else:
                self.fail(label, reason, details)
        if bail or not plan:
            self.fail(part, bail or "the suite printed no plan")
        if len(results) < plan:
            self.fail(part, f"{plan - len(results)} of {plan} cases "
                      "did not run")

    def skip(self, label, name, reason, part):
        """Only what needs another kind of run may be left out of this one."""
        tags = self.cases.get(name, [])
        if ("control" in tags and not part.startswith("serve") or
                {"vlan", "pkey"} & set(tags)):
            self.skipped += 1
            print(f"SKIP {label}: {reason}")
        elif name in self.known:
            self.expected.setdefault(name, []).append((part, reason))
        else:
            self.fail(label, f"it was skipped: {reason}")

    def conclude(self):
        for name, runs in sorted(self.expected.items()):
            parts = ", ".join(part for part, _ in runs)
            print(f"KNOWN {name} ({parts}): {runs[0][1]}"
                  f" [{self.known[name]}]")
        for name in sorted(set(self.good) & set(self.known) -
                           set(self.expected)):
            print(f"note: {name} passes; strike it off known-failures")
        for name in sorted(self.known):
            if not any(fnmatch.fnmatch(case, name) for case in self.cases):
                print(f"note: {name} of known-failures is no case")
        if self.expected:
            print(f"{len(self.expected)} cases fail as known-failures says")
        print(f"{self.passed} passed, {self.failed} failed, "
              f"{self.skipped} skipped")
        return 1 if self.failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--known", required=True)
    parser.add_argument("--list", required=True)
    parser.add_argument("--checks", default="0,0,0",
                        help="passed,failed,skipped so far")
    parser.add_argument("tap", nargs="+")
    options = parser.parse_args()
    judge = Judge(read_cases(options.list), read_known(options.known),
                  *map(int, options.checks.split(",")))
    for path in options.tap:
        judge.run(path)
    return judge.conclude()


if __name__ == "__main__":
    sys.exit(main())
