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
import struct
import sys

from simclient import Client, PACKET, SET_IS_SM, packet, smp


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
    clients = [Client(name, pid, random.choice((b"SM", b"SM2")))
               for pid in (1, 2, 3)]
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

    last = Client(name, 4, b"SM")
    last.data.setblocking(True)
    last.data.settimeout(5)
    last.data.send(packet(smp(1, 0x11, 0, 1, [0, 1], 77)))
    answer = PACKET.unpack(last.data.recv(512))[-1]
    assert answer[3] == 0x81, answer
    assert answer[64:68] == bytes((1, 1, 2, 62)), answer[64:]


main()
