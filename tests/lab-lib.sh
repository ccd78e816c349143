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

# What tests/conformance/run and tests/kernel/run share: a laboratory, that is
# namespaces of its own, in which the built daemons run, and the count of the
# checks.
#
# The environment tells where things are:
#
#   TOP_BUILDDIR   our build tree (default: the current directory)
#   OVS_BUILD      Open vSwitch's build tree (default: as configured there)
#   OVS_SRC        Open vSwitch's source tree (the same)
#   IPOIB_SHARED   the external judges (default: ../shared, beside the source)

set -u
lab_dir=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
top_srcdir=$(dirname "$lab_dir")
top_builddir=$(realpath "${TOP_BUILDDIR:-.}")
shared=${IPOIB_SHARED:-$(dirname "$top_srcdir")/shared}

# Prints the variable $1 of our build tree's Makefile.
lab_make_variable() {
    sed -n "s|^$1 *= *||p" "$top_builddir/Makefile" 2>/dev/null | head -n 1
}

ovs_builddir=${OVS_BUILD:-$(lab_make_variable OVS_BUILD)}
ovs_srcdir=${OVS_SRC:-$(lab_make_variable OVS_SRC)}
[ -z "$ovs_builddir" ] ||
    PATH=$ovs_builddir/utilities:$ovs_builddir/ovsdb:$PATH
export PATH=$top_builddir/vswitchd:$top_builddir/utilities:$PATH

passed=0 failed=0 skipped=0

pass() {
    echo "PASS $1"
    passed=$((passed + 1))
}

# Standard input, indented, says why.  (Not in a pipe: it would count in vain.)
fail() {
    echo "FAIL $1"
    sed 's/^/     /' | tail -n "${LAB_LINES:-25}"
    failed=$((failed + 1))
}

skip() {
    echo "SKIP $1"
    skipped=$((skipped + 1))
}

# check NAME COMMAND...: one line, and what the command printed if it failed;
# true if it did not.
check() {
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then
        pass "$name"
    else
        fail "$name" <<<"$output"
        return 1
    fi
}

# Tries a command every 0.1 s, for at most $1 tenths of a second.
until_true() {
    local n=$1
    shift
    while ! "$@" >/dev/null 2>&1; do
        [ $((n -= 1)) -gt 0 ] || return 1
        sleep 0.1
    done
}

# Prints the final line and exits.
lab_finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ]
    exit
}

# lab_enter NAME ARG...: starts the script again, in network, mount and process
# namespaces of its own: whatever it starts ends with it, in any case.  Returns
# inside of them, with $out, a fresh directory for logs and captures, which
# remains in the build tree.
lab_enter() {
    local name=$1
    shift
    if [ -z "${LAB_INSIDE-}" ]; then
        if [ "$(id -u)" != 0 ]; then
            skip "$name: needs root, for namespaces"
            lab_finish
        fi
        export LAB_INSIDE=1
        exec unshare -n -m -p -f --kill-child --mount-proc -- "$0" "$@"
        exit 1
    fi
    unset LAB_INSIDE
    trap 'exit 1' TERM INT HUP
    out=$top_builddir/tests/$name.dir
    rm -rf "$out"
    mkdir -p "$out"
    mount -t tmpfs tmpfs /run
    mkdir -p /run/netns /run/openvswitch
    ip link set lo up
    export OVS_RUNDIR=/run/openvswitch OVS_DBDIR=/run/openvswitch
    export OVS_SYSCONFDIR=/run/openvswitch OVS_LOGDIR=$out OVS_CTL_TIMEOUT=20
    export OVS_PKGDATADIR=$ovs_srcdir/vswitchd
}

# Skips the whole run where one of the programs is not there.
lab_need() {
    local program missing=
    for program; do
        command -v "$program" >/dev/null || missing+=" $program"
    done
    if [ -n "$missing" ]; then
        skip "not installed or not built:$missing"
        lab_finish
    fi
}

