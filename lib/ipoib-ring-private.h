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

#ifndef IPOIB_RING_PRIVATE_H
#define IPOIB_RING_PRIVATE_H 1

/* The inside of the queues, for ipoib-ring.c, ipoib-rx.c and ipoib-tx.c. */

#include "dp-packet.h"
#include "ipoib-ring.h"
#include "netdev.h"

/* Receives are posted in chains of so many, those of two bursts: some of what
 * it takes is for each chain. */
#define IPOIB_RX_CHAIN 64

struct ipoib_rxq_private {
    /* Receiving thread only. */
    unsigned int chain;         /* Missing receives at which to refill. */
    uint64_t *spare;            /* Buffers of this queue that are not
                                 * posted: */
    unsigned int n_spare;       /* 'n_desc' and IPOIB_RX_CHAIN at most. */
    bool starved;               /* Less than half of what should be posted is,
                                 * and the pool is empty: copy packets, so
                                 * that their buffers stay here. */
    bool ring_last;             /* The last batch was the return ring's. */

    /* The search for lost buffers: what was posted before bears
     * IPOIB_POOL_TAG_MARK. */
    bool searching;
    int search_left;            /* What is not back after so many completions
                                 * is lost. */

    /* Destinations of late: a QPN and an IP address (or 0 for all, where the
     * host is a router), and the MAC of the host that they lead to, by
     * ipoib_frame_mac().  All are forgotten as a second begins, so that
     * changes are noticed soon enough and the host's 'used' is kept. */
#define IPOIB_RX_DESTS 1024
    struct ipoib_rx_dest {
        uint64_t key;           /* 0: none. */
        uint64_t mac;
    } dests[IPOIB_RX_DESTS];
    uint32_t dests_second;

    /* Neighbours that were told to have another SLID, by the low bits of
     * their slots: the second in which that was. */
#define IPOIB_RX_MOVED 64
    uint32_t moved[IPOIB_RX_MOVED];

    /* Frames to deliver before more are received: of a batch of which some
     * were cut into fragments.  [first, n). */
    struct dp_packet **waiting;
    size_t n_waiting, first_waiting, max_waiting;

    struct ibv_recv_wr wr[IPOIB_RX_CHAIN];
    struct ibv_sge sge[IPOIB_RX_CHAIN];

    uint8_t tag;                /* Of this queue's buffers in the pool. */
    struct ibv_pd *pd;

    struct ipoib_limiter limiter;
    struct ipoib_mtu_limiter errors;
};

/* Frames that wait to be delivered: appends one; adds to 'batch' as many as
 * there is room for; deletes all. */
void ipoib_rxq_wait(struct ipoib_rxq_private *, struct dp_packet *);
void ipoib_rxq_deliver_waiting(struct ipoib_rxq *,
                               struct dp_packet_batch *batch);
void ipoib_rxq_drop_waiting(struct ipoib_rxq *);

/* Adds what the control thread wants to be delivered to 'batch'. */
void ipoib_rxq_return_ring(struct ipoib_rxq *, struct dp_packet_batch *batch);

/* Receiving thread, with the 'n' completions in 'wc', not yet looked at:
 * searches for lost buffers if 'rxq' is suspect, or a search goes on. */
void ipoib_rxq_search_lost(struct ipoib_rxq *, const struct ibv_wc wc[],
                           unsigned int n);

/* A send queue never has less room than this, so that a burst is never more
 * than a quarter of it: then one signalled WR a burst is enough. */
#define IPOIB_TX_MIN_DESC (4 * NETDEV_MAX_BURST)
BUILD_ASSERT_DECL(IS_POW2(IPOIB_TX_MIN_DESC));

struct ipoib_txq_grace;

struct ipoib_tx_wr {
    struct ibv_send_wr wr;
    struct ibv_sge sge;
};

struct ipoib_txq_slots {
    /* 'head' counts WRs that were posted, 'tail' those that have completed,
     * one that takes several slots as so many.  'held_head' and 'held_tail'
     * count in the same way the packets in 'held'.  All wrap around.  WRs of a
     * QP complete in order: the wr_id of a WR that is signalled,
     * ipoib_tx_wr_id(), tells what 'tail' and 'held_tail' become when it
     * completes.  That of others, which complete if they fail, is 0. */
    uint32_t head, tail;
    uint32_t held_head, held_tail;
    uint32_t mask;              /* Number of slots, a power of 2, less 1. */
    uint32_t max_inline;
    uint32_t slot_size;
    uint32_t lkey;
    uint8_t *mem;               /* Slots. */
    struct dp_packet **held;    /* Ring, of as many: packets that are sent
                                 * from their own memory. */
    atomic_uint32_t n_held;     /* Of posted ones; written by the data path. */
    unsigned int n_failed;      /* Posts that failed in a row. */
    bool wake;                  /* The control thread got something. */
    bool tso;                   /* The QP takes IBV_WR_TSO. */

    /* A chain of NETDEV_MAX_BURST, of which a burst takes as many as it
     * needs. */
    struct ipoib_tx_wr *wrs;
    uint64_t qkey;              /* In all 'wrs'.  UINT64_MAX: they are not
                                 * made yet. */

    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct ipoib_txq_grace *grace; /* Control thread: while _STOPPING. */
    uint16_t pkey_index;        /* Control thread: of the QP. */
};

/* Number of slots that are free. */
static inline uint32_t
ipoib_txq_room(const struct ipoib_txq_slots *slots)
{
    return slots->mask + 1 - (slots->head - slots->tail);
}

/* Bit 63 says that it is one. */
static inline uint64_t
ipoib_tx_wr_id(uint32_t tail, uint32_t held_tail)
{
    return (UINT64_C(1) << 31 | held_tail) << 32 | tail;
}

/* 'held_head' or 'held_tail' has changed. */
static inline void
ipoib_txq_set_n_held(struct ipoib_txq_slots *slots)
{
    atomic_store_relaxed(&slots->n_held, slots->held_head - slots->held_tail);
}

/* Makes the chain of WRs, with 'qkey'. */
void ipoib_txq_prepare(struct ipoib_txq *, uint32_t qkey);
/* The queue has failed: the control thread is to restart it. */
void ipoib_txq_failed(struct ipoib_txq *);
/* The device has not taken a single WR of a burst.  After some in a row, the
 * queue has failed. */
void ipoib_txq_refused(struct ipoib_txq *);
/* Takes what has completed. */
void ipoib_txq_reap(struct ipoib_txq *);
/* After a restart: what was in the queue is gone, and so are its completions.
 * Returns true if it runs. */
bool ipoib_txq_restarted(struct ipoib_txq *);

#endif /* ipoib-ring-private.h */
