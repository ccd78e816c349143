#!/usr/bin/env python3
#
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

"""sim-fuzz NAME N: sends the fabric of the simulation NAME N messages that a
program with libumad2sim might send, and others that it never would.  At the
end it asks for NodeInfo, and wants a right answer."""

import random
import socket
import struct
import sys

CONNECT, SET_IS_SM = 1, 9
PACKET = struct.Struct("=HHHHIIIIQ256s")    # As struct sim_request.


def bound(name):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind("\0%s\0" % name)
    s.settimeout(5)
    return s


class Client:
    """A client of the simulation, which calls itself process 'pid'."""

    def __init__(self, name, pid):
        self.ctl = bound("%s:ctl%d" % (name, pid))
        self.ctl.connect("\0%s:ctl\0" % name)
        self.data = bound("%s:in%d" % (name, pid))
        node = random.choice((b"SM", b"SM2"))
        answer = self.control(CONNECT, struct.pack("=III32s", pid, 0, 0, node))
        self.number = struct.unpack_from("=I", answer, 16)[0]
        self.data.connect("\0%s:out%d\0" % (name, self.number))
        self.data.setblocking(False)

    def control(self, kind, data, number=0):
        self.ctl.send(struct.pack("=IIII64s", 0xdeadbeef, number, kind,
                                  len(data), data))
        return self.ctl.recv(512)

    def drain(self):
        answers = []
        try:
            while True:
                answers.append(self.data.recv(512))
        except BlockingIOError:
            return answers


def smp(method, attr, mod, hops, path, tid):
    return struct.pack(">BBBBHBBQHHIQHH28x64s64s64x", 1, 0x81, 1, method, 0,
                       0, hops, tid, attr, 0, mod, 0, 0xffff, 0xffff,
                       random.randbytes(64), bytes(path).ljust(64, b"\0"))


def packet(mad, dlid=0xffff):
    return PACKET.pack(socket.htons(dlid), 0, 0xffff if dlid == 0xffff else 0,
                       0, 0, 0, 0, 0, 0, mad)


def random_packet():
    kind = random.randrange(4)
    if kind == 0:
        return packet(random.randbytes(256), random.randrange(65536))
    if kind == 1:
        # Any class, method and attribute, but a good header.
        mad = bytearray(random.randbytes(256))
        mad[:4] = (1, random.choice((1, 3, 4, 0x81)), random.choice((1, 2)),
                   random.choice((1, 2, 5, 6, 7, 0x12, 0x81, 0x86)))
        mad[16:18] = (0, random.randrange(0x40))
        return packet(bytes(mad), random.randrange(8))
    if kind == 2:
        path = [0, 1] + [random.randrange(64) for _ in range(62)]
        return packet(smp(random.choice((1, 2)), random.randrange(0x10, 0x20),
                          random.choice((0, 1, 3, 62, random.getrandbits(32),
                                         random.randrange(64) << 16,
                                         random.randrange(6) << 28)),
                          random.choice((0, 1, 2, 3, 63, 64, 255)), path,
                          random.getrandbits(64)))
    return random.randbytes(random.randrange(600))


def main():
    name, n = sys.argv[1], int(sys.argv[2])
    random.seed(1)
    clients = [Client(name, pid) for pid in (1, 2, 3)]
    for client in clients[1:]:
        client.control(SET_IS_SM, struct.pack("=I", 1), client.number)
    for i in range(n):
        client = random.choice(clients)
        client.drain()
        try:
            client.data.send(random_packet())
        except BlockingIOError:
            pass
        if i % 50 == 0:
            # Neither of these takes the client away.
            client.control(random.choice((0, 3, 4, 5, 6, 7, 8, 10, 77)),
                           random.randbytes(64), client.number)
            client.control(random.randrange(100), random.randbytes(64),
                           random.randrange(40, 1000))
            client.ctl.send(random.randbytes(random.randrange(200)))

    last = Client(name, 4)
    last.data.setblocking(True)
    last.data.settimeout(5)
    last.data.send(packet(smp(1, 0x11, 0, 1, [0, 1], 77)))
    answer = PACKET.unpack(last.data.recv(512))[-1]
    assert answer[3] == 0x81, answer
    assert answer[64:68] == bytes((1, 1, 2, 62)), answer[64:]


main()
