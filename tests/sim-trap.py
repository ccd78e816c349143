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

"""sim-trap NAME: a standby subnet manager sends traps to a master in the
simulation NAME, and waits for an answer to each, as OpenSM does, which starts
no sweep before.  Prints what it sees."""

import socket
import struct
import sys

from simclient import Client, PACKET, SET_IS_SM, packet, smp

TRAP, TRAP_REPRESS = 5, 7
NOTICE = 2
UNDELIVERABLE = 110
# From the standby's node over the only switch to the master's.
ROUTE = [0, 1, 1]
# As libumad2sim's number of an agent, other than the client's.
AGENT = 2 << 32


def fields(data):
    """Status, method and transaction ID of a packet."""
    unpacked = PACKET.unpack(data)
    mad = unpacked[-1]
    return (socket.ntohl(unpacked[6]), mad[3],
            struct.unpack_from(">Q", mad, 8)[0], mad)


def trap(standby, tid):
    standby.data.send(packet(smp(TRAP, NOTICE, 0, 2, ROUTE, tid)))


def main():
    master = Client(sys.argv[1], 1, b"SM")
    standby = Client(sys.argv[1], 2, b"SM2")
    for client in (master, standby):
        client.control(SET_IS_SM, struct.pack("=I", 1), client.number)
        client.data.setblocking(True)
        client.data.settimeout(5)

    trap(standby, 0x11)
    status, method, tid, mad = fields(master.data.recv(512))
    assert (status, method, tid & 0xffffffff) == (0, TRAP, 0x11)
    print("master: has the trap")
    answer = bytearray(mad)
    answer[3] = TRAP_REPRESS
    answer[8:16] = struct.pack(">Q", tid ^ AGENT)
    master.data.send(packet(bytes(answer)))
    status, method, tid, _ = fields(standby.data.recv(512))
    assert (status, method, tid & 0xffffffff) == (0, TRAP_REPRESS, 0x11)
    print("standby: has the answer")
    standby.data.settimeout(2)
    try:
        assert not standby.data.recv(512)
    except socket.timeout:
        print("standby: nothing else")

    # A master that is none any more says nothing.
    standby.data.settimeout(5)
    trap(standby, 0x22)
    status, method, tid, _ = fields(standby.data.recv(512))
    assert (status, method, tid & 0xffffffff) == (UNDELIVERABLE, TRAP, 0x22)
    print("standby: has its trap back")

    master.control(SET_IS_SM, struct.pack("=I", 0), master.number)
    trap(standby, 0x33)
    status, method, tid, _ = fields(standby.data.recv(512))
    assert (status, method, tid & 0xffffffff) == (UNDELIVERABLE, TRAP, 0x33)
    print("standby: has its trap back where there is no manager")


main()
