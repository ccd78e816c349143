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

#include <endian.h>
#include <string.h>

#include "ipoib-pages.h"
#include "ipoib-pool.h"
#include "util.h"

/* The floor of a sender: what any program must do that sends UD packets by a
 * device like bench-micro-device.c's, and nothing else:
 *
 *   - read the header of the packet (its first cache line),
 *   - write a descriptor, of 80 bytes in two cache lines: control segment,
 *     address vector, pointer to the data,
 *   - for each burst of 32 packets, ring the doorbell, and read one
 *     completion (its cache line).
 *
 * There is one address vector, which is always at hand; nothing is looked up,
 * nothing in the packet is changed, and nobody has to release it.
 *
 * Who has many neighbours has to read at least one cache line of that of each
 * packet, which is not in the cache.  So there is the same with one line more,
 * of 'n_lines', for each packet, whose place is known beforehand; those of a
 * burst are prefetched.  That is no reference of any figure, but tells what of
 * the cost of many neighbours is the memory's. */

struct bench_floor_tx {
    struct ipoib_pool *pool;
    struct ipoib_buf *bufs;
    struct bench_device *device;
    uint8_t **data;
    size_t n, prepared, sent;
    struct bench_wqe *sq;
    struct bench_cqe *cqes;
    struct bench_doorbell *doorbell, *cq_doorbell;
    uint32_t head, ci;

    uint8_t *lines;             /* NULL: without. */
    size_t n_lines;
    const uint8_t *line[BENCH_WINDOW]; /* Of each packet of a stretch. */
    struct bench_random random;
};

static struct ipoib_buf *
take_buffers(struct ipoib_pool *pool, size_t n)
{
    struct ipoib_buf *bufs = xcalloc(n, sizeof *bufs);
    size_t n_got = ipoib_pool_get(pool, bufs, n);

    ovs_assert(n_got == n);
    return bufs;
}

static void
give_buffers(struct ipoib_pool *pool, struct ipoib_buf *bufs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ipoib_pool_put(pool, bufs[i].id);
    }
    free(bufs);
    ipoib_pool_detach(pool);
}

struct bench_floor_tx *
bench_floor_tx_create(size_t n, size_t n_lines)
{
    struct bench_floor_tx *tx = xzalloc(sizeof *tx);

    tx->device = bench_device_open();
    tx->pool = ipoib_pool_create(&bench_verbs, &tx->device->pd, n, 2048, -1);
    tx->bufs = take_buffers(tx->pool, n);
    tx->n = n;
    tx->data = xcalloc(n, sizeof *tx->data);
    for (size_t i = 0; i < n; i++) {
        tx->data[i] = tx->bufs[i].data;
    }
    tx->sq = xzalloc_cacheline(BENCH_SEND_DESC * sizeof *tx->sq);
    tx->cqes = xzalloc_cacheline(BENCH_SEND_DESC * sizeof *tx->cqes);
    tx->doorbell = xzalloc_cacheline(sizeof *tx->doorbell);
    tx->cq_doorbell = xzalloc_cacheline(sizeof *tx->cq_doorbell);
    tx->random = (struct bench_random) BENCH_RANDOM_INITIALIZER;
    tx->n_lines = n_lines;
    if (n_lines) {
        tx->lines = ipoib_pages_alloc(n_lines * CACHE_LINE_SIZE);
        memset(tx->lines, 0, n_lines * CACHE_LINE_SIZE); /* Take memory. */
    }
    return tx;
}

void
bench_floor_tx_destroy(struct bench_floor_tx *tx)
{
    give_buffers(tx->pool, tx->bufs, tx->n);
    bench_device_close(tx->device);
    free_cacheline(tx->sq);
    free_cacheline(tx->cqes);
    free_cacheline(tx->doorbell);
    free_cacheline(tx->cq_doorbell);
    if (tx->lines) {
        ipoib_pages_free(tx->lines, tx->n_lines * CACHE_LINE_SIZE);
    }
    free(tx->data);
    free(tx);
}

/* What was in the line that bench_floor_tx_run() reads of packet 'i'. */
static uint32_t
floor_mark(size_t i)
{
    return i * 2654435761u;
}

static void
floor_tx_prepare(void *tx_)
{
    struct bench_floor_tx *tx = tx_;
    size_t ahead = tx->sent + tx->n / 2;

    for (; tx->prepared < ahead; tx->prepared++) {
        size_t i = tx->prepared;
        uint8_t *eth = tx->data[i & (tx->n - 1)];
        uint32_t mark = floor_mark(i);

        bench_write_frame(eth, eth_addr_broadcast, i, i, BENCH_IP_LEN);
        memcpy(eth, &mark, sizeof mark);
    }
    for (size_t i = 0; tx->lines && i < bench_stretch(tx->n); i++) {
        tx->line[i] = tx->lines + CACHE_LINE_SIZE
                      * (size_t) bench_random_below(&tx->random, tx->n_lines);
    }
}

