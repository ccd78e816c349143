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

#ifndef IPOIB_COMPAT_H
#define IPOIB_COMPAT_H 1

/* Every difference between releases of Open vSwitch, and nothing else.
 *
 * A difference is known by a macro that configure found by compiling against
 * the tree that is built with (m4/ovs.m4), never by a version number, and no
 * other file asks for one.  What is here has one meaning on all releases. */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "dp-packet.h"
#include "ipoib-config.h"
#include "openvswitch/json.h"
#include "openvswitch/util.h"
#include "packets.h"
#include "unixctl.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif
#include "userspace-tso.h"

/* Compilers. */

/* Before a short loop of the data path: its body is there four times. */
#ifdef __clang__
#define IPOIB_UNROLL _Pragma("clang loop unroll_count(4)")
#else
#define IPOIB_UNROLL _Pragma("GCC unroll 4")
#endif

/* Defined where there are vectors of four lanes that take a pointer or a size
 * each. */
#if defined(__AVX2__) && defined(__LP64__)
#define IPOIB_LANES
#endif

/* Packets. */

/* What a packet that is received in memory of its own is like each time, but
 * for its base, which never changes, its size, which the caller sets, and its
 * metadata, which whoever receives it initialises (see netdev_rxq_recv()).
 *
 * With DPDK that is in two of the packet's cache lines: 32 bytes of each, the
 * start of the metadata included, so that one store does.  The line between
 * them, which a sender fills in, is left alone: nobody reads it unless the
 * offload flags say so, and who frees an mbuf leaves no next segment in it. */
#ifdef DPDK_NETDEV
#define IPOIB_PKT_MBUF_START offsetof(struct dp_packet, mbuf.data_off)
#define IPOIB_PKT_MBUF_END (offsetof(struct dp_packet, mbuf.hash) \
                            + sizeof(uint32_t))
#define IPOIB_PKT_START offsetof(struct dp_packet, source)
#define IPOIB_PKT_END ROUND_UP(offsetof(struct dp_packet, md), 32)
#else
#define IPOIB_PKT_START offsetof(struct dp_packet, allocated_)
#define IPOIB_PKT_END offsetof(struct dp_packet, md)
#endif
struct ipoib_pkt_fresh {
#ifdef DPDK_NETDEV
    uint8_t mbuf[IPOIB_PKT_MBUF_END - IPOIB_PKT_MBUF_START];
#endif
    uint8_t bytes[IPOIB_PKT_END - IPOIB_PKT_START];
};

/* Makes 'pkt' fresh, an Ethernet packet whose data are in their place, and
 * 'fresh' from it. */
static inline void
ipoib_pkt_fresh_init(struct ipoib_pkt_fresh *fresh, struct dp_packet *pkt)
{
    dp_packet_reset_offsets(pkt);
    dp_packet_reset_cutlen(pkt);
    dp_packet_reset_offload(pkt);
    pkt->packet_type = htonl(PT_ETH);
#ifdef DPDK_NETDEV
    dp_packet_init_specific(pkt);
    memcpy(fresh->mbuf, (const char *) pkt + IPOIB_PKT_MBUF_START,
           sizeof fresh->mbuf);
#endif
    memcpy(fresh->bytes, (const char *) pkt + IPOIB_PKT_START,
           sizeof fresh->bytes);
}

/* As memcpy(), for a few dozen bytes, a constant number. */
static inline ALWAYS_INLINE void
ipoib_pkt_copy__(void *dst_, const uint8_t *src, size_t n)
{
    uint8_t *dst = dst_;

#ifdef __AVX2__
    for (; n >= 32; dst += 32, src += 32, n -= 32) {
        _mm256_storeu_si256((void *) dst,
                            _mm256_loadu_si256((const void *) src));
    }
#endif
    memcpy(dst, src, n);
}

/* Makes 'pkt' fresh: what its last use left behind is gone. */
static inline ALWAYS_INLINE void
ipoib_pkt_renew(struct dp_packet *pkt, const struct ipoib_pkt_fresh *fresh)
{
#ifdef DPDK_NETDEV
    ipoib_pkt_copy__((char *) pkt + IPOIB_PKT_MBUF_START, fresh->mbuf,
                     sizeof fresh->mbuf);
#ifdef HAVE_DP_PACKET_OFFLOADS
    dp_packet_set_tso_segsz(pkt, 0); /* Which is such a flag. */
#endif
#endif
    ipoib_pkt_copy__((char *) pkt + IPOIB_PKT_START, fresh->bytes,
                     sizeof fresh->bytes);
}

