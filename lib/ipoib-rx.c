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
#include "ipoib-rx.h"

#include <errno.h>

#include "dp-packet.h"
#include "hash.h"
#include "ipoib-compat.h"
#include "ipoib-dhcp.h"
#include "ipoib-mtu.h"
#include "ipoib-neigh-private.h"
#include "ipoib-packet.h"
#include "ipoib-pool-private.h"
#include "ipoib-ring-private.h"
#include "ipoib-rx-offload.h"
#include "ipoib-variant.h"
#include "netdev.h"
#include "openvswitch/vlog.h"
#include "timeval.h"
#include "unaligned.h"
#include "util.h"

#define IPOIB_VLOG_MODULE VLM_ipoib_rx
IPOIB_VARIANT_VLOG(ipoib_rx);

/* A received packet lies in its buffer so:
 *
 *     0      8     24     40     44
 *     | GRH  | SGID | DGID | IPoIB | IP ...
 *                       30             44
 *                       | Ethernet     |
 *
 * The GRH's 40 bytes are always there, but valid only with IBV_WC_GRH.  The
 * Ethernet header is written over the tail of the GRH and the IPoIB header
 * once both have been read. */
#define GRH_SPACE IPOIB_GRH_SPACE
#define SGID_OFS offsetof(struct ib_grh, sgid)
#define DGID_OFS offsetof(struct ib_grh, dgid)
#define IP_OFS (GRH_SPACE + IPOIB_HEADER_LEN)
#define ETH_OFS IPOIB_POOL_FRAME_OFS
#define ETH_MIN_FRAME 60
#define BROADCAST_MAC ((UINT64_C(1) << 48) - 1)

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(5, 20);

/* One call's context. */
struct rx {
    struct ipoib_rxq *rxq;
    struct ipoib_rxq_private *priv;
    const struct ipoib_shared *shared;
    uint32_t now;               /* Second. */
    uint16_t lid, lid_mask;     /* Own. */
    uint32_t mtu;               /* Longest IP packet that is nothing special:
                                 * the lesser of 'group_mtu' and 'eth_mtu'. */
    uint32_t group_mtu;         /* Longest that a neighbour may send. */
    uint32_t eth_mtu;           /* Longest that the bridge takes, 0: any. */
    uint32_t clamp;             /* As in ipoib-tx.c. */
    bool zero_copy;
    bool csum;                  /* The device checks checksums. */
    bool cut;                   /* The batch has frames longer than
                                 * 'eth_mtu', to be cut. */
    const struct ipoib_share *share; /* NULL: nothing is shared. */
    bool wake;                  /* The control thread got something. */

    /* Counted in the end. */
    uint64_t bytes;
    uint32_t multicast;
};

/* 'data' is the address of the GRH space throughout. */

static inline bool
has_grh(const struct ibv_wc *wc)
{
    return wc->wc_flags & IBV_WC_GRH;
}

static inline bool
is_multicast(const struct ibv_wc *wc, const uint8_t *data)
{
    return has_grh(wc) && data[DGID_OFS] == 0xff;
}

static inline const struct ib_gid *
sgid_of(const uint8_t *data)
{
    return (const struct ib_gid *) (data + SGID_OFS);
}

static inline const struct ib_gid *
dgid_of(const uint8_t *data)
{
    return (const struct ib_gid *) (data + DGID_OFS);
}

static inline bool
gid_equals(const struct ib_gid *a, const struct ib_gid *b)
{
    uint64_t a_[2], b_[2];

    memcpy(a_, a, sizeof a_);
    memcpy(b_, b, sizeof b_);
    return !((a_[0] ^ b_[0]) | (a_[1] ^ b_[1]));
}

/* The buffer stays with the queue. */
static inline void
rx_keep(struct rx *rx, uint64_t id)
{
    struct ipoib_rxq_private *priv = rx->priv;

    ipoib_pool_set_tag(id, priv->tag);
    priv->spare[priv->n_spare++] = id;
}

/* Drops the packet in buffer 'id' for the reason that 'counter' stands for. */
static struct dp_packet *
rx_drop(struct rx *rx, uint64_t id, atomic_uint64_t *counter)
{
    ipoib_count(counter, 1);
    rx_keep(rx, id);
    return NULL;
}

/* To the control thread. */

static void
rx_msg_init(const struct rx *rx, const struct ibv_wc *wc, const uint8_t *data,
            enum ipoib_msg_type type, struct ipoib_msg *msg)
{
    memset(msg, 0, sizeof *msg);
    msg->type = type;
    msg->slid = wc->slid;
    msg->rxq = rx->rxq->id;
    msg->sqpn = wc->src_qp;
    msg->dqpn = wc->qp_num;
    msg->has_grh = has_grh(wc);
    if (msg->has_grh) {
        msg->sgid = *sgid_of(data);
        msg->mgid = *dgid_of(data);
        msg->multicast = ib_gid_is_multicast(&msg->mgid);
    }
}

/* Returns true if the sender of 'wc' is within its limit. */
static bool
rx_admit(struct rx *rx, const struct ibv_wc *wc)
{
    return ipoib_limiter_admit_from(&rx->rxq->priv->limiter,
                                    hash_2words(wc->src_qp, wc->slid),
                                    wc->slid & rx->lid_mask, time_msec());
}

/* Hands the packet of 'len' bytes behind the IPoIB header to the control
 * thread.  It gets a copy, which can be held and changed at will. */
static struct dp_packet *
rx_to_control(struct rx *rx, const struct ibv_wc *wc, const uint8_t *data,
              size_t len, enum ipoib_msg_type type, size_t l4_ofs)
{
    struct ipoib_rx_stats *stats = &rx->rxq->stats;
    struct ipoib_msg msg;

    if (type == IPOIB_MSG_RX_PEER
        ? !ipoib_limiter_admit_beacon(&rx->rxq->priv->limiter, time_msec())
        : !rx_admit(rx, wc)) {
        return rx_drop(rx, wc->wr_id, &stats->drop_rate);
    }
    rx_msg_init(rx, wc, data, type, &msg);
    msg.l4_ofs = l4_ofs;
    msg.packet = dp_packet_clone_data_with_headroom(
        data + GRH_SPACE, len + IPOIB_HEADER_LEN, IPOIB_POOL_HEADROOM);
    if (!ipoib_msgq_push(rx->rxq->to_control, &msg)) {
        dp_packet_delete(msg.packet);
        return rx_drop(rx, wc->wr_id, &stats->drop_ring_full);
    }
    rx->wake = true;
    ipoib_count(&stats->to_control, 1);
    rx_keep(rx, wc->wr_id);
    return NULL;
}

