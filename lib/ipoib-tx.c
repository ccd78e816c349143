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

#include <config.h>
#include "ipoib-tx.h"

#include <errno.h>

#include "dp-packet.h"
#include "ipoib-classify.h"
#include "ipoib-compat.h"
#include "ipoib-mtu.h"
#include "ipoib-offload.h"
#include "ipoib-neigh-private.h"
#include "ipoib-packet.h"
#include "ipoib-pool.h"
#include "ipoib-ring-private.h"
#include "ipoib-tx-control.h"
#include "ipoib-tx-tso.h"
#include "ipoib-variant.h"
#include "netdev.h"
#include "openvswitch/vlog.h"
#include "unaligned.h"
#include "util.h"

#define IPOIB_VLOG_MODULE VLM_ipoib_tx
IPOIB_VARIANT_VLOG(ipoib_tx);

/* The IPoIB header is written over the tail of the Ethernet header:
 *
 *     0              10             14
 *     | Ethernet     |              | IP ...
 *                    | type | 0     |
 */
#define IPOIB_OFS (ETH_HEADER_LEN - IPOIB_HEADER_LEN)

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(5, 20);

/* One call's context. */
struct tx {
    struct ipoib_txq *txq;
    struct ipoib_txq_slots *slots;
    const struct ipoib_shared *shared;
    uint32_t now;               /* Second. */
    uint32_t mtu;               /* Largest IP packet. */
    bool running;               /* The queue takes WRs. */
    ssize_t max_inline;         /* Largest IP packet that is sent inline;
                                 * negative: none. */
    uint32_t clamp;             /* TCP's MSS is kept to IP packets of so many
                                 * bytes; 0: it is not. */
    unsigned int class;         /* Of options:prio-map. */
    bool not_inline;            /* A WR of the burst is not sent inline. */
    struct ipoib_region region; /* Of the last packet that was not copied. */
    uint64_t last_src;          /* Source MAC (and type) of the last unicast
                                 * packet, as they lie in it. */

    /* The burst that is being made. */
    struct tx_out {
        struct ipoib_tx_wr *next; /* First WR that is free. */
        struct ipoib_tx_wr *end; /* First WR that does not fit. */
        uint64_t bytes;         /* Of IP. */
    } out;
    uint32_t multicast;
};

static inline bool
tx_is_multicast(const uint8_t *eth)
{
    return eth[0] & 1;
}

/* A packet is dropped for the reason that 'counter' stands for.  It is deleted
 * with the others of its batch. */
static void
tx_drop(atomic_uint64_t *counter)
{
    ipoib_count(counter, 1);
}

/* Returns true if 'txq' takes packets. */
static inline bool
tx_is_running(struct ipoib_txq *txq)
{
    uint32_t state;

    atomic_read_explicit(&txq->state, &state, memory_order_acquire);
    return (OVS_LIKELY(state == IPOIB_TXQ_RUNNING)
            || (state == IPOIB_TXQ_RESTARTED && ipoib_txq_restarted(txq)));
}

/* Returns true if a queue in 'state' is the control thread's, or will be soon:
 * its slots must not be touched then. */
static inline bool
tx_is_stopped(uint32_t state)
{
    return state == IPOIB_TXQ_STOPPING || state == IPOIB_TXQ_STOPPED;
}

/* Posting. */

/* Number of WRs in the burst. */
static inline uint32_t
tx_n(const struct tx *tx)
{
    return tx->out.next - tx->slots->wrs;
}

static inline bool
tx_is_empty(const struct tx *tx)
{
    return tx->out.next == tx->slots->wrs;
}

/* Looks how much the queue takes. */
static void
tx_set_room(struct tx *tx)
{
    uint32_t room = tx->running ? ipoib_txq_room(tx->slots) : 0;

    tx->out.end = tx->slots->wrs + MIN(room, NETDEV_MAX_BURST);
}

/* The queue may have failed afterwards, so that no more of a burst may be
 * posted until its state has been looked at. */
static inline void
tx_take_completions(struct ipoib_txq *txq)
{
    if (txq->slots->head != txq->slots->tail) {
        ipoib_txq_reap(txq);
    }
}

/* Looks whether the queue runs, and how much it takes.  If it runs and has
 * room for a burst, its completions are taken after posting, so that no packet
 * waits for that. */
static void
tx_start(struct tx *tx)
{
    struct ipoib_txq *txq = tx->txq;
    uint32_t state;

    atomic_read_explicit(&txq->state, &state, memory_order_acquire);
    if (OVS_UNLIKELY(state != IPOIB_TXQ_RUNNING)
        || OVS_UNLIKELY(ipoib_txq_room(tx->slots) < NETDEV_MAX_BURST)) {
        if (!tx_is_stopped(state)) {
            tx_take_completions(txq);
        }
        tx->running = tx_is_running(txq);
    } else {
        tx->running = true;
    }
    tx_set_room(tx);
}

/* True if the packet of 'wr' is in 'slots->held'. */
static bool
tx_is_held(const struct ipoib_txq_slots *slots, const struct ipoib_tx_wr *wr)
{
    return !(wr->wr.send_flags & IBV_SEND_INLINE)
           && wr->sge.lkey != slots->lkey;
}

