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

#ifndef BENCH_MICRO_H
#define BENCH_MICRO_H 1

/* bench-micro: what the data path and its tables cost, each against something
 * that bounds it from below or that would be used otherwise, in one process.
 *
 * The machine's speed changes from second to second, so nothing is measured
 * that is not a ratio of two windows of the same round: a round runs a window
 * of each workload, back to back, every other round in the opposite order.  A
 * window in which the thread was switched away from does not count.  Where it
 * matters, the reference is run twice in a round, and the ratio of the two is
 * printed as control: it tells how far the other ratios can be trusted.
 *
 * The files: bench-micro.c (main program, windows and rounds),
 * bench-micro-translate.c (figures of the data path),
 * bench-micro-device.c (a device for the data path), bench-micro-load.c (what
 * drives the data path), bench-micro-floor.c (the least that a sender or
 * receiver must do), bench-micro-driver.c (the driver's part),
 * bench-micro-held.c (buffers that other ports hold),
 * bench-micro-tables.c (tables against OVS's cmap),
 * bench-micro-pmds.c (two threads). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#include "cmap.h"
#include "dp-packet.h"
#include "ipoib-config.h"
#include "ipoib-test-gateway.h"
#include "netdev.h"
#include "openvswitch/types.h"
#include "ovs-atomic.h"
#include "util.h"

/* Packets of a window, in bursts of NETDEV_MAX_BURST.  Where there are few
 * buffers, a window is made of stretches, each of half of the 'n' buffers (a
 * power of 2), between which the clock stands still while the next ones are
 * prepared. */
#define BENCH_WINDOW 2048
#define BENCH_BURST NETDEV_MAX_BURST
#define BENCH_N_BURSTS (BENCH_WINDOW / BENCH_BURST)
BUILD_ASSERT_DECL(BENCH_BURST == 32);
static inline size_t
bench_stretch(size_t n)
{
    return MIN(n / 2, BENCH_WINDOW);
}

/* How long to measure. */
enum bench_effort {
    BENCH_SMOKE,                /* A moment: all is tried, nothing measured. */
    BENCH_QUICK,                /* Less than a minute. */
    BENCH_NORMAL,               /* Some minutes. */
};
/* One of the three, by 'effort'. */
size_t bench_choose(enum bench_effort effort, size_t smoke, size_t quick,
                    size_t normal);

/* Windows and rounds. */

/* Something of which a window takes a measurable time.  'run' is what is
 * measured; 'prepare' and 'finish' (may be NULL) come before and after.  A
 * window has all three 'n_stretches' times. */
struct bench_workload {
    const char *label;          /* In series. */
    double x;                   /* In series. */
    size_t units;               /* Done in a window; 0: BENCH_WINDOW. */
    size_t n_stretches;         /* 0: 1. */
    size_t n_warm;              /* Windows that bring back into the caches
                                 * what others have thrown out. */
    void (*prepare)(void *aux);
    void (*run)(void *aux);
    void (*finish)(void *aux);
    void *aux;

    /* Results. */
    double ns;                  /* Of a unit in the last round; negative: the
                                 * window does not count. */
    double *samples;            /* All that count. */
    size_t n_samples, allocated_samples;
};

/* A figure that is the ratio of two workloads. */
struct bench_figure {
    const char *name;
    struct bench_workload *subject, *reference;
    bool control;
};

/* Runs 'n_rounds' rounds of the 'n' workloads 'w', or more if in some of them
 * a window did not count, and prints what each is worth to the 'n_figures'
 * figures. */
void bench_rounds(struct bench_workload w[], size_t n,
                  const struct bench_figure figures[], size_t n_figures,
                  size_t n_rounds);
/* Runs 'n_warm' and then 'n_windows' windows of 'w': as it is if there is
 * nothing else.  For series. */
void bench_steady(struct bench_workload *w, size_t n_warm, size_t n_windows);
/* Prints the median of workload 'w' as a point of series 'series' and label
 * 'label'; nothing if it has no window that counts. */