/* A packet that is not IP. */
static struct dp_packet *
rx_not_ip(struct rx *rx, const struct ibv_wc *wc, const uint8_t *data,
          size_t len, ovs_be16 type)
{
    struct ipoib_rx_stats *stats = &rx->rxq->stats;

    if (type == htons(IPOIB_PEER_TYPE) && is_multicast(wc, data)) {
        return rx_to_control(rx, wc, data, len, IPOIB_MSG_RX_PEER, 0);
    } else if (type != htons(ETH_TYPE_ARP) && type != htons(ETH_TYPE_RARP)) {
        return rx_drop(rx, wc->wr_id, &stats->drop_type);
    } else if (!ipoib_arp_parse(data + IP_OFS, len)) {
        return rx_drop(rx, wc->wr_id, &stats->drop_bad_arp);
    }
    return rx_to_control(rx, wc, data, len, IPOIB_MSG_RX_ARP, 0);
}

/* Who it is for. */

/* The IP address that 'ip', of 'type', has at the offset of its source or
 * destination ('dst'); IPv4 is mapped. */
static struct in6_addr
ip_addr(const uint8_t *ip, ovs_be16 type, bool dst)
{
    if (type == htons(ETH_TYPE_IP)) {
        const struct ip_header *nh = ALIGNED_CAST(const struct ip_header *,
                                                  ip);

        return in6_addr_mapped_ipv4(
            get_16aligned_be32(dst ? &nh->ip_dst : &nh->ip_src));
    } else {
        struct in6_addr addr;

        memcpy(&addr, ip + (dst ? 24 : 8), sizeof addr);
        return addr;
    }
}

/* Names a destination: QPN 'qpn' and the destination address of 'ip'.  With
 * IPv4 it is exact.  (No IPv4 destination is 0.0.0.0, so that what is left of
 * the key then can stand for all destinations.) */