/* 'n' WRs from 'first' on, the last ones, were not posted. */
static void
tx_not_posted(struct tx *tx, uint32_t first, uint32_t n, int error)
{
    struct ipoib_txq_slots *slots = tx->slots;
    size_t n_held = 0;

    VLOG_INFO_RL(&rl, "transmit queue %u: posting failed (%s)", tx->txq->id,
                 ovs_strerror(error));
    ipoib_count(&tx->txq->stats.drop_post, n);
    for (uint32_t i = first; i < first + n; i++) {
        const struct ipoib_tx_wr *wr = &slots->wrs[i];
        bool is_multicast = wr->wr.wr.ud.remote_qpn == IB_QPN_MULTICAST;

        tx->multicast -= MIN(is_multicast, tx->multicast);
        tx->out.bytes -= wr->sge.length - IPOIB_HEADER_LEN;
        n_held += tx_is_held(slots, wr);
    }
    while (n_held--) {
        dp_packet_delete(slots->held[--slots->held_head & slots->mask]);
    }
    if (!first) {
        ipoib_txq_refused(tx->txq);
        tx->running = tx->running && tx_is_running(tx->txq);
    }
}

/* The 'n' WRs of a burst are as they were before it.  (Most bursts change
 * those of the last one only.) */
static void
tx_restore_flags(struct tx *tx, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        tx->slots->wrs[i].wr.send_flags = IBV_SEND_INLINE;
    }
}

/* Posts the burst; its last WR is signalled.  A queue that has failed since
 * the burst was begun is the control thread's, which may be resetting the
 * QP. */
static void
tx_post(struct tx *tx)
{
    struct ipoib_txq_slots *slots = tx->slots;
    struct ibv_send_wr *first = &slots->wrs[0].wr, *bad = first;
    uint32_t n = tx_n(tx), posted = n;
    int error = EIO;

    if (OVS_LIKELY(tx->running)) {
        struct ibv_send_wr *last = &slots->wrs[n - 1].wr;
        struct ibv_send_wr *next = last->next;

        if (OVS_UNLIKELY(tx->txq->device_csum)) {
            for (uint32_t i = 0; i < n; i++) {
                slots->wrs[i].wr.send_flags |= IBV_SEND_IP_CSUM;
            }
        }
        last->wr_id = ipoib_tx_wr_id(slots->head + n, slots->held_head);
        last->send_flags |= IBV_SEND_SIGNALED;
        last->next = NULL;
        bad = NULL;
        error = ibv_post_send(tx->txq->qp, first, &bad);
        last->next = next;
        last->wr_id = 0;
    }
    if (OVS_UNLIKELY(error)) {
        posted = (bad ? CONTAINER_OF(bad, struct ipoib_tx_wr, wr) - slots->wrs
                  : 0);
        tx_not_posted(tx, posted, n - posted, error);
    } else {
        slots->n_failed = 0;
    }
    slots->head += posted;
    slots->wrs[n - 1].wr.send_flags = IBV_SEND_INLINE;
    if (OVS_UNLIKELY(tx->not_inline) || OVS_UNLIKELY(tx->txq->device_csum)) {
        tx_restore_flags(tx, n);
        ipoib_txq_set_n_held(slots);
        tx->not_inline = false;
    }

    ipoib_count(&tx->txq->stats.packets, posted);
    ipoib_count(&tx->txq->stats.bytes,
                tx->out.bytes + posted * ETH_HEADER_LEN);
    ipoib_count(&tx->txq->stats.multicast, tx->multicast);
    tx->out.next = slots->wrs;
    tx->out.bytes = tx->multicast = 0;
}

/* No room: makes some.  Returns false if there is none; then the packet is
 * counted as dropped. */
static bool
tx_make_room(struct tx *tx)
{
    struct ipoib_txq *txq = tx->txq;

    if (tx->running) {
        ipoib_txq_reap(txq);
        tx->running = tx_is_running(txq);
        tx_set_room(tx);
    }
    if (!tx->running) {
        tx_drop(&txq->stats.drop_post);
        return false;
    }
    if (tx->out.next >= tx->out.end) {
        tx_drop(&txq->stats.drop_queue_full);
        return false;
    }
    return true;
}

/* Looks for a region of which 'packet' is. */
static __attribute__((__noinline__)) bool
tx_find_region(struct tx *tx, const struct dp_packet *packet)
{
    tx->region = ipoib_pool_region(tx->slots->pd, packet);
    return tx->region.lkey != 0;
}

/* Has 'wr' be sent from its slot. */
static __attribute__((__noinline__)) void
tx_copy(struct tx *tx, struct ipoib_tx_wr *wr)
{
    struct ipoib_txq_slots *slots = tx->slots;
    uint32_t pos = (slots->head + (wr - slots->wrs)) & slots->mask;
    uint8_t *slot = slots->mem + (size_t) pos * slots->slot_size;

    memcpy(slot, (void *) (uintptr_t) wr->sge.addr, wr->sge.length);
    wr->sge.addr = (uintptr_t) slot;
    wr->sge.lkey = slots->lkey;
    ipoib_count(&tx->txq->stats.copied, 1);
}

/* 'wr', that of '*packetp', is not sent inline after all.  What lies in memory
 * that the device can read is sent from there, and the queue holds the packet
 * ('*packetp' becomes NULL); the rest is copied. */
static inline void
tx_not_inline(struct tx *tx, struct ipoib_tx_wr *wr,
              struct dp_packet **packetp)
{
    struct ipoib_txq_slots *slots = tx->slots;