/* Deletes 'n' packets, NETDEV_MAX_BURST at most.  NULLs are none. */
static inline ALWAYS_INLINE void
ipoib_pkt_delete_burst(struct dp_packet *packets[], size_t n)
{
#ifdef DPDK_NETDEV
    /* DPDK gives mbufs back to their pool by the burst. */
    struct rte_mbuf *mbufs[NETDEV_MAX_BURST];
    size_t n_mbufs = 0;

    IPOIB_UNROLL
    for (size_t i = 0; i < n; i++) {
        if (packets[i] && packets[i]->source == DPBUF_DPDK) {
            mbufs[n_mbufs++] = &packets[i]->mbuf;
        } else {
            dp_packet_delete(packets[i]);
        }
    }
    if (n_mbufs) {
        rte_pktmbuf_free_bulk(mbufs, n_mbufs);
    }
#else
    IPOIB_UNROLL
    for (size_t i = 0; i < n; i++) {
        dp_packet_delete(packets[i]);
    }
#endif
}

/* Says that the checksums of 'pkt', an IP packet, were verified: that of the
 * IP header and, if 'l4', that of TCP or UDP. */
static inline void
ipoib_pkt_set_rx_csum_good(struct dp_packet *pkt, bool l4)
{
#ifdef HAVE_DP_PACKET_OFFLOADS
    dp_packet_ip_checksum_set_good(pkt);
    if (l4) {
        dp_packet_l4_checksum_set_good(pkt);
    }
#else
    *dp_packet_ol_flags_ptr(pkt) |= DP_PACKET_OL_RX_IP_CKSUM_GOOD;
    if (l4) {
        *dp_packet_ol_flags_ptr(pkt) |= DP_PACKET_OL_RX_L4_CKSUM_GOOD;
    }
#endif
}

/* True if 'pkt' is longer than the wire, and relies on the device to cut it
 * into segments. */
static inline bool
ipoib_pkt_is_tso(const struct dp_packet *pkt)
{
#ifdef HAVE_DP_PACKET_OFFLOADS
    return dp_packet_get_tso_segsz(pkt) != 0;
#else
    return dp_packet_hwol_is_tso(pkt);
#endif
}

/* True if 'pkt' cannot be sent as it is: it is to be cut into segments, or its
 * layer-4 checksum is to be filled in by the device. */
static inline bool
ipoib_pkt_needs_offload(const struct dp_packet *pkt)
{
#ifdef HAVE_DP_PACKET_OFFLOADS
    /* netdev_send() completes checksums. */
    return ipoib_pkt_is_tso(pkt);
#else
    uint64_t flags = *dp_packet_ol_flags_ptr(pkt); /* Wide with DPDK. */

    /* Releases that complete a checksum say so by marking it good. */
    return OVS_UNLIKELY(flags & (DP_PACKET_OL_TX_TCP_SEG
                                 | DP_PACKET_OL_TX_L4_MASK))
           && (flags & DP_PACKET_OL_TX_TCP_SEG
               || !(flags & DP_PACKET_OL_RX_L4_CKSUM_GOOD));
#endif
}

/* The data of 'pkt', which is not empty; or of an empty one, any address. */
static inline void *
ipoib_pkt_data(const struct dp_packet *pkt)
{
    return (char *) dp_packet_base(pkt) + __packet_data(pkt);
}

/* The bytes of TCP that each segment of 'pkt' is to have at most, or 0 if that
 * is not known: some releases lose it on the way from the guest. */
static inline size_t
ipoib_pkt_segment_size(const struct dp_packet *pkt OVS_UNUSED)
{
#if defined(HAVE_DP_PACKET_OFFLOADS)
    return dp_packet_get_tso_segsz(pkt);
#elif defined(DPDK_NETDEV)
    return pkt->source == DPBUF_DPDK ? pkt->mbuf.tso_segsz : 0;
#else
    return 0;
#endif
}

