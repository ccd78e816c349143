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
#include "ipoib-tx-tso.h"

#include "dp-packet.h"
#include "ipoib-offload.h"
#include "ipoib-packet.h"
#include "ipoib-pool.h"
#include "ipoib-ring-private.h"
#include "openvswitch/vlog.h"
#include "packets.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_tx_tso);

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(5, 20);

/* The data of a packet that is copied takes as many slots as it needs, which
 * are one piece of memory, or two at the end of the ring.  Otherwise it takes
 * one. */
static uint32_t
n_slots(const struct ipoib_txq_slots *slots,
        const struct ipoib_segments *segments, uint32_t lkey)
{
    return lkey ? 1 : DIV_ROUND_UP(segments->len, slots->slot_size);
}

bool
ipoib_tx_tso_begin(struct ipoib_txq *txq, const struct dp_packet *packet,
                   const struct ipoib_segments *segments)
{
    struct ipoib_txq_slots *slots = txq->slots;
    uint32_t state, lkey, n;

    atomic_read_explicit(&txq->state, &state, memory_order_acquire);
    if (state != IPOIB_TXQ_RUNNING || !slots->tso) {
        return false;
    }
    lkey = ipoib_pool_region(slots->pd, packet).lkey;
    n = n_slots(slots, segments, lkey);
    if (n > ipoib_txq_room(slots)) {
        ipoib_txq_reap(txq);
        if (n > ipoib_txq_room(slots)) {
            return false;
        }
    }
    txq->tso = segments;
    txq->tso_lkey = lkey;
    return true;
}

/* Copies 'len' bytes of 'data' to the 'n' next slots, and has 'sges' describe
 * where they are.  Returns the number of pieces. */
static int
copy_to_slots(const struct ipoib_txq_slots *slots, const uint8_t *data,
              size_t len, uint32_t n, struct ibv_sge sges[2])
{
    uint32_t pos = slots->head & slots->mask;
    uint32_t n_first = MIN(n, slots->mask + 1 - pos);
    size_t first = MIN(len, (size_t) n_first * slots->slot_size);
    uint8_t *slot = slots->mem + (size_t) pos * slots->slot_size;

    memcpy(slot, data, first);
    memcpy(slots->mem, data + first, len - first);
    sges[0] = (struct ibv_sge) {
        .addr = (uintptr_t) slot, .length = first, .lkey = slots->lkey,
    };
    sges[1] = (struct ibv_sge) {
        .addr = (uintptr_t) slots->mem, .length = len - first,
        .lkey = slots->lkey,
    };
    return first < len ? 2 : 1;
}

/* The queue keeps '*packetp', which becomes NULL. */
static void
hold(struct ipoib_txq_slots *slots, struct dp_packet **packetp)
{
    slots->held[slots->held_head++ & slots->mask] = *packetp;
    ipoib_txq_set_n_held(slots);
    *packetp = NULL;
}

static void
count(struct ipoib_tx_stats *stats, const struct ipoib_segments *segments,
      bool copied, bool posted)
{
    size_t n = ipoib_segments_n(segments);

    ipoib_count(&stats->offload_segmented, 1);
    ipoib_count(&stats->offload_segmented_device, 1);
    ipoib_count(&stats->offload_segments, n);
    ipoib_count(&stats->offload_csum_device, n);
    ipoib_count(&stats->copied, copied);
    if (posted) {
        ipoib_count(&stats->packets, n);
        ipoib_count(&stats->bytes, (ipoib_segments_ip_bytes(segments)
                                    + n * ETH_HEADER_LEN));
    } else {
        ipoib_count(&stats->drop_post, n);
    }
}

void
ipoib_tx_tso(struct ipoib_txq *txq, struct dp_packet **packetp,
             struct ibv_ah *ah, uint32_t qpn)
{
    const struct ipoib_segments *segments = txq->tso;
    struct ipoib_txq_slots *slots = txq->slots;
    uint32_t lkey = txq->tso_lkey;
    uint32_t n = n_slots(slots, segments, lkey);
    uint8_t *ip = segments->all.ip;
    struct ipoib_header *header
        = ALIGNED_CAST(struct ipoib_header *, ip - IPOIB_HEADER_LEN);
    struct ibv_sge sges[2] = { {
        .addr = (uintptr_t) (ip + segments->hlen),
        .length = segments->len,
        .lkey = lkey,
    } };
    struct ibv_send_wr wr = {
        .wr_id = ipoib_tx_wr_id(slots->head + n,
                                slots->held_head + (lkey != 0)),
        .sg_list = sges,
        .num_sge = (lkey ? 1 : copy_to_slots(slots, ip + segments->hlen,
                                             segments->len, n, sges)),
        .opcode = IBV_WR_TSO,
        .send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM,
        .wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = slots->qkey },
        .tso = {
            .hdr = header,
            .hdr_sz = IPOIB_HEADER_LEN + segments->hlen,
            .mss = segments->size,
        },
    };
    struct ibv_send_wr *bad;
    int error;

    /* The type of an IPoIB header is where that of Ethernet is not. */
    header->type = htons(segments->all.v4 ? ETH_TYPE_IP : ETH_TYPE_IPV6);
    header->reserved = 0;
    error = ibv_post_send(txq->qp, &wr, &bad);
    count(&txq->stats, segments, !lkey, !error);
    if (error) {
        VLOG_INFO_RL(&rl, "transmit queue %u: posting a long packet failed "
                     "(%s)", txq->id, ovs_strerror(error));
        ipoib_txq_refused(txq);
    } else {
        if (lkey) {
            hold(slots, packetp);
        }
        slots->head += n;
        slots->n_failed = 0;
    }
}