    wr->wr.send_flags = 0;
    tx->not_inline = true;
    if (OVS_LIKELY(ipoib_region_has(&tx->region, wr->sge.addr,
                                    wr->sge.length))
        || tx_find_region(tx, *packetp)) {
        wr->sge.lkey = tx->region.lkey;
        slots->held[slots->held_head++ & slots->mask] = *packetp;
        *packetp = NULL;
    } else {
        tx_copy(tx, wr);
    }
}

/* Adds to 'out', which has room, the 'ip_len' bytes of IP in the frame at
 * 'eth', to 'qpn' by 'ah', to be sent inline. */
static inline ALWAYS_INLINE void
tx_put(struct tx_out *out, uint8_t *eth, size_t ip_len, struct ibv_ah *ah,
       uint32_t qpn)
{
    struct ipoib_tx_wr *wr = out->next++;
    uint8_t *data = eth + IPOIB_OFS;
    uint32_t ipoib;
    uint16_t type;

    /* The driver copies the address vector, which is behind it. */
    OVS_PREFETCH(ah);
    OVS_PREFETCH((const char *) ah + CACHE_LINE_SIZE);

    /* The type, and two zeros, in one store. */
    memcpy(&type, data + 2, sizeof type);
#ifdef WORDS_BIGENDIAN
    ipoib = (uint32_t) type << 16;
#else
    ipoib = type;
#endif
    memcpy(data, &ipoib, sizeof ipoib);

    /* The rest of the WR is always the same. */
    wr->wr.wr.ud.ah = ah;
    wr->wr.wr.ud.remote_qpn = qpn;
    wr->sge.addr = (uintptr_t) data;
    wr->sge.length = ip_len + IPOIB_HEADER_LEN;
    out->bytes += ip_len;
}

/* The same for '*packetp', whose data is at 'eth', for any length, and where
 * there may be no room: then it is dropped. */
static inline ALWAYS_INLINE void
tx_append(struct tx *tx, struct dp_packet **packetp, uint8_t *eth,
          size_t ip_len, struct ibv_ah *ah, uint32_t qpn)
{
    if (OVS_UNLIKELY(tx->out.next >= tx->out.end) && !tx_make_room(tx)) {
        return;
    }
    tx_put(&tx->out, eth, ip_len, ah, qpn);
    if ((ssize_t) ip_len > tx->max_inline) {
        tx_not_inline(tx, tx->out.next - 1, packetp);
    }
}

/* True if the source of the frame at 'eth' is that of the last one. */
static inline bool
tx_same_source(const struct tx *tx, const uint8_t *eth)
{
    uint64_t src;

    memcpy(&src, eth + ETH_ADDR_LEN, sizeof src);
    return src == tx->last_src;
}

/* The source of 'packet', whose data is at 'eth', is another one.  Returns
 * true, and has counted it, if the packet is to be dropped. */
static inline bool
tx_new_source(struct tx *tx, const uint8_t *eth,
              const struct dp_packet *packet)
{
    struct ipoib_txq *txq = tx->txq;
    uint64_t mac = ipoib_get_mac(eth + ETH_ADDR_LEN);
    size_t place = ipoib_tx_first_place(mac);

    if ((OVS_UNLIKELY(txq->tables->sources[place].mac != mac)
         || OVS_UNLIKELY(txq->tables->sources[place].told != tx->now))
        && ipoib_tx_tell_source(txq, tx->now, mac, packet)) {
        tx_drop(&txq->stats.drop_loop);
        return true;
    }
    memcpy(&tx->last_src, eth + ETH_ADDR_LEN, sizeof tx->last_src);
    return false;
}

static inline bool
tx_source(struct tx *tx, const uint8_t *eth, const struct dp_packet *packet)
{
    return !tx_same_source(tx, eth) && tx_new_source(tx, eth, packet);
}

/* Packets that are too long. */

/* Posts what is in the burst. */
static void
tx_flush(struct tx *tx)
{
    if (!tx_is_empty(tx)) {
        tx_post(tx);
        tx_set_room(tx);
    }
}

/* Sends the 'ip_len' bytes of IPv4 in 'packet' as fragments of at most 'mtu'
 * bytes, to 'qpn' by 'ah', or if that is NULL to the control thread as 'msg'.
 * The burst before and behind them is posted, so that it never has more than
 * what is left of the batch; a fragment is needed until it is posted. */
static void
tx_fragments(struct tx *tx, const struct dp_packet *packet, uint32_t ip_len,
             uint32_t mtu, struct ibv_ah *ah, uint32_t qpn,
             const struct ipoib_msg *msg)
{
    struct ipoib_tx_stats *stats = &tx->txq->stats;
    const uint8_t *eth = dp_packet_data(packet);
    struct dp_packet *frags[NETDEV_MAX_BURST];
    bool device_csum = tx->txq->device_csum;
    struct ipoib_mtu_fragmenter f;
    size_t n = 0, total = 0;
    bool more = true;

    ipoib_mtu_fragment(&f, eth + ETH_HEADER_LEN, ip_len, mtu, eth,
                       ETH_HEADER_LEN);
    tx_flush(tx);
    tx->txq->device_csum = false; /* No device can do it for a fragment. */
    while (more) {
        struct dp_packet *frag = ipoib_mtu_next_fragment(&f);

        more = frag != NULL;
        if (frag && ah) {
            tx_append(tx, &frag, dp_packet_data(frag),
                      dp_packet_size(frag) - ETH_HEADER_LEN, ah, qpn);
            frags[n++] = frag;
            total++;
        } else if (frag) {
            struct ipoib_msg copy = *msg;

            ipoib_tx_to_control(tx->txq, &frag, &copy);
            dp_packet_delete(frag);
            total++;
        }
        if (n == ARRAY_SIZE(frags) || !more) {
            tx->multicast += qpn == IB_QPN_MULTICAST ? tx_n(tx) : 0;
            tx_flush(tx);
            while (n) {
                dp_packet_delete(frags[--n]);
            }
        }
    }
    tx->txq->device_csum = device_csum;
    ipoib_count(&stats->fragmented, 1);
    ipoib_count(&stats->fragments, total);
}

