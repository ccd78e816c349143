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
#include "ipoib-ring.h"

#include "ipoib-pool-private.h"
#include "ipoib-ring-private.h"
#include "openvswitch/vlog.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_rx_search);

/* Calls for each buffer of 'rxq' that bears 'tag'. */
#define RXQ_FOR_EACH_TAGGED(ID, TAG, RXQ)                                   \
    for (struct ipoib_pool *pool__ = (RXQ)->pool; pool__;                   \
         pool__ = ipoib_pool_next(pool__))                                  \
        for (size_t i__ = 0; i__ < pool__->n_frames; i__++)                 \
            if (ID = ipoib_pool_id(pool__, i__), ipoib_pool_tag(ID) == (TAG))

/* Takes back the lost buffers, and counts those that are posted. */
static void
rxq_search_finish(struct ipoib_rxq *rxq)
{
    struct ipoib_rxq_private *priv = rxq->priv;
    unsigned int n = 0, n_lost = 0;
    uint64_t id;

    RXQ_FOR_EACH_TAGGED (id, priv->tag, rxq) {
        n++;
    }
    rxq->n_posted = n - priv->n_spare;
    RXQ_FOR_EACH_TAGGED (id, priv->tag | IPOIB_POOL_TAG_MARK, rxq) {
        if (priv->n_spare < rxq->n_desc + IPOIB_RX_CHAIN) {
            ipoib_pool_set_tag(id, priv->tag);
            priv->spare[priv->n_spare++] = id;
        } else {
            ipoib_pool_put(rxq->pool, id);
        }
        n_lost++;
    }
    priv->searching = false;
    if (n_lost) {
        VLOG_INFO("receive queue %u: %u buffers were lost and are posted "
                  "again", rxq->id, n_lost);
    }
}

/* Receives complete roughly in the order in which they were posted: whatever
 * was posted by now is back, or lost, when the queue has been gone through
 * twice.  Should nearly all be lost, nothing would come; so a chain more is
 * posted than seems to fit.
 *
 * Without an SRQ the base QP's receives complete in exactly that order, and
 * all are lost if it was reset: as many are posted again.  Should that happen
 * once more before anything comes, what was posted before the last time is
 * lost for sure. */
static void
rxq_search_start(struct ipoib_rxq *rxq)
{
    struct ipoib_rxq_private *priv = rxq->priv;
    uint64_t id;

    atomic_store_relaxed(&rxq->suspect, false);
    if (!rxq->srq) {
        if (priv->searching) {
            rxq_search_finish(rxq);
        }
        rxq->n_posted = 0;
    } else if (!priv->searching) {
        rxq->n_posted -= MIN(rxq->n_posted, IPOIB_RX_CHAIN);
    }
    priv->searching = true;
    priv->search_left = 2 * rxq->n_desc;
    RXQ_FOR_EACH_TAGGED (id, priv->tag, rxq) {
        ipoib_pool_set_tag(id, priv->tag | IPOIB_POOL_TAG_MARK);
    }
    for (size_t i = 0; i < priv->n_spare; i++) {
        ipoib_pool_set_tag(priv->spare[i], priv->tag);
    }
}

/* True if the search is over after the 'n' completions in 'wc'. */
static bool
rxq_search_is_over(struct ipoib_rxq *rxq, const struct ibv_wc wc[],
                   unsigned int n)
{
    struct ipoib_rxq_private *priv = rxq->priv;

    if (!rxq->srq) {
        return n && ipoib_pool_tag(wc[n - 1].wr_id) == priv->tag;
    }
    priv->search_left -= n;
    return priv->search_left <= 0;
}

void
ipoib_rxq_search_lost(struct ipoib_rxq *rxq, const struct ibv_wc wc[],
                      unsigned int n)
{
    bool over = rxq->priv->searching && rxq_search_is_over(rxq, wc, n);
    bool suspect;

    /* These are neither posted nor lost. */
    for (unsigned int i = 0; i < n; i++) {
        ipoib_pool_set_tag(wc[i].wr_id, 0);
    }
    atomic_read_relaxed(&rxq->suspect, &suspect);
    if (suspect) {
        rxq_search_start(rxq);  /* Perhaps once more from the start. */
    } else if (over) {
        rxq_search_finish(rxq);
    }
}
