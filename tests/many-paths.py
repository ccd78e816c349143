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

"""Lets a gateway need many paths and groups.

    many-paths.py --fabric unix:PATH|udp:ADDR:PORT --interface NAME
                  --guid FIRST --paths N --groups N

Plays some hosts on an Ethernet interface, and N IPoIB stations, whose GUIDs, from
FIRST on, are those of ports that only the subnet manager knows.  Each station
asks for a host by ARP, once; the host sends it a packet, for which the gateway
needs a path.  The hosts also send a packet to half of N multicast groups, and
report that they are members of the other half.  They go on with that, once a
second, until they are killed; the stations say no more."""

import argparse
import ipaddress
import struct
import time

import crowd
from packets import checksum

HOSTS = 20              # The gateway takes only so much from one.
HOST_IP = ipaddress.ip_address("10.200.0.1").packed[:3]
HOST_MAC = b"\x52\x54\x00\x00\x00"
STATIONS = ipaddress.ip_address("10.201.0.0")
GROUPS = ipaddress.ip_address("239.77.0.0")
BURST = 50


def ip_packet(source, target, protocol, body, options=b""):
    size = 20 + len(options)
    head = struct.pack(">BBHHHBBH4s4s", 0x40 | size // 4, 0, size + len(body),
                       0, 0, 1, protocol, 0, source, target) + options
    return head[:10] + struct.pack(">H", checksum(head)) + (
        head[12:] + body)


def host_ip(i):
    return HOST_IP + bytes([i % HOSTS + 1])


def host_mac(i):
    return HOST_MAC + bytes([i % HOSTS + 1])


def group_mac(group):
    return b"\x01\x00\x5e" + bytes((group[1] & 0x7F, group[2], group[3]))


class Scale:
    def __init__(self, options):
        self.ethernet = crowd.Ethernet(options.interface)
        self.fabric = crowd.Fabric(options.fabric)
        self.prefix = self.fabric.gid[:8]
        self.first, self.n = int(options.guid, 16), options.paths
        self.standins = {}

    def ask(self, i):
        """Station 'i' asks for its host."""
        qpn = 0x1000 + i
        address = b"\0" + qpn.to_bytes(3, "big") + self.prefix + (
            (self.first + i).to_bytes(8, "big"))
        self.fabric.broadcast(qpn, struct.pack(">HH", crowd.ETH_ARP, 0) + (
            crowd.arp(32, 20, 1, address, (STATIONS + i).packed, bytes(20),
                      host_ip(i))))

    def answer_to(self, i):
        body = struct.pack(">HHHH", 7000, 7000, 8, 0)
        self.ethernet.send(
            self.standins[i], host_mac(i), crowd.ETH_IP,
            ip_packet(host_ip(i), (STATIONS + i).packed, 17, body))

    def answer(self):
        """The hosts send something to all who have asked."""
        try:
            while True:
                frame = self.ethernet.receive()
                if not frame or frame[2] != crowd.ETH_ARP:
                    continue
                found = crowd.read_arp(frame[3], 6)
                if not found or found[0] != 1 or found[4][:3] != HOST_IP:
                    continue
                i = int(ipaddress.ip_address(found[2])) - int(STATIONS)
                self.standins[i] = found[1]
                self.answer_to(i)
        except BlockingIOError:
            pass

    def group(self, i, member):
        """A host sends to group 'i', or reports it."""
        group = (GROUPS + i).packed
        if member:
            body = struct.pack(">BBH4s", 0x16, 0, 0, group)
            body = body[:2] + struct.pack(">H", checksum(body)) + body[4:]
            packet = ip_packet(host_ip(i // 2), group, 2, body,
                               b"\x94\x04\x00\x00")
        else:
            body = struct.pack(">HHHH", 7000, 7000, 8, 0)
            packet = ip_packet(host_ip(i // 2), group, 17, body)
        self.ethernet.send(group_mac(group), host_mac(i // 2), crowd.ETH_IP,
                           packet)

    def drain(self, seconds):
        end = time.monotonic() + seconds
        while True:
            self.answer()
            try:
                while self.fabric.receive():
                    pass
            except BlockingIOError:
                pass
            if time.monotonic() >= end:
                break
            time.sleep(0.001)

    def run(self, groups):
        for i in range(HOSTS):
            self.ethernet.send(
                crowd.BROADCAST_MAC, host_mac(i), crowd.ETH_ARP,
                crowd.arp(1, 6, 1, host_mac(i), host_ip(i), bytes(6),
                          host_ip(i)))
        self.drain(0.2)
        todo = list(range(self.n))
        while todo:
            self.one_round(todo, self.ask, groups)
            self.drain(0.5)
            todo = [i for i in todo if i not in self.standins]
        print("all stations have an answer", flush=True)
        while True:
            self.one_round(list(range(self.n)), self.answer_to, groups)
            self.drain(1)

    def one_round(self, stations, do, groups):
        done = 0
        for i in range(0, len(stations), BURST):
            for station in stations[i:i + BURST]:
                do(station)
            for _ in range(BURST * groups // self.n + 1):
                if done < groups:
                    self.group(done, done % 2)
                    done += 1
            self.drain(0.005)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fabric", required=True)
    parser.add_argument("--interface", required=True)
    parser.add_argument("--guid", required=True)
    parser.add_argument("--paths", type=int, required=True)
    parser.add_argument("--groups", type=int, required=True)
    options = parser.parse_args()
    Scale(options).run(options.groups)


if __name__ == "__main__":
    main()
