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

/* The inside of a pool, for ipoib-pool.c and for what is inline in the receive
 * path. */

#include "dp-packet.h"
#include "ipoib-compat.h"
#include "ipoib-pool.h"
#ifdef HAVE_AF_XDP
#include "netdev-afxdp-pool.h"
#endif
#include "openvswitch/thread.h"
#include "ovs-atomic.h"

/* A buffer lies in a frame of 1 << 'shift' bytes, 4096 or more, aligned to
 * them:
 *
 *     frame       + colour         + IPOIB_POOL_HEADROOM
 *     |  (unused) |  headroom      | GRH space, IPoIB header, ... | tailroom
 *
 * The colour is between 0 and IPOIB_POOL_COLOURS - 1 cache lines, and spreads
 * the headers over the sets of the cache.  The id of a buffer is the address
 * of its GRH space.
 *
 * The headers (struct dp_packet) are apart from the frames, so that the HCA
 * does not write next to them. */
#define IPOIB_POOL_COLOURS 16
#define CACHE_LINE_SHIFT 6
BUILD_ASSERT_DECL(CACHE_LINE_SIZE == 1 << CACHE_LINE_SHIFT);

#ifdef HAVE_AF_XDP
#define IPOIB_POOL_HEADER_SIZE ROUND_UP(sizeof(struct dp_packet_afxdp), \
                                        CACHE_LINE_SIZE)
#else
#define IPOIB_POOL_HEADER_SIZE 0
#endif

struct ipoib_pool_ops {
    const char *name;
    bool zero_copy;
    int (*init)(struct ipoib_pool *);
    void (*uninit)(struct ipoib_pool *);
    /* Frames; get() returns how many it has taken. */
    size_t (*get)(struct ipoib_pool *, void *frames[], size_t n);
    void (*put)(struct ipoib_pool *, void *frames[], size_t n);
    size_t (*count)(struct ipoib_pool *);
};

struct ipoib_pool {
    /* Data path. */
    const struct ipoib_pool_ops *ops;
    uintptr_t frames;           /* Start of the frames. */
    unsigned int shift;
    uint32_t size;              /* 40 + MTU. */
    uint8_t *tags;              /* Of each buffer: its receive queue, or 0. */
    uint8_t *headers;           /* Zero-copy: IPOIB_POOL_HEADER_SIZE each. */

    /* Free frames. */
#ifdef HAVE_AF_XDP
    struct umem_pool umem;      /* Zero-copy. */
#endif
    struct ovs_spin lock;       /* Else. */
    void **free;
    size_t n_free;

    size_t n;
    bool tag_used[UINT8_MAX];   /* Index 0 stays false. */
    const struct ipoib_verbs *verbs;
    struct ibv_pd *pd;
    struct ibv_mr *mr;          /* NULL once detached. */
    atomic_uint32_t lkey;       /* 0 once detached. */
    size_t memory;              /* Bytes at 'frames'. */
};

static inline size_t
ipoib_pool_index(const struct ipoib_pool *pool, uint64_t id)
{
    return (id - pool->frames) >> pool->shift;
}

/* The id of the buffer in 'frame', whose index is 'index'. */
static inline uint64_t
ipoib_pool_id(const void *frame, size_t index)
{
    size_t colour = (index & (IPOIB_POOL_COLOURS - 1)) << CACHE_LINE_SHIFT;

    return (uintptr_t) frame + colour + IPOIB_POOL_HEADROOM;
}

static inline uint64_t
ipoib_pool_frame_to_id(const struct ipoib_pool *pool, const void *frame)
{
    return ipoib_pool_id(frame, ipoib_pool_index(pool, (uintptr_t) frame));
}

/* Zero-copy pools only: the packet's place, to be prefetched. */
static inline void *
ipoib_pool_header(const struct ipoib_pool *pool, size_t index)
{
    return pool->headers + index * IPOIB_POOL_HEADER_SIZE;
}

/* Zero-copy pools only: the buffer of 'header', whose tag is 0, becomes a
 * packet.  'data' points into it.  What the packet's last use left behind is
 * made good; base, size of memory and source never change. */
static inline struct dp_packet *
ipoib_pool_wrap(void *header, void *data, size_t len)
{
#ifdef HAVE_AF_XDP
    struct dp_packet_afxdp *xpacket = header;

    ipoib_pkt_reset(&xpacket->packet);
    dp_packet_set_data(&xpacket->packet, data);
    dp_packet_set_size(&xpacket->packet, len);
    return &xpacket->packet;
#else
    OVS_NOT_REACHED();
#endif
}

#endif /* ipoib-pool-private.h */
