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
#include "ipoib-tx-offload.h"

#include <netinet/in.h>
#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-neigh.h"
#include "ipoib-offload.h"
#include "ipoib-ring.h"
#include "ipoib-tx-tso.h"
#include "packets.h"
#include "util.h"

/* Devices are tried with segments of 512 bytes: what a guest wants to be cut
 * into much shorter ones is not for them. */
#define MIN_TSO_SIZE 256

/* Packets are gathered, and sent when there are NETDEV_MAX_BURST of them: such
 * as are complete, or such of which the device is to compute the checksum. */
struct tx_offload {
    struct ipoib_txq *txq;
    unsigned int class;
    ipoib_tx_send_func *send;
    bool use_device;            /* It computes checksums. */
    uint32_t max_tso;           /* It cuts TCP into segments, so many bytes at
                                 * a time; or 0. */
    struct dp_packet_batch batch;
    bool for_device;            /* What 'batch' has is. */
};

static void
offload_flush(struct tx_offload *tx)
{
    if (!dp_packet_batch_is_empty(&tx->batch)) {
        tx->txq->device_csum = tx->for_device;
        tx->send(tx->txq, &tx->batch, tx->class);
        tx->txq->device_csum = false;
        dp_packet_batch_refill_init(&tx->batch);
    }
}

static void
offload_add(struct tx_offload *tx, struct dp_packet *packet, bool for_device)
{
    if (for_device != tx->for_device) {
        offload_flush(tx);
        tx->for_device = for_device;
    }
    ipoib_batch_push(&tx->batch, packet);
    if (!ipoib_batch_room(&tx->batch)) {
        offload_flush(tx);
    }
}

/* What is known of the way that a packet goes. */
struct way {
    uint32_t mtu;               /* Of IP packets.  Where the hosts' MTU is
                                 * known, not more than that: it may be all
                                 * that is left of what a host knows of the
                                 * path to a station behind a router. */
    uint32_t path_mtu;          /* The same, whatever the hosts' MTU is. */
    bool direct;                /* To a neighbour at once, and the device
                                 * computes checksums. */
};

static struct way
find_way(const struct tx_offload *tx, const struct dp_packet *packet)
{
    struct ipoib_shared *shared = tx->txq->shared;
    uint64_t mac = ipoib_get_mac(dp_packet_data(packet));
    struct way way = { .direct = false };
    uint32_t eth_mtu, slot;

    atomic_read_relaxed(&shared->mtu, &way.path_mtu);
    atomic_read_relaxed(&shared->eth_mtu, &eth_mtu);
    ipoib_neigh_by_mac(shared->neighs, &mac, 1, &slot);
    if (slot != IPOIB_SLOT_NONE) {
        struct ipoib_neigh_fast *neigh = ipoib_neigh_fast(shared->neighs,
                                                          slot);
        uint32_t neigh_mtu = neigh->mtu;

        way.direct = tx->use_device && neigh_mtu;
        if (neigh_mtu) {
            way.path_mtu = MIN(way.path_mtu, neigh_mtu);
        }
    }
    way.mtu = eth_mtu ? MIN(way.path_mtu, eth_mtu) : way.path_mtu;
    return way;
}

/* True if the device is to compute the checksum of 'offload', an IP packet of
 * 'len' bytes. */
static bool
is_for_device(const struct way *way, const struct ipoib_offload *offload,
              size_t len)
{
    return (OVS_UNLIKELY(way->direct) && len <= way->mtu
            && offload->l2_len == ETH_HEADER_LEN
            && ipoib_offload_is_simple(offload));
}

/* Has the device cut 'packet' into 'segments'.  Returns false, and has done
 * nothing, if it does not do that, or not now. */
static bool
offload_tso(struct tx_offload *tx, struct dp_packet *packet,
            const struct ipoib_segments *segments, const struct way *way)
{
    const struct ipoib_offload *all = &segments->all;

    if (segments->len > tx->max_tso || segments->size < MIN_TSO_SIZE
        || all->ip_len <= way->path_mtu || !is_for_device(way, all, 0)) {
        return false;
    }
    offload_flush(tx);          /* First what came before it. */
    if (!ipoib_tx_tso_begin(tx->txq, packet, segments)) {
        return false;
    }
    ipoib_offload_prepare(all);
    dp_packet_reset_offload(packet);
    offload_add(tx, packet, true);
    offload_flush(tx);
    tx->txq->tso = NULL;
    return true;
}