void bench_print_median(const char *series, const char *label,
                        const struct bench_workload *w);
void bench_workload_destroy(struct bench_workload *);

/* The quantile 'q' of 'values', which are sorted by it; 'n' is not 0. */
double bench_quantile(double values[], size_t n, double q);

/* Lines of output. */
void bench_print_ratio(const char *figure, bool control, double subject,
                       double reference, const char *unit);
void bench_print_value(const char *figure, double value, const char *unit);
void bench_print_lacking(const char *figure, const char *why);
void bench_print_point(const char *series, const char *label, double x,
                       double y, const char *unit);

/* The caller's clock and its context switches. */
struct bench_watch {
    uint64_t start;
    long int switches;
};
void bench_watch_start(struct bench_watch *);
/* Returns ns since bench_watch_start(), or a negative value if the thread was
 * switched away from. */
double bench_watch_stop(const struct bench_watch *);
uint64_t bench_clock(void);      /* ns. */

/* Runs the calling thread on processor 'i' of the bench_n_cpus() that there
 * are; 0 is the main thread's. */
void bench_pin(unsigned int i);
unsigned int bench_n_cpus(void);

/* Pseudo-random numbers: the same in each run. */
struct bench_random {
    uint64_t state;
};
#define BENCH_RANDOM_INITIALIZER { UINT64_C(0x9e3779b97f4a7c15) }
static inline uint32_t
bench_random_below(struct bench_random *r, uint32_t n)
{
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return ((r->state >> 32) * n) >> 32;
}

/* A function that is compiled once more for newer processors, as the data path
 * is. */
#if defined(HAVE_FAST_CPU_VARIANT) && !defined(__clang__)
#define BENCH_FAST __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define BENCH_FAST
#endif

/* Keeps the compiler from knowing what becomes of memory. */
static inline void
bench_barrier(void)
{
    asm volatile ("" ::: "memory");
}

/* Has the compiler compute 'value'. */
static inline void
bench_use(uint64_t value)
{
    asm volatile ("" :: "r" (value));
}

/* Descriptors, in the form and of the size of ConnectX's. */

/* Address vector: where a UD packet goes. */
struct bench_av {
    ovs_be32 qkey, reserved, dqpn;
    uint8_t path[36];
};
BUILD_ASSERT_DECL(sizeof(struct bench_av) == 48);

struct bench_data_seg {
    ovs_be32 length, lkey;
    ovs_be64 addr;
};
BUILD_ASSERT_DECL(sizeof(struct bench_data_seg) == 16);

/* A send of up to two blocks of 64 bytes, or with more data inline, three. */
#define BENCH_MAX_INLINE 60
struct bench_wqe {
    ovs_be32 ctrl[4];           /* Index and opcode; QPN and size; flags. */
    struct bench_av av;
    union {
        struct bench_data_seg data;
        struct {
            ovs_be32 length;    /* With BENCH_INLINE. */
            uint8_t bytes[BENCH_MAX_INLINE];
        } in;
    };
};
BUILD_ASSERT_DECL(sizeof(struct bench_wqe) == 128);
#define BENCH_INLINE 0x80000000u
#define BENCH_OP_SEND 0x0a
#define BENCH_CTRL_SIGNALED 8
#define BENCH_AV_EXT 0x80000000u

struct bench_cqe {
    uint8_t reserved[28];
    ovs_be16 reserved2, slid;
    ovs_be32 flags_rqpn;        /* Source QPN. */
    uint8_t reserved3[8];
    ovs_be32 byte_cnt;
    ovs_be64 timestamp;
    ovs_be32 qpn;
    ovs_be16 wqe_counter;
    uint8_t signature, op_own;  /* Bit 0: changes with each lap. */
};
BUILD_ASSERT_DECL(sizeof(struct bench_cqe) == 64);

