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

"""Real multicast sockets, and the messages of queriers and hosts.

    mcast.py recv DEVICE GROUP [SOURCE]   joins, prints each payload and its
                                          sender, until it is killed
    mcast.py send DEVICE GROUP TEXT       sends TEXT ten times a second, until it
                                          is killed
    mcast.py scatter DEVICE GROUP N       sends once to each of N groups
    mcast.py igmp DEVICE SOURCE TYPE GROUP [HEX]
                                          sends an IGMP message (TYPE in hex) with
                                          the bytes HEX behind it
    mcast.py mld DEVICE TYPE GROUP [HEX]  the same of MLD
    mcast.py pim DEVICE SOURCE HOLDTIME   sends a PIM hello

GROUP is of IPv4 or IPv6; port 5007."""

import ipaddress
import socket
import struct
import sys
import time

from packets import checksum

PORT = 5007
IP_ADD_SOURCE_MEMBERSHIP = 39
MCAST_JOIN_SOURCE_GROUP = 46


def with_checksum(message):
    return message[:2] + struct.pack(">H", checksum(message)) + message[4:]


def sockaddr6(address):
    """A struct sockaddr_storage."""
    return (struct.pack("=HHI", socket.AF_INET6, 0, 0)
            + address.packed).ljust(128, b"\0")


def open_socket(device, group):
    v6 = group.version == 6
    sock = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET,
                         socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    index = socket.if_nametoindex(device)
    if v6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 4)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
    else:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF,
                        struct.pack("=4s4si", bytes(4), bytes(4), index))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 4)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    return sock, index


def local_ip4(device):
    """The address of 'device', which IP_ADD_SOURCE_MEMBERSHIP goes by."""
    import fcntl
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        reply = fcntl.ioctl(sock, 0x8915, device.encode().ljust(40, b"\0"))
    return reply[20:24]


def recv(device, group, source=None):
    sock, index = open_socket(device, group)
    sock.bind(("::" if group.version == 6 else "", PORT))
    if group.version == 6 and source:
        sock.setsockopt(socket.IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP,
                        struct.pack("=Ixxxx", index) + sockaddr6(group)
                        + sockaddr6(ipaddress.ip_address(source)))
    elif group.version == 6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP,
                        group.packed + struct.pack("=I", index))
    elif source:
        sock.setsockopt(socket.IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP,
                        group.packed + local_ip4(device)
                        + ipaddress.ip_address(source).packed)
    else:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                        struct.pack("=4s4si", group.packed, bytes(4), index))
    while True:
        data, sender = sock.recvfrom(65536)
        print(data.decode(), sender[0], flush=True)


def send(device, group, text):
    sock, _ = open_socket(device, group)
    while True:
        sock.sendto(text.encode(), (str(group), PORT))
        time.sleep(0.1)


def scatter(device, group, count):
    sock, _ = open_socket(device, group)
    for i in range(int(count)):
        sock.sendto(b"scatter", (str(group + i), PORT))
        time.sleep(0.01)


def igmp(device, source, kind, group, rest=""):
    kind, rest = int(kind, 16), bytes.fromhex(rest)
    code = 100 if kind == 0x11 else 0
    body = with_checksum(struct.pack(">BBH", kind, code, 0) + group.packed
                         + rest)
    target = (group if int(group) and kind != 0x17
              else ipaddress.ip_address("224.0.0.1" if kind == 0x11
                                        else "224.0.0.2"))
    raw(device, source, target, socket.IPPROTO_IGMP, body)


def pim(device, source, holdtime):
    body = with_checksum(struct.pack(">BBHHHH", 0x20, 0, 0, 1, 2,
                                     int(holdtime)))
    raw(device, source, ipaddress.ip_address("224.0.0.13"),
        socket.IPPROTO_PIM, body)


def raw(device, source, target, proto, body):
    head = struct.pack(">BBHHHBBH4s4s", 0x46, 0xC0, 24 + len(body), 0, 0, 1,
                       proto, 0, ipaddress.ip_address(source).packed,
                       target.packed) + b"\x94\x04\0\0"
    head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sock.bind((device, 0))
    mac = b"\x01\x00\x5e" + bytes([target.packed[1] & 0x7F]) \
        + target.packed[2:]
    sock.send(mac + sock.getsockname()[4] + b"\x08\x00" + head + body)


def mld(device, kind, group, rest=""):
    kind, rest = int(kind), bytes.fromhex(rest)
    sock = socket.socket(socket.AF_INET6, socket.SOCK_RAW,
                         socket.IPPROTO_ICMPV6)
    index = socket.if_nametoindex(device)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 1)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_HOPOPTS,
                    bytes([0, 0, 5, 2, 0, 0, 1, 0]))
    target = str(group) if int(group) else "ff02::1"
    # The kernel fills in the checksum.
    sock.sendto(struct.pack(">BBHHH", kind, 0, 0, 1000, 0) + group.packed
                + rest, (target, 0, 0, index))


def main():
    command, device, *args = sys.argv[1:]
    position = {"igmp": 2, "mld": 1, "pim": None}.get(command, 0)
    if position is not None:
        args[position] = ipaddress.ip_address(args[position])
    globals()[command](device, *args)


main()
