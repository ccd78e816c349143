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

"""dhcp-client.py DEVICE HTYPE HLEN CHADDR CLIENT_ID [no-broadcast]
dhcp-client.py DEVICE 6 DUID

A DHCP client of the forms that are found on InfiniBand (RFC 4390, and those
that are not as it says): gets a lease by DISCOVER and REQUEST on DEVICE, and
prints the address.  CHADDR and CLIENT_ID (option 61) are in hexadecimal
digits, either may be -, then it is zeros, or missing.  What the server says
must have the client's hardware type and address, and the BROADCAST flag that
the client has set.  With an address instead of no-broadcast, renews the lease
of that address by unicast to the server that is named behind it.

With 6, gets an address by DHCPv6 (RFC 8415), SOLICIT and REQUEST."""

import socket
import struct
import sys
import time

COOKIE = bytes.fromhex("63825363")
BROADCAST = 0x8000


def options(data):
    """The options of a message, by number."""
    result = {}
    i = 0
    while i < len(data) and data[i] != 255:
        if data[i] == 0:
            i += 1
            continue
        result[data[i]] = data[i + 2:i + 2 + data[i + 1]]
        i += 2 + data[i + 1]
    return result


class Client:
    def __init__(self, device, htype, hlen, chaddr, client_id):
        self.htype, self.hlen = htype, hlen
        self.chaddr = chaddr.ljust(16, b"\0")
        self.client_id = client_id
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE,
                             device.encode())
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind(("", 68))

    def message(self, xid, kind, flags, ciaddr, extra):
        opts = b"\x35\x01" + bytes([kind]) + extra
        if self.client_id:
            opts += b"\x3d" + bytes([len(self.client_id)]) + self.client_id
        return struct.pack("!BBBBIHH4s12x16s192x", 1, self.htype, self.hlen, 0,
                           xid, 0, flags, ciaddr, self.chaddr) \
            + COOKIE + opts + b"\xff"

    def ask(self, kind, flags, answer, extra=b"", ciaddr=bytes(4),
            server="255.255.255.255"):
        """Asks until an answer of the kind comes; (yiaddr, options)."""
        for attempt in range(10):
            xid = int(time.time() * 1000) & 0x7fffffff | kind << 24
            self.sock.sendto(self.message(xid, kind, flags, ciaddr, extra),
                             (server, 67))
            end = time.time() + 1
            while time.time() < end:
                self.sock.settimeout(max(end - time.time(), 0.01))
                try:
                    data = self.sock.recv(4096)
                except socket.timeout:
                    break
                if len(data) < 240 or data[0] != 2 or \
                        struct.unpack("!I", data[4:8])[0] != xid:
                    continue
                opts = options(data[240:])
                if opts.get(53) != bytes([answer]):
                    sys.exit("answer of type %r" % opts.get(53))
                if (data[1], data[2]) != (self.htype, self.hlen) or \
                        data[28:44] != self.chaddr:
                    sys.exit("another hardware address: %s" % data.hex())
                if opts.get(61, self.client_id) != self.client_id:
                    sys.exit("another client identifier: %s" % data.hex())
                if flags & ~struct.unpack("!H", data[10:12])[0]:
                    sys.exit("the server has lost the BROADCAST flag")
                return data[16:20], opts
        sys.exit("no answer to a message of type %d" % kind)


def options6(data):
    """The options of a DHCPv6 message, by number."""
    result = {}
    while len(data) >= 4:
        code, length = struct.unpack("!HH", data[:4])
        result[code] = data[4:4 + length]
        data = data[4 + length:]
    return result


def option6(code, data):
    return struct.pack("!HH", code, len(data)) + data


def dhcp6(device, duid):
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE,
                    device.encode())
    sock.bind(("::", 546))
    scope = socket.if_nametoindex(device)
    more = option6(3, struct.pack("!III", 1, 0, 0))
    for kind, answer in (1, 2), (3, 7):
        for attempt in range(10):
            xid = bytes([kind]) + int(time.time() * 1000).to_bytes(8, "big")[5:]
            sock.sendto(xid + option6(1, duid) + option6(8, bytes(2)) + more,
                        ("ff02::1:2", 547, 0, scope))
            sock.settimeout(1)
            try:
                data = sock.recv(4096)
            except socket.timeout:
                continue
            if data[1:4] == xid[1:]:
                break
        else:
            sys.exit("no answer to a message of type %d" % kind)
        opts = options6(data[4:])
        if data[0] != answer or opts.get(1) != duid or 3 not in opts:
            sys.exit("not the answer that was expected: %s" % data.hex())
        more = option6(2, opts[2]) + option6(3, opts[3])
    address = options6(opts[3][12:])[5][:16]
    return socket.inet_ntop(socket.AF_INET6, address)


def unhex(s):
    return b"" if s == "-" else bytes.fromhex(s)


def main():
    if sys.argv[2] == "6":
        print(dhcp6(sys.argv[1], unhex(sys.argv[3])))
        return
    device, htype, hlen, chaddr, client_id = sys.argv[1:6]
    more = sys.argv[6:]
    client = Client(device, int(htype), int(hlen), unhex(chaddr),
                    unhex(client_id))
    if len(more) == 2:
        ip, _ = client.ask(3, 0, 5, ciaddr=socket.inet_aton(more[0]),
                           server=more[1])
    else:
        flags = 0 if more else BROADCAST
        ip, opts = client.ask(1, flags, 2)
        ip, _ = client.ask(3, flags, 5, b"\x32\x04" + ip
                           + b"\x36\x04" + opts[54])
    print(socket.inet_ntoa(ip))


if __name__ == "__main__":
    main()