/* Doorbell record and register. */
struct bench_doorbell {
    volatile uint32_t record;
    uint8_t pad[CACHE_LINE_SIZE - sizeof(uint32_t)];
    volatile uint64_t uar;
    uint8_t pad2[CACHE_LINE_SIZE - sizeof(uint64_t)];
};
static inline void
bench_ring(struct bench_doorbell *db, uint32_t index, uint64_t first)
{
    bench_barrier();
    db->record = index;
    bench_barrier();
    db->uar = first;
}

/* The device. */

struct bench_cq {
    struct ibv_cq ibv;
    struct bench_cqe *cqes;
    uint32_t mask;
    uint32_t ci, pi;            /* Consumed, produced. */
    struct bench_srq *srq;      /* Of a receive queue; NULL: of a QP's
                                 * sends. */
    struct { uint64_t wr_id; uint32_t tail; } *done; /* Of sends. */
    struct bench_qp *qp;        /* Of sends. */
    struct bench_doorbell *doorbell;
};

struct bench_qp {
    struct ibv_qp ibv;
    struct bench_wqe *sq;
    uint32_t mask;
    uint32_t head, tail;        /* Posted, completed. */
    struct bench_doorbell *doorbell;
};

struct bench_srq {
    struct ibv_srq ibv;
    struct bench_data_seg *rq;
    uint64_t *wr_ids;
    uint32_t mask;
    uint32_t head;              /* Posted. */
    uint32_t filled;            /* Of these, received into. */
    struct bench_doorbell *doorbell;
};

struct bench_ah {
    struct ibv_ah ibv;
    struct bench_av av;
};

struct bench_device {
    struct ibv_context ctx;
    struct ibv_pd pd;
    atomic_count n_objects;
};

extern const struct ipoib_verbs bench_verbs;
struct bench_device *bench_device_open(void);
void bench_device_close(struct bench_device *);
struct ibv_ah *bench_ah_create(struct ibv_pd *, uint16_t lid);

/* The next completion that a receive queue will find: a packet of 'len' bytes
 * and GRH space from 'slid' and 'src_qp' for 'qpn', in the buffer whose
 * address is returned, to be filled by the caller.  NULL: none is posted. */
uint8_t *bench_device_receive(struct bench_cq *, uint16_t slid,
                              uint32_t src_qp, uint32_t qpn, uint32_t len);
void bench_cqe_write(struct bench_cqe *, uint32_t index, uint32_t mask,
                     uint16_t slid, uint32_t src_qp, uint32_t qpn,
                     uint32_t len);

/* The data path's load. */

#define BENCH_N_HOSTS 16
#define BENCH_HOST_QPN 0x100000
#define BENCH_MTU 4092          /* Of IP. */
#define BENCH_IP_LEN 46         /* Of frames of 64 bytes with their FCS. */
#define BENCH_SEND_DESC 1024    /* Depth of the send queue. */
/* The second that it is: far from 0, where the clock of bench_age() begins,
 * also on a machine that has just been started. */
#define BENCH_NOW 1000000000

/* A port's tables with 'n' neighbours. */
struct bench_world {
    struct gw *gw;
    size_t n;
    struct eth_addr *macs;      /* Stand-in MACs. */
    struct bench_device *device;
    struct ibv_ah **ahs;
    size_t n_ahs;
    size_t memory;              /* Bytes that the neighbours have taken. */
};
struct bench_world *bench_world_get(size_t n);
void bench_worlds_destroy(void);

/* Puts frame 'i' to 'dst' at 'eth', or in IPoIB's form to 'dst_host' at
 * 'ipoib'. */
void bench_write_frame(uint8_t *eth, struct eth_addr dst, uint32_t neigh,
                       size_t i, size_t ip_len);
void bench_write_ipoib(uint8_t *ipoib, uint32_t neigh, size_t i,
                       size_t ip_len);

/* So many windows use all of a few buffers; more than a few are not in a cache
 * of a processor's own anyhow. */
#define BENCH_WARM 2

/* A pool, and queues on it, of which a workload sends or receives.  'n' is the
 * number of its buffers: a stretch begins half of them after it was
 * prepared. */