/* The 'ip_len' bytes of IP in 'packet' are longer than 'mtu'.  The other
 * arguments are those of tx_fragments().  Errors are for unicasts alone. */
static void
tx_too_long(struct tx *tx, const struct dp_packet *packet, uint32_t ip_len,
            uint32_t mtu, struct ibv_ah *ah, uint32_t qpn,
            const struct ipoib_msg *msg)
{
    const struct eth_header *eth = dp_packet_data(packet);
    struct ipoib_tx_stats *stats = &tx->txq->stats;

    switch (ipoib_mtu_judge(ntohs(eth->eth_type), eth + 1, ip_len, mtu)) {
    case IPOIB_MTU_BAD:
        tx_drop(&stats->drop_bad_ip);
        break;

    case IPOIB_MTU_FRAGMENT:
        tx_fragments(tx, packet, ip_len, mtu, ah, qpn, msg);
        break;

    case IPOIB_MTU_ERROR:
        tx_drop(&stats->drop_too_long);
        if (!eth_addr_is_multicast(eth->eth_dst)
            && !eth_addr_is_multicast(eth->eth_src)) {
            ipoib_tx_error(tx->txq, eth, ip_len, mtu);
        }
        break;

    case IPOIB_MTU_DROP:
        tx_drop(&stats->drop_too_long);
        break;
    }
}

/* Groups. */

/* Several gateways share the hosts.  True if 'mac' is one that this one
 * serves, and not another gateway's name for a neighbour. */
static bool
tx_is_ours(const struct tx *tx, struct eth_addr mac)
{
    const struct ipoib_share *share = ipoib_share_active(tx->shared->share);

    return (OVS_LIKELY(!share)
            || (ipoib_share_is_ours(share, eth_addr_to_uint64(mac))
                && !ipoib_share_has_mac(share, mac)));
}

/* Sends '*packetp', IP to a group or broadcast, whose IP packet has 'ip_len'
 * bytes. */
static void
tx_multicast(struct tx *tx, struct dp_packet **packetp, ovs_be16 type,
             size_t ip_len, enum ipoib_ip_class class, size_t l4_ofs)
{
    const struct ipoib_shared *shared = tx->shared;
    const struct eth_header *eth = dp_packet_data(*packetp);
    const uint8_t *ip = (const uint8_t *) eth + ETH_HEADER_LEN;
    struct ipoib_mcast_fast *group;
    struct ibv_ah *ah = NULL;
    struct ipoib_msg msg;
    uint32_t slot, used;
    bool to_group;

    memset(&msg, 0, sizeof msg);
    if (type == htons(ETH_TYPE_IP)) {
        const struct ip_header *nh = ALIGNED_CAST(const struct ip_header *,
                                                  ip);
        ovs_be32 dst = get_16aligned_be32(&nh->ip_dst);

        to_group = ip_is_multicast(dst);
        msg.mgid = ipoib_mgid_ipv4(dst, shared->pkey, shared->scope);
    } else {
        struct in6_addr dst;

        memcpy(&dst, ip + 24, sizeof dst);
        to_group = ipv6_addr_is_multicast(&dst);
        msg.mgid = ipoib_mgid_ipv6(&dst, shared->pkey, shared->scope);
    }

    if (!eth_addr_is_multicast(eth->eth_dst)) {
        tx_drop(&tx->txq->stats.drop_unknown_mac); /* All zeros. */
        return;
    }
    if (class != IPOIB_IP_IGMP && class != IPOIB_IP_MLD
        && !tx_is_ours(tx, eth->eth_src)) {
        tx_drop(&tx->txq->stats.drop_peer);
        return;
    }
    if (!to_group) {
        /* Only the broadcast group takes what is no group's.  (Ethernet
         * multicasts of unicast IP belong to clusters on this side.) */
        if (!eth_addr_is_broadcast(eth->eth_dst)) {
            tx_drop(&tx->txq->stats.drop_unknown_mac);
            return;
        }
        msg.type = IPOIB_MSG_TX_BROADCAST;
        msg.mgid = shared->broadcast;
        if (ip_len > tx->mtu) {
            tx_too_long(tx, *packetp, ip_len, tx->mtu, NULL, 0, &msg);
        } else {
            ipoib_tx_to_control(tx->txq, packetp, &msg);
        }
        return;
    }

    msg.type = IPOIB_MSG_TX_GROUP;
    if (class == IPOIB_IP_IGMP || class == IPOIB_IP_MLD
        || class == IPOIB_IP_PIM) {
        msg.l4_ofs = l4_ofs;
    } else {
        slot = ipoib_mcast_lookup(shared->mcast, &msg.mgid);
        if (slot != IPOIB_SLOT_NONE) {
            group = ipoib_mcast_fast(shared->mcast, slot);
            atomic_read_explicit(&group->ah, &ah, memory_order_acquire);
            atomic_read_relaxed(&group->used, &used);
            if (used != tx->now) {
                atomic_store_relaxed(&group->used, tx->now);
            }
        }
    }
    if (ip_len > tx->mtu) {
        if (msg.l4_ofs) {
            tx_drop(&tx->txq->stats.drop_too_long);
        } else {
            tx_too_long(tx, *packetp, ip_len, tx->mtu,
                        tx->running ? ah : NULL, IB_QPN_MULTICAST, &msg);
        }
    } else if (ah && tx->running) {
        uint32_t n = tx_n(tx);

        if (tx_source(tx, (const uint8_t *) eth, *packetp)) {
            return;
        }
        tx_append(tx, packetp, dp_packet_data(*packetp), ip_len, ah,
                  IB_QPN_MULTICAST);
        tx->multicast += tx_n(tx) - n;
    } else {
        ipoib_tx_to_control(tx->txq, packetp, &msg);
    }
}

