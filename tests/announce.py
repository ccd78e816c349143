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

"""Sends one frame of ARP, RARP or neighbour discovery on an Ethernet interface.

    announce.py INTERFACE FORM ADDRESS [--mac MAC] [--to MAC] [--from ADDRESS]

The FORMs announce ADDRESS (request and reply say which kind of gratuitous ARP
it is, and the last word what its target hardware address is), or ask for it
(arp, ns: --from is the asker's address, --to the MAC that is asked); or say in
the name of the gateway with the GID ADDRESS that it is active, leaves, or is on
standby (beacon-active, beacon-leaving, beacon-standby)."""

import argparse
import ipaddress
import socket
import struct

from packets import checksum

BROADCAST, ZERO = b"\xff" * 6, bytes(6)


def nd(source, target, kind, flags, subject, option):
    body = struct.pack(">BBHI", kind, 0, 0, flags) + subject + option
    pseudo = source + target + struct.pack(">II", len(body), 58)
    body = body[:2] + struct.pack(">H", checksum(pseudo + body)) + body[4:]
    return struct.pack(">IHBB", 6 << 28, len(body), 58, 255) \
        + source + target + body


def mac_of(text):
    return bytes.fromhex(text.replace(":", ""))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("interface")
    parser.add_argument("form")
    parser.add_argument("address")
    parser.add_argument("--mac")
    parser.add_argument("--to")
    parser.add_argument("--from", dest="source")
    args = parser.parse_args()

    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind((args.interface, 0))
        mac = mac_of(args.mac) if args.mac else sock.getsockname()[4]
        to = mac_of(args.to) if args.to else None
        ip = ipaddress.ip_address(args.address).packed
        source = ipaddress.ip_address(args.source).packed \
            if args.source else bytes(len(ip))
        sock.send(frame(args.form, mac, to, ip, source))


def frame(form, mac, to, ip, source):
    words = form.split("-")
    if words[0] in ("request", "reply"):
        op = 1 if words[0] == "request" else 2
        tha = {"zero": ZERO, "broadcast": BROADCAST, "own": mac}[words[1]]
        return (to or BROADCAST) + mac + struct.pack(
            ">HHHBBH", 0x0806, 1, 0x0800, 6, 4, op) + mac + ip + tha + ip
    if form == "arp":
        return (to or BROADCAST) + mac + struct.pack(
            ">HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1) + mac + source + ZERO + ip
    if form == "rarp":
        return BROADCAST + mac + struct.pack(
            ">HHHBBH", 0x8035, 1, 0x0800, 6, 4, 3) \
            + mac + bytes(4) + mac + bytes(4)
    if words[0] == "na":
        # Override, solicited or router, with the option or without it.
        flags = sum({"override": 0x20, "router": 0x80}.get(word, 0)
                    for word in words) << 24
        option = b"" if "bare" in words else b"\x02\x01" + mac
        target = ipaddress.ip_address("ff02::1").packed
        return b"\x33\x33\0\0\0\x01" + mac + b"\x86\xdd" \
            + nd(ip, target, 136, flags, ip, option)
    if form == "ns":
        group = ipaddress.ip_address("ff02::1:ff00:0").packed[:13] + ip[13:]
        option = b"\x01\x01" + mac if any(source) else b""
        return (to or b"\x33\x33" + group[12:]) + mac + b"\x86\xdd" \
            + nd(source, ip if to else group, 135, 0, ip, option)
    if words[0] == "beacon":
        flags = {"active": 1, "leaving": 2, "standby": 0}[words[1]]
        return b"\x03\0\0IB\x01" + mac + b"\x88\xb5IPGW" + struct.pack(
            ">BBH16sHH", 1, flags, 0xFFFF, ip, 0, 0) + bytes(18)
    raise SystemExit(f"unknown form {form}")


if __name__ == "__main__":
    main()
