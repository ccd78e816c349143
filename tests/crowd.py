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

"""Many stations on both sides of the gateway, in one process.

    crowd.py --fabric unix:PATH|udp:ADDR:PORT --interface NAME [--pairs N]

Plays N hosts on an Ethernet interface and N IPoIB stations, the queue pairs of
one port of the soft fabric.  Host i asks for station i by ARP, pings it, and is
pinged by it.  All of them must get through, each under an address of its own:
N stand-in MACs, and N queue pair numbers of hosts.  Repeats what is lost.

With --keep SECONDS it goes on pinging, in turns, for so long, and prints the
longest time without any answer; nobody asks again who anybody is."""

import argparse
import ipaddress
import os
import select
import socket
import struct
import sys
import time

from packets import checksum

GUID = 0x02AB00000000C0DE
QKEY_GSI, QKEY_DEFAULT = 0x80010000, 0xB1B
MULTICAST = 0xFFFFFF
BROADCAST_MAC = b"\xff" * 6
ETH_IP, ETH_ARP = 0x0800, 0x0806


def echo(source, target, kind, body):
    icmp = struct.pack(">BBH", kind, 0, 0) + body
    icmp = icmp[:2] + struct.pack(">H", checksum(icmp)) + icmp[4:]
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(icmp), 0, 0, 64, 1, 0,
                     source, target)
    return ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:] + icmp


def read_echo(data):
    """(source, target, type, body) of an ICMP echo, or None."""
    if len(data) < 32 or data[0] != 0x45 or data[9] != 1:
        return None
    size, = struct.unpack(">H", data[2:4])
    icmp = data[20:size]
    if checksum(data[:20]) or checksum(icmp) or icmp[0] not in (0, 8):
        return None
    return data[12:16], data[16:20], icmp[0], icmp[4:]


def arp(kind, size, op, sha, spa, tha, tpa):
    return struct.pack(">HHBBH", kind, ETH_IP, size, 4, op) + (
        sha + spa + tha + tpa)


def read_arp(data, size):
    """(op, sha, spa, tha, tpa), or None."""
    if len(data) < 16 + 2 * size or data[4] != size:
        return None
    rest = data[8:]
    return (int.from_bytes(data[6:8], "big"), rest[:size],
            rest[size:size + 4], rest[size + 4:2 * size + 4],
            rest[2 * size + 4:2 * size + 8])


class Ethernet:
    """The interface's raw socket."""

    def __init__(self, name):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW,
                                    socket.htons(3))
        self.socket.bind((name, 0))
        widen(self.socket)
        self.socket.setblocking(False)
        # All MACs, not the interface's own only.
        index = socket.if_nametoindex(name)
        self.socket.setsockopt(263, 1, struct.pack("iHH8s", index, 1, 0,
                                                   bytes(8)))

    def send(self, target, source, kind, body):
        frame = target + source + struct.pack(">H", kind) + body
        send_all(self.socket, frame + bytes(max(0, 60 - len(frame))))

    def receive(self):
        """(target, source, type, body), or None."""
        data, where = self.socket.recvfrom(65536)
        if where[2] == socket.PACKET_OUTGOING or len(data) < 14:
            return None
        return data[:6], data[6:12], int.from_bytes(data[12:14], "big"), (
            data[14:])


def widen(sock):
    for option in (32, 33):             # SO_SNDBUFFORCE, SO_RCVBUFFORCE
        sock.setsockopt(socket.SOL_SOCKET, option, 4 << 20)


def send_all(sock, data):
    while True:
        try:
            sock.send(data)
            return
        except BlockingIOError:
            select.select([], [sock], [], 0.1)