/* Packets that are not plain unicast IP. */

static void
tx_arp(struct tx *tx, struct dp_packet **packetp)
{
    if (!ipoib_arp_eth_parse((uint8_t *) dp_packet_data(*packetp)
                             + ETH_HEADER_LEN,
                             dp_packet_size(*packetp) - ETH_HEADER_LEN)) {
        tx_drop(&tx->txq->stats.drop_bad_arp);
    } else {
        struct ipoib_msg msg = { .type = IPOIB_MSG_TX_ARP };

        ipoib_tx_to_control(tx->txq, packetp, &msg);
    }
}

static void
tx_ip(struct tx *tx, struct dp_packet **packetp, ovs_be16 type)
{
    struct ipoib_tx_stats *stats = &tx->txq->stats;
    const struct eth_header *eth = dp_packet_data(*packetp);
    enum ipoib_ip_class class;
    size_t ip_len, l4_ofs;

    class = ipoib_packet_check_ip(ntohs(type), eth + 1,
                                  dp_packet_size(*packetp) - ETH_HEADER_LEN,
                                  &ip_len, &l4_ofs);
    if (class == IPOIB_IP_BAD) {
        tx_drop(&stats->drop_bad_ip);
        return;
    }

    dp_packet_set_size(*packetp, ETH_HEADER_LEN + ip_len); /* No padding. */
    if (class == IPOIB_IP_ND && ip_len > tx->mtu) {
        tx_drop(&stats->drop_too_long); /* No fragments of ND (RFC 6980). */
    } else if (class == IPOIB_IP_ND) {
        struct ipoib_msg msg = {
            .type = IPOIB_MSG_TX_ND,
            .l4_ofs = l4_ofs,
        };

        ipoib_tx_to_control(tx->txq, packetp, &msg);
    } else {
        /* Unicasts other than ND are sent elsewhere. */
        tx_multicast(tx, packetp, type, ip_len, class, l4_ofs);
    }
}

/* True if 'packet' is what another gateway tells of itself. */
static bool
tx_is_beacon(const struct dp_packet *packet)
{
    const struct eth_header *eth = dp_packet_data(packet);
    static const struct eth_addr beacon_mac = IPOIB_PEER_MAC;

    return (dp_packet_size(packet) >= ETH_HEADER_LEN
            && eth->eth_type == htons(IPOIB_PEER_TYPE)
            && eth_addr_equals(eth->eth_dst, beacon_mac));
}

static void tx_slice(struct tx *, struct dp_packet *packets[], size_t n);

/* A frame with a tag.  One that has only a priority in it is an untagged frame
 * as all others. */
static void
tx_tagged(struct tx *tx, struct dp_packet **packetp)
{
    const struct vlan_eth_header *veh = dp_packet_data(*packetp);

    if (dp_packet_size(*packetp) < VLAN_ETH_HEADER_LEN
        || veh->veth_type != htons(ETH_TYPE_VLAN_8021Q)
        || vlan_tci_to_vid(veh->veth_tci)
        || eth_type_vlan(veh->veth_next_type)) {
        tx_drop(&tx->txq->stats.drop_vlan);
        return;
    }
    ipoib_packet_pop_tag(*packetp);
    tx_slice(tx, packetp, 1);
    *packetp = NULL;
    tx_set_room(tx);
}

static void
tx_other(struct tx *tx, struct dp_packet **packetp)
{
    struct ipoib_tx_stats *stats = &tx->txq->stats;
    const struct eth_header *eth = dp_packet_data(*packetp);

    if (dp_packet_size(*packetp) < ETH_HEADER_LEN) {
        tx_drop(&stats->drop_short);
    } else if (eth_type_vlan(eth->eth_type)) {
        tx_tagged(tx, packetp);
    } else if (eth->eth_type == htons(ETH_TYPE_ARP)
               || eth->eth_type == htons(ETH_TYPE_RARP)) {
        tx_arp(tx, packetp);
    } else if (eth->eth_type == htons(ETH_TYPE_IP)
               || eth->eth_type == htons(ETH_TYPE_IPV6)) {
        tx_ip(tx, packetp, eth->eth_type);
    } else if (tx_is_beacon(*packetp)) {
        struct ipoib_msg msg = { .type = IPOIB_MSG_TX_PEER };

        ipoib_tx_to_control(tx->txq, packetp, &msg);
    } else {
        tx_drop(&stats->drop_type);
    }
}

