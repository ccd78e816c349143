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

#include <errno.h>

#include "ipoib-pool-magazine.h"
#include "ipoib-pool-private.h"
#include "ipoib-ring-private.h"
#include "ipoib-variant.h"
#include "openvswitch/vlog.h"
#include "util.h"

#define IPOIB_VLOG_MODULE VLM_ipoib_rx_refill
IPOIB_VARIANT_VLOG(ipoib_rx_refill);

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(5, 20);

/* Posts the first 'n' of the prepared WRs.  Returns how many were taken. */
static size_t
rxq_post(struct ipoib_rxq *rxq, size_t n)
{
    struct ipoib_rxq_private *priv = rxq->priv;
    struct ibv_recv_wr *last = &priv->wr[n - 1];
    struct ibv_recv_wr *next = last->next;
    struct ibv_recv_wr *bad = NULL;
    int error;

    last->next = NULL;
    error = (rxq->srq
             ? ibv_post_srq_recv(rxq->srq, &priv->wr[0], &bad)
             : ibv_post_recv(rxq->base_qp, &priv->wr[0], &bad));
    last->next = next;
    if (OVS_UNLIKELY(error)) {
        if (!priv->searching) {
            VLOG_WARN_RL(&rl, "posting receives failed (%s)",
                         ovs_strerror(error));
        }
        return bad ? bad - priv->wr : 0;
    }
    return n;
}

/* Takes up to 'n' buffers for 'rxq', its own spare ones first, into 'ids'.
 * Returns how many there are. */
static size_t
rxq_take(struct ipoib_rxq *rxq, uint64_t ids[], size_t n)
{
    struct ipoib_rxq_private *priv = rxq->priv;
    size_t n_spare = MIN(n, priv->n_spare), n_got;

    for (size_t i = 0; i < n_spare; i++) {
        ids[i] = priv->spare[--priv->n_spare];
    }
    if (n == n_spare) {
        return n;
    }

    n_got = n_spare + ipoib_magazine_get(rxq->pool, &ids[n_spare],
                                         n - n_spare);
    if (OVS_UNLIKELY(n_got < n)) {
        n_got += ipoib_pool_get_further(rxq->pool, &ids[n_got], n - n_got);
    }
    priv->starved = n_got < n && rxq->n_posted < rxq->n_desc / 2;
    if (OVS_UNLIKELY(priv->starved)) {
        ipoib_count(&rxq->stats.no_buffer, 1);
    }
    return n_got;
}

/* The pool has grown: each buffer may be in another memory region. */
static __attribute__((__noinline__)) void
rxq_set_lkeys(struct ipoib_rxq *rxq, const uint64_t ids[], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        rxq->priv->sge[i].lkey
            = ipoib_pool_lkey(ipoib_pool_find(rxq->pool, ids[i]));
    }
}

/* Only what differs from one receive to the other is written into its WR. */
int
IPOIB_VARIANT(ipoib_rxq_refill)(struct ipoib_rxq *rxq)
{
    struct ipoib_rxq_private *priv = rxq->priv;
    ovs_be32 type = ipoib_pool_tag_type(priv->tag);

    while (rxq->n_posted < rxq->n_desc) {
        size_t want = MIN(rxq->n_desc - rxq->n_posted, IPOIB_RX_CHAIN);
        uint64_t ids[IPOIB_RX_CHAIN];
        size_t n = rxq_take(rxq, ids, want);
        size_t posted;

        if (!n) {
            return ENOBUFS;
        }
        IPOIB_UNROLL
        for (size_t i = 0; i < n; i++) {
            uint64_t id = ids[i];

            ipoib_pool_packet(id)->packet_type = type;
            priv->wr[i].wr_id = priv->sge[i].addr = id;
        }
        if (OVS_UNLIKELY(ipoib_pool_next(rxq->pool))) {
            rxq_set_lkeys(rxq, ids, n);
        }
        posted = rxq_post(rxq, n);
        rxq->n_posted += posted;
        if (OVS_UNLIKELY(posted < n)) {
            /* Tried again with the next refill. */
            while (posted < n) {
                priv->spare[priv->n_spare++] = ids[posted++];
            }
            return EIO;
        }
        if (n < want) {
            return ENOBUFS;
        }
    }
    return 0;
}
