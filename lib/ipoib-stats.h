/*
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at:
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#ifndef IPOIB_STATS_H
#define IPOIB_STATS_H 1

/* Counters.  Each queue has a set of its own that one thread writes; readers
 * add them up.  Every packet that is dropped is counted under a name.
 *
 * Of the packets that came from the fabric, and of those that the gateway made
 * for the bridge, each is counted once:
 *
 *     received + own + fragments - fragmented
 *         = packets + drop_* + probes + host_probes + answered + taken
 *
 * and of those that the bridge gave to the port or the gateway made for the
 * fabric:
 *
 *     given + own + fragments - fragmented
 *         = packets + drop_* + answered + taken + waiting
 *
 * where 'drop_error' is not one of the latter, since it says what became of
 * some of 'packets'.  What is on a ring between two threads is not counted
 * yet.  The others say more of the same packets. */

#include <stddef.h>
#include <stdint.h>
#include "ovs-atomic.h"
#include "util.h"

/* COUNTER(member, custom statistic's name, what it counts). */
#define IPOIB_RX_COUNTERS                                                    \
    COUNTER(packets, "rx_packets", "packets handed to the bridge")           \
    COUNTER(bytes, "rx_bytes", "their bytes, as Ethernet frames")            \
    COUNTER(multicast, "rx_multicast", "of them to a group")                 \
    COUNTER(to_control, "rx_to_control", "ARP, ND and the like")             \
    COUNTER(own, "rx_own",                                                   \
            "made by the gateway for the bridge: answers and questions")     \
    COUNTER(answered, "rx_answered",                                         \
            "ARP and ND that the gateway answered for a host")               \
    COUNTER(taken, "rx_taken",                                               \
            "for the gateway itself: beacons of other gateways")             \
    COUNTER(unknown_sender, "rx_unknown_sender",                             \
            "handed on with the port's own MAC as source")                   \
    COUNTER(no_buffer, "rx_no_buffer",                                       \
            "refills of the queue for which buffers were missing")           \
    COUNTER(dhcp_broadcast, "rx_dhcp_broadcast",                             \
            "DHCP requests whose BROADCAST flag was set")                    \
    COUNTER(probes, "rx_probes", "the watchdog's own packets")               \
    COUNTER(host_probes, "rx_host_probes",                                   \
            "the same, to queue pairs of hosts")                             \
    COUNTER(spoof, "rx_spoof",                                               \
            "claims of a host's address, or in another port's name")         \
    COUNTER(drop_spoof, "rx_drop_spoof",                                     \
            "such claims, with options:guard=strict")                        \
    COUNTER(fragmented, "rx_fragmented",                                     \
            "packets cut since they were longer than options:eth-mtu")       \
    COUNTER(fragments, "rx_fragments", "what they were cut into")            \
    COUNTER(pmtu_errors, "rx_pmtu_errors",                                   \
            "ICMP errors to neighbours: longer than options:eth-mtu")        \
    COUNTER(pmtu_suppressed, "rx_pmtu_suppressed",                           \
            "such errors that were not sent, for their rate mostly")         \
    COUNTER(mss_clamped, "rx_mss_clamped", "TCP SYNs whose MSS was lowered") \
    COUNTER(ra_lowered, "rx_ra_lowered",                                     \
            "router advertisements whose MTU was lowered")                   \
    COUNTER(offload_csum, "rx_offload_csum",                                 \
            "packets whose checksums the device has verified")               \
    COUNTER(drop_error, "rx_drop_error", "completions with an error")        \
    COUNTER(drop_own, "rx_drop_own", "our own packets, looped back")         \
    COUNTER(drop_short, "rx_drop_short", "shorter than their headers")       \
    COUNTER(drop_too_long, "rx_drop_too_long",                               \
            "longer than the MTU of the broadcast group")                    \
    COUNTER(drop_eth_mtu, "rx_drop_eth_mtu",                                 \
            "longer than options:eth-mtu, and not to be cut")                \
    COUNTER(drop_bad_ip, "rx_drop_bad_ip",                                   \
            "IP version or lengths that cannot be")                          \
    COUNTER(drop_bad_arp, "rx_drop_bad_arp", "malformed ARP or RARP")        \
    COUNTER(drop_bad_nd, "rx_drop_bad_nd", "malformed ND")                   \
    COUNTER(drop_type, "rx_drop_type",                                       \
            "neither IPv4, IPv6, ARP nor RARP")                              \
    COUNTER(drop_no_host, "rx_drop_no_host",                                 \
            "sent to a queue pair of no host")                               \
    COUNTER(drop_other_host, "rx_drop_other_host",                           \
            "the destination IP is known to be another host's")              \
    COUNTER(drop_ring_full, "rx_drop_ring_full",                             \
            "the ring to the control thread was full")                       \
    COUNTER(drop_rate, "rx_drop_rate",                                       \
            "over the limit of packets to the control thread a source")      \
    COUNTER(drop_return_full, "rx_drop_return_full",                         \
            "the return ring of the queue was full")                         \
    COUNTER(drop_standby, "rx_drop_standby",                                 \
            "another gateway is the active one")                             \
    COUNTER(drop_peer, "rx_drop_peer",                                       \
            "from another gateway on the same Ethernet, or its to deliver")  \
    COUNTER(drop_gone, "rx_drop_gone",                                       \
            "the queues were taken down, or the device has failed")          \
    COUNTER(drop_not_ready, "rx_drop_not_ready", "the port is not up")