/* Another gateway is the active one: beacons only are looked at. */
static void
tx_standby(struct tx *tx, struct dp_packet *packets[], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (tx_is_beacon(packets[i])) {
            struct ipoib_msg msg = { .type = IPOIB_MSG_TX_PEER };

            ipoib_tx_to_control(tx->txq, &packets[i], &msg);
        } else {
            tx_drop(&tx->txq->stats.drop_standby);
        }
        dp_packet_delete(packets[i]);
    }
}

/* Unicast IP. */

/* Stands for a neighbour where there is none: it has no path. */
static struct ipoib_neigh_fast no_neigh;

/* Packets that nobody classified, and those to nobody ('neigh' is &no_neigh),
 * too long, or without a path to 'neigh'.  While the queue itself stands
 * still, the control thread sends what it can by another one. */
static void
tx_not_sent(struct tx *tx, struct dp_packet **packetp, uint64_t key,
            uint32_t ip_len, struct ipoib_neigh_fast *neigh,
            struct ibv_ah *ah)
{
    struct ipoib_tx_stats *stats = &tx->txq->stats;
    uint64_t mac = ipoib_swap64(key) >> 16;
    struct ipoib_offload offload;

    if (OVS_UNLIKELY(tx->txq->device_csum)
        && ipoib_offload_parse(*packetp, &offload)) {
        /* It may not go to the device at once, or not as it is. */
        ipoib_offload_complete(&offload);
    }
    if (key == IPOIB_NEIGH_NO_KEY
        || tx_is_multicast(dp_packet_data(*packetp))) {
        tx_other(tx, packetp);
    } else if (neigh == &no_neigh) {
        tx_drop(&stats->drop_unknown_mac);
        ipoib_tx_hint(tx->txq, tx->now, dp_packet_data(*packetp), mac);
    } else {
        struct ipoib_msg msg = { .type = IPOIB_MSG_TX_NO_PATH };
        const uint8_t *eth = dp_packet_data(*packetp);
        uint32_t mtu = neigh->mtu;

        /* A path that is being withdrawn has an MTU of 0. */
        mtu = ah && mtu ? MIN(mtu, tx->mtu) : tx->mtu;
        ipoib_neigh_by_mac(tx->shared->neighs, &mac, 1, &msg.slot);
        if (tx_source(tx, eth, *packetp)) {
            return;
        }
        ipoib_neigh_mark_used(neigh, tx->now);
        if (ip_len > mtu) {
            tx_too_long(tx, *packetp, ip_len, mtu, tx->running ? ah : NULL,
                        neigh->qpn, &msg);
        } else {
            dp_packet_set_size(*packetp, ETH_HEADER_LEN + ip_len);
            ipoib_tx_to_control(tx->txq, packetp, &msg);
        }
    }
}

/* What is known of the packets of a slice.  (Numbers are as wide as pointers,
 * so that one index does for all.) */
struct tx_burst {
    uint8_t *eths[NETDEV_MAX_BURST]; /* Their data. */
    uint64_t keys[NETDEV_MAX_BURST]; /* Of ipoib_classify_any(). */
    size_t ip_lens[NETDEV_MAX_BURST];
    struct ipoib_index_bucket *homes[NETDEV_MAX_BURST];
    uint64_t hashes[NETDEV_MAX_BURST];
    struct ipoib_neigh_fast *neighs[NETDEV_MAX_BURST];
};

/* First pass: makes the keys of 'n' packets, and prefetches.  (OVS has just
 * read the headers of the packets, which is why they are not.) */
static inline ALWAYS_INLINE void
tx_classify(struct dp_packet *const packets[], size_t n,
            const struct ipoib_index_view *view, struct tx_burst *burst)
{
    uint32_t others = 0;        /* A bit for each. */
    size_t i = 0;

    BUILD_ASSERT_DECL(NETDEV_MAX_BURST <= 32);
#ifdef IPOIB_LANES
    for (; i + 4 <= n; i += 4) {
        others |= ipoib_classify_four(&packets[i], &burst->eths[i],
                                      &burst->keys[i],
                                      &burst->ip_lens[i]) << i;
        ipoib_index_home_four(view, &burst->keys[i], &burst->hashes[i],
                              &burst->homes[i]);
    }
#endif
    for (; i < n; i++) {
        uint8_t *eth = ipoib_pkt_data(packets[i]);
        uint64_t key = ipoib_classify_plain(packets[i], eth,
                                            &burst->ip_lens[i]);

        if (OVS_UNLIKELY(key == IPOIB_NEIGH_NO_KEY)) {
            others |= 1u << i;
        }
        burst->eths[i] = eth;
        burst->keys[i] = key;
        burst->homes[i] = ipoib_index_home(view, key, &burst->hashes[i]);
    }
    for (; OVS_UNLIKELY(others); others = zero_rightmost_1bit(others)) {
        i = raw_ctz(others);
        burst->keys[i] = ipoib_classify_any(packets[i], burst->eths[i],
                                            &burst->ip_lens[i]);
        burst->homes[i] = ipoib_index_home(view, burst->keys[i],
                                           &burst->hashes[i]);
    }
}