/* Some releases complete checksums, and later ones cut TCP into segments, for
 * ports that say in 'ol_flags' of struct netdev that they do not.  On others,
 * netdev_send() drops such packets then: a port says that it does both, and
 * gets some if ipoib_may_need_offload(), which is so for all ports or none. */
#ifdef HAVE_DP_PACKET_OL_SEND_PREPARE
#define IPOIB_NETDEV_OL_FLAGS 0
#else
#define IPOIB_NETDEV_OL_FLAGS                                       \
    (NETDEV_TX_OFFLOAD_IPV4_CKSUM | NETDEV_TX_OFFLOAD_TCP_CKSUM     \
     | NETDEV_TX_OFFLOAD_UDP_CKSUM | NETDEV_TX_OFFLOAD_SCTP_CKSUM   \
     | NETDEV_TX_OFFLOAD_TCP_TSO)
#endif

static inline bool
ipoib_may_need_offload(void)
{
#ifdef HAVE_DP_PACKET_OL_SEND_PREPARE
    return false;
#else
    return userspace_tso_enabled();
#endif
}

/* Batches.
 *
 * A batch has at most NETDEV_MAX_BURST packets on some releases and any number
 * on others, where 'packets' is a pointer.  So a batch is never copied, an
 * array of NETDEV_MAX_BURST is filled from a slice of it, and what
 * ipoib_batch_init() made ends with ipoib_batch_destroy(). */

static inline void
ipoib_batch_init(struct dp_packet_batch *batch)
{
    dp_packet_batch_init(batch);
}

static inline void
ipoib_batch_destroy(struct dp_packet_batch *batch OVS_UNUSED)
{
#ifdef HAVE_DP_PACKET_BATCH_CAPACITY
    dp_packet_batch_destroy(batch);
#endif
}

/* Adds 'pkt' to 'batch', which has less than NETDEV_MAX_BURST packets. */
static inline void
ipoib_batch_push(struct dp_packet_batch *batch, struct dp_packet *pkt)
{
    dp_packet_batch_add(batch, pkt);
}

/* Adds the 'n' packets in 'pkts' to 'batch', which has room for them. */
static inline void
ipoib_batch_push_all(struct dp_packet_batch *batch, struct dp_packet *pkts[],
                     size_t n)
{
#ifdef HAVE_DP_PACKET_BATCH_CAPACITY
    for (size_t i = 0; i < n; i++) {
        dp_packet_batch_add(batch, pkts[i]);
    }
#else
    memcpy(&batch->packets[batch->count], pkts, n * sizeof *pkts);
    batch->count += n;
#endif
}

/* Where the packets go that are added to 'batch', which is empty:
 * NETDEV_MAX_BURST of them at most.  ipoib_batch_grow() adds the first 'n'. */
static inline struct dp_packet **
ipoib_batch_tail(struct dp_packet_batch *batch)
{
#ifdef HAVE_DP_PACKET_BATCH_CAPACITY
    ovs_assert(batch->capacity >= NETDEV_MAX_BURST);
#endif
    return batch->packets;
}

static inline void
ipoib_batch_grow(struct dp_packet_batch *batch, size_t n)
{
    batch->count += n;
}

/* Packets that may be added to 'batch' in a receive function. */
static inline size_t
ipoib_batch_room(const struct dp_packet_batch *batch)
{
    size_t n = dp_packet_batch_size(batch);

    return n < NETDEV_MAX_BURST ? NETDEV_MAX_BURST - n : 0;
}

/* Runs the body once for each slice of 'BATCH': 'PKTS' (struct dp_packet **)
 * is then its first packet and 'N' (size_t) their number, between 1 and
 * NETDEV_MAX_BURST.  The packets may be replaced or freed, but the batch must
 * keep its size meanwhile. */
#define IPOIB_BATCH_SLICES(PKTS, N, BATCH)                              \
    for (size_t ipoib_ofs__ = 0;                                        \
         ipoib_ofs__ < dp_packet_batch_size(BATCH)                      \
         && ((PKTS) = &(BATCH)->packets[ipoib_ofs__],                   \
             (N) = MIN(dp_packet_batch_size(BATCH) - ipoib_ofs__,       \
                       NETDEV_MAX_BURST), true);                        \
         ipoib_ofs__ += NETDEV_MAX_BURST)