# True if the process in PIDFILE runs.
lab_alive() {
    [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null
}

# Ends the daemon NAME as a crash of the machine would not: by SIGTERM.
lab_stop() {
    local pidfile=$OVS_RUNDIR/$1.pid pid
    [ -s "$pidfile" ] || return 0
    pid=$(cat "$pidfile")
    kill "$pid" 2>/dev/null || return 0
    until_true 100 eval "! kill -0 $pid" || kill -9 "$pid" 2>/dev/null
    rm -f "$pidfile"
}

# A database server, with an empty database, and our daemon.
lab_start_ovs() {
    rm -f "$OVS_DBDIR/conf.db"
    ovsdb-tool create "$OVS_DBDIR/conf.db" \
               "$ovs_srcdir/vswitchd/vswitch.ovsschema" &&
    ovsdb-server -vconsole:off --pidfile --detach --log-file \
                 --remote="punix:$OVS_RUNDIR/db.sock" "$OVS_DBDIR/conf.db" &&
    ovs-vsctl --no-wait init &&
    ovs-vsctl --no-wait set Open_vSwitch . other_config:pmd-maxsleep=500 &&
    lab_start_vswitchd
}

# Only our daemon.
lab_start_vswitchd() {
    ovs-vswitchd -vconsole:off --pidfile --detach --log-file "$@" \
                 "unix:$OVS_RUNDIR/db.sock"
}

# What the daemon NAME left in its log that calls for a person: a check.
# The rest of the arguments are patterns (grep -E) of what the run provokes.
lab_check_log() {
    local name=$1 allowed
    shift
    allowed=$(printf '|%s' "$@")
    if [ ! -e "$out/$name.log" ]; then
        fail "$name's log has no warning" <<<"there is no $name.log"
        return
    fi
    if grep -E '\|(WARN|ERR|EMER)\|' "$out/$name.log" |
            { [ -n "$*" ] && grep -Ev "${allowed#|}" || cat; } |
            grep . >"$out/$name.warnings"; then
        fail "$name's log has no warning" <"$out/$name.warnings"
    else
        pass "$name's log has no warning"
    fi
}

# What the gateway has to do with.  All else is payload, often random, in which
# tshark would find strange protocols, and these malformed.
lab_protocols='frame|erf|eth|ethertype|infiniband.*|ip|ipv6.*|arp|icmp|icmpv6'
lab_protocols+='|igmp|udp|tcp|dhcp|dhcpv6|data|_ws[.].*'

# lab_check_capture NAME FILE: tshark decodes it, and finds no packet malformed.
# It must not put TCP streams together: it takes retransmissions of other
# lengths for malformed.
lab_check_capture() {
    local name=$1 file=$2 config=$out/wireshark
    if ! command -v tshark >/dev/null; then
        skip "$name: tshark is not installed"
        return
    elif [ ! -s "$file" ]; then
        fail "$name" <<<"there is no $file"
        return
    fi
    mkdir -p "$config"
    tshark -G protocols 2>/dev/null | cut -f 3 |
        grep -Evx "$lab_protocols" >"$config/disabled_protos"
    if ! WIRESHARK_CONFIG_DIR=$config timeout 300 \
         tshark -n -o tcp.desegment_tcp_streams:FALSE -r "$file" \
                -Y _ws.malformed >"$out/tshark" 2>"$out/tshark.err"; then
        fail "$name" <"$out/tshark.err"
    elif [ -s "$out/tshark" ]; then
        fail "$name" <"$out/tshark"
    else
        pass "$name"
    fi
}

# lab_start_fabric SOCKET UDP CAPTURE PKEYS: our fabric daemon; SOCKET, or UDP
# (ADDR:PORT), may be empty.
lab_start_fabric() {
    ovs-ipoib-fabric -vconsole:off --pidfile --detach --log-file \
                     ${1:+--unix="$1"} ${2:+--udp="$2"} --pcap="$3" --pkeys="$4"
}