#define IPOIB_TX_COUNTERS                                                    \
    COUNTER(packets, "tx_packets", "packets given to the fabric")            \
    COUNTER(bytes, "tx_bytes", "their bytes, as Ethernet frames")            \
    COUNTER(multicast, "tx_multicast", "of them to a group")                 \
    COUNTER(copied, "tx_copied",                                             \
            "of them copied, since their memory is not registered")          \
    COUNTER(to_control, "tx_to_control",                                     \
            "ARP, ND, broadcasts and packets that wait for a path")          \
    COUNTER(own, "tx_own",                                                   \
            "made by the gateway for the fabric: answers and questions")     \
    COUNTER(answered, "tx_answered",                                         \
            "ARP and ND that the gateway answered for a neighbour")          \
    COUNTER(taken, "tx_taken",                                               \
            "for the gateway itself: beacons, RARP that it announces")       \
    COUNTER(waiting, "tx_waiting",                                           \
            "packets that wait for a path or a group now")                   \
    COUNTER(dhcp_broadcast, "tx_dhcp_broadcast",                             \
            "DHCP requests whose BROADCAST flag was set")                    \
    COUNTER(fragmented, "tx_fragmented",                                     \
            "packets cut since they were longer than the MTU of the path")   \
    COUNTER(fragments, "tx_fragments", "what they were cut into")            \
    COUNTER(pmtu_errors, "tx_pmtu_errors",                                   \
            "ICMP errors to hosts: longer than the MTU of the path")         \
    COUNTER(pmtu_suppressed, "tx_pmtu_suppressed",                           \
            "such errors that were not sent, for their rate mostly")         \
    COUNTER(mss_clamped, "tx_mss_clamped", "TCP SYNs whose MSS was lowered") \
    COUNTER(ra_lowered, "tx_ra_lowered",                                     \
            "router advertisements whose MTU was lowered")                   \
    COUNTER(offload_csum, "tx_offload_csum",                                 \
            "packets whose checksum was completed in software")              \
    COUNTER(offload_csum_device, "tx_offload_csum_device",                   \
            "packets, and segments, whose checksum the device completed")    \
    COUNTER(offload_segmented, "tx_offload_segmented",                       \
            "packets that were cut into TCP segments")                       \
    COUNTER(offload_segmented_device, "tx_offload_segmented_device",         \
            "the same, by the device")                                       \
    COUNTER(offload_segments, "tx_offload_segments",                         \
            "what they were cut into")                                       \
    COUNTER(group_fallback, "tx_group_fallback",                             \
            "sent to the broadcast group, as their own was not to be had")   \
    COUNTER(spoof, "tx_spoof",                                               \
            "claims of a neighbour's address, or in another MAC's name")     \
    COUNTER(drop_spoof, "tx_drop_spoof",                                     \
            "such claims, with options:guard=strict")                        \
    COUNTER(prio_refused, "tx_prio_refused",                                 \
            "sent with the path's own SL, as the SA did not grant another")   \
    COUNTER(drop_error, "tx_drop_error", "completions with an error")        \
    COUNTER(drop_post, "tx_drop_post", "refused by the device")              \
    COUNTER(drop_queue_full, "tx_drop_queue_full",                           \
            "the send queue was full")                                       \
    COUNTER(drop_too_long, "tx_drop_too_long",                               \
            "longer than the MTU of the path, and not to be cut")            \
    COUNTER(drop_unknown_mac, "tx_drop_unknown_mac",                         \
            "the destination is no neighbour's stand-in MAC")                \
    COUNTER(drop_no_path, "tx_drop_no_path",                                 \
            "no path, or too many packets waited for it")                    \
    COUNTER(drop_no_group, "tx_drop_no_group",                               \
            "the group was refused, or too many packets waited for it")      \
    COUNTER(drop_group_limit, "tx_drop_group_limit",                         \
            "there was no room for one more group")                          \
    COUNTER(drop_short, "tx_drop_short", "shorter than their headers")       \
    COUNTER(drop_bad_ip, "tx_drop_bad_ip",                                   \
            "IP version or lengths that cannot be")                          \
    COUNTER(drop_bad_arp, "tx_drop_bad_arp", "malformed ARP or RARP")        \
    COUNTER(drop_bad_nd, "tx_drop_bad_nd", "malformed ND")                   \
    COUNTER(drop_type, "tx_drop_type",                                       \
            "neither IPv4, IPv6, ARP nor RARP")                              \
    COUNTER(drop_loop, "tx_drop_loop",                                       \
            "the source is a neighbour's stand-in MAC: a loop")              \
    COUNTER(drop_vlan, "tx_drop_vlan",                                       \
            "tagged frames whose VLAN has no partition")                     \
    COUNTER(drop_untagged, "tx_drop_untagged",                               \
            "untagged frames where only VLANs have partitions")              \
    COUNTER(drop_offload, "tx_drop_offload",                                 \
            "marked for segmentation or a checksum, but malformed")          \
    COUNTER(drop_ring_full, "tx_drop_ring_full",                             \
            "the ring to the control thread was full")                       \
    COUNTER(drop_rate, "tx_drop_rate",                                       \
            "over the limit of packets to the control thread a source")      \
    COUNTER(drop_standby, "tx_drop_standby",                                 \
            "another gateway is the active one")                             \
    COUNTER(drop_peer, "tx_drop_peer",                                       \
            "to a group, from a host that another gateway serves")           \
    COUNTER(drop_gone, "tx_drop_gone",                                       \
            "the queues were taken down, or the device has failed")          \
    COUNTER(drop_down, "tx_drop_down", "the port is down")

