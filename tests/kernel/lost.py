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

"""What became of pings through the gateway.

    lost.py PINGS MAX [CAPTURE [GATEWAY-MAX]]

PINGS has the output of "ping -n" of both ends, each line behind the address
that was pinged, whose last number is 1 for Linux and 2 for the Ethernet host.
Of each ping at most MAX may have no answer; the last ones must have one.

CAPTURE is a capture of the fabric of that time, which tells who has lost them:
if there is one, the gateway must have lost none, or GATEWAY-MAX.  All that the Ethernet host
has sent is on the fabric; all that Linux has put there came to the Ethernet
host, whose answers are on the fabric as well."""

import ipaddress
import re
import struct
import sys

TAIL = 50               # Answers that may be under way at the end.
PINGS_MIN = 100


class Ping:
    def __init__(self):
        self.sent, self.answers, self.twice = 0, set(), 0


def read_pings(name):
    pings = {}
    with open(name, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            address, _, rest = line.partition(" ")
            ping = pings.setdefault(address, Ping())
            if found := re.search(r"bytes from .*seq=(\d+)", rest):
                seq = int(found[1])
                ping.twice += seq in ping.answers
                ping.answers.add(seq)
            elif found := re.match(r"(\d+) packets transmitted", rest):
                ping.sent = int(found[1])
    return pings


def read_echo(packet):
    """(source, target, is answer, sequence number), or None: of a packet from
    the LRH on."""
    at = 8 + (40 if packet[1] & 3 == 3 else 0) + 12 + 8 + 4
    kind, ip = packet[at - 4:at - 2], packet[at:]
    if kind == b"\x08\x00" and len(ip) >= 28 and ip[9] == 1:
        source, target, icmp, types = ip[12:16], ip[16:20], ip[20:], (8, 0)
    elif kind == b"\x86\xdd" and len(ip) >= 48 and ip[6] == 58:
        source, target, icmp, types = ip[8:24], ip[24:40], ip[40:], (128, 129)
    else:
        return None
    if icmp[0] not in types:
        return None
    return (str(ipaddress.ip_address(source)),
            str(ipaddress.ip_address(target)), icmp[0] == types[1],
            struct.unpack(">H", icmp[6:8])[0])


def read_capture(name):
    """Sequence numbers of requests to, and of answers from, an address."""
    requests, answers = {}, {}
    with open(name, "rb") as capture:
        data = capture.read()
    at = 24
    while at + 16 <= len(data):
        size, = struct.unpack("<I", data[at + 8:at + 12])
        found = read_echo(data[at + 16 + 16:at + 16 + size])
        at += 16 + size
        if found:
            source, target, is_answer, seq = found
            if is_answer:
                answers.setdefault(source, set()).add(seq)
            else:
                requests.setdefault(target, set()).add(seq)
    return requests, answers


def lost_by_gateway(address, ping, requests, answers):
    """How many requests, and how many answers."""
    if address.endswith("1"):           # The Ethernet host's.
        last = max(ping.answers, default=0)
        return (len(set(range(1, ping.sent + 1)) - requests),
                len({s for s in answers if s <= last} - ping.answers))
    return 0, len(requests - answers)


def main():
    pings, limit = read_pings(sys.argv[1]), int(sys.argv[2])
    capture = read_capture(sys.argv[3]) if len(sys.argv) > 3 else None
    gateway_limit = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    good = len(pings) == 4
    for address, ping in sorted(pings.items()):
        last = max(ping.answers, default=0)
        lost = last - len(ping.answers)
        print(f"{address}: {ping.sent} sent, {lost} lost, {ping.twice} twice, "
              f"{ping.sent - last} under way", end="")
        good &= (ping.sent >= PINGS_MIN and lost <= limit
                 and ping.sent - last <= TAIL)
        if capture:
            there, back = lost_by_gateway(
                address, ping, *(c.get(address, set()) for c in capture))
            print(f"; the gateway lost {there} and {back}", end="")
            good &= there + back <= gateway_limit and not ping.twice
        print()
    return not good


if __name__ == "__main__":
    sys.exit(main())
