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

"""Our fabric daemon in the place of another's.

The external judges prove their virtual machine on a fabric of their own, with a
command line and a control socket.  This program has both, and runs and commands
ovs-ipoib-fabric:

    fabric-shim.py -u ADDR:PORT -c CONTROL [-w PCAP] [-p PKEYS] [-m MTU] [-v]
"""

import argparse
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

STATES = {"1": "down", "2": "init", "3": "armed", "4": "active"}


class Fabric:
    def __init__(self, options):
        self.directory = tempfile.mkdtemp(prefix="fabric")
        self.ctl = f"{self.directory}/ctl"
        command = ["ovs-ipoib-fabric", f"--unixctl={self.ctl}", "-vconsole:off",
                   f"--log-file={options.control}.log",
                   f"--udp={options.udp}"]
        if options.pcap:
            command.append(f"--pcap={options.pcap}")
        if options.pkeys:
            command.append(f"--pkeys={options.pkeys}")
        if options.mtu:
            command.append(f"--mtu={options.mtu}")
        self.process = subprocess.Popen(command)
        for _ in range(50):
            if os.path.exists(self.ctl):
                break
            time.sleep(0.1)

    def appctl(self, *words):
        done = subprocess.run(["ovs-appctl", "-t", self.ctl, *words],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout

    def table(self, name):
        return json.loads(self.appctl(name, "--format=json"))

    def groups(self, _):
        lids = {p["guid"]: p["lid"] for p in self.table("fabric/ports")}
        lines = []
        for group in self.table("fabric/groups"):
            members = sorted((lids.get(m["guid"], 0), m["state"])
                             for m in group["members"])
            lines.append(
                f"{ipaddress.ip_address(group['mgid']).exploded} "
                f"{group['mlid']}: " +
                " ".join(f"{lid}/{state}" for lid, state in members))
        return "\n".join(lines) + "\n"

    def command(self, words):
        name, rest = words[0], words[1:]
        if name == "where":
            return self.appctl("fabric/address").replace("udp:", "")
        if name == "groups":
            return self.groups(rest)
        simple = {"ports": "ports", "stats": "counters", "lid": "set-lid",
                  "lmc": "set-lmc", "pkeys": "set-pkeys", "mtu": "set-mtu",
                  "smlid": "set-sm-lid", "prefix": "set-prefix"}
        if name in simple:
            return self.appctl(f"fabric/{simple[name]}", *rest)
        if name == "state":
            return self.appctl("fabric/port-state", rest[0], STATES[rest[1]])
        if name == "rereg":             # without a port: groups are forgotten
            return (self.appctl("fabric/reregister", *rest) if rest
                    else self.appctl("fabric/sm-restart"))
        raise RuntimeError(f"{name}: unknown\n")

    def stop(self):
        self.process.terminate()
        self.process.wait()
        subprocess.run(["rm", "-rf", self.directory], check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-u", dest="udp", required=True)
    parser.add_argument("-c", dest="control", required=True)
    parser.add_argument("-w", dest="pcap")
    parser.add_argument("-p", dest="pkeys")
    parser.add_argument("-m", dest="mtu")
    parser.add_argument("-v", action="store_true")
    options = parser.parse_args()
    options.control = os.path.abspath(options.control)
    fabric = Fabric(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if os.path.exists(options.control):
        os.unlink(options.control)
    server = socket.socket(socket.AF_UNIX)
    server.bind(options.control)
    server.listen()
    try:
        while True:
            peer = server.accept()[0]
            words = peer.recv(65536).rstrip(b"\0").decode().split()
            try:
                answer = fabric.command(words)
            except RuntimeError as error:
                answer = f"error: {error}"
                print(words, answer, file=sys.stderr, flush=True)
            peer.sendall(answer.encode())
            peer.close()
    finally:
        fabric.stop()


if __name__ == "__main__":
    sys.exit(main())
