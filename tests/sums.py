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

"""Sends known numbers of packets through a gateway, and adds its counters up.

    sums.py --fabric unix:PATH --interface NAME --namespace NS --port PORT
            --eth-mtu MTU [--marked [--device]]

Plays a host on the Ethernet interface NAME of the namespace NS, and a station
on the soft fabric, which send packets of every kind: good, malformed, too long,
too many, to nobody.  Then reads the counters of PORT in each way there is, and
says where they do not add up to what was sent, or differ from one another.
Nobody else may send anything.

With --marked, the host leaves checksums and segmentation to the port; with
--device, the port leaves those of what goes to the station to its device."""

import argparse
import ctypes
import json
import re
import socket
import struct
import subprocess
import sys
import time

import crowd
from announce import nd
from packets import checksum

HOST_MAC, HOST = b"\x52\x54\x00\x00\x00\x01", bytes([10, 200, 128, 1])
STATION, STATION_QPN = bytes([10, 200, 0, 1]), 0x1001
LOST, LOST_QPN = bytes([10, 200, 0, 2]), 0x1002     # There is no path to it.
HOST6 = bytes.fromhex("fe80000000000000" "5054000000000001")
STATION6 = bytes.fromhex("fe80000000000000" "0000000000001001")
NODES6 = bytes.fromhex("ff020000000000000000000000000001")
NODES6_MAC = bytes.fromhex("333300000001")
ARP, RARP, IP, IP6, VLAN = 0x0806, 0x8035, 0x0800, 0x86DD, 0x8100
ETHER_TEST = 0x9000
BURST = 50


def udp(source, target, size, df=False):
    """An IPv4 packet of 'size' bytes."""
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, size, 1, 0x4000 if df else 0,
                       64, 17, 0, source, target)
    head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
    return head + struct.pack(">HHHH", 9, 9, size - 20, 0) + bytes(size - 28)


def bad_ip(source, target):
    return b"\x44" + udp(source, target, 100)[1:]


def na(source, option):
    """An advertisement of an address that is all zeros, but for 'option'."""
    return nd(source, NODES6, 136, 0x20000000, source, option)


def enter(path):
    """Goes to a network namespace."""
    with open(path) as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")


def lost_on_ethernet():
    """Packets that the sockets by which the bridge reads had no room for."""
    text = subprocess.run(["ss", "-0", "-a", "-n", "-m"], check=True,
                          text=True, capture_output=True).stdout
    return sum(int(n) for n in re.findall(r",d(\d+)\)", text))


class Marked:
    """A socket for frames that the receiver is to complete, as a header in
    front of them (struct virtio_net_hdr) says."""

    def __init__(self, name):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(263, 15, 1)      # PACKET_VNET_HDR
        self.socket.bind((name, 0))

    def send(self, target, source, packet, checksum_at, segment=0):
        """'checksum_at' is the offset of the checksum in layer 4, 'segment'
        the size of segments, if there are to be any."""
        header = struct.pack("=BBHHHH", 1, 1 if segment else 0,
                             54 if segment else 0, segment, 34, checksum_at)
        self.socket.send(header + target + source + struct.pack(">H", IP)
                         + packet)


def tcp(source, target, size):
    """An IPv4 packet of 'size' bytes without a checksum of TCP."""
    packet = udp(source, target, size, True)
    packet = packet[:9] + b"\6" + bytes(2) + packet[12:]
    packet = packet[:10] + struct.pack(">H", checksum(packet[:20])) + (
        packet[12:])
    return packet[:20] + struct.pack(">HHIIBBHHH", 9, 9, 1, 1, 0x50, 0x10, 99,
                                     0, 0) + packet[40:]


class Gateway:
    def __init__(self, port):
        self.port = port

    def appctl(self, *args):
        return subprocess.run(["ovs-appctl", *args], check=True, text=True,
                              capture_output=True).stdout

    def queues(self):
        sums = {}
        for row in json.loads(self.appctl("ipoib/queue/show", self.port,
                                          "--format=json")):
            for name, value in row.items():
                if name[:3] in ("rx_", "tx_"):
                    sums[name] = sums.get(name, 0) + value
        return sums

    def statistics(self):
        text = subprocess.run(
            ["ovs-vsctl", "get", "Interface", self.port, "statistics"],
            check=True, text=True, capture_output=True).stdout
        return {name: int(value)
                for name, value in re.findall(r"(\w+)=(\d+)", text)}

    def coverage(self):
        text = self.appctl("coverage/show")
        return {name: int(value) for name, value in re.findall(
            r"^(ipoib_control_\w+) .*total: (\d+)", text, re.M)}

    def flow(self, side):
        """The packets of the flow with cookie 'side'."""
        text = subprocess.run(
            ["ovs-ofctl", "dump-flows", "br0", f"cookie={side}/-1"],
            check=True, text=True, capture_output=True).stdout
        return int(re.search(r"n_packets=(\d+)", text)[1])