struct bench_tx {
    struct bench_world *world;
    struct ipoib_pool *pool;
    struct ipoib_txq *txq;
    size_t n, ip_len;
    bool keep;                  /* Packets stay when they are sent ... */
    enum dp_packet_source source; /* ... whose source is this, */
    struct umem_pool *umem;     /* and whose pool this. */
    struct dp_packet **packets;
    uint8_t **data;             /* Of 'packets'. */
    uint32_t *neighs;           /* Destinations. */
    size_t prepared, sent;
    struct bench_random random;
    struct dp_packet_batch batches[BENCH_N_BURSTS];
};
/* With 'keep', packets are such as nobody has to release (where OVS has such):
 * then nothing of memory's management is measured.  Otherwise, each window's
 * packets come from the pool (not measured) and go back there (measured). */
struct bench_tx *bench_tx_create(struct bench_world *, size_t n,
                                 size_t ip_len, bool keep);
void bench_tx_destroy(struct bench_tx *);
struct bench_workload bench_tx_workload(struct bench_tx *);

struct bench_rx {
    struct bench_world *world;
    struct ipoib_pool *pool;
    bool own_pool;
    struct ipoib_rxq *rxq;
    size_t n, ip_len;
    struct dp_packet **fifo;    /* Delivered, not yet deleted. */
    size_t head, tail;
    uint32_t *neighs;           /* Sources, by number of the packet. */
    size_t received, delivered;
    struct bench_random random;
    struct dp_packet_batch batches[BENCH_N_BURSTS];
};
/* 'pool' may be NULL: one of its own. */
struct bench_rx *bench_rx_create(struct bench_world *, struct ipoib_pool *pool,
                                 size_t n, size_t ip_len);
void bench_rx_destroy(struct bench_rx *);
struct bench_workload bench_rx_workload(struct bench_rx *);
/* Parts of the workload: fills what is posted, and drops messages. */
void bench_rx_prepare(void *rx);
void bench_discard(struct ipoib_msgq *);
struct ipoib_txq *bench_txq_create(struct bench_world *);

/* Floors. */
struct bench_floor_tx;
struct bench_floor_tx *bench_floor_tx_create(size_t n, size_t n_lines);
void bench_floor_tx_destroy(struct bench_floor_tx *);
struct bench_workload bench_floor_tx_workload(struct bench_floor_tx *);
struct bench_floor_rx;
struct bench_floor_rx *bench_floor_rx_create(size_t n);
void bench_floor_rx_destroy(struct bench_floor_rx *);
struct bench_workload bench_floor_rx_workload(struct bench_floor_rx *);

/* The driver's part of ours. */
struct bench_driver;
struct bench_driver *bench_driver_create(struct bench_world *, size_t n,
                                         bool receive);
void bench_driver_destroy(struct bench_driver *);
struct bench_workload bench_driver_workload(struct bench_driver *);

/* cmaps. */
struct bench_node {
    struct cmap_node node;
    uint64_t key;
    uint32_t used;
    uint8_t pad[CACHE_LINE_SIZE - 8 - 8 - 4 - 4];
};
BUILD_ASSERT_DECL(sizeof(struct bench_node) == CACHE_LINE_SIZE);

struct bench_cmap;
struct bench_cmap *bench_cmap_create(const struct bench_world *);
void bench_cmap_destroy(struct bench_cmap *);
struct bench_workload bench_cmap_workload(struct bench_cmap *);

/* A part of a pass of aging, in which all are looked at. */
void bench_age(struct bench_world *, size_t budget);

/* Bytes of memory that the program has. */
size_t bench_memory(void);

/* Parts of the program. */
void bench_translate(enum bench_effort);
void bench_sizes(enum bench_effort);
void bench_held(enum bench_effort);
void bench_insert(enum bench_effort);
void bench_aging(enum bench_effort);
void bench_bytes(enum bench_effort);
void bench_two_pmds(enum bench_effort);
void bench_aging_delay(enum bench_effort);

#endif /* bench-micro.h */
