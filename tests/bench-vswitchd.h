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

#ifndef BENCH_VSWITCHD_H
#define BENCH_VSWITCHD_H 1

/* The benchmark daemon: our ovs-vswitchd with a traffic generator and sink, a
 * device without a fabric, and a stopwatch in the PMD thread's loop.
 *
 *   bench-vswitchd.c          the stopwatch, and the commands bench/...
 *   bench-vswitchd-netdev.c   the class "bench": generator and sink
 *   bench-vswitchd-hca.c      the device
 *
 * One PMD thread receives from all ports.  Which of them has packets, and
 * when, is up to the stopwatch: see bench-vswitchd.c. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csum.h"
#include "openvswitch/types.h"

struct ds;
struct netdev;

/* Time in cycles of the processor's clock. */
static inline uint64_t
bench_now(void)
{
#if defined(__x86_64__)
    uint32_t h, l;

    asm volatile("rdtsc" : "=a" (l), "=d" (h));
    return (uint64_t) h << 32 | l;
#elif defined(__aarch64__)
    uint64_t now;

    asm volatile("mrs %0, cntvct_el0" : "=r" (now));
    return now;
#else
#error "no clock for this processor"
#endif
}

/* When the packets of a generator are due: at once, or one every 'interval'
 * cycles, whoever is late.  As a device would, it keeps BENCH_RING packets
 * that nobody has come for, and drops more. */
#define BENCH_RING 2048
struct bench_pace {
    uint64_t interval;          /* 0: as many as are wanted. */
    uint64_t next;              /* When the next packet is due. */
    uint64_t dropped;
};
/* How many packets, at most 'max', are to be made now.  The first of them was
 * due at '*due', those that follow, 'interval' later each. */
size_t bench_pace_due(struct bench_pace *, size_t max, uint64_t *due);

/* What a generator makes at the moment. */
struct bench_load {
    size_t size;                /* Of IP packets. */
    uint64_t interval;          /* As in struct bench_pace. */
};

/* A packet from Ethernet. */
struct bench_flow {
    struct eth_addr dst, src;
    ovs_be32 ip_dst, ip_src;
    ovs_be16 port;              /* UDP source port. */
};
/* A packet from the fabric. */
struct bench_rx_flow {
    ovs_be32 ip_dst, ip_src;
    uint32_t dst_qpn, src_qpn;
    uint16_t slid;
};

/* Headers of all packets: IP without options and UDP, and then the time at
 * which the packet was due. */
#define BENCH_UDP_DST 9
#define BENCH_HEADERS_LEN 28
#define BENCH_MIN_SIZE (BENCH_HEADERS_LEN + 8)
void bench_ip_init(uint8_t headers[BENCH_HEADERS_LEN], size_t size,
                   uint32_t *csum);
/* The sum of an IP header, of which all but the addresses sum up to
 * 'csum'. */
static inline ovs_be16
bench_ip_csum(uint32_t csum, ovs_be32 src, ovs_be32 dst)
{
    return csum_finish(csum_add32(csum_add32(csum, src), dst));
}

/* Counts how long packets took.  Values are exact to 1/128. */
#define BENCH_HIST_BITS 7
#define BENCH_HIST_MAX (34 << BENCH_HIST_BITS)
struct bench_hist {
    uint64_t n;
    uint32_t buckets[BENCH_HIST_MAX];
};
void bench_hist_add(struct bench_hist *, uint64_t value);
void bench_hist_merge(struct bench_hist *, const struct bench_hist *);
/* The value that 'part' of all are not above. */
double bench_hist_quantile(const struct bench_hist *, double part);
/* The largest value of bucket 'i'. */
uint64_t bench_hist_value(size_t i);

/* What sinks add to, or NULL: only while latency is measured.  PMD thread. */
extern struct bench_hist *bench_hist;

/* Cycles that the calling thread has spent on what stands for hardware: making
 * packets up, and the work of the device.  They are apart from the cost of
 * the rest.  (Reading the clock takes time, too, and is not done where that
 * would be part of a latency.) */
extern __thread uint64_t bench_apart;

static inline uint64_t
bench_apart_begin(void)
{
    return bench_hist ? 0 : bench_now();
}

static inline void
bench_apart_end(uint64_t begin)
{
    if (begin) {
        bench_apart += bench_now() - begin;
    }
}

/* Packets that arrive: 'stamp' is where the time is at which one was due. */
static inline void
bench_arrived(const void *stamp, uint64_t now)
{
    uint64_t due;

    __builtin_memcpy(&due, stamp, sizeof due);
    bench_hist_add(bench_hist, now > due ? now - due : 0);
}

/* bench-vswitchd-netdev.c. */
void bench_netdev_register(void);
/* All return NULL, or a message, which the caller frees. */
char *bench_netdev_set_flows(const char *name, const struct bench_flow *,
                             size_t n);
/* What a port makes from now on; false if it is not one of ours.  PMD
 * thread. */
bool bench_netdev_set_load(struct netdev *, const struct bench_load *);
uint64_t bench_netdev_dropped(const struct netdev *);

/* bench-vswitchd-hca.c. */

/* Makes the generators' buffers in memory that ipoib port 'name' can send
 * from. */
char *bench_hca_make_pool(const char *name);
struct ipoib_pool;
extern struct ipoib_pool *bench_pool; /* NULL: no packets. */
extern uint8_t bench_pool_tag;

/* The neighbours of the ipoib port 'name', or only those that have a path, are
 * the destinations of 'source'.  'n' is how many they are, 'ready' how many of
 * them have a path, 'n_hosts' how many hosts are known. */
char *bench_hca_aim(const char *name, const char *source, bool ready_only,
                    size_t *n, size_t *ready, size_t *n_hosts);
/* The queues of port 'name' are the device's without a fabric from now on. */
char *bench_hca_take(const char *name);

/* A port that was aimed at, or NULL. */
struct null_port;
struct null_port *bench_hca_find(const char *name);

/* What the device makes from now on.  PMD thread. */
void bench_hca_set_load(struct null_port *, const struct bench_load *);
uint64_t bench_hca_dropped(const struct null_port *);

#endif /* bench-vswitchd.h */