class Test:
    def __init__(self, options):
        self.fabric = crowd.Fabric(options.fabric)
        with open("/proc/self/ns/net") as own:
            enter(f"/run/netns/{options.namespace}")
            self.ethernet = crowd.Ethernet(options.interface)
            self.marked = Marked(options.interface)
            enter(f"/proc/self/fd/{own.fileno()}")
        self.lost_before = lost_on_ethernet()
        self.gateway = Gateway(options.port)
        self.given = self.received = 0
        self.standins, self.host = {}, None
        self.expected = {}

    def expect(self, counter, n):
        self.expected[counter] = self.expected.get(counter, 0) + n

    # Sending.  After each burst, time for those who read.

    def host_sends(self, n, target, kind, body, counter=None, source=HOST_MAC):
        for i in range(n):
            self.ethernet.send(target, source, kind, body)
            if i % BURST == BURST - 1:
                self.listen(0.02)
        self.given += n
        if counter:
            self.expect(counter, n)
        self.listen(0.005)

    def station_sends(self, n, kind, body, counter=None, qpn=STATION_QPN,
                      group=False, short=None, target=None):
        payload = struct.pack(">HH", kind, 0) + body
        if short is not None:
            payload = payload[:short]
        for _ in range(n):
            if group:
                self.fabric.broadcast(qpn, payload)
            else:
                lid, dqpn = self.host
                self.fabric.send(lid, target or dqpn, qpn, self.fabric.qkey,
                                 payload)
        self.received += n
        if counter:
            self.expect(counter, n)
        self.listen(0.005)

    def own_address(self, qpn, gid=None):
        return b"\0" + qpn.to_bytes(3, "big") + (gid or self.fabric.gid)

    # Listening.

    def listen(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.002)
            self.drain(self.ethernet.receive, self.from_ethernet)
            self.drain(self.fabric.receive, self.from_fabric)

    def drain(self, receive, take):
        while True:
            try:
                packet = receive()
            except BlockingIOError:
                return
            if packet:
                take(*packet)

    def from_ethernet(self, _target, _source, kind, body):
        found = kind == ARP and crowd.read_arp(body, 6)
        if found:
            self.standins[found[2]] = found[1]

    def from_fabric(self, slid, _dqpn, payload):
        kind = int.from_bytes(payload[:2], "big")
        found = kind == ARP and crowd.read_arp(payload[4:], 20)
        if found and found[2] == HOST:
            self.host = slid, int.from_bytes(found[1][1:4], "big")

    def wait_for(self, what):
        for _ in range(200):
            if what():
                return
            self.listen(0.05)
        raise SystemExit("the gateway does not translate")

    # What is sent.

    def meet(self):
        self.host_sends(1, crowd.BROADCAST_MAC, ARP, crowd.arp(
            1, 6, 1, HOST_MAC, HOST, bytes(6), STATION))
        self.wait_for(lambda: self.host)
        self.station_sends(1, ARP, crowd.arp(
            32, 20, 1, self.own_address(STATION_QPN), STATION, bytes(20),
            HOST), group=True)
        # No port has this GID: spoofed, which is counted, and without a path.
        self.station_sends(1, ARP, crowd.arp(
            32, 20, 1, self.own_address(LOST_QPN, self.fabric.gid[:8]
                                        + bytes.fromhex("02abdeadbeef0001")),
            LOST, bytes(20), HOST), "rx_spoof", qpn=LOST_QPN, group=True)
        self.wait_for(lambda: STATION in self.standins
                      and LOST in self.standins)

    def from_host(self):
        good = self.standins[STATION]
        send = self.host_sends
        send(200, good, IP, udp(HOST, STATION, 500))
        send(30, good, IP6, struct.pack(">IHBB", 6 << 28, 20, 17, 64) + HOST6
             + STATION6 + bytes(20))
        send(7, crowd.BROADCAST_MAC, IP, udp(HOST, bytes([10, 255, 255, 255]),
                                             100))
        send(20, bytes.fromhex("01005e010101"), IP,
             udp(HOST, bytes([239, 1, 1, 1]), 100))
        send(3, NODES6_MAC, IP6, na(HOST6, b"\x02\x01" + HOST_MAC))
        send(5, self.standins[LOST], IP, udp(HOST, LOST, 100))
        send(4, good, IP, udp(HOST, STATION, 5000), "tx_fragmented")
        send(6, good, IP, udp(HOST, STATION, 5000, True), "tx_drop_too_long")
        send(11, b"\x02\1\2\3\4\5", IP, udp(HOST, STATION, 60),
             "tx_drop_unknown_mac")
        send(12, good, VLAN, struct.pack(">HH", 100, IP)
             + udp(HOST, STATION, 60), "tx_drop_vlan")
        send(13, good, VLAN, struct.pack(">HH", 0, IP)
             + udp(HOST, STATION, 60))
        send(14, good, ETHER_TEST, bytes(50), "tx_drop_type")
        send(15, crowd.BROADCAST_MAC, ARP, bytes(28), "tx_drop_bad_arp")
        send(16, good, IP, bad_ip(HOST, STATION), "tx_drop_bad_ip")
        send(17, NODES6_MAC, IP6, na(HOST6, b"\x02\x00" + HOST_MAC),
             "tx_drop_bad_nd")
        send(18, crowd.BROADCAST_MAC, ARP, crowd.arp(
            1, 6, 1, good, STATION, bytes(6), HOST), "tx_drop_loop",
            source=good)
        send(9, crowd.BROADCAST_MAC, RARP, crowd.arp(
            1, 6, 3, HOST_MAC, bytes(4), HOST_MAC, bytes(4)), "tx_taken")

    def from_host_marked(self, eth_mtu, device):
        good = self.standins[STATION]

        def send(n, target, packet, checksum_at, segment=0):
            for _ in range(n):
                self.marked.send(target, HOST_MAC, packet, checksum_at,
                                 segment)
                self.listen(0.005)
            self.given += n

        # With the first packet, the path is asked for, without which nothing
        # is left to a device.
        self.host_sends(1, good, IP, udp(HOST, STATION, 60))
        self.listen(1)
        for target in good, crowd.BROADCAST_MAC:
            send(20, target, udp(HOST, STATION, 501), 6)
            send(10, target, tcp(HOST, STATION, 1000), 16)
        segments = 30 * -(-9960 // (eth_mtu - 40))
        self.expect("tx_offload_csum", 30 if device else 60)
        self.expect("tx_offload_csum_device", 30 + segments if device else 0)
        self.expect("tx_offload_segmented_device", 30 if device else 0)
        send(30, good, tcp(HOST, STATION, 10000), 16, 1400)
        send(5, self.standins[LOST], tcp(HOST, LOST, 3000), 16, 1400)
        send(7, b"\x02\1\2\3\4\5", tcp(HOST, STATION, 3000), 16, 1400)
        self.expect("tx_offload_segmented", 42)
        self.expect("tx_offload_segments", segments + 12 * 3)
        self.expect("tx_drop_unknown_mac", 7 * 3)
        # Of another length than UDP says, and the first part of one.
        long = udp(HOST, STATION, 500)
        send(4, good, long[:24] + struct.pack(">H", 479) + long[26:], 6)
        part = bytearray(udp(HOST, STATION, 500))
        part[6:12] = struct.pack(">HBBH", 0x2000, 64, 17, 0)
        part[10:12] = struct.pack(">H", checksum(bytes(part[:20])))
        send(3, good, bytes(part), 6)
        self.expect("tx_drop_offload", 7)

    def from_station(self, eth_mtu):
        send = self.station_sends
        send(200, IP, udp(STATION, HOST, 500))
        send(30, IP6, struct.pack(">IHBB", 6 << 28, 20, 17, 64) + STATION6
             + HOST6 + bytes(20))
        send(3, IP, udp(bytes([10, 200, 0, 9]), HOST, 60),
             "rx_unknown_sender", qpn=0x7777)
        send(7, IP, udp(STATION, bytes([10, 255, 255, 255]), 100), group=True)
        send(5, IP6, na(STATION6, b"\x02\x03" + bytes(2)
                        + self.own_address(STATION_QPN)), group=True)
        send(4, IP, udp(STATION, HOST, eth_mtu + 200), "rx_fragmented")
        send(6, IP, udp(STATION, HOST, eth_mtu + 200, True),
             "rx_drop_eth_mtu")
        send(11, ETHER_TEST, bytes(50), "rx_drop_type")
        send(12, ARP, bytes(56), "rx_drop_bad_arp")
        send(13, IP, bad_ip(STATION, HOST), "rx_drop_bad_ip")
        send(14, IP6, na(STATION6, b"\x02\x00" + bytes(22)),
             "rx_drop_bad_nd", group=True)
        send(15, IP, b"", "rx_drop_short", short=3)

    def ask_for_known(self):
        subprocess.run(["ovs-vsctl", "set", "Interface", self.gateway.port,
                        "options:proxy=reply"], check=True)
        self.host_sends(8, crowd.BROADCAST_MAC, ARP, crowd.arp(
            1, 6, 1, HOST_MAC, HOST, bytes(6), STATION), "tx_answered")
        self.station_sends(9, ARP, crowd.arp(
            32, 20, 1, self.own_address(STATION_QPN), STATION, bytes(20),
            HOST), "rx_answered", group=True)

    def flood(self):
        """More than a source may send to the control thread."""
        self.expected.clear()
        for i in range(100):
            for _ in range(4 * BURST):
                self.ethernet.send(crowd.BROADCAST_MAC, HOST_MAC, ARP,
                                   crowd.arp(1, 6, 1, HOST_MAC, HOST, bytes(6),
                                             STATION))
            self.given += 4 * BURST
            self.station_sends(4 * BURST, ARP, crowd.arp(
                32, 20, 1, self.own_address(STATION_QPN), STATION, bytes(20),
                HOST), group=True)
            queues = self.gateway.queues() if i % 10 == 9 else {}
            if "rx_drop_rate" in queues and "tx_drop_rate" in queues:
                return

    # The sums.

    def differences(self, before):
        """What does not add up, since 'before', one a line."""
        queues = self.gateway.queues()
        statistics = self.gateway.statistics()
        coverage = self.gateway.coverage()

        # What a socket had no room for, the bridge has never seen.
        given = self.given - (lost_on_ethernet() - self.lost_before)

        def n(name):
            return queues.get(name, 0) - before.get(name, 0)

        def drops(side):
            return sum(n(name) for name in queues
                       if name.startswith(side + "_drop_"))

        # What groups bring back was not sent by the station.
        pairs = [
            ("packets that came from the fabric",
             self.received + n("rx_own") + n("rx_fragments")
             - n("rx_fragmented"),
             n("rx_packets") + drops("rx") - n("rx_drop_own")
             + n("rx_answered") + n("rx_taken")),
            ("packets that the bridge gave to the port",
             given + n("tx_own") + n("tx_fragments")
             - n("tx_fragmented") + n("tx_offload_segments")
             - n("tx_offload_segmented"),
             n("tx_packets") + drops("tx") - n("tx_drop_error")
             + n("tx_answered") + n("tx_taken") + n("tx_waiting")),
            ("rx_packets, as the bridge counts them", n("rx_packets"),
             self.gateway.flow(2)),
            ("packets to the port, as the bridge counts them", given,
             self.gateway.flow(1)),
            ("ipoib_control_rx", coverage.get("ipoib_control_rx", 0),
             queues.get("rx_to_control", 0)),
            ("ipoib_control_tx", coverage.get("ipoib_control_tx", 0),
             queues.get("tx_to_control", 0)),
            ("rx_dropped", statistics.get("rx_dropped"),
             sum(value for name, value in queues.items()
                 if name.startswith("rx_drop_") and name != "rx_drop_error")),
            ("tx_dropped", statistics.get("tx_dropped"),
             sum(value for name, value in queues.items()
                 if name.startswith("tx_drop_") and name != "tx_drop_error")),
        ]
        pairs += [(name, value, n(name))
                  for name, value in self.expected.items()]
        # The gateway's probes of its queues go on.
        pairs += [("statistics: " + name, statistics.get(name), value)
                  for name, value in queues.items()
                  if not name.endswith("probes")]
        pairs += [("packets that wait", n("tx_waiting"), 0)]
        return [f"{what}: {a} and {b}" for what, a, b in pairs if a != b]

    def check(self, before):
        for _ in range(60):
            self.listen(0.5)
            differences = self.differences(before)
            if not differences:
                return 0
        print("\n".join(differences))
        print({name: value - before.get(name, 0)
               for name, value in sorted(self.gateway.queues().items())})
        return 1


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("fabric", "interface", "namespace", "port"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--eth-mtu", type=int, required=True)
    parser.add_argument("--marked", action="store_true")
    parser.add_argument("--device", action="store_true")
    options = parser.parse_args()
    test = Test(options)
    before = test.gateway.queues()
    test.meet()
    if options.marked:
        test.from_host_marked(options.eth_mtu, options.device)
        return test.check(before)
    test.from_host()
    test.from_station(options.eth_mtu)
    test.ask_for_known()
    result = test.check(before)
    test.flood()
    result |= test.check(before)
    queues = test.gateway.queues()
    for name in ("rx_drop_rate", "tx_drop_rate", "tx_drop_no_path",
                 "tx_pmtu_errors", "rx_pmtu_errors", "tx_multicast"):
        if not queues.get(name):
            print(f"{name} is 0")
            result = 1
    print(f"{test.given} packets from Ethernet, {test.received} from the "
          f"fabric", file=sys.stderr)
    return result


if __name__ == "__main__":
    sys.exit(main())
