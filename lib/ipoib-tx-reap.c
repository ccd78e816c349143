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

#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-ring-private.h"
#include "openvswitch/vlog.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_tx_reap);

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(5, 20);

void
ipoib_txq_let_go(struct ipoib_txq_slots *slots, struct dp_packet **held)
{
    if (*held) {
        dp_packet_delete(*held);
        *held = NULL;
        atomic_store_relaxed(&slots->n_held, ipoib_txq_n_held(slots) - 1);
    }
}

/* Everything before 'tail' has completed: what is held for it goes. */
static void
tx_retire(struct ipoib_txq_slots *slots, uint32_t tail)
{
    uint32_t n_held = ipoib_txq_n_held(slots), left = n_held;
    struct dp_packet *burst[NETDEV_MAX_BURST];
    size_t n = 0;

    for (uint32_t i = slots->tail; left && i != tail; i++) {
        struct dp_packet **held = &slots->held[i & slots->mask];

        if (*held) {
            burst[n++] = *held;
            *held = NULL;
            left--;
            if (n == ARRAY_SIZE(burst)) {
                ipoib_pkt_delete_burst(burst, n);
                n = 0;
            }
        }
    }
    ipoib_pkt_delete_burst(burst, n);
    if (left != n_held) {
        atomic_store_relaxed(&slots->n_held, left);
    }
    slots->tail = tail;
}

void
ipoib_txq_failed(struct ipoib_txq *txq)
{
    uint32_t running = IPOIB_TXQ_RUNNING;

    if (atomic_compare_exchange_strong(&txq->state, &running,
                                       IPOIB_TXQ_ERROR)) {
        ipoib_waker_wake(txq->shared->waker);
    }
}

static void
tx_completion_error(struct ipoib_txq *txq, const struct ibv_wc *wc)
{
    ipoib_count(&txq->stats.drop_error, 1);
    if (wc->status != IBV_WC_WR_FLUSH_ERR) {
        VLOG_INFO_RL(&rl, "transmit queue %u: a send failed with status %d",
                     txq->id, wc->status);
    }
    ipoib_txq_failed(txq);
}

/* A completion tells how far the queue has come, so that a few of them at a
 * time are enough. */
void
ipoib_txq_reap(struct ipoib_txq *txq)
{
    uint32_t tail = txq->slots->tail;
    struct ibv_wc wc[8];
    int n;

    do {
        n = ibv_poll_cq(txq->cq, ARRAY_SIZE(wc), wc);
        for (int i = 0; i < n; i++) {
            if (OVS_UNLIKELY(wc[i].status != IBV_WC_SUCCESS)) {
                tx_completion_error(txq, &wc[i]);
            }
            if (OVS_LIKELY(wc[i].wr_id)) {
                tail = wc[i].wr_id;
            }
        }
        if (n > 0) {
            tx_retire(txq->slots, tail);
        }
    } while (n == ARRAY_SIZE(wc));
}

bool
ipoib_txq_restarted(struct ipoib_txq *txq)
{
    uint32_t restarted = IPOIB_TXQ_RESTARTED;
    struct ibv_wc wc[8];

    while (ibv_poll_cq(txq->cq, ARRAY_SIZE(wc), wc) > 0) {
        continue;
    }
    tx_retire(txq->slots, txq->slots->head);
    txq->slots->n_failed = 0;
    return atomic_compare_exchange_strong(&txq->state, &restarted,
                                          IPOIB_TXQ_RUNNING);
}

bool
ipoib_tx_reap(struct ipoib_txq *txq)
{
    uint64_t n_errors = ipoib_counter_read(&txq->stats.drop_error);

    ipoib_txq_reap(txq);
    return ipoib_counter_read(&txq->stats.drop_error) == n_errors;
}
