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

#ifndef IPOIB_POOL_H
#define IPOIB_POOL_H 1

/* Registered buffers, and packets made of them.
 *
 * A pool is a few large chunks of memory, each registered as one memory
 * region, cut into buffers of one size.  Every buffer has an owner at every
 * time: the pool's free list, a receive queue (posted), a send slot (until its
 * completion), or a dp_packet that is somewhere in OVS.
 *
 * There are several kinds of memory (struct ipoib_pool_ops), whose difference
 * the callers do not see.  Where OVS has a packet source whose memory a
 * provider can own, a received buffer becomes a dp_packet without a copy, and
 * comes back when OVS deletes it: DPBUF_DPDK where DPDK is initialized, else
 * DPBUF_AFXDP in builds with AF_XDP.
 * Elsewhere the packet is copied to one of exact size and the buffer goes back
 * at once.
 *
 * A pool outlives its creator until all buffers are back: packets may be
 * anywhere in OVS (another port's queue, an upcall, conntrack's reassembly)
 * when a port goes.  Its memory regions end with ipoib_pool_detach().
 *
 * A pool can grow, while it is in use, by further pools that have chunks and
 * memory regions of their own.  Whoever has the first one has all of them:
 * buffers come from the first that has some.  It never shrinks.
 *
 * Thread-safety: any thread may get and put.  Each has some free frames at
 * hand (see ipoib-pool-magazine.h), so that a lock is taken only now and then,
 * and never by one that receives and frees at the same rate.
 *
 * For tests, the environment variable OVS_IPOIB_POOL names the only kind that
 * may be used: dpdk, afxdp or copy. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ipoib-verbs.h"

struct dp_packet;
struct ipoib_pool;

/* Room in front of the received bytes, so that tunnels can push headers; the
 * 40 bytes of GRH space follow it. */
#define IPOIB_POOL_HEADROOM 128

/* A pool of 'n' buffers that take IPoIB packets of 'mtu' (IB MTU in bytes). */
struct ipoib_pool *ipoib_pool_create(const struct ipoib_verbs *,
                                     struct ibv_pd *, size_t n, size_t mtu,
                                     int numa_id);
/* Doubles the pool, up to IPOIB_POOL_MAX_GROWTH times as many buffers as it
 * had at first, and to IPOIB_POOL_MAX_BUFS.  ERANGE if it has that many
 * already, another errno if there is no memory; then nothing has changed.  One
 * thread at a time, but others may use the pool meanwhile. */
#define IPOIB_POOL_MAX_GROWTH 16
#define IPOIB_POOL_MAX_BUFS 65536
int ipoib_pool_grow(struct ipoib_pool *);
/* The memory regions end; nothing is posted any more.  The memory is freed
 * when the last buffer is back. */
void ipoib_pool_detach(struct ipoib_pool *);
/* Frees what can be freed of detached pools; called now and then. */
void ipoib_pool_sweep(void);

/* A buffer: where the HCA writes (GRH space first), and how it is named. */
struct ipoib_buf {
    void *data;                 /* GRH space, then the IPoIB header. */
    uint32_t size;              /* From 'data' on: 40 + MTU. */
    uint32_t lkey;
    uint64_t id;                /* For wr_id. */
};

/* Takes up to 'n' buffers from the pool; returns how many. */
size_t ipoib_pool_get(struct ipoib_pool *, struct ipoib_buf bufs[], size_t n);
/* The same for a receive queue, whose buffers are marked with 'tag' as long as
 * they are its own.  ipoib_pool_tag_alloc() finds a free tag, or returns 0. */
uint8_t ipoib_pool_tag_alloc(struct ipoib_pool *);
size_t ipoib_pool_get_ids(struct ipoib_pool *, uint8_t tag, uint64_t ids[],
                          size_t n);
/* Puts back all buffers that are marked with 'tag' and frees the tag; returns
 * how many.  Nobody may use them any more. */
size_t ipoib_pool_reclaim(struct ipoib_pool *, uint8_t tag);
/* Before ipoib_pool_detach() only. */
void ipoib_pool_put(struct ipoib_pool *, uint64_t id);
void *ipoib_pool_data(const struct ipoib_pool *, uint64_t id);

/* Makes a packet of buffer 'id' whose data is 'len' bytes from offset 'ofs'
 * (counted from 'data'; may be negative into the headroom).  The buffer
 * belongs to the packet, or is back in the pool.  NULL: no memory, the buffer
 * is back in the pool. */
struct dp_packet *ipoib_pool_to_packet(struct ipoib_pool *, uint64_t id,
                                       ptrdiff_t ofs, size_t len);

/* The lkey with which 'packet's data can be sent without a copy, or 0 if its
 * memory is not registered with this pool's PD. */
uint32_t ipoib_pool_packet_lkey(const struct ipoib_pool *,
                                const struct dp_packet *);

/* Memory from which a device can send. */
struct ipoib_region {
    uintptr_t start, end;
    uint32_t lkey;              /* 0 if there is none. */
};

/* True if the 'len' bytes at 'addr' are in 'region'. */
static inline bool
ipoib_region_has(const struct ipoib_region *region, uintptr_t addr, size_t len)
{
    return addr >= region->start && addr + len <= region->end;
}

/* The region of 'pd' that has 'packet's data: a pool's, or one of DPDK's
 * memory (ipoib-pool-eal.h).  If there is none, one without bytes.  For RCU
 * readers, for whom it is valid as long as somebody has that packet. */
struct ipoib_region ipoib_pool_region(const struct ibv_pd *pd,
                                      const struct dp_packet *);

/* Of the first pool, if it has grown. */
uint32_t ipoib_pool_lkey(const struct ipoib_pool *);
size_t ipoib_pool_buf_size(const struct ipoib_pool *); /* 40 + MTU. */

/* Registers memory; the limit on locked memory is raised if it seems to be in
 * the way.  NULL and errno on failure, which is logged. */
struct ibv_mr *ipoib_pool_reg_mr(const struct ipoib_verbs *, struct ibv_pd *,
                                 void *addr, size_t len, int access);

/* 'len' bytes of zeros for a queue, from NUMA node 'numa_id' if that is not
 * negative and has some.  Pages take memory as they are touched. */
void *ipoib_pool_alloc_pages(size_t len, int numa_id);
void ipoib_pool_free_pages(void *, size_t len);

struct ipoib_pool_stats {
    const char *kind;
    size_t n_bufs;
    size_t n_free;              /* In the pool. */
    size_t n_posted;            /* Receive queues'. */
    size_t n_packets;           /* In OVS. */
    size_t memory;              /* Bytes. */
    bool zero_copy;
};
void ipoib_pool_get_stats(const struct ipoib_pool *,
                          struct ipoib_pool_stats *);

#endif /* ipoib-pool.h */
