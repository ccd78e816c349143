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

#ifndef IPOIB_POOL_PRIVATE_H
#define IPOIB_POOL_PRIVATE_H 1

/* The inside of a pool, for ipoib-pool*.c and for what is inline in the
 * receive path. */

#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-packet.h"
#include "ipoib-pool.h"
#include "openvswitch/thread.h"
#include "ovs-atomic.h"

#define IPOIB_GRH_SPACE 40

/* A buffer lies in a frame; frames are 'stride' bytes apart, a multiple of
 * CACHE_LINE_SIZE:
 *
 *     frame          + IPOIB_POOL_PACKET_SIZE
 *                    |          + IPOIB_POOL_HEADROOM
 *     |  | dp_packet | headroom | GRH space, IPoIB header, ... | tailroom
 *                               id = frame + 'data_ofs' (+ colour)
 *
 * Where the kind has the stride be a power of 2, the colour, between 0 and
 * IPOIB_POOL_COLOURS - 1 cache lines, spreads the buffers over the sets of the
 * cache.  The id of a buffer is the address of its GRH space.  Its struct
 * dp_packet lies at a constant distance before it, with the headroom in
 * between, so that the HCA does not write next to the packet. */
#define IPOIB_POOL_COLOURS 16
#define CACHE_LINE_SHIFT 6
BUILD_ASSERT_DECL(CACHE_LINE_SIZE == 1 << CACHE_LINE_SHIFT);

/* From the GRH space to where a frame begins, so that its IP packet stays
 * where it is. */
#define IPOIB_POOL_FRAME_OFS (IPOIB_GRH_SPACE + IPOIB_HEADER_LEN \
                              - ETH_HEADER_LEN)

#define IPOIB_POOL_PACKET_SIZE ROUND_UP(sizeof(struct dp_packet), \
                                        CACHE_LINE_SIZE)
#define IPOIB_POOL_PACKET_OFS (IPOIB_POOL_PACKET_SIZE + IPOIB_POOL_HEADROOM)

/* Division by the stride is a multiplication, exact below IPOIB_POOL_MAX. */
#define IPOIB_POOL_DIV_SHIFT 40
#define IPOIB_POOL_MAX (UINT64_C(1) << 34)

/* A kind of memory.  get() and put() move the ids of free buffers from and to
 * the store that all threads share; see ipoib_magazine_get() for what spares
 * them that. */
struct ipoib_pool_ops {
    const char *name;
    const char *condition;      /* For it to be possible; NULL: it always
                                 * is. */
    bool zero_copy;
    /* Sets what is "set by init()" below, and puts 'n' buffers into the store.
     * EPROTONOSUPPORT if 'condition' is not met.  uninit() is called even if
     * that failed. */
    int (*init)(struct ipoib_pool *, int numa_id);
    void (*uninit)(struct ipoib_pool *);
    size_t (*get)(struct ipoib_pool *, uint64_t ids[], size_t n);
    void (*put)(struct ipoib_pool *, const uint64_t ids[], size_t n);
    size_t (*count)(struct ipoib_pool *);
};

extern const struct ipoib_pool_ops ipoib_pool_copy_ops;
#ifdef DPDK_NETDEV
extern const struct ipoib_pool_ops ipoib_pool_dpdk_ops;
#endif
#ifdef HAVE_AF_XDP
extern const struct ipoib_pool_ops ipoib_pool_afxdp_ops;
#endif

struct ipoib_pool {
    /* Data path. */
    struct ipoib_pkt_fresh fresh; /* Zero-copy: as every packet begins. */
    const struct ipoib_pool_ops *ops;
    ATOMIC(struct ipoib_pool *) next; /* Further pool, or NULL: it has not
                                       * grown.  Set once. */
    uintptr_t frames;           /* The first one; set by init(). */
    uint64_t reciprocal;
    uint32_t stride;
    uint32_t data_ofs;
    uint32_t colour_mask;
    uint32_t size;              /* 40 + MTU. */
    int slot;                   /* Of the magazines; negative: none. */

    /* The store, where the kind has none of its own. */
    struct ovs_spin lock;
    uint64_t *free;
    size_t n_free;

    size_t n;                   /* Buffers. */
    size_t n_frames;            /* As many, or more, where some places are not
                                 * used; indexes are less.  Set by init(). */
    size_t memory;              /* Bytes; set by init(). */
    void *base;                 /* What was mapped, of 'length' bytes, and */
    size_t length;              /* is registered; set by init(). */
    void *aux;                  /* Of the kind. */
    bool tag_used[UINT8_MAX];   /* Index 0 stays false. */
    const struct ipoib_verbs *verbs;
    struct ibv_pd *pd;
    int numa_id;
    struct ibv_mr *mr;          /* NULL once detached. */
    atomic_uint32_t lkey;       /* 0 once detached. */
    atomic_bool detached;
};

static inline size_t
ipoib_pool_index(const struct ipoib_pool *pool, uint64_t id)
{
    return ((id - pool->frames) * pool->reciprocal) >> IPOIB_POOL_DIV_SHIFT;
}