static inline uint64_t
dest_key(const uint8_t *ip, ovs_be16 type, uint32_t qpn)
{
    if (OVS_LIKELY(type == htons(ETH_TYPE_IP))) {
        uint32_t dst;

        memcpy(&dst, ip + 16, sizeof dst);
        return ((uint64_t) qpn << 32) | dst;
    } else {
        uint64_t dst[2];

        memcpy(dst, ip + 24, sizeof dst);
        dst[0] = (dst[0] ^ qpn) * UINT64_C(0x9e3779b97f4a7c15);
        dst[1] = (dst[1] ^ (dst[0] >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
        return (dst[0] ^ dst[1]) | (UINT64_C(1) << 63);
    }
}

/* Its place in an array of IPOIB_RX_DESTS.  (The multiplier is one that fits
 * into an instruction.) */
static inline size_t
dest_place(uint64_t key)
{
    BUILD_ASSERT_DECL(IPOIB_RX_DESTS == 1 << 10);
    return (key * (uint64_t) INT64_C(-0x61c88647)) >> 54;
}

static inline struct ipoib_rx_dest *
dest_of_key(const struct rx *rx, uint64_t key)
{
    return &rx->priv->dests[dest_place(key)];
}

/* Finds the host that a unicast packet is for: that of its QPN, or behind a
 * base QP that of its destination IP address.  Returns NULL, and the packet is
 * dropped, if there is none, or if the address is known to be another host's.
 * 'dest' is the place for 'key'. */
static struct ipoib_rx_dest *
rx_find_dest(struct rx *rx, const struct ibv_wc *wc, const uint8_t *data,
             ovs_be16 type, uint64_t key, struct ipoib_rx_dest *dest)
{
    const struct ipoib_host_table *hosts = rx->shared->hosts;
    struct in6_addr dst = ip_addr(data + IP_OFS, type, true);
    uint64_t all = (uint64_t) wc->qp_num << 32, qpn = wc->qp_num;
    struct ipoib_rx_dest *router = dest_of_key(rx, all);
    struct ipoib_host_fast *host;
    uint32_t slot, by_ip;

    if (router->key == all) {
        return router;
    }

    ipoib_host_by_qpn(hosts, &qpn, 1, &slot);
    if (slot != IPOIB_SLOT_NONE && ipoib_host_fast(hosts, slot)->is_router) {
        dest = router;
        key = all;
    } else {
        by_ip = ipoib_host_by_ip(hosts, &dst);
        if (slot == IPOIB_SLOT_NONE) {
            slot = by_ip;
            if (slot == IPOIB_SLOT_NONE) {
                rx_drop(rx, wc->wr_id, &rx->rxq->stats.drop_no_host);
                return NULL;
            }
        } else if (by_ip != IPOIB_SLOT_NONE && by_ip != slot) {
            rx_drop(rx, wc->wr_id, &rx->rxq->stats.drop_other_host);
            return NULL;
        }
    }

    host = ipoib_host_fast(hosts, slot);
    atomic_store_relaxed(&host->used, rx->now);
    dest->key = key;
    dest->mac = ipoib_frame_mac(host->mac);
    return dest;
}

/* Finds the destination MAC of a packet to a group: that of the IP group, or
 * the broadcast address if it came by the broadcast group.  Returns 0 if it
 * is neither. */
static uint64_t
group_mac(const struct rx *rx, const uint8_t *data, ovs_be16 type)
{
    struct in6_addr dst = ip_addr(data + IP_OFS, type, true);

    if (type == htons(ETH_TYPE_IP)) {
        ovs_be32 ip4 = in6_addr_get_mapped_ipv4(&dst);

        if (ip_is_multicast(ip4)) {
            return eth_addr_to_uint64(ipoib_group_mac_ipv4(ip4));
        }
    } else if (ipv6_addr_is_multicast(&dst)) {
        return eth_addr_to_uint64(ipoib_group_mac_ipv6(&dst));
    }
    return (gid_equals(dgid_of(data), &rx->shared->broadcast)
            ? eth_addr_to_uint64(eth_addr_broadcast) : 0);
}

/* Who it is from. */

/* True if the packet is one that this port sent to a group, and got back.
 * Another port of the same HCA may share the LID, and on a virtual port even
 * QPNs, but not both GID and QPN. */
static bool
rx_is_own(const struct rx *rx, const struct ibv_wc *wc, const uint8_t *data)
{
    return ((!has_grh(wc) || gid_equals(sgid_of(data), &rx->shared->gid))
            && rx->shared->own_qpns
            && ipoib_table_lookup(rx->shared->own_qpns, wc->src_qp)
               != IPOIB_SLOT_NONE);
}

/* Several gateways share the neighbours.  True if a packet to a group is from
 * one of this one's. */
static bool
rx_is_ours(const struct rx *rx, const uint8_t *data)
{
    uint64_t guid = ib_gid_guid(sgid_of(data));

    return (!ipoib_share_has_guid(rx->share, guid)
            && ipoib_share_is_ours(rx->share, guid));
}

/* True if 'slot' is a neighbour that can have sent 'wc' as far as the GRH
 * tells. */
static bool
sender_is_possible(const struct rx *rx, const struct ibv_wc *wc,
                   const uint8_t *data, uint32_t slot)
{
    return (slot != IPOIB_SLOT_NONE
            && (!has_grh(wc)
                || gid_equals(sgid_of(data),
                              &ipoib_neigh_fast(rx->shared->neighs,
                                                slot)->gid)));
}

/* The neighbour 'slot' is the sender of 'wc', but not known by (SLID, QPN).
 * If it is a QPN of its own, it probably has another LID now: tells the
 * control thread, once a second. */
static void
rx_tell_moved(struct rx *rx, const struct ibv_wc *wc, const uint8_t *data,
              uint32_t slot)
{
    uint32_t *moved = &rx->rxq->priv->moved[slot % IPOIB_RX_MOVED];
    struct ipoib_msg msg;

    if (*moved == rx->now
        || ipoib_neigh_fast(rx->shared->neighs, slot)->qpn != wc->src_qp) {
        return;
    }
    *moved = rx->now;
    rx_msg_init(rx, wc, data, IPOIB_MSG_RX_MOVED, &msg);
    msg.slot = slot;
    if (ipoib_msgq_push(rx->rxq->to_control, &msg)) {
        rx->wake = true;
    }
}

/* Finds a sender that is not known by (SLID, QPN).  NULL if it is unknown;
 * then the control thread is told. */
static struct ipoib_neigh_fast *
rx_find_sender(struct rx *rx, const struct ibv_wc *wc, const uint8_t *data,
               ovs_be16 type)
{
    const struct ipoib_neigh_table *neighs = rx->shared->neighs;
    uint32_t slot = IPOIB_SLOT_NONE;

    if (has_grh(wc)) {
        slot = ipoib_neigh_by_gid(neighs, sgid_of(data), wc->src_qp);
    }
    if (slot == IPOIB_SLOT_NONE) {
        struct in6_addr src = ip_addr(data + IP_OFS, type, false);

        slot = ipoib_neigh_by_ip(neighs, &src);
        if (!sender_is_possible(rx, wc, data, slot)) {
            uint16_t lid = wc->slid & rx->lid_mask;

            slot = ipoib_neigh_by_lid_alone(neighs, lid);
            if (slot == IPOIB_SLOT_NONE) {
                /* Behind another gateway only a router sends from addresses
                 * that nobody has announced. */
                slot = ipoib_neigh_router_of_lid(neighs, lid);
            }
            if (!sender_is_possible(rx, wc, data, slot)) {
                slot = IPOIB_SLOT_NONE;
            }
        }
    }
    if (slot != IPOIB_SLOT_NONE) {
        rx_tell_moved(rx, wc, data, slot);
        return ipoib_neigh_fast(neighs, slot);
    }

    ipoib_count(&rx->rxq->stats.unknown_sender, 1);
    if (rx_admit(rx, wc)) {
        struct ipoib_msg msg;

        rx_msg_init(rx, wc, data, IPOIB_MSG_RX_HINT, &msg);
        msg.src = ip_addr(data + IP_OFS, type, false);
        if (ipoib_msgq_push(rx->rxq->to_control, &msg)) {
            rx->wake = true;
        }
    }
    return NULL;
}

/* Returns the source MAC.  'neigh' is what was found by (SLID, QPN). */
static uint64_t
rx_source(struct rx *rx, const struct ibv_wc *wc, const uint8_t *data,
          ovs_be16 type, struct ipoib_neigh_fast *neigh)
{
    if (OVS_UNLIKELY(!neigh
                     || (has_grh(wc)
                         && (neigh->qpn != wc->src_qp
                             || !gid_equals(&neigh->gid, sgid_of(data)))))) {
        neigh = rx_find_sender(rx, wc, data, type);
        if (!neigh) {
            return ipoib_frame_mac(eth_addr_to_uint64(rx->shared->mac));
        }
    }
    ipoib_neigh_mark_used(neigh, rx->now);
    return neigh->mac;
}

/* Translation. */

/* The length of the IPv4 packet at 'ip', of which 'len' bytes are there, or 0
 * if it is malformed. */
static inline ALWAYS_INLINE uint32_t
ipv4_len(const uint8_t *ip, uint32_t len)
{
    uint8_t version = ip[0] - 0x45; /* 0 to 10: version 4, 20 bytes or more. */
    uint32_t hlen = (ip[0] & 0xf) * 4;
    uint32_t total = (ip[2] << 8) | ip[3];

    return (OVS_UNLIKELY(version > 10) || OVS_UNLIKELY(total < hlen)
            || OVS_UNLIKELY(total > len)
            ? 0 : total);
}

/* A packet that may be for the control thread: IGMP, or IPv6 with other than
 * TCP and UDP right behind its header.  If it is, hands it over and returns
 * false. */
static bool
rx_inspect(struct rx *rx, const struct ibv_wc *wc, const uint8_t *data,
           size_t len, ovs_be16 type)
{
    size_t ip_len, l4_ofs;

    switch (ipoib_packet_check_ip(ntohs(type), data + IP_OFS, len, &ip_len,
                                  &l4_ofs)) {
    case IPOIB_IP_BAD:
        rx_drop(rx, wc->wr_id, &rx->rxq->stats.drop_bad_ip);
        return false;

    case IPOIB_IP_ND:
        rx_to_control(rx, wc, data, len, IPOIB_MSG_RX_ND, l4_ofs);
        return false;

    case IPOIB_IP_IGMP:
    case IPOIB_IP_MLD:
        rx_to_control(rx, wc, data, len, IPOIB_MSG_RX_IP, l4_ofs);
        return false;

    case IPOIB_IP_DATA:
    case IPOIB_IP_PIM:
    case IPOIB_IP_DHCP:
    default:
        return true;
    }
}

/* Writes the Ethernet header before the IP packet in the buffer at 'data'.
 * The MACs are such as ipoib_frame_mac() makes: the two bytes behind each are
 * the start of the next one, or the type. */
static inline ALWAYS_INLINE void
rx_put_header(uint8_t *data, ovs_be16 type, uint64_t dst, uint64_t src)
{
    uint64_t src_type = src | ipoib_swap64(ntohs(type));
    uint8_t *eth = data + ETH_OFS;

    memcpy(eth, &dst, sizeof dst);
    memcpy(eth + ETH_ADDR_LEN, &src_type, sizeof src_type);
}

/* Pads the frame of 'len' bytes in the buffer at 'data'. */
static __attribute__((__noinline__)) size_t
rx_pad(uint8_t *data, size_t len)
{
    if (len < ETH_MIN_FRAME) {
        memset(data + ETH_OFS + len, 0, ETH_MIN_FRAME - len);
        len = ETH_MIN_FRAME;
    }
    return len;
}

/* Makes the packet of the 'len' bytes of the frame in the buffer at 'data'. */
static struct dp_packet *
rx_make_packet(struct rx *rx, uint8_t *data, size_t len)
{
    rx->bytes += len;
    if (OVS_LIKELY(rx->zero_copy)) {
        return ipoib_pool_wrap((uintptr_t) data, len, &rx->rxq->pool->fresh);
    }
    rx_keep(rx, (uintptr_t) data);
    return dp_packet_clone_data_with_headroom(data + ETH_OFS, len,
                                              IPOIB_POOL_HEADROOM);
}

/* A packet that we sent ourselves. */
static struct dp_packet *
rx_own(struct rx *rx, const struct ibv_wc *wc, const uint8_t *data)
{
    struct ipoib_rx_stats *stats = &rx->rxq->stats;
    struct ipoib_msg msg;
    ovs_be16 type;

    memcpy(&type, data + GRH_SPACE, sizeof type);
    if (type != htons(IPOIB_TYPE_PROBE)) {
        return rx_drop(rx, wc->wr_id, &stats->drop_own);
    } else if (wc->qp_num == rx->rxq->base_qp->qp_num) {
        return rx_drop(rx, wc->wr_id, &stats->probes);
    }
    rx_msg_init(rx, wc, data, IPOIB_MSG_RX_PROBE, &msg);
    if (!ipoib_msgq_push(rx->rxq->to_control, &msg)) {
        return rx_drop(rx, wc->wr_id, &stats->drop_ring_full);
    }
    rx->wake = true;
    return rx_drop(rx, wc->wr_id, &stats->host_probes);
}

/* Translates the packet of 'wc', which has 'len' bytes of IP and padding.
 * 'neigh' is what was found for its sender's (SLID, QPN), or NULL.  Returns
 * NULL if nothing is to be delivered. */
static struct dp_packet *
rx_translate(struct rx *rx, const struct ibv_wc *wc,
             struct ipoib_neigh_fast *neigh, uint32_t len)
{
    struct ipoib_rx_stats *stats = &rx->rxq->stats;
    uint8_t *data = (uint8_t *) (uintptr_t) wc->wr_id;
    const uint8_t *ip = data + IP_OFS;
    uint64_t dst, src;
    size_t ip_len;
    ovs_be16 type;

    if (OVS_UNLIKELY((wc->slid & rx->lid_mask) == rx->lid
                     && rx_is_own(rx, wc, data))) {
        return rx_own(rx, wc, data);
    }

    memcpy(&type, data + GRH_SPACE, sizeof type);
    if (OVS_LIKELY(type == htons(ETH_TYPE_IP))) {
        ip_len = ipv4_len(ip, len);
        if (OVS_UNLIKELY(!ip_len)) {
            return rx_drop(rx, wc->wr_id, &stats->drop_bad_ip);
        }
        if (OVS_UNLIKELY(ip[9] == IPPROTO_IGMP)
            && !rx_inspect(rx, wc, data, len, type)) {
            return NULL;
        }
    } else if (type == htons(ETH_TYPE_IPV6)) {
        ip_len = IPV6_HEADER_LEN + ((ip[4] << 8) | ip[5]);
        if (OVS_UNLIKELY(len < ip_len || ip[0] >> 4 != 6)) {
            return rx_drop(rx, wc->wr_id, &stats->drop_bad_ip);
        }
        if (ip[6] != IPPROTO_TCP && ip[6] != IPPROTO_UDP
            && !rx_inspect(rx, wc, data, len, type)) {
            return NULL;
        }
    } else {
        return rx_not_ip(rx, wc, data, len, type);
    }

    if (OVS_UNLIKELY(is_multicast(wc, data))) {
        if (OVS_UNLIKELY(rx->share) && !rx_is_ours(rx, data)) {
            return rx_drop(rx, wc->wr_id, &stats->drop_peer);
        }
        dst = group_mac(rx, data, type);
        if (!dst) {
            return rx_drop(rx, wc->wr_id, &stats->drop_no_host);
        }
        rx->multicast++;
        if (dst == BROADCAST_MAC && type == htons(ETH_TYPE_IP)
            && ip[9] == IPPROTO_UDP
            && ipoib_dhcp_set_broadcast(data + IP_OFS, ip_len)) {
            ipoib_count(&stats->dhcp_broadcast, 1);
        }
        dst = ipoib_frame_mac(dst);
    } else {
        uint64_t key = dest_key(ip, type, wc->qp_num);
        struct ipoib_rx_dest *dest = dest_of_key(rx, key);

        if (OVS_UNLIKELY(dest->key != key)) {
            dest = rx_find_dest(rx, wc, data, type, key, dest);
            if (!dest) {
                return NULL;
            }
        }
        dst = dest->mac;
    }
    src = rx_source(rx, wc, data, type, neigh);
    rx_put_header(data, type, dst, src);
    return rx_make_packet(rx, data, rx_pad(data, ETH_HEADER_LEN + ip_len));
}

/* Tells the sender of the IP packet of 'ip_len' bytes of 'wc' that the
 * Ethernet side takes no more than 'eth_mtu'. */
static void
rx_error(struct rx *rx, const struct ibv_wc *wc, const uint8_t *data,
         uint16_t type, size_t ip_len)
{
    struct ipoib_rxq *rxq = rx->rxq;
    struct ipoib_header *header;
    struct ipoib_msg msg;

    if (!ipoib_mtu_limiter_admit(&rxq->priv->errors, type, data + IP_OFS)) {
        ipoib_count(&rxq->stats.pmtu_suppressed, 1);
        return;
    }
    rx_msg_init(rx, wc, data, IPOIB_MSG_RX_ERROR, &msg);
    msg.src = ip_addr(data + IP_OFS, htons(type), false);
    msg.packet = ipoib_mtu_compose_error(type, data + IP_OFS, ip_len,
                                         rx->eth_mtu);
    header = dp_packet_push_zeros(msg.packet, sizeof *header);
    header->type = htons(type);
    if (!ipoib_msgq_push(rxq->to_control, &msg)) {
        dp_packet_delete(msg.packet);
        ipoib_count(&rxq->stats.pmtu_suppressed, 1);
        return;
    }
    rx->wake = true;
}

/* 'packet' was translated from that of 'wc', and is longer than 'eth_mtu'.
 * Returns it if it is to be cut, which rx_cut() does with the whole batch, so
 * that the order stays. */
static struct dp_packet *
rx_over_eth_mtu(struct rx *rx, const struct ibv_wc *wc,
                struct dp_packet *packet)
{
    const uint8_t *data = (uint8_t *) (uintptr_t) wc->wr_id;
    const struct eth_header *eth = dp_packet_data(packet);
    size_t ip_len = dp_packet_size(packet) - ETH_HEADER_LEN;
    struct ipoib_rx_stats *stats = &rx->rxq->stats;
    uint16_t type = ntohs(eth->eth_type);

    switch (ipoib_mtu_judge(type, data + IP_OFS, ip_len, rx->eth_mtu)) {
    case IPOIB_MTU_FRAGMENT:
        rx->cut = true;
        return packet;

    case IPOIB_MTU_BAD:
        ipoib_count(&stats->drop_bad_ip, 1);
        break;

    case IPOIB_MTU_ERROR:
        ipoib_count(&stats->drop_eth_mtu, 1);
        if (!is_multicast(wc, data)) {
            rx_error(rx, wc, data, type, ip_len);
        }
        break;

    case IPOIB_MTU_DROP:
        ipoib_count(&stats->drop_eth_mtu, 1);
        break;
    }
    rx->bytes -= dp_packet_size(packet);
    rx->multicast -= eth_addr_is_multicast(eth->eth_dst);
    dp_packet_delete(packet);
    return NULL;
}

/* Any packet.  'neigh' is as in rx_translate(). */
static __attribute__((__noinline__)) struct dp_packet *
rx_any(struct rx *rx, const struct ibv_wc *wc, struct ipoib_neigh_fast *neigh)
{
    struct ipoib_rx_stats *stats = &rx->rxq->stats;
    uint32_t len = wc->byte_len - IP_OFS;
    struct dp_packet *packet;

    if (wc->byte_len < IP_OFS) {
        return rx_drop(rx, wc->wr_id, &stats->drop_short);
    } else if (len > rx->group_mtu) {
        return rx_drop(rx, wc->wr_id, &stats->drop_too_long);
    }
    packet = rx_translate(rx, wc, neigh, len);
    return (packet && len > rx->mtu
            && dp_packet_size(packet) > ETH_HEADER_LEN + rx->eth_mtu
            ? rx_over_eth_mtu(rx, wc, packet) : packet);
}

/* Those packets of which there are many: to a destination in 'dests', to
 * which another packet went in this second, and from a neighbour that needs no
 * GRH.  (Groups' packets have a GRH; so have our own ones, other than the
 * watchdog's, which are not IP.)
 *
 * The functions that look for them return the destination, and store the
 * length of the frame, ETH_MIN_FRAME at least, in '*lenp'.  Of other packets
 * they return NULL, and change nothing. */

/* The destination with 'key', or NULL. */
static inline ALWAYS_INLINE const struct ipoib_rx_dest *
rx_plain_dest(const struct ipoib_rx_dest dests[], uint64_t key)
{
    const struct ipoib_rx_dest *dest = &dests[dest_place(key)];

    return OVS_LIKELY(dest->key == key) ? dest : NULL;
}

/* True if 'wc' has no GRH, all of a packet whose frame has 'len' bytes, and no
 * more than 'max_len' bytes, GRH space included. */
static inline ALWAYS_INLINE bool
rx_plain_wc(const struct ibv_wc *wc, uint32_t max_len, uint32_t len)
{
    return (OVS_LIKELY(!has_grh(wc)) && OVS_LIKELY(wc->byte_len <= max_len)
            && OVS_LIKELY(ETH_OFS + len <= wc->byte_len));
}

/* IPv4 without options. */
static inline ALWAYS_INLINE const struct ipoib_rx_dest *
rx_plain_ipv4(const struct ipoib_rx_dest dests[], uint32_t max_len,
              const struct ibv_wc *wc, uint8_t *data, size_t *lenp)
{
    const uint8_t *ip = data + IP_OFS;
    const struct ipoib_rx_dest *dest;
    ovs_be16 type;
    ovs_be32 start;             /* Version, TOS, length. */
    size_t len;

    memcpy(&type, data + GRH_SPACE, sizeof type);
    if (OVS_UNLIKELY(type != htons(ETH_TYPE_IP))
        || OVS_UNLIKELY(ip[0] != IP_IHL_VER(5, 4))
        || OVS_UNLIKELY(ip[9] == IPPROTO_IGMP)) {
        return NULL;
    }
    memcpy(&start, ip, sizeof start);
    len = ETH_HEADER_LEN + (ntohl(start) & 0xffff);
    if (!rx_plain_wc(wc, max_len, len)) {
        return NULL;
    }
    dest = rx_plain_dest(dests,
                         dest_key(ip, htons(ETH_TYPE_IP), wc->qp_num));
    if (!dest) {
        return NULL;
    }
    if (OVS_UNLIKELY(len < ETH_MIN_FRAME)) {
        if (len < ETH_HEADER_LEN + IP_HEADER_LEN) {
            return NULL;
        }
        len = rx_pad(data, len);
    }
    *lenp = len;
    return dest;
}

/* IPv6 with TCP or UDP right behind its header. */
static inline const struct ipoib_rx_dest *
rx_plain_ipv6(const struct ipoib_rx_dest dests[], uint32_t max_len,
              const struct ibv_wc *wc, uint8_t *data, size_t *lenp)
{
    const uint8_t *ip = data + IP_OFS;
    const struct ipoib_rx_dest *dest;
    ovs_be16 type;
    size_t len = (ETH_HEADER_LEN + IPV6_HEADER_LEN
                  + ((ip[4] << 8) | ip[5]));

    memcpy(&type, data + GRH_SPACE, sizeof type);
    if (type != htons(ETH_TYPE_IPV6) || ip[0] >> 4 != 6
        || (ip[6] != IPPROTO_TCP && ip[6] != IPPROTO_UDP)
        || !rx_plain_wc(wc, max_len, len)) {
        return NULL;
    }
    dest = rx_plain_dest(dests,
                         dest_key(ip, htons(ETH_TYPE_IPV6), wc->qp_num));
    if (dest) {
        *lenp = OVS_UNLIKELY(len < ETH_MIN_FRAME) ? rx_pad(data, len) : len;
    }
    return dest;
}

/* Makes a packet of the 'len' bytes of the frame in the buffer at 'data', an
 * IP packet from 'neigh' to 'dest'. */
static inline ALWAYS_INLINE struct dp_packet *
rx_wrap(uint8_t *data, size_t len, ovs_be16 type,
        const struct ipoib_rx_dest *dest, struct ipoib_neigh_fast *neigh,
        uint32_t now, const struct ipoib_pkt_fresh *fresh)
{
    rx_put_header(data, type, dest->mac, neigh->mac);
    ipoib_neigh_mark_used(neigh, now);
    return ipoib_pool_wrap((uintptr_t) data, len, fresh);
}

/* A burst of completions that are good. */
struct rx_burst {
    uint64_t keys[NETDEV_MAX_BURST]; /* ipoib_neigh_lid_key(). */
    struct ipoib_index_bucket *homes[NETDEV_MAX_BURST];
    uint64_t hashes[NETDEV_MAX_BURST];
    struct ipoib_neigh_fast *neighs[NETDEV_MAX_BURST];
};

/* What ipoib_neigh_find_batch() has found for completion 'i' is not it. */
static __attribute__((__noinline__)) struct ipoib_neigh_fast *
rx_search(const struct rx *rx, const struct rx_burst *burst, size_t i)
{
    return ipoib_neigh_search_lid(rx->shared->neighs, burst->keys[i]);
}

/* Moves the good ones of 'wc' to the front.  Returns how many they are. */
static size_t
rx_sort_out(struct rx *rx, struct ibv_wc wc[], size_t n)
{
    size_t n_good = 0;

    for (size_t i = 0; i < n; i++) {
        if (wc[i].status != IBV_WC_SUCCESS) {
            rx_drop(rx, wc[i].wr_id, &rx->rxq->stats.drop_error);
        } else {
            wc[n_good++] = wc[i];
        }
    }
    return n_good;
}

/* First pass: makes the keys, and prefetches.  Returns false if not all of
 * 'wc' are good: sort out and try again. */
static __attribute__((__noinline__)) bool
rx_prepare(uint32_t lid_mask, const struct ibv_wc *wc, size_t n,
           struct ipoib_neigh_view view, struct rx_burst *burst)
{
    uint32_t status = IBV_WC_SUCCESS;

    BUILD_ASSERT_DECL(IBV_WC_SUCCESS == 0);
    IPOIB_UNROLL
    for (size_t i = 0; i < n; i++, wc++) {
        uint64_t key = ipoib_neigh_lid_key(wc->slid & lid_mask, wc->src_qp);

        OVS_PREFETCH((void *) (uintptr_t) wc->wr_id);
        OVS_PREFETCH_WRITE(ipoib_pool_packet(wc->wr_id));
        status |= wc->status;
        burst->keys[i] = key;
        burst->homes[i] = ipoib_index_home(&view.index, key,
                                           &burst->hashes[i]);
    }
    return status == IBV_WC_SUCCESS;
}

/* Cuts those frames of 'batch' that are longer than 'eth_mtu', and makes all
 * of it wait, in order; nothing waits before. */
static void
rx_cut(struct rx *rx, struct dp_packet_batch *batch)
{
    struct ipoib_rx_stats *stats = &rx->rxq->stats;
    struct ipoib_rxq_private *priv = rx->rxq->priv;
    struct dp_packet *packet, *frag;

    DP_PACKET_BATCH_FOR_EACH (i, packet, batch) {
        const uint8_t *eth = dp_packet_data(packet);
        size_t size = dp_packet_size(packet);
        struct ipoib_mtu_fragmenter f;

        if (size <= ETH_HEADER_LEN + rx->eth_mtu) {
            ipoib_rxq_wait(priv, packet);
            continue;
        }
        ipoib_mtu_fragment(&f, eth + ETH_HEADER_LEN, size - ETH_HEADER_LEN,
                           rx->eth_mtu, eth, ETH_HEADER_LEN);
        while ((frag = ipoib_mtu_next_fragment(&f))) {
            size = dp_packet_size(frag);
            if (size < ETH_MIN_FRAME) {
                dp_packet_put_zeros(frag, ETH_MIN_FRAME - size);
            }
            ipoib_rxq_wait(priv, frag);
            ipoib_count(&stats->fragments, 1);
        }
        ipoib_count(&stats->fragmented, 1);
        dp_packet_delete(packet);
    }
    dp_packet_batch_refill_init(batch);
    rx->bytes = rx->multicast = 0;
    ipoib_rxq_deliver_waiting(rx->rxq, batch);
}

/* Takes the NULLs out of the 'n' 'packets'.  Returns how many are left. */
static size_t
rx_close_gaps(struct dp_packet *packets[], size_t n)
{
    size_t n_packets = 0;

    for (size_t i = 0; i < n; i++) {
        if (packets[i]) {
            packets[n_packets++] = packets[i];
        }
    }
    return n_packets;
}

/* The packet of 'wc', from 'neigh', which may be NULL, if it is not one of
 * those that rx_plain_ipv4() finds; or NULL if there is to be none. */
static __attribute__((__noinline__)) struct dp_packet *
rx_other(struct rx *rx, const struct ibv_wc *wc,
         struct ipoib_neigh_fast *neigh)
{
    uint8_t *data = (uint8_t *) (uintptr_t) wc->wr_id;
    const struct ipoib_rx_dest *dest;
    size_t len;

    dest = (neigh ? rx_plain_ipv6(rx->priv->dests, rx->mtu + IP_OFS, wc, data,
                                  &len) : NULL);
    if (!dest) {
        return rx_any(rx, wc, neigh);
    }
    rx->bytes += len;
    return rx_wrap(data, len, htons(ETH_TYPE_IPV6), dest, neigh, rx->now,
                   &rx->rxq->pool->fresh);
}

/* Last pass: makes a packet, or NULL if there is to be none, of each of the
 * 'n' completions in 'wc'.  Returns how many NULLs there are. */
static inline ALWAYS_INLINE size_t
rx_finish(struct rx *rx, const struct ibv_wc *wc, size_t n,
          const struct rx_burst *burst, struct dp_packet *packets[])
{
    const struct ipoib_pkt_fresh fresh = rx->rxq->pool->fresh;
    const struct ipoib_rx_dest *dests = rx->priv->dests;
    const uint32_t max_len = rx->mtu + IP_OFS;
    const uint32_t now = rx->now;
    const struct ibv_wc *end = wc + n;
    size_t bytes = 0, n_gaps = 0;

    for (size_t i = 0; wc < end; i++, wc++) {
        struct ipoib_neigh_fast *neigh = burst->neighs[i];
        uint8_t *data = (uint8_t *) (uintptr_t) wc->wr_id;
        const struct ipoib_rx_dest *dest = NULL;
        size_t len;

        if (OVS_LIKELY(ipoib_neigh_has_lid(neigh, burst->keys[i]))
            || (neigh = rx_search(rx, burst, i)) != NULL) {
            dest = rx_plain_ipv4(dests, max_len, wc, data, &len);
        }
        if (OVS_LIKELY(dest)) {
            packets[i] = rx_wrap(data, len, htons(ETH_TYPE_IP), dest, neigh,
                                 now, &fresh);
            bytes += len;
        } else {
            packets[i] = rx_other(rx, wc, neigh);
            n_gaps += !packets[i];
        }
    }
    rx->bytes += bytes;
    return n_gaps;
}

/* As rx_finish(), where packets are copied. */
static __attribute__((__noinline__)) size_t
rx_finish_copies(struct rx *rx, struct ibv_wc *wc, size_t n,
                 const struct rx_burst *burst, struct dp_packet *packets[])
{
    size_t n_gaps = 0;

    for (size_t i = 0; i < n; i++) {
        struct ipoib_neigh_fast *neigh = burst->neighs[i];

        if (OVS_UNLIKELY(!ipoib_neigh_has_lid(neigh, burst->keys[i]))) {
            neigh = rx_search(rx, burst, i);
        }
        packets[i] = rx_any(rx, &wc[i], neigh);
        n_gaps += !packets[i];
    }
    return n_gaps;
}

/* Works on 'n' completions. */
static void
rx_process(struct rx *rx, struct ibv_wc wc[], size_t n,
           struct dp_packet_batch *batch)
{
    const struct ipoib_neigh_view view = ipoib_neigh_lids(rx->shared->neighs);
    struct dp_packet **packets = ipoib_batch_tail(batch);
    struct rx_burst burst;
    size_t n_gaps;

    if (OVS_UNLIKELY(!rx_prepare(rx->lid_mask, wc, n, view, &burst))) {
        n = rx_sort_out(rx, wc, n);
        rx_prepare(rx->lid_mask, wc, n, view, &burst);
    }
    ipoib_neigh_find_batch(&view, burst.homes, burst.hashes, n, burst.neighs);
    n_gaps = (OVS_LIKELY(rx->zero_copy)
              ? rx_finish(rx, wc, n, &burst, packets)
              : rx_finish_copies(rx, wc, n, &burst, packets));
    if (OVS_UNLIKELY(rx->csum)) {
        ipoib_rx_mark_good(rx->rxq, wc, packets, n);
    }
    if (OVS_UNLIKELY(n_gaps)) {
        n = rx_close_gaps(packets, n);
    }
    ipoib_batch_grow(batch, n);
    if (OVS_UNLIKELY(rx->clamp)) {
        ipoib_rx_clamp(rx->rxq, batch, rx->clamp);
    }
}

static void
rx_init(struct rx *rx, struct ipoib_rxq *rxq)
{
    struct ipoib_shared *shared = rxq->shared;
    uint32_t lid, lid_mask;
    bool clamp;

    atomic_read_relaxed(&shared->lid, &lid);
    atomic_read_relaxed(&shared->lid_mask, &lid_mask);
    atomic_read_relaxed(&shared->group_mtu, &rx->group_mtu);
    atomic_read_relaxed(&shared->eth_mtu, &rx->eth_mtu);
    atomic_read_relaxed(&shared->clamp_mss, &clamp);
    atomic_read_relaxed(&shared->rx_csum, &rx->csum);
    rx->mtu = rx->group_mtu;
    if (OVS_UNLIKELY(rx->eth_mtu)) {
        rx->mtu = MIN(rx->mtu, rx->eth_mtu);
    }
    rx->clamp = 0;
    if (OVS_UNLIKELY(clamp)) {
        atomic_read_relaxed(&shared->mtu, &rx->clamp);
        rx->clamp = MIN(rx->clamp, rx->mtu);
    }
    rx->cut = false;
    rx->rxq = rxq;
    rx->priv = rxq->priv;
    rx->shared = shared;
    atomic_read_relaxed(&shared->now, &rx->now);
    if (OVS_UNLIKELY(rx->now != rx->priv->dests_second)) {
        rx->priv->dests_second = rx->now;
        memset(rx->priv->dests, 0, sizeof rx->priv->dests);
    }
    rx->lid = lid;
    rx->lid_mask = lid_mask;
    rx->zero_copy = rxq->pool->ops->zero_copy && !rxq->priv->starved;
    rx->share = ipoib_share_active(shared->share);
    rx->wake = false;
    rx->bytes = 0;
    rx->multicast = 0;
}

/* The port is not up: all that came is dropped. */
static void
rx_discard(struct rx *rx, const struct ibv_wc wc[], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        rx_drop(rx, wc[i].wr_id, &rx->rxq->stats.drop_not_ready);
    }
}

/* Another gateway is the active one: beacons only are looked at. */
static void
rx_standby(struct rx *rx, const struct ibv_wc wc[], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *data = (const uint8_t *) (uintptr_t) wc[i].wr_id;
        ovs_be16 type = 0;

        if (wc[i].status == IBV_WC_SUCCESS && wc[i].byte_len >= IP_OFS
            && wc[i].byte_len - IP_OFS <= rx->mtu) {
            memcpy(&type, data + GRH_SPACE, sizeof type);
        }
        if (type && (wc[i].slid & rx->lid_mask) == rx->lid
            && rx_is_own(rx, &wc[i], data)) {
            rx_own(rx, &wc[i], data);
        } else if (type == htons(IPOIB_PEER_TYPE)
                   && is_multicast(&wc[i], data)) {
            rx_to_control(rx, &wc[i], data, wc[i].byte_len - IP_OFS,
                          IPOIB_MSG_RX_PEER, 0);
        } else {
            rx_drop(rx, wc[i].wr_id, &rx->rxq->stats.drop_standby);
        }
    }
}