/* What ipoib_neigh_find_batch() has found for packet 'i' is not it. */
static __attribute__((__noinline__)) struct ipoib_neigh_fast *
tx_search(const struct tx *tx, struct tx_burst *burst, size_t i)
{
    struct ipoib_neigh_fast *neigh = NULL;

    if (burst->keys[i] != IPOIB_NEIGH_NO_KEY
        && !tx_is_multicast(burst->eths[i])) {
        neigh = ipoib_neigh_search_mac(tx->shared->neighs, burst->keys[i]);
    }
    return burst->neighs[i] = neigh ? neigh : &no_neigh;
}

static inline ALWAYS_INLINE struct ipoib_neigh_fast *
tx_neigh(const struct tx *tx, struct tx_burst *burst, size_t i)
{
    return (ipoib_neigh_has_mac(burst->neighs[i], burst->keys[i])
            ? burst->neighs[i] : tx_search(tx, burst, i));
}

/* Keeps the MSS of those of 'n' frames that are TCP's SYNs, and go to a
 * neighbour, to its path. */
static void
tx_clamp(struct tx *tx, struct tx_burst *burst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t mtu = tx_neigh(tx, burst, i)->mtu;

        if (burst->keys[i] != IPOIB_NEIGH_NO_KEY
            && !tx_is_multicast(burst->eths[i])
            && ipoib_mtu_clamp_mss(
                ntohs(ALIGNED_CAST(struct eth_header *,
                                   burst->eths[i])->eth_type),
                burst->eths[i] + ETH_HEADER_LEN, burst->ip_lens[i],
                mtu ? MIN(mtu, tx->clamp) : tx->clamp)) {
            ipoib_count(&tx->txq->stats.mss_clamped, 1);
        }
    }
}

/* The way to 'neigh' for packets of the batch's class, or 'ah', that of class
 * 0. */
static struct ibv_ah *
tx_class_ah(struct tx *tx, struct ipoib_neigh_fast *neigh, struct ibv_ah *ah)
{
    struct ibv_ah *class_ah = NULL;
    struct ipoib_neigh_ahs *ahs;

    atomic_read_explicit(&neigh->ahs, &ahs, memory_order_acquire);
    if (ahs) {
        atomic_read_explicit(&ahs->ah[tx->class], &class_ah,
                             memory_order_acquire);
    }
    ipoib_count(&tx->txq->stats.prio_refused, !class_ah);
    return class_ah ? class_ah : ah;
}

/* Sends packet 'i', or finds out what is wrong with it. */
static __attribute__((__noinline__)) void
tx_one(struct tx *tx, struct dp_packet *packets[], struct tx_burst *burst,
       size_t i)
{
    struct ipoib_neigh_fast *neigh = tx_neigh(tx, burst, i);
    struct dp_packet **packetp = &packets[i];
    uint32_t ip_len = burst->ip_lens[i];
    bool tso = tx->txq->tso != NULL;
    struct ibv_ah *ah;

    atomic_read_explicit(&neigh->ah, &ah, memory_order_acquire);
    if (OVS_UNLIKELY(!ah)
        || (!tso && (!tx->running || ip_len > tx->mtu
                     || ip_len > neigh->mtu))) {
        tx_not_sent(tx, packetp, burst->keys[i], ip_len, neigh, ah);
    } else if (!tx_source(tx, burst->eths[i], *packetp)) {
        ipoib_neigh_mark_used(neigh, tx->now);
        if (tx->class) {
            ah = tx_class_ah(tx, neigh, ah);
        }
        if (OVS_LIKELY(!tso)) {
            tx_append(tx, packetp, burst->eths[i], ip_len, ah, neigh->qpn);
        } else if (tx->running) {
            ipoib_tx_tso(tx->txq, packetp, ah, neigh->qpn);
        } else {
            tx_drop(&tx->txq->stats.drop_post);
        }
    }
}

/* The largest IP packets that are just sent: none, if there may be no room for
 * 'n' packets. */
struct tx_limits {
    size_t short_;              /* Inline. */
    size_t long_;               /* In all. */
};

static inline struct tx_limits
tx_limits(const struct tx *tx, size_t n)
{
    size_t limit = tx->out.next + n <= tx->out.end ? tx->mtu : 0;

    return (struct tx_limits) {
        .short_ = MIN(limit, MAX(tx->max_inline, 0)),
        .long_ = limit,
    };
}

/* Adds packet 'i', for 'neigh' by 'ah', to 'out', unless its source says that
 * it is to be dropped.  'is_long' says that it is not sent inline, 'classes'
 * that it is of a class other than 0. */
static inline ALWAYS_INLINE void
tx_make_one(struct tx *tx, struct dp_packet *packets[],
            size_t i, uint8_t *eth, size_t ip_len, struct tx_out *out,
            struct ipoib_neigh_fast *neigh, struct ibv_ah *ah, uint32_t now,
            bool is_long, bool classes)
{
    /* As tx_source(), of which gcc makes an instruction a packet more. */
    if (!tx_same_source(tx, eth) && tx_new_source(tx, eth, packets[i])) {
        return;
    }
    ipoib_neigh_mark_used(neigh, now);
    if (classes) {
        ah = tx_class_ah(tx, neigh, ah);
    }
    tx_put(out, eth, ip_len, ah, neigh->qpn);
    if (is_long) {
        tx_not_inline(tx, out->next - 1, &packets[i]);
    }
}