static inline void *
ipoib_pool_frame(const struct ipoib_pool *pool, size_t index)
{
    return (void *) (pool->frames + index * pool->stride);
}

/* The id of the buffer whose index is 'index'. */
static inline uint64_t
ipoib_pool_id(const struct ipoib_pool *pool, size_t index)
{
    size_t colour = (index & pool->colour_mask) << CACHE_LINE_SHIFT;

    return ((uintptr_t) ipoib_pool_frame(pool, index) + colour
            + pool->data_ofs);
}

/* The further pool that follows 'pool', or NULL. */
static inline struct ipoib_pool *
ipoib_pool_next(const struct ipoib_pool *pool)
{
    struct ipoib_pool *next;

    atomic_read_explicit(&CONST_CAST(struct ipoib_pool *, pool)->next, &next,
                         memory_order_acquire);
    return next;
}

/* For a pool, and all by which it has grown. */
#define IPOIB_POOL_FOR_EACH(POOL, FIRST) \
    for (POOL = (FIRST); POOL; POOL = ipoib_pool_next(POOL))

/* True if 'addr' (a buffer's id, or its packet) is in 'pool' itself. */
static inline bool
ipoib_pool_has(const struct ipoib_pool *pool, uintptr_t addr)
{
    return addr - pool->frames < pool->n_frames * pool->stride;
}

/* That of 'pool', and of those by which it has grown, which has 'addr'; NULL
 * if it is elsewhere. */
static inline struct ipoib_pool *
ipoib_pool_find(struct ipoib_pool *pool, uintptr_t addr)
{
    while (pool && !ipoib_pool_has(pool, addr)) {
        pool = ipoib_pool_next(pool);
    }
    return pool;
}

/* Takes up to 'n' buffers from those by which 'pool' has grown. */
size_t ipoib_pool_get_further(struct ipoib_pool *pool, uint64_t ids[],
                              size_t n);

/* The packet of buffer 'id'.  Pools that copy use its tag alone. */
static inline struct dp_packet *
ipoib_pool_packet(uint64_t id)
{
    return (struct dp_packet *) (uintptr_t) (id - IPOIB_POOL_PACKET_OFS);
}

/* The other way. */
static inline uint64_t
ipoib_pool_packet_id(const struct dp_packet *packet)
{
    return (uintptr_t) packet + IPOIB_POOL_PACKET_OFS;
}

/* While a buffer is not in the pool, nor a packet in OVS, it has a tag, of its
 * receive queue.  The tag is in the packet type, in a namespace that OVS does
 * not use, and so ends when the buffer becomes an (Ethernet) packet.  A queue
 * may tell its buffers apart by IPOIB_POOL_TAG_MARK. */
#define IPOIB_POOL_TAG_NS 0xfade0000
#define IPOIB_POOL_TAG_MARK 0x100

static inline ovs_be32
ipoib_pool_tag_type(uint32_t tag)
{
    return htonl(IPOIB_POOL_TAG_NS | tag);
}

static inline void
ipoib_pool_set_tag(uint64_t id, uint32_t tag)
{
    ipoib_pool_packet(id)->packet_type = ipoib_pool_tag_type(tag);
}

/* 0: none. */
static inline uint32_t
ipoib_pool_tag(uint64_t id)
{
    uint32_t type = ntohl(ipoib_pool_packet(id)->packet_type);

    return (type & 0xffff0000) == IPOIB_POOL_TAG_NS ? type & 0xffff : 0;
}

/* Zero-copy pools only: buffer 'id' becomes a packet of 'len' bytes from
 * IPOIB_POOL_FRAME_OFS on; 'fresh' is the pool's, or that of the pool that has
 * grown by it, which is the same. */
static inline ALWAYS_INLINE struct dp_packet *
ipoib_pool_wrap(uint64_t id, size_t len, const struct ipoib_pkt_fresh *fresh)
{
    struct dp_packet *packet = ipoib_pool_packet(id);

    ipoib_pkt_renew(packet, fresh);
    dp_packet_set_size(packet, len);
    return packet;
}

/* For kinds. */

/* Sets the geometry of 'pool': the buffer of a frame begins at 'data_ofs'.  A
 * kind that has left room for colours sets 'colour_mask' as well. */
void ipoib_pool_set_stride(struct ipoib_pool *, size_t stride,
                           size_t data_ofs);
/* Maps zeroed memory of 'n_frames' frames at 'base', 'frames', aligned to
 * 'align'. */
int ipoib_pool_map(struct ipoib_pool *, size_t align, int numa_id);
void ipoib_pool_unmap(struct ipoib_pool *);
/* Puts all of 'n' buffers into the store. */
void ipoib_pool_fill(struct ipoib_pool *);

/* A store under a lock. */
void ipoib_pool_store_init(struct ipoib_pool *);
void ipoib_pool_store_uninit(struct ipoib_pool *);
size_t ipoib_pool_store_get(struct ipoib_pool *, uint64_t ids[], size_t n);
void ipoib_pool_store_put(struct ipoib_pool *, const uint64_t ids[],
                          size_t n);
size_t ipoib_pool_store_count(struct ipoib_pool *);

#endif /* ipoib-pool-private.h */