static inline ALWAYS_INLINE void
floor_tx_run__(struct bench_floor_tx *tx, bool with_line)
{
    uint8_t **data = &tx->data[tx->sent & (tx->n - 1)];
    const ovs_be32 qkey = htonl(GW_QKEY), lkey = htonl(100);
    const ovs_be32 length = htonl(BENCH_IP_LEN + 4);
    const ovs_be32 op = htonl(0x100 << 8 | 5);
    struct bench_wqe *sq = tx->sq;
    uint32_t head = tx->head;
    size_t n_bursts = bench_stretch(tx->n) / BENCH_BURST;

    for (size_t burst = 0; burst < n_bursts; burst++) {
        const struct bench_cqe *cqe
            = &tx->cqes[tx->ci & (BENCH_SEND_DESC - 1)];
        struct bench_wqe *wqe = NULL;
        const uint8_t **lines = &tx->line[burst * BENCH_BURST];
        uint64_t ctrl;

        for (size_t i = 0; with_line && i < BENCH_BURST; i++) {
            OVS_PREFETCH(lines[i]);
        }
        for (size_t i = 0; i < BENCH_BURST; i++, head++) {
            const uint8_t *packet = *data++;
            uint32_t header, line;

            memcpy(&header, packet, sizeof header);
            if (with_line) {
                memcpy(&line, lines[i], sizeof line);
                header += line; /* 0. */
            }
            wqe = &sq[head & (BENCH_SEND_DESC - 1)];
            wqe->av.qkey = qkey;
            wqe->av.reserved = 0;
            wqe->av.dqpn = (OVS_FORCE ovs_be32) header;
            memset(wqe->av.path, 0, sizeof wqe->av.path);
            wqe->data.length = length;
            wqe->data.lkey = lkey;
            wqe->data.addr = htobe64((uintptr_t) packet + 10);
            wqe->ctrl[0] = htonl(head << 8 | BENCH_OP_SEND);
            wqe->ctrl[1] = op;
            wqe->ctrl[2] = 0;
            wqe->ctrl[3] = 0;
        }
        wqe->ctrl[2] = htonl(BENCH_CTRL_SIGNALED);
        memcpy(&ctrl, wqe->ctrl, sizeof ctrl);
        bench_ring(tx->doorbell, head, ctrl);
        bench_use(cqe->op_own);
        tx->cq_doorbell->record = ++tx->ci;
    }
    tx->head = head;
}

static BENCH_FAST void
floor_tx_run(void *tx)
{
    floor_tx_run__(tx, false);
}

static BENCH_FAST void
floor_tx_line_run(void *tx)
{
    floor_tx_run__(tx, true);
}

static void
floor_tx_finish(void *tx_)
{
    struct bench_floor_tx *tx = tx_;
    size_t n_sent = bench_stretch(tx->n);
    size_t n_left = MIN(n_sent, BENCH_SEND_DESC);

    tx->sent += n_sent;
    for (size_t i = 0; i < n_left; i++) {
        uint32_t head = tx->head - n_left + i;
        const struct bench_wqe *wqe = &tx->sq[head & (BENCH_SEND_DESC - 1)];
        uint32_t mark = floor_mark(tx->sent - n_left + i);

        ovs_assert(!memcmp(&wqe->av.dqpn, &mark, sizeof mark));
    }
}

struct bench_workload
bench_floor_tx_workload(struct bench_floor_tx *tx)
{
    return (struct bench_workload) {
        .label = tx->lines ? "transmit floor and a line" : "transmit floor",
        .x = tx->n_lines,
        .n_warm = BENCH_WARM,
        .n_stretches = BENCH_WINDOW / bench_stretch(tx->n),
        .prepare = floor_tx_prepare,
        .run = tx->lines ? floor_tx_line_run : floor_tx_run,
        .finish = floor_tx_finish,
        .aux = tx,
    };
}

/* The floor of a receiver:
 *
 *   - read the completion (its cache line),
 *   - read the header of the packet (a cache line), and hand the packet on,
 *   - write a descriptor of 16 bytes for another buffer in its place,
 *   - for each burst of 32 packets, ring the doorbell and tell the completion
 *     queue how far it has come. */

struct bench_floor_rx {
    struct ipoib_pool *pool;
    struct ipoib_buf *bufs;
    struct bench_device *device;
    size_t n;                   /* Half are posted, half are in 'fifo'. */
    uint64_t *fifo;             /* Buffers that are delivered, or free. */
    uint64_t *posted;
    struct bench_data_seg *rq;
    struct bench_cqe *cqes;
    struct bench_doorbell *doorbell, *cq_doorbell;
    uint32_t ci, filled;
    uint64_t sum, expected;     /* Of 'mark's of the headers. */
};

