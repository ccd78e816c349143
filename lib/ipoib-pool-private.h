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
#include "ipoib-pool.h"
#include "openvswitch/thread.h"
#include "ovs-atomic.h"

#define IPOIB_GRH_SPACE 40

/* A buffer lies in a frame; frames are 'stride' bytes apart, a multiple of
 * CACHE_LINE_SIZE:
 *
 *     frame + 'data_ofs' (+ colour)
 *     |                    |
 *     |  ..., headroom     | GRH space, IPoIB header, ... | tailroom
 *
 * Where the stride is a power of 2, the colour, between 0 and
 * IPOIB_POOL_COLOURS - 1 cache lines, spreads the headers over the sets of the
 * cache.  The id of a buffer is the address of its GRH space.
 *
 * A zero-copy pool has a struct dp_packet for each buffer, in an array of its
 * own or in the frames, but never in a cache line to which the HCA writes. */
#define IPOIB_POOL_COLOURS 16
#define CACHE_LINE_SHIFT 6
BUILD_ASSERT_DECL(CACHE_LINE_SIZE == 1 << CACHE_LINE_SHIFT);

/* Division by the stride is a multiplication, exact below IPOIB_POOL_MAX. */
#define IPOIB_POOL_DIV_SHIFT 40
#define IPOIB_POOL_MAX (UINT64_C(1) << 34)

/* A kind of memory.  get() and put() move frames from and to the store that
 * all threads share; see ipoib_magazine_get() for what spares them that. */
struct ipoib_pool_ops {
    const char *name;
    bool zero_copy;
    /* Sets what is "set by init()" below, and puts 'n' frames into the store.
     * uninit() is called even if that failed. */
    int (*init)(struct ipoib_pool *, int numa_id);
    void (*uninit)(struct ipoib_pool *);
    size_t (*get)(struct ipoib_pool *, void *frames[], size_t n);
    void (*put)(struct ipoib_pool *, void *frames[], size_t n);
    size_t (*count)(struct ipoib_pool *);
};

extern const struct ipoib_pool_ops ipoib_pool_copy_ops;
#ifdef HAVE_AF_XDP
extern const struct ipoib_pool_ops ipoib_pool_afxdp_ops;
#endif

struct ipoib_pool {
    /* Data path. */
    const struct ipoib_pool_ops *ops;
    uintptr_t frames;           /* The first one; set by init(). */
    uint64_t reciprocal;
    uint32_t stride;
    uint32_t data_ofs;
    uint32_t colour_mask;
    uint32_t size;              /* 40 + MTU. */
    uint8_t *tags;              /* Of each buffer: its receive queue, or 0. */
    uint8_t *headers;           /* Zero-copy: the first struct dp_packet, */
    size_t header_stride;       /* and from one to the next; set by init(). */
    int slot;                   /* Of the magazines; negative: none. */

    /* The store of frames, where the kind has none of its own. */
    struct ovs_spin lock;
    void **free;
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

/* The id of the buffer in 'frame', whose index is 'index'. */
static inline uint64_t
ipoib_pool_id(const struct ipoib_pool *pool, const void *frame, size_t index)
{
    size_t colour = (index & pool->colour_mask) << CACHE_LINE_SHIFT;

    return (uintptr_t) frame + colour + pool->data_ofs;
}

static inline uint64_t
ipoib_pool_frame_to_id(const struct ipoib_pool *pool, const void *frame)
{
    return ipoib_pool_id(pool, frame,
                         ipoib_pool_index(pool, (uintptr_t) frame));
}

/* Zero-copy pools only: the packet's place, to be prefetched. */
static inline void *
ipoib_pool_header(const struct ipoib_pool *pool, size_t index)
{
    return pool->headers + index * pool->header_stride;
}

/* Zero-copy pools only: the buffer of 'header', whose tag is 0, becomes a
 * packet.  'data' points into it.  What the packet's last use left behind is
 * made good; base, size of memory and source never change. */
static inline struct dp_packet *
ipoib_pool_wrap(void *header, void *data, size_t len)
{
    struct dp_packet *packet = header;

    ipoib_pkt_reset(packet);
    dp_packet_set_data(packet, data);
    dp_packet_set_size(packet, len);
    return packet;
}

/* For kinds. */

/* Sets the geometry of 'pool': the buffer of a frame begins at 'data_ofs'. */
void ipoib_pool_set_stride(struct ipoib_pool *, size_t stride,
                           size_t data_ofs);
/* Maps zeroed memory of 'n_frames' frames at 'base', 'frames', aligned to
 * 'align'. */
int ipoib_pool_map(struct ipoib_pool *, size_t align, int numa_id);
void ipoib_pool_unmap(struct ipoib_pool *);
/* Puts all of 'n' frames into the store. */
void ipoib_pool_fill(struct ipoib_pool *);

/* A store of frames under a lock. */
void ipoib_pool_store_init(struct ipoib_pool *);
void ipoib_pool_store_uninit(struct ipoib_pool *);
size_t ipoib_pool_store_get(struct ipoib_pool *, void *frames[], size_t n);
void ipoib_pool_store_put(struct ipoib_pool *, void *frames[], size_t n);
size_t ipoib_pool_store_count(struct ipoib_pool *);

#endif /* ipoib-pool-private.h */