/* The netdev class.  A member that the release does not have is left out, and
 * its function unused (hence OVS_UNUSED where it is defined). */

#ifdef HAVE_NETDEV_GET_SPEED
#define IPOIB_NETDEV_GET_SPEED(FUNCTION) .get_speed = FUNCTION,
#else
#define IPOIB_NETDEV_GET_SPEED(FUNCTION)
#endif

#ifdef HAVE_NETDEV_GET_DUPLEX
#define IPOIB_NETDEV_GET_DUPLEX(FUNCTION) .get_duplex = FUNCTION,
#else
#define IPOIB_NETDEV_GET_DUPLEX(FUNCTION)
#endif

/* Commands with JSON output.
 *
 * "ovs-appctl -f json" asks for it on newer releases.  On all of them, so does
 * a last argument "--format=json", for which a command's largest number of
 * arguments needs IPOIB_JSON_ARG more. */

#define IPOIB_JSON_ARG 1

/* Stores in '*json' whether the caller of a command wants JSON, and takes the
 * argument that names a format off '*argcp'.  Returns NULL, or an error, which
 * the caller frees, for a format that is neither text nor JSON. */
static inline char *
ipoib_take_format(struct unixctl_conn *conn OVS_UNUSED, int *argcp,
                  const char *argv[], bool *json)
{
    const char *last = argv[*argcp - 1];

#ifdef HAVE_UNIXCTL_REPLY_JSON
    *json = (unixctl_command_get_output_format(conn)
             == UNIXCTL_OUTPUT_FMT_JSON);
#else
    *json = false;
#endif
    if (*argcp > 1 && !strncmp(last, "--format=", 9)) {
        *json = !strcmp(last + 9, "json");
        if (!*json && strcmp(last + 9, "text")) {
            return xasprintf("%s: neither text nor json", last + 9);
        }
        --*argcp;
    }
    return NULL;
}

/* Replies with 'json', which is freed. */
static inline void
ipoib_reply_json(struct unixctl_conn *conn, struct json *json)
{
    char *s;

#ifdef HAVE_UNIXCTL_REPLY_JSON
    if (unixctl_command_get_output_format(conn) == UNIXCTL_OUTPUT_FMT_JSON) {
        unixctl_command_reply_json(conn, json);
        return;
    }
#endif
    s = json_to_string(json, JSSF_SORT);
    unixctl_command_reply(conn, s);
    free(s);
    json_destroy(json);
}

/* Daemons. */

/* daemonize_start() for a daemon that makes network devices and opens HCAs,
 * for which it keeps privileges under --user; PLAIN for one that does neither.
 * Macros, since they need "daemon.h" only where they are used. */
#ifdef HAVE_DAEMONIZE_START_HW
#define IPOIB_DAEMONIZE_START() daemonize_start(true, true)
#define IPOIB_DAEMONIZE_START_PLAIN() daemonize_start(false, false)
#else
#define IPOIB_DAEMONIZE_START() daemonize_start(true)
#define IPOIB_DAEMONIZE_START_PLAIN() daemonize_start(false)
#endif

/* JSON arrays, whose inside differs. */
static inline size_t
ipoib_json_array_size(const struct json *json)
{
#ifdef HAVE_JSON_ARRAY_AT
    return json_array_size(json);
#else
    return json_array(json)->n;
#endif
}

static inline const struct json *
ipoib_json_array_at(const struct json *json, size_t i)
{
#ifdef HAVE_JSON_ARRAY_AT
    return json_array_at(json, i);
#else
    return json_array(json)->elems[i];
#endif
}

/* Neighbour discovery. */

/* Composes a multicast neighbour solicitation for 'target' in 'pkt'. */
static inline void
ipoib_compose_ns(struct dp_packet *pkt, const struct eth_addr src,
                 const struct in6_addr *ip_src, const struct in6_addr *target)
{
#ifdef HAVE_COMPOSE_ND_NS_MULTICAST
    compose_nd_ns(pkt, true, src, ip_src, target);
#else
    compose_nd_ns(pkt, src, ip_src, target);
#endif
}

#endif /* ipoib-compat.h */