struct bench_floor_rx *
bench_floor_rx_create(size_t n)
{
    struct bench_floor_rx *rx = xzalloc(sizeof *rx);

    rx->device = bench_device_open();
    rx->pool = ipoib_pool_create(&bench_verbs, &rx->device->pd, n, 2048, -1);
    rx->bufs = take_buffers(rx->pool, n);
    rx->n = n;
    rx->fifo = xcalloc(n / 2, sizeof *rx->fifo);
    rx->posted = xcalloc(n / 2, sizeof *rx->posted);
    rx->rq = xzalloc_cacheline(n / 2 * sizeof *rx->rq);
    for (size_t i = 0; i < n / 2; i++) {
        rx->posted[i] = rx->bufs[i].id;
        rx->fifo[i] = rx->bufs[n / 2 + i].id;
    }
    rx->cqes = xzalloc_cacheline(n / 2 * sizeof *rx->cqes);
    rx->doorbell = xzalloc_cacheline(sizeof *rx->doorbell);
    rx->cq_doorbell = xzalloc_cacheline(sizeof *rx->cq_doorbell);
    return rx;
}

void
bench_floor_rx_destroy(struct bench_floor_rx *rx)
{
    give_buffers(rx->pool, rx->bufs, rx->n);
    bench_device_close(rx->device);
    free_cacheline(rx->rq);
    free_cacheline(rx->cqes);
    free_cacheline(rx->doorbell);
    free_cacheline(rx->cq_doorbell);
    free(rx->posted);
    free(rx->fifo);
    free(rx);
}

/* The wire fills what is posted. */
static void
floor_rx_prepare(void *rx_)
{
    struct bench_floor_rx *rx = rx_;
    uint32_t mask = rx->n / 2 - 1;

    for (; rx->filled - rx->ci <= mask; rx->filled++) {
        uint32_t i = rx->filled & mask;
        uint8_t *data = (uint8_t *) (uintptr_t) rx->posted[i];

        bench_cqe_write(&rx->cqes[i], rx->filled, mask, 100, 0x2000,
                        BENCH_HOST_QPN, 44 + BENCH_IP_LEN);
        bench_write_ipoib(data + 40, rx->filled & 0xffff, rx->filled,
                          BENCH_IP_LEN);
    }
}

static BENCH_FAST void
floor_rx_run(void *rx_)
{
    struct bench_floor_rx *rx = rx_;
    const ovs_be32 length = htonl(40 + 2048), lkey = htonl(100);
    const struct bench_cqe *cqes = rx->cqes;
    uint64_t *fifo = rx->fifo, *posted = rx->posted;
    struct bench_data_seg *rq = rx->rq;
    uint32_t mask = rx->n / 2 - 1;
    uint64_t sum = rx->sum;
    uint32_t ci = rx->ci;
    size_t n_bursts = bench_stretch(rx->n) / BENCH_BURST;

    for (size_t burst = 0; burst < n_bursts; burst++) {
        for (size_t i = 0; i < BENCH_BURST; i++, ci++) {
            const struct bench_cqe *cqe = &cqes[ci & mask];
            uint32_t j = ntohs(cqe->wqe_counter) & mask;
            uint64_t addr = posted[j], next = fifo[ci & mask];
            uint32_t header;

            memcpy(&header, (const uint8_t *) (uintptr_t) addr + 56,
                   sizeof header);
            sum += header + ntohl(cqe->byte_cnt) + ntohl(cqe->flags_rqpn);
            fifo[ci & mask] = addr;
            posted[j] = next;
            rq[j].length = length;
            rq[j].lkey = lkey;
            rq[j].addr = htobe64(next);
        }
        bench_ring(rx->doorbell, ci, 0);
        rx->cq_doorbell->record = ci;
    }
    rx->ci = ci;
    rx->sum = sum;
}

static void
floor_rx_finish(void *rx_)
{
    struct bench_floor_rx *rx = rx_;
    size_t n = bench_stretch(rx->n);

    for (size_t i = 0; i < n; i++) {
        uint32_t k = rx->ci - n + i, header;
        uint8_t ipoib[4 + BENCH_IP_LEN];

        bench_write_ipoib(ipoib, k & 0xffff, k, BENCH_IP_LEN);
        memcpy(&header, ipoib + 16, sizeof header);
        rx->expected += header + 44 + BENCH_IP_LEN + 0x2000;
    }
    ovs_assert(rx->sum == rx->expected);
}

struct bench_workload
bench_floor_rx_workload(struct bench_floor_rx *rx)
{
    return (struct bench_workload) {
        .label = "receive floor",
        .n_warm = BENCH_WARM,
        .n_stretches = BENCH_WINDOW / bench_stretch(rx->n),
        .prepare = floor_rx_prepare,
        .run = floor_rx_run,
        .finish = floor_rx_finish,
        .aux = rx,
    };
}