/* Sends 'packet', whose parts are 'offload', as TCP segments, and deletes it.
 * Returns false, and has done nothing, if that cannot be. */
static bool
offload_segments(struct tx_offload *tx, struct dp_packet *packet,
                 const struct ipoib_offload *offload, const struct way *way)
{
    struct ipoib_tx_stats *stats = &tx->txq->stats;
    struct ipoib_segments segments;
    struct dp_packet *segment;
    uint64_t n = 0;

    if (!ipoib_segments_init(&segments, packet, offload, way->mtu,
                             ipoib_pkt_segment_size(packet))) {
        return false;
    }
    if (OVS_UNLIKELY(tx->max_tso)
        && offload_tso(tx, packet, &segments, way)) {
        return true;
    }
    segments.prepare = is_for_device(way, offload, 0);
    while ((segment = ipoib_segments_next(&segments))) {
        offload_add(tx, segment, segments.prepare);
        n++;
    }
    ipoib_count(&stats->offload_segmented, 1);
    ipoib_count(&stats->offload_segments, n);
    if (segments.prepare) {
        ipoib_count(&stats->offload_csum_device, n);
    }
    dp_packet_delete(packet);
    return true;
}

/* Sends 'packet', which is complete but for its checksum. */
static void
offload_checksum(struct tx_offload *tx, struct dp_packet *packet,
                 const struct ipoib_offload *offload, const struct way *way)
{
    struct ipoib_tx_stats *stats = &tx->txq->stats;
    bool for_device = is_for_device(way, offload, offload->ip_len);

    if (for_device) {
        ipoib_offload_prepare(offload);
        ipoib_count(&stats->offload_csum_device, 1);
    } else {
        ipoib_offload_complete(offload);
        ipoib_count(&stats->offload_csum, 1);
    }
    dp_packet_reset_offload(packet);
    offload_add(tx, packet, for_device);
}

/* True if 'packet', to be cut into segments, is one already. */
static bool
is_one_segment(const struct dp_packet *packet,
               const struct ipoib_offload *offload, const struct way *way)
{
    size_t segsz = ipoib_pkt_segment_size(packet);

    return (offload->proto == IPPROTO_TCP && offload->ip_len <= way->mtu
            && (!segsz || (offload->ip_len - offload->l4_ofs - TCP_HEADER_LEN
                           <= segsz)));
}

/* Sends 'packet', which is not complete. */
static void
offload_one(struct tx_offload *tx, struct dp_packet *packet)
{
    bool is_tso = ipoib_pkt_is_tso(packet);
    struct way way = { .direct = false };
    struct ipoib_offload offload;

    if (ipoib_offload_parse(packet, &offload)) {
        if (is_tso || tx->use_device) {
            way = find_way(tx, packet);
        }
        if (!is_tso || is_one_segment(packet, &offload, &way)) {
            offload_checksum(tx, packet, &offload, &way);
            return;
        } else if (offload_segments(tx, packet, &offload, &way)) {
            return;
        }
    }
    ipoib_count(&tx->txq->stats.drop_offload, 1);
    dp_packet_delete(packet);
}

/* True if the device computes checksums, and nothing in packets is to be
 * changed between here and there. */
static bool
may_use_device(struct ipoib_shared *shared)
{
    bool csum, clamp;

    atomic_read_relaxed(&shared->tx_csum, &csum);
    atomic_read_relaxed(&shared->clamp_mss, &clamp);
    return csum && !clamp;
}

void
ipoib_tx_offload_batch(struct ipoib_txq *txq, struct dp_packet_batch *batch,
                       unsigned int class, ipoib_tx_send_func *send)
{
    struct tx_offload tx = {
        .txq = txq,
        .class = class,
        .send = send,
        .use_device = may_use_device(txq->shared),
    };
    struct dp_packet *packet;

    if (tx.use_device) {
        atomic_read_relaxed(&txq->shared->tx_tso, &tx.max_tso);
    }
    ipoib_batch_init(&tx.batch);
    DP_PACKET_BATCH_FOR_EACH (i, packet, batch) {
        if (ipoib_pkt_needs_offload(packet)) {
            offload_one(&tx, packet);
        } else {
            offload_add(&tx, packet, false);
        }
    }
    offload_flush(&tx);
    ipoib_batch_destroy(&tx.batch);
}
