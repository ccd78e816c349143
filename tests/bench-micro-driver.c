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
#undef NDEBUG
#include "bench-micro.h"

#include <string.h>

#include "ipoib-pool.h"
#include "util.h"

/* The part of the driver: what ibv_post_send(), ibv_post_srq_recv() and
 * ibv_poll_cq() take, with work requests that are ready but for their
 * addresses.  What ipoib_tx_batch() and ipoib_rx_batch() take beyond that is
 * our own. */

struct bench_driver {
    struct bench_world *world;
    struct ipoib_pool *pool;
    struct ipoib_buf *bufs;
    size_t n;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_srq *srq;        /* To receive; or NULL. */
    size_t pos;                 /* Next of 'bufs' to send or to post. */
    uint64_t sum;
    struct ibv_ah *ahs[BENCH_WINDOW];
    struct bench_random random;
};

struct bench_driver *
bench_driver_create(struct bench_world *world, size_t n, bool receive)
{
    struct ibv_pd *pd = &world->device->pd;
    struct bench_driver *d = xzalloc(sizeof *d);
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_UD,
        .cap = { .max_send_wr = BENCH_SEND_DESC },
    };

    d->world = world;
    d->n = n;
    d->random = (struct bench_random) BENCH_RANDOM_INITIALIZER;
    d->pool = ipoib_pool_create(&bench_verbs, pd, n, 2048, -1);
    d->bufs = xcalloc(n, sizeof *d->bufs);
    ovs_assert(ipoib_pool_get(d->pool, d->bufs, n) == n);
    d->cq = bench_verbs.create_cq(&world->device->ctx,
                                  receive ? n / 2 : BENCH_SEND_DESC, NULL,
                                  NULL, 0);
    if (receive) {
        struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = n / 2 } };

        d->srq = bench_verbs.create_srq(pd, &srq_attr);
    }
    attr.send_cq = attr.recv_cq = d->cq;
    attr.srq = d->srq;
    d->qp = bench_verbs.create_qp(pd, &attr, true);
    return d;
}

void
bench_driver_destroy(struct bench_driver *d)
{
    bench_verbs.destroy_qp(d->qp);
    if (d->srq) {
        bench_verbs.destroy_srq(d->srq);
    }
    bench_verbs.destroy_cq(d->cq);
    for (size_t i = 0; i < d->n; i++) {
        ipoib_pool_put(d->pool, d->bufs[i].id);
    }
    ipoib_pool_detach(d->pool);
    free(d->bufs);
    free(d);
}

/* Transmit. */

static void
send_prepare(void *d_)
{
    struct bench_driver *d = d_;

    for (size_t i = 0; i < bench_stretch(d->n); i++) {
        uint32_t neigh = bench_random_below(&d->random, d->world->n);
        const struct ipoib_buf *buf = &d->bufs[(d->pos + i) & (d->n - 1)];

        d->ahs[i] = d->world->ahs[neigh % d->world->n_ahs];
        bench_write_frame(buf->data, eth_addr_broadcast, neigh, i,
                          BENCH_IP_LEN);
    }
}

static void
send_run(void *d_)
{
    struct bench_driver *d = d_;
    struct { struct ibv_send_wr wr; struct ibv_sge sge; } wrs[BENCH_BURST];
    size_t n_bursts = bench_stretch(d->n) / BENCH_BURST;
    struct ibv_send_wr *bad;
    struct ibv_wc wc[8];

    memset(wrs, 0, sizeof wrs);
    for (size_t i = 0; i < BENCH_BURST; i++) {
        bool last = i + 1 == BENCH_BURST;

        wrs[i].wr.next = last ? NULL : &wrs[i + 1].wr;
        wrs[i].wr.sg_list = &wrs[i].sge;
        wrs[i].wr.num_sge = 1;
        wrs[i].wr.opcode = IBV_WR_SEND;
        wrs[i].wr.send_flags = IBV_SEND_INLINE | (last ? IBV_SEND_SIGNALED
                                                  : 0);
        wrs[i].wr.wr.ud.remote_qkey = GW_QKEY;
        wrs[i].sge.length = 4 + BENCH_IP_LEN;
    }
    for (size_t burst = 0; burst < n_bursts; burst++) {
        for (size_t i = 0; i < BENCH_BURST; i++, d->pos++) {
            const struct ipoib_buf *buf = &d->bufs[d->pos & (d->n - 1)];

            wrs[i].sge.addr = (uintptr_t) buf->data + 10;
            wrs[i].wr.wr.ud.ah = d->ahs[burst * BENCH_BURST + i];
        }
        ovs_assert(!ibv_post_send(d->qp, &wrs[0].wr, &bad));
        ovs_assert(ibv_poll_cq(d->cq, ARRAY_SIZE(wc), wc) == 1);
    }
}

/* Receive. */

static void
receive_prepare(void *d_)
{
    struct bench_driver *d = d_;
    struct bench_cq *cq = CONTAINER_OF(d->cq, struct bench_cq, ibv);
    struct ibv_recv_wr *bad;
    uint8_t *data;

    for (; d->pos < d->n / 2; d->pos++) {
        const struct ipoib_buf *buf = &d->bufs[d->pos];
        struct ibv_sge sge = { buf->id, buf->size, buf->lkey };
        struct ibv_recv_wr wr = { buf->id, NULL, &sge, 1 };

        ovs_assert(!ibv_post_srq_recv(d->srq, &wr, &bad));
    }
    while ((data = bench_device_receive(cq, 100, 0x2000, BENCH_HOST_QPN,
                                        44 + BENCH_IP_LEN))) {
        bench_write_ipoib(data + 40, 0, 0, BENCH_IP_LEN);
    }
}

static void
receive_run(void *d_)
{
    struct bench_driver *d = d_;
    struct ibv_recv_wr wrs[BENCH_BURST], *bad;
    struct ibv_sge sges[BENCH_BURST];
    size_t n_bursts = bench_stretch(d->n) / BENCH_BURST;
    struct ibv_wc wc[BENCH_BURST];

    for (size_t i = 0; i < BENCH_BURST; i++) {
        wrs[i].next = i + 1 < BENCH_BURST ? &wrs[i + 1] : NULL;
        wrs[i].sg_list = &sges[i];
        wrs[i].num_sge = 1;
        sges[i].length = d->bufs[0].size;
        sges[i].lkey = d->bufs[0].lkey;
    }
    for (size_t burst = 0; burst < n_bursts; burst++) {
        ovs_assert(ibv_poll_cq(d->cq, BENCH_BURST, wc) == BENCH_BURST);
        for (size_t i = 0; i < BENCH_BURST; i++, d->pos++) {
            wrs[i].wr_id = sges[i].addr = d->bufs[d->pos & (d->n - 1)].id;
            d->sum += wc[i].wr_id;
        }
        ovs_assert(!ibv_post_srq_recv(d->srq, &wrs[0], &bad));
    }
    bench_use(d->sum);
}

struct bench_workload
bench_driver_workload(struct bench_driver *d)
{
    return (struct bench_workload) {
        .label = d->srq ? "receive driver" : "transmit driver",
        .x = d->world->n,
        .n_warm = BENCH_WARM,
        .n_stretches = BENCH_WINDOW / bench_stretch(d->n),
        .prepare = d->srq ? receive_prepare : send_prepare,
        .run = d->srq ? receive_run : send_run,
        .aux = d,
    };
}