#define COUNTER(MEMBER, NAME, HELP) atomic_uint64_t MEMBER;
struct ipoib_rx_stats { IPOIB_RX_COUNTERS };
struct ipoib_tx_stats { IPOIB_TX_COUNTERS };
#undef COUNTER

/* The same as tables. */
struct ipoib_counter {
    const char *name;           /* Of the custom statistic. */
    size_t ofs;                 /* In struct ipoib_[rt]x_stats. */
};
#define COUNTER(MEMBER, NAME, HELP) + 1
enum { IPOIB_N_RX_COUNTERS = IPOIB_RX_COUNTERS };
enum { IPOIB_N_TX_COUNTERS = IPOIB_TX_COUNTERS };
#undef COUNTER
extern const struct ipoib_counter ipoib_rx_counters[IPOIB_N_RX_COUNTERS];
extern const struct ipoib_counter ipoib_tx_counters[IPOIB_N_TX_COUNTERS];

/* Adds 'n' to a counter of the calling thread's own set: no locked
 * instruction. */
static inline void
ipoib_count(atomic_uint64_t *counter, uint64_t n)
{
    uint64_t value;

    atomic_read_relaxed(counter, &value);
    atomic_store_relaxed(counter, value + n);
}

static inline uint64_t
ipoib_counter_read(const atomic_uint64_t *counter)
{
    uint64_t value;

    atomic_read_relaxed(CONST_CAST(atomic_uint64_t *, counter), &value);
    return value;
}

static inline atomic_uint64_t *
ipoib_counter_of(const struct ipoib_counter *counter, const void *stats)
{
    return ALIGNED_CAST(atomic_uint64_t *,
                        (char *) CONST_CAST(void *, stats) + counter->ofs);
}

/* Add the counters of 'b' to 'a', which is the caller's own. */
void ipoib_rx_stats_add(struct ipoib_rx_stats *a,
                        const struct ipoib_rx_stats *b);
void ipoib_tx_stats_add(struct ipoib_tx_stats *a,
                        const struct ipoib_tx_stats *b);
/* The sum of the drops but for completions with an error: of every counter
 * whose name says that it is one. */
uint64_t ipoib_rx_stats_dropped(const struct ipoib_rx_stats *);
uint64_t ipoib_tx_stats_dropped(const struct ipoib_tx_stats *);

#endif /* ipoib-stats.h */