class Fabric:
    """A port of the soft fabric, a member of the broadcast group."""

    def __init__(self, address):
        kind, _, where = address.partition(":")
        if kind == "unix":
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.socket.connect(where)
        else:
            host, _, port = where.partition(":")
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.socket.connect((host, int(port)))
        widen(self.socket)
        self.socket.settimeout(5)
        self.qkey, self.psn, self.attached = QKEY_DEFAULT, 0, 0
        self.attach()
        port = self.wait(2, lambda m: m[4] == 4)
        self.lid, self.sm_lid = struct.unpack(">HH", port[6:10])
        self.gid = port[12:20] + GUID.to_bytes(8, "big")
        self.mgid = bytes.fromhex("ff12401bffff00000000" "0000ffffffff")
        self.join()
        self.socket.setblocking(False)

    def attach(self):
        self.attached = time.monotonic()
        self.message(1, struct.pack(">QQB3x64s", GUID, GUID, 5, b"crowd"))

    def message(self, kind, body):
        send_all(self.socket, struct.pack(">HBB", 0x4942, 1, kind) + body)

    def wait(self, kind, good):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            message = self.socket.recv(65536)
            if message[3] == kind and good(message):
                return message
        raise SystemExit("the fabric does not answer")

    def join(self):
        """MCMemberRecord Set, as a full member: component mask 0x10083."""
        record = self.mgid + self.gid + struct.pack(
            ">IHBBHBBIB3x", 0, 0, 0, 0, 0xFFFF, 0, 0, 0, 1)
        mad = struct.pack(">BBBBHHQHHI", 1, 3, 2, 2, 0, 0, 0xC0DE0001, 0x38,
                          0, 0) + bytes(12) + struct.pack(
                              ">QHHQ", 0, 0, 0, 0x10083) + record
        mad += bytes(256 - len(mad))
        self.send(self.sm_lid, 1, 1, QKEY_GSI, mad)
        answer = self.wait(3, lambda m: m[4 + 8 + 12 + 8 + 3] == 0x81)
        mad = answer[4 + 28:4 + 28 + 256]
        if int.from_bytes(mad[4:6], "big"):
            raise SystemExit("the fabric refuses the broadcast group")
        self.qkey, self.mlid = struct.unpack(">IH", mad[56 + 32:56 + 38])

    def send(self, dlid, dqpn, sqpn, qkey, payload, group=None):
        self.psn = self.psn + 1 & 0xFFFFFF
        pad = -len(payload) % 4
        bth = struct.pack(">BBHII", 0x64, pad << 4, 0xFFFF, dqpn, self.psn)
        body = bth + struct.pack(">II", qkey, sqpn) + payload + bytes(pad)
        if group:
            body = struct.pack(">IHBB", 6 << 28, len(body) + 4, 27, 64) + (
                self.gid + group + body)
        lrh = struct.pack(">BBHHH", 0, 3 if group else 2, dlid,
                          (8 + len(body) + 4) // 4, self.lid)
        self.message(3, lrh + body + bytes(6))

    def broadcast(self, sqpn, payload):
        self.send(self.mlid, MULTICAST, sqpn, self.qkey, payload, self.mgid)

    def receive(self):
        """(source LID, destination QPN, payload), or None."""
        message = self.socket.recv(65536)
        if not message:
            raise SystemExit("the fabric went away")
        if message[3] != 3:
            return None
        raw = message[4:]
        slid = int.from_bytes(raw[6:8], "big")
        words, = struct.unpack(">H", raw[4:6])
        body = raw[8:words * 4 - 4]
        if raw[1] & 3 == 3:
            body = body[40:]
        pad = body[1] >> 4 & 3
        dqpn = int.from_bytes(body[5:8], "big")
        return slid, dqpn, body[20:len(body) - pad]


class Pair:
    """A host and a station, and what they know of each other."""

    def __init__(self, number, net):
        self.mac = b"\x52\x54\x00" + number.to_bytes(3, "big")
        self.qpn = 0x1000 + number
        self.host = (net + 0x8000 + number).packed
        self.station = (net + number).packed
        self.standin = None             # the station's MAC, on Ethernet
        self.hwaddr = None              # the host's, on the fabric
        self.lid = None                 # of the gateway
        self.pinged = self.pinged_back = False
        self.tried = 0


class Crowd:
    def __init__(self, options):
        self.ethernet = Ethernet(options.interface)
        self.fabric = Fabric(options.fabric)
        net = ipaddress.ip_address("10.200.0.0")
        self.pairs = [Pair(i, net) for i in range(1, options.pairs + 1)]
        self.by_mac = {p.mac: p for p in self.pairs}
        self.by_qpn = {p.qpn: p for p in self.pairs}
        self.by_host = {p.host: p for p in self.pairs}
        self.by_station = {p.station: p for p in self.pairs}
        self.answers, self.gap, self.last = 0, 0, time.monotonic()

    def own_address(self, pair):
        return b"\0" + pair.qpn.to_bytes(3, "big") + self.fabric.gid

    # What comes.

    def from_ethernet(self):
        frame = self.ethernet.receive()
        if not frame:
            return
        target, source, kind, body = frame
        if kind == ETH_ARP:
            found = read_arp(body, 6)
            if not found:
                return
            op, sha, spa, _, tpa = found
            pair = self.by_host.get(tpa)
            if pair and op == 1:
                self.ethernet.send(sha, pair.mac, ETH_ARP, arp(
                    1, 6, 2, pair.mac, pair.host, sha, spa))
            elif pair and op == 2 and target == pair.mac and (
                    spa == pair.station):
                pair.standin = sha
        elif kind == ETH_IP and target in self.by_mac:
            self.host_hears(self.by_mac[target], source, body)

    def host_hears(self, pair, source, body):
        packet = read_echo(body)
        if not packet or packet[0] != pair.station or packet[1] != pair.host:
            return
        if packet[2] == 8:
            self.ethernet.send(source, pair.mac, ETH_IP, echo(
                pair.host, pair.station, 0, packet[3]))
        elif source == pair.standin:
            pair.pinged = True
            self.heard()

    def from_fabric(self):
        packet = self.fabric.receive()
        if not packet or len(packet[2]) < 4:
            return
        slid, dqpn, payload = packet
        kind, body = int.from_bytes(payload[:2], "big"), payload[4:]
        if kind == ETH_ARP:
            found = read_arp(body, 20)
            if not found:
                return
            op, sha, spa, _, tpa = found
            if spa == tpa and spa in self.by_host:      # gratuitous
                pair = self.by_host[spa]
                pair.hwaddr, pair.lid = sha, slid
                return
            pair = self.by_station.get(tpa)
            if pair and spa == pair.host:
                pair.hwaddr, pair.lid = sha, slid
                if op == 1:
                    self.to_gateway(pair, ETH_ARP, arp(
                        32, 20, 2, self.own_address(pair), pair.station, sha,
                        spa))
        elif kind == ETH_IP and dqpn in self.by_qpn:
            self.station_hears(self.by_qpn[dqpn], body)

    def station_hears(self, pair, body):
        packet = read_echo(body)
        if not packet or packet[0] != pair.host or packet[1] != pair.station:
            return
        if packet[2] == 8:
            self.to_gateway(pair, ETH_IP, echo(pair.station, pair.host, 0,
                                               packet[3]))
        else:
            pair.pinged_back = True
            self.heard()

    def heard(self):
        now = time.monotonic()
        self.gap = max(self.gap, now - self.last)
        self.last = now
        self.answers += 1

    # What goes.

    def to_gateway(self, pair, kind, body):
        if pair.hwaddr:
            self.fabric.send(pair.lid, int.from_bytes(pair.hwaddr[1:4], "big"),
                             pair.qpn, self.fabric.qkey,
                             struct.pack(">HH", kind, 0) + body)

    def ping(self, pair):
        body = struct.pack(">HH", 1, pair.tried & 0xFFFF) + os.urandom(24)
        if not pair.pinged:
            self.ethernet.send(pair.standin, pair.mac, ETH_IP, echo(
                pair.host, pair.station, 8, body))
        if not pair.pinged_back:
            self.to_gateway(pair, ETH_IP, echo(pair.station, pair.host, 8,
                                               body))

    def act(self, pair):
        pair.tried += 1
        if not pair.standin:
            self.ethernet.send(BROADCAST_MAC, pair.mac, ETH_ARP, arp(
                1, 6, 1, pair.mac, pair.host, bytes(6), pair.station))
        elif not pair.hwaddr:
            self.fabric.broadcast(pair.qpn, struct.pack(">HH", ETH_ARP, 0) + (
                arp(32, 20, 1, self.own_address(pair), pair.station, bytes(20),
                    pair.host)))
        else:
            self.ping(pair)

    def turn(self, seconds):
        if (self.fabric.socket.family == socket.AF_INET and
                time.monotonic() - self.fabric.attached > 5):
            self.fabric.attach()
        ready = select.select([self.ethernet.socket, self.fabric.socket], [],
                              [], seconds)[0]
        for sock in ready:
            receive = (self.from_fabric if sock is self.fabric.socket
                       else self.from_ethernet)
            try:
                for _ in range(64):
                    receive()
            except BlockingIOError:
                pass

    def todo(self):
        return [p for p in self.pairs if not (p.pinged and p.pinged_back)]

    def meet(self, seconds, rate):
        """Until all have pinged each other, or the time is up."""
        deadline = time.monotonic() + seconds
        while todo := self.todo():
            for pair in todo:
                self.act(pair)
                self.turn(1 / rate)
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                self.turn(0.05)
            if time.monotonic() > deadline:
                return False
        return True

    def keep(self, seconds, rate):
        self.answers, self.gap, self.last = 0, 0, time.monotonic()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for pair in self.pairs:
                pair.tried += 1
                pair.pinged = pair.pinged_back = False
                self.ping(pair)
                self.turn(1 / rate)
                if time.monotonic() > deadline:
                    break
        self.gap = max(self.gap, time.monotonic() - self.last)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fabric", required=True)
    parser.add_argument("--interface", required=True)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=1000,
                        help="packets a second, about")
    parser.add_argument("--keep", type=float, default=0)
    parser.add_argument("--ready", help="a file to make when all have met")
    options = parser.parse_args()
    crowd = Crowd(options)
    started = time.monotonic()
    if not crowd.meet(options.seconds, options.rate):
        todo = crowd.todo()
        print(f"{len(todo)} of {options.pairs} pairs have not met: "
              f"{sum(not p.standin for p in todo)} hosts without an answer, "
              f"{sum(not p.hwaddr for p in todo)} stations, "
              f"{sum(not p.pinged for p in todo)} hosts' pings, "
              f"{sum(not p.pinged_back for p in todo)} stations' pings")
        return 1
    print(f"all {options.pairs} pairs have met after "
          f"{time.monotonic() - started:.1f} s", file=sys.stderr)
    macs = {p.standin for p in crowd.pairs}
    hosts = {p.hwaddr for p in crowd.pairs}
    print(f"{len(macs)} stand-in MACs, {len(hosts)} addresses of hosts",
          flush=True)
    if options.ready:
        open(options.ready, "w").close()
    if options.keep:
        crowd.keep(options.keep, options.rate)
        print(f"longest silence: {crowd.gap:.1f} s")
    return len(macs) != options.pairs or len(hosts) != options.pairs


if __name__ == "__main__":
    sys.exit(main())
