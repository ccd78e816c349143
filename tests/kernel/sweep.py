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

"""Pings a station with every size of a range, several at once, and compares
each reply byte for byte.  Exit status 1, and the sizes, if any is missing.

    sweep.py [--interface NAME] ADDRESS FIRST LAST"""

import argparse
import ipaddress
import os
import random
import select
import socket
import struct
import sys
import time

from packets import checksum

WINDOW = 8                      # so many on their way
PATIENCE = 1.0                  # seconds until a ping counts as lost
TRIES = 4

IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2
IPV6_MTU_DISCOVER, IPV6_DONTFRAG = 23, 62


class Sweep:
    def __init__(self, address, interface):
        self.six = ipaddress.ip_address(address).version == 6
        self.ident = os.getpid() & 0xFFFF
        self.where = (address, 0)
        if self.six:
            scope = socket.if_nametoindex(interface) if interface else 0
            self.where = (address, 0, 0, scope)
            self.socket = socket.socket(socket.AF_INET6, socket.SOCK_RAW,
                                        socket.IPPROTO_ICMPV6)
            self.socket.setsockopt(socket.IPPROTO_IPV6, IPV6_DONTFRAG, 1)
            self.request, self.reply = 128, 129
        else:
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_RAW,
                                        socket.IPPROTO_ICMP)
            self.socket.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER,
                                   IP_PMTUDISC_DO)
            self.request, self.reply = 8, 0
        self.data, self.sent, self.tries, self.wrong = {}, {}, {}, {}

    def send(self, size):
        head = struct.pack(">BBHHH", self.request, 0, 0, self.ident, size)
        body = self.data.setdefault(size, random.randbytes(size))
        self.sent[size] = time.monotonic()
        self.tries[size] = self.tries.get(size, 0) + 1
        packet = head + body
        if not self.six:        # for ICMPv6 the kernel does it
            packet = (head[:2] + struct.pack(">H", checksum(packet)) +
                      packet[4:])
        try:
            self.socket.sendto(packet, self.where)
        except OSError as error:
            self.wrong[size] = str(error)
            del self.sent[size]

    def receive(self):
        packet = self.socket.recv(65536)
        if not self.six:
            packet = packet[(packet[0] & 15) * 4:]
        kind, _, _, ident, size = struct.unpack(">BBHHH", packet[:8])
        if kind != self.reply or ident != self.ident or size not in self.sent:
            return
        del self.sent[size]
        if packet[8:] != self.data[size]:
            self.wrong[size] = f"the reply differs ({len(packet) - 8} bytes)"

    def run(self, sizes):
        todo = list(sizes)
        while todo or self.sent:
            while todo and len(self.sent) < WINDOW:
                self.send(todo.pop(0))
            if select.select([self.socket], [], [], 0.05)[0]:
                self.receive()
            late = time.monotonic() - PATIENCE
            for size in [s for s, at in self.sent.items() if at < late]:
                if self.tries[size] < TRIES:
                    self.send(size)
                else:
                    del self.sent[size]
                    self.wrong[size] = "no reply"
        return self.wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interface")
    parser.add_argument("address")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    options = parser.parse_args()
    sweep = Sweep(options.address, options.interface)
    wrong = sweep.run(range(options.first, options.last + 1))
    for size, why in sorted(wrong.items())[:20]:
        print(f"{size} bytes: {why}")
    again = sum(sweep.tries.values()) - len(sweep.tries)
    print(f"{len(sweep.tries) - len(wrong)} of {len(sweep.tries)} sizes "
          f"answered, {again} pings repeated")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
