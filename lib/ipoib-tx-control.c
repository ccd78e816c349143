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
#include "ipoib-tx-control.h"

#include "dp-packet.h"
#include "hash.h"
#include "ipoib-mtu.h"
#include "ipoib-neigh.h"
#include "ipoib-packet.h"
#include "ipoib-pool.h"
#include "ipoib-ring-private.h"
#include "packets.h"
#include "timeval.h"
#include "util.h"

/* Marks a source that is a neighbour's stand-in MAC, so that the data path
 * does not find it among those that are known. */
#define SOURCE_LOOP (UINT64_C(1) << 63)

/* The port of the bridge that 'packet' came from. */
static uint32_t
packet_in_port(const struct dp_packet *packet)
{
    return odp_to_u32(packet->md.in_port.odp_port);
}

static bool
tx_push(struct ipoib_txq *txq, const struct ipoib_msg *msg)
{
    if (!ipoib_msgq_push(txq->to_control, msg)) {
        return false;
    }
    txq->slots->wake = true;
    return true;
}

void
ipoib_tx_to_control(struct ipoib_txq *txq, struct dp_packet **packetp,
                    struct ipoib_msg *msg)
{
    const struct eth_header *eth = dp_packet_data(*packetp);
    struct ipoib_tx_stats *stats = &txq->stats;
    uint32_t hash = hash_uint64(eth_addr_to_uint64(eth->eth_src));

    msg->in_port = packet_in_port(*packetp);
    if (msg->type == IPOIB_MSG_TX_PEER
        ? !ipoib_limiter_admit_beacon(&txq->tables->limiter, time_msec())
        : !ipoib_limiter_admit_from(&txq->tables->limiter, hash, msg->in_port,
                                    time_msec())) {
        ipoib_count(&stats->drop_rate, 1);
        return;
    }
    msg->packet = (*packetp)->source == DPBUF_MALLOC
                  ? *packetp
                  : dp_packet_clone_with_headroom(*packetp,
                                                  IPOIB_POOL_HEADROOM);
    if (!tx_push(txq, msg)) {
        if (msg->packet != *packetp) {
            dp_packet_delete(msg->packet);
        }
        ipoib_count(&stats->drop_ring_full, 1);
        return;
    }
    if (msg->packet == *packetp) {
        *packetp = NULL;
    }
    ipoib_count(&stats->to_control, 1);
}

/* The addresses of the IP packet in the frame at 'eth'. */
static void
msg_set_ips(struct ipoib_msg *msg, const uint8_t *eth)
{
    const uint8_t *ip = eth + ETH_HEADER_LEN;

    if (ip[0] >> 4 == 4) {
        const struct ip_header *nh = ALIGNED_CAST(const struct ip_header *,
                                                  ip);

        msg->src = in6_addr_mapped_ipv4(get_16aligned_be32(&nh->ip_src));
        msg->dst = in6_addr_mapped_ipv4(get_16aligned_be32(&nh->ip_dst));
    } else {
        memcpy(&msg->src, ip + 8, sizeof msg->src);
        memcpy(&msg->dst, ip + 24, sizeof msg->dst);
    }
}

bool
ipoib_tx_tell_source(struct ipoib_txq *txq, uint32_t now, uint64_t src,
                     const struct dp_packet *packet)
{
    struct ipoib_txq_tables *tables = txq->tables;
    size_t first = ipoib_tx_first_place(src);
    size_t victim = first;

    BUILD_ASSERT_DECL(ARRAY_SIZE(tables->sources) == 64 << 2);
    for (size_t i = first; i < first + 4; i++) {
        if ((tables->sources[i].mac & ~SOURCE_LOOP) == src) {
            victim = i;
            break;
        }
        if (tables->sources[i].told < tables->sources[victim].told) {
            victim = i;
        }
    }
    if ((tables->sources[victim].mac & ~SOURCE_LOOP) == src
        && tables->sources[victim].told == now) {
        return tables->sources[victim].mac & SOURCE_LOOP;
    }
    if ((tables->sources[victim].mac & ~SOURCE_LOOP) != src
        && tables->sources[victim].told == now
        && !ipoib_limiter_admit_from(&tables->limiter, hash_uint64(src),
                                     packet_in_port(packet), time_msec())) {
        return false;
    }

    struct ipoib_msg msg = { .type = IPOIB_MSG_TX_HOST };
    uint64_t dst = ipoib_get_mac(dp_packet_data(packet));
    uint32_t slot;

    msg.in_port = packet_in_port(packet);
    eth_addr_from_uint64(src, &msg.mac);
    ipoib_neigh_by_mac(txq->shared->neighs, &dst, 1, &msg.slot);
    msg_set_ips(&msg, dp_packet_data(packet));
    ipoib_neigh_by_mac(txq->shared->neighs, &src, 1, &slot);
    if (slot != IPOIB_SLOT_NONE) {
        tables->sources[victim].mac = src | SOURCE_LOOP;
        tables->sources[victim].told = now;
    } else if (tx_push(txq, &msg)) {
        tables->sources[victim].mac = src;
        tables->sources[victim].told = now;
    }
    return slot != IPOIB_SLOT_NONE;
}

void
ipoib_tx_hint(struct ipoib_txq *txq, uint32_t now, const uint8_t *eth,
              uint64_t mac)
{
    struct ipoib_txq_tables *tables = txq->tables;
    uint32_t *told = &tables->lost[(mac * UINT64_C(0x9e3779b97f4a7c15)) >> 58];
    struct ipoib_msg msg = { .type = IPOIB_MSG_TX_HINT };

    BUILD_ASSERT_DECL(ARRAY_SIZE(tables->lost) == 64);
    if (!(eth[0] & 2) || *told == now) {
        return;
    }
    msg_set_ips(&msg, eth);
    memcpy(&msg.mac, eth, sizeof msg.mac);
    memcpy(&msg.src_mac, eth + ETH_ADDR_LEN, sizeof msg.src_mac);
    if (tx_push(txq, &msg)) {
        *told = now;
    }
}

void
ipoib_tx_error(struct ipoib_txq *txq, const struct eth_header *eth,
               uint32_t ip_len, uint32_t mtu)
{
    struct ipoib_msg msg = { .type = IPOIB_MSG_TX_ERROR };
    uint16_t type = ntohs(eth->eth_type);
    struct eth_header *answer;

    if (!ipoib_mtu_limiter_admit(&txq->tables->errors, type, eth + 1)) {
        ipoib_count(&txq->stats.pmtu_suppressed, 1);
        return;
    }
    msg.packet = ipoib_mtu_compose_error(type, eth + 1, ip_len, mtu);
    answer = dp_packet_push_uninit(msg.packet, sizeof *answer);
    answer->eth_dst = eth->eth_src;
    answer->eth_src = eth->eth_dst;
    answer->eth_type = eth->eth_type;
    if (!tx_push(txq, &msg)) {
        dp_packet_delete(msg.packet);
        ipoib_count(&txq->stats.pmtu_suppressed, 1);
    }
}
