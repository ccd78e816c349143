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

/* So many bursts in a row that the device refused wholly are taken for a
 * failure of the queue. */
#define MAX_FAILED 8

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(5, 20);

/* The 'n' packets that have been held for longest are not needed any more. */
static void
tx_let_go(struct ipoib_txq_slots *slots, uint32_t n)
{
    for (uint32_t done = 0; done < n; ) {
        uint32_t first = slots->held_tail & slots->mask;
        uint32_t chunk = MIN(n - done, slots->mask + 1 - first);

        chunk = MIN(chunk, NETDEV_MAX_BURST);
        ipoib_pkt_delete_burst(&slots->held[first], chunk);
        slots->held_tail += chunk;
        done += chunk;
    }
    ipoib_txq_set_n_held(slots);
}

/* All has completed that ipoib_tx_wr_id() says in 'wr_id'. */
static void
tx_retire(struct ipoib_txq_slots *slots, uint64_t wr_id)
{
    uint32_t n = ((wr_id >> 32) - slots->held_tail) & INT32_MAX;

    slots->tail = wr_id;
    if (n) {
        tx_let_go(slots, n);
    }
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

void
ipoib_txq_refused(struct ipoib_txq *txq)
{
    if (++txq->slots->n_failed >= MAX_FAILED) {
        ipoib_txq_failed(txq);
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
    uint64_t wr_id = 0;
    struct ibv_wc wc[8];
    int n;

    do {
        n = ibv_poll_cq(txq->cq, ARRAY_SIZE(wc), wc);
        for (int i = 0; i < n; i++) {
            if (OVS_UNLIKELY(wc[i].status != IBV_WC_SUCCESS)) {
                tx_completion_error(txq, &wc[i]);
            }
            if (OVS_LIKELY(wc[i].wr_id)) {
                wr_id = wc[i].wr_id;
            }
        }
    } while (n == ARRAY_SIZE(wc));
    if (OVS_LIKELY(wr_id)) {
        tx_retire(txq->slots, wr_id);
    }
}

bool
ipoib_txq_restarted(struct ipoib_txq *txq)
{
    uint32_t restarted = IPOIB_TXQ_RESTARTED;
    struct ipoib_txq_slots *slots = txq->slots;
    struct ibv_wc wc[8];

    while (ibv_poll_cq(txq->cq, ARRAY_SIZE(wc), wc) > 0) {
        continue;
    }
    tx_retire(slots, ipoib_tx_wr_id(slots->head, slots->held_head));
    slots->n_failed = 0;
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
