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

"""A client of the fabric's simulation, as a program with libumad2sim is."""

import random
import socket
import struct

CONNECT, SET_IS_SM = 1, 9
PACKET = struct.Struct("=HHHHIIIIQ256s")    # As struct sim_request.


def bound(name):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind("\0%s\0" % name)
    s.settimeout(5)
    return s


class Client:
    """A client of the simulation, which calls itself process 'pid'."""

    def __init__(self, name, pid, node):
        self.ctl = bound("%s:ctl%d" % (name, pid))
        self.ctl.connect("\0%s:ctl\0" % name)
        self.data = bound("%s:in%d" % (name, pid))
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
