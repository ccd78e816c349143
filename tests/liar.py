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

"""A port of the software fabric that pretends to be the SA.

    liar.py FABRIC LID QPN

Sends management datagrams that lie to LID, to queue pairs around QPN, from
queue pair 1: answers that nobody asked for, to other transactions, that are
truncated, of other classes, Reports, and noise."""

import random
import struct
import sys
import time

import crowd

SPREAD = 48


def mad(method, attr, tid, data=b"", status=0, mgmt_class=3, version=1):
    head = struct.pack(">BBBBHHQHHI", version, mgmt_class, 2, method, status,
                       0, tid, attr, 0, 0) + bytes(12) + struct.pack(
                           ">QHHQ", 0, 0, 0, 0)
    return (head + data + bytes(256))[:256]


def lies(fabric):
    """A path to the liar for everybody, an MLID for every group, and so on."""
    path = struct.pack(">Q16s16sHHIBBHHBBB", 0, fabric.gid, fabric.gid,
                       fabric.lid, fabric.lid, 0, 0, 0x81, 0xFFFF, 0, 0x84,
                       0x83, 0x92) + bytes(7)
    member = fabric.mgid + fabric.gid + struct.pack(
        ">IHBBHBBIB3x", 0xBAD, 0xC0FF, 0x84, 0, 0xFFFF, 0x83, 0x92, 0, 1)
    for tid in list(range(64)) + [i << 8 for i in range(64)]:
        yield mad(0x81, 0x35, tid, path)
        yield mad(0x81, 0x38, tid, member)
        yield mad(0x81, 0x38, tid, b"", 0x0300)
        yield mad(0x95, 0x38, tid)
    yield mad(0x81, 0x35, 1, path)[:100]        # truncated
    yield mad(0x81, 0x01, 1, b"\xff" * 72)      # ClassPortInfo
    yield mad(0x81, 0x35, 1, path, mgmt_class=0x81)
    yield mad(0x81, 0x35, 1, path, version=9)
    yield mad(0x06, 0x02, 1, b"\xff" * 80)      # a Report
    yield mad(0x01, 0x35, 1)                    # a request
    yield b""
    for size in (1, 24, 56, 255, 256, 1000):
        yield random.randbytes(size)


def main():
    fabric = crowd.Fabric(sys.argv[1])
    lid, around = int(sys.argv[2]), int(sys.argv[3], 0)
    n = 0
    for lie in lies(fabric):
        for qpn in range(around - SPREAD, around + SPREAD):
            fabric.send(lid, qpn, 1, crowd.QKEY_GSI, lie)
            n += 1
        time.sleep(0.002)       # Else the liar's victim reads only some.
    print(f"{n} lies")


if __name__ == "__main__":
    main()