/* Last pass: makes the WRs of 'n' packets, in order.  What is not just sent is
 * for tx_one(). */
static inline ALWAYS_INLINE void
tx_make_burst(struct tx *tx, struct dp_packet *packets[], size_t n,
              struct tx_burst *burst, bool classes)
{
    const uint32_t now = tx->now;
    struct tx_out out = tx->out;
    struct tx_limits limits = tx_limits(tx, n);

    for (size_t i = 0; i < n; i++) {
        struct ipoib_neigh_fast *neigh = burst->neighs[i];
        size_t ip_len = burst->ip_lens[i];
        uint8_t *eth = burst->eths[i];
        struct ibv_ah *ah;

        if (OVS_UNLIKELY(!ipoib_neigh_has_mac(neigh, burst->keys[i]))) {
            neigh = tx_search(tx, burst, i);
        }
        atomic_read_explicit(&neigh->ah, &ah, memory_order_acquire);
        if (OVS_LIKELY(ah) && OVS_LIKELY((uint32_t) ip_len <= neigh->mtu)) {
            if (OVS_LIKELY(ip_len <= limits.short_)) {
                tx_make_one(tx, packets, i, eth, ip_len, &out, neigh, ah, now,
                            false, classes);
                continue;
            } else if (OVS_LIKELY(ip_len <= limits.long_)) {
                tx_make_one(tx, packets, i, eth, ip_len, &out, neigh, ah, now,
                            true, classes);
                continue;
            }
        }
        tx->out = out;
        tx_one(tx, packets, burst, i);
        out = tx->out;
        limits = tx_limits(tx, n - i);
    }
    tx->out = out;
}

/* Sends 'n' packets, at most NETDEV_MAX_BURST, in order.  Deletes those that
 * nobody keeps. */
static void
tx_slice(struct tx *tx, struct dp_packet *packets[], size_t n)
{
    const struct ipoib_neigh_view view = ipoib_neigh_macs(tx->shared->neighs);
    struct tx_burst burst;

    tx_classify(packets, n, &view.index, &burst);
    ipoib_neigh_find_batch(&view, burst.homes, burst.hashes, n, burst.neighs);
    if (OVS_UNLIKELY(tx->clamp)) {
        tx_clamp(tx, &burst, n);
    }
    if (OVS_LIKELY(!tx->class)) {
        tx_make_burst(tx, packets, n, &burst, false);
    } else {
        tx_make_burst(tx, packets, n, &burst, true);
    }
    if (OVS_LIKELY(!tx_is_empty(tx))) {
        tx_post(tx);
    }
    ipoib_pkt_delete_burst(packets, n);
}

static void
tx_init(struct tx *tx, struct ipoib_txq *txq, unsigned int class)
{
    struct ipoib_shared *shared = txq->shared;
    uint32_t qkey;
    bool clamp;

    tx->txq = txq;
    tx->slots = txq->slots;
    tx->shared = shared;
    atomic_read_relaxed(&shared->now, &tx->now);
    atomic_read_relaxed(&shared->mtu, &tx->mtu);
    atomic_read_relaxed(&shared->qkey, &qkey);
    if (OVS_UNLIKELY(qkey != txq->slots->qkey)) {
        ipoib_txq_prepare(txq, qkey);
    }
    tx->out.next = txq->slots->wrs;
    tx->out.bytes = 0;
    tx->multicast = 0;
    tx->not_inline = false;
    tx->region.start = tx->region.end = 0;
    tx->last_src = 0;
    tx->class = class;
    tx->max_inline = (ssize_t) txq->slots->max_inline - IPOIB_HEADER_LEN;
    tx->clamp = 0;
    atomic_read_relaxed(&shared->clamp_mss, &clamp);
    if (OVS_UNLIKELY(clamp)) {
        uint32_t eth_mtu;

        atomic_read_relaxed(&shared->eth_mtu, &eth_mtu);
        tx->clamp = eth_mtu ? MIN(eth_mtu, tx->mtu) : tx->mtu;
    }
}

void
IPOIB_VARIANT(ipoib_tx_batch)(struct ipoib_txq *txq,
                              struct dp_packet_batch *batch,
                              unsigned int class)
{
    struct dp_packet **packets;
    struct tx tx;
    size_t n;
    bool up, standby;

    atomic_read_relaxed(&txq->shared->standby, &standby);
    atomic_read_relaxed(&txq->shared->up, &up);
    if (OVS_UNLIKELY(!up) && !standby) {
        ipoib_count(&txq->stats.drop_down, dp_packet_batch_size(batch));
        dp_packet_delete_batch(batch, true);
        return;
    }

    tx_init(&tx, txq, class);
    IPOIB_BATCH_SLICES (packets, n, batch) {
        if (OVS_UNLIKELY(standby)) {
            tx_standby(&tx, packets, n);
            continue;
        }
        tx_start(&tx);
        tx_slice(&tx, packets, n);
        if (OVS_LIKELY(tx.running)) {
            tx_take_completions(txq);
        }
    }
    if (OVS_UNLIKELY(txq->slots->wake)) {
        txq->slots->wake = false;
        ipoib_waker_wake(txq->shared->waker);
    }
}