/* Polls the CQ once. */
static void
rx_poll(struct ipoib_rxq *rxq, struct dp_packet_batch *batch)
{
    struct ibv_wc wc[NETDEV_MAX_BURST];
    int n = ibv_poll_cq(rxq->cq, NETDEV_MAX_BURST, wc);
    bool suspect;

    atomic_read_relaxed(&rxq->suspect, &suspect);
    if (OVS_UNLIKELY(suspect || rxq->priv->searching) && n >= 0) {
        rxq->n_posted -= MIN(n, rxq->n_posted);
        ipoib_rxq_search_lost(rxq, wc, n);
    } else if (n > 0) {
        rxq->n_posted -= MIN(n, rxq->n_posted);
    }
    if (n > 0) {
        struct rx rx;
        bool up, standby;

        rx_init(&rx, rxq);
        atomic_read_relaxed(&rxq->shared->up, &up);
        atomic_read_relaxed(&rxq->shared->standby, &standby);
        if (OVS_UNLIKELY(standby)) {
            rx_standby(&rx, wc, n);
        } else if (OVS_LIKELY(up)) {
            rx_process(&rx, wc, n, batch);
            if (OVS_UNLIKELY(rx.cut)) {
                rx_cut(&rx, batch);
            } else {
                ipoib_count(&rxq->stats.packets,
                            dp_packet_batch_size(batch));
            }
            ipoib_count(&rxq->stats.bytes, rx.bytes);
            ipoib_count(&rxq->stats.multicast, rx.multicast);
        } else {
            rx_discard(&rx, wc, n);
        }
        if (rx.wake) {
            ipoib_waker_wake(rxq->shared->waker);
        }
    } else if (n < 0) {
        VLOG_WARN_RL(&rl, "polling receive queue %u failed", rxq->id);
        return;
    }

    if (rxq->n_desc - rxq->n_posted >= rxq->priv->chain) {
        IPOIB_VARIANT(ipoib_rxq_refill)(rxq);
    }
    if (n < NETDEV_MAX_BURST) {
        uint64_t drained;

        atomic_read_relaxed(&rxq->drained, &drained);
        atomic_store_explicit(&rxq->drained, drained + 1,
                              memory_order_release);
    }
}

/* OVS takes the packets of a batch to be all of one source, so that those of
 * the return ring are a batch of their own, in turn with received ones. */
int
IPOIB_VARIANT(ipoib_rx_batch)(struct ipoib_rxq *rxq,
                              struct dp_packet_batch *batch)
{
    struct ipoib_rxq_private *priv = rxq->priv;

    if (!priv->ring_last && !ipoib_msgq_is_empty(rxq->from_control)) {
        priv->ring_last = true;
        ipoib_rxq_return_ring(rxq, batch);
        return 0;
    }
    priv->ring_last = false;
    if (OVS_UNLIKELY(priv->n_waiting)) {
        ipoib_rxq_deliver_waiting(rxq, batch);
    } else {
        rx_poll(rxq, batch);
    }
    return dp_packet_batch_is_empty(batch) ? EAGAIN : 0;
}
