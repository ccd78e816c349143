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
#include "ipoib-slots.h"

#include <string.h>

#include "bitmap.h"
#include "ipoib-pages.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "util.h"

/* The slow parts of some slots, and which of them are in use. */
struct chunk {
    unsigned long used[BITMAP_N_LONGS(IPOIB_SLOTS_CHUNK)];
    uint64_t slow[];
};

/* Of 'lines': a line for each slot and the one before. */
#define LINES_SIZE (IPOIB_SLOTS_MAX * (size_t) CACHE_LINE_SIZE \
                    + IPOIB_PAGES_HUGE)

/* A stack of slot numbers. */
struct stack {
    uint32_t *slots;
    size_t n, allocated;
};

/* Freed slots go from 'retired' to 'waiting', one lot at a time, and an RCU
 * callback, which runs in another thread, brings these to 'ripe'. */
struct ipoib_slots {
    char *lines;                /* LINES_SIZE bytes of addresses. */
    size_t lines_used;          /* Of which so many have memory. */
    struct chunk **chunks;
    size_t n_chunks, allocated_chunks;
    size_t slow_size;
    uint32_t end;               /* Slots from here on were never used. */
    struct stack retired;       /* Freed since the last lot. */
    struct stack spare;         /* To be used again. */
    size_t n_away;              /* In 'waiting' and 'ripe'. */

    struct ovs_mutex mutex;
    struct stack waiting OVS_GUARDED;
    struct stack ripe OVS_GUARDED;
    bool is_waiting OVS_GUARDED; /* A callback is to come. */
    bool destroyed OVS_GUARDED; /* The callback frees all. */
};

static void
stack_push(struct stack *s, uint32_t slot)
{
    if (s->n == s->allocated) {
        s->slots = x2nrealloc(s->slots, &s->allocated, sizeof *s->slots);
    }
    s->slots[s->n++] = slot;
}

/* Moves all of 'src' to 'dst', which is empty. */
static void
stack_take(struct stack *dst, struct stack *src)
{
    free(dst->slots);
    *dst = *src;
    memset(src, 0, sizeof *src);
}

struct ipoib_slots *
ipoib_slots_create(size_t slow_size)
{
    struct ipoib_slots *s = xzalloc(sizeof *s);

    s->slow_size = ROUND_UP(slow_size, 8);
    s->lines = ipoib_pages_reserve(LINES_SIZE);
    s->lines_used = ipoib_pages_extend(s->lines, 0);
    ovs_mutex_init(&s->mutex);
    return s;
}

static void
slots_free__(struct ipoib_slots *s)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    free(s->retired.slots);
    free(s->spare.slots);
    free(s->waiting.slots);
    free(s->ripe.slots);
    ovs_mutex_destroy(&s->mutex);
    free(s);
}

void
ipoib_slots_destroy(struct ipoib_slots *s)
{
    if (!s) {
        return;
    }
    ipoib_pages_free(s->lines, LINES_SIZE);
    for (size_t i = 0; i < s->n_chunks; i++) {
        free(s->chunks[i]);
    }
    free(s->chunks);

    ovs_mutex_lock(&s->mutex);
    bool is_waiting = s->is_waiting;
    s->destroyed = true;
    ovs_mutex_unlock(&s->mutex);
    if (!is_waiting) {
        slots_free__(s);
    }
}

/* A grace period after the slots in 'waiting' were freed. */
static void
ripen(struct ipoib_slots *s)
{
    ovs_mutex_lock(&s->mutex);
    for (size_t i = 0; i < s->waiting.n; i++) {
        stack_push(&s->ripe, s->waiting.slots[i]);
    }
    s->waiting.n = 0;
    s->is_waiting = false;
    bool destroyed = s->destroyed;
    ovs_mutex_unlock(&s->mutex);

    if (destroyed) {
        slots_free__(s);
    }
}

/* Lets retired slots wait for a grace period, if none is waited for. */
static void
post_retired(struct ipoib_slots *s)
{
    if (!s->retired.n) {
        return;
    }

    ovs_mutex_lock(&s->mutex);
    bool post = !s->is_waiting;
    if (post) {
        s->n_away += s->retired.n;
        stack_take(&s->waiting, &s->retired);
        s->is_waiting = true;
    }
    ovs_mutex_unlock(&s->mutex);
    if (post) {
        ovsrcu_postpone(ripen, s);
    }
}

static size_t
chunk_size(const struct ipoib_slots *s)
{
    return sizeof(struct chunk) + IPOIB_SLOTS_CHUNK * s->slow_size;
}

static void
add_chunk(struct ipoib_slots *s)
{
    struct chunk *chunk = xmalloc(chunk_size(s));

    /* The rest is not touched, so that pages come as they are used. */
    memset(chunk->used, 0, sizeof chunk->used);
    if (s->n_chunks == s->allocated_chunks) {
        s->chunks = x2nrealloc(s->chunks, &s->allocated_chunks,
                               sizeof *s->chunks);
    }
    s->chunks[s->n_chunks++] = chunk;
}

static unsigned long *
used_of(const struct ipoib_slots *s, uint32_t slot)
{
    return s->chunks[slot / IPOIB_SLOTS_CHUNK]->used;
}

/* Returns a free slot, not marked as used. */
static uint32_t
find_free(struct ipoib_slots *s)
{
    if (!s->spare.n && s->n_away) {
        ovs_mutex_lock(&s->mutex);
        if (s->ripe.n) {
            s->n_away -= s->ripe.n;
            stack_take(&s->spare, &s->ripe);
        }
        ovs_mutex_unlock(&s->mutex);
    }
    if (s->spare.n) {
        return s->spare.slots[--s->spare.n];
    }
    if (s->end >= IPOIB_SLOTS_MAX) {
        return IPOIB_SLOT_NONE;
    }
    if (s->end % IPOIB_SLOTS_CHUNK == 0) {
        add_chunk(s);
    }
    if ((s->end + 2) * (size_t) CACHE_LINE_SIZE > s->lines_used) {
        s->lines_used = ipoib_pages_extend(s->lines, s->lines_used);
    }
    return s->end++;
}

uint32_t
ipoib_slots_alloc(struct ipoib_slots *s)
{
    post_retired(s);

    uint32_t slot = find_free(s);
    if (slot != IPOIB_SLOT_NONE) {
        bitmap_set1(used_of(s, slot), slot % IPOIB_SLOTS_CHUNK);
        memset(ipoib_slots_fast(s, slot), 0, CACHE_LINE_SIZE);
        memset(ipoib_slots_get(s, slot), 0, s->slow_size);
    }
    return slot;
}

void
ipoib_slots_free(struct ipoib_slots *s, uint32_t slot)
{
    ovs_assert(ipoib_slots_get(s, slot));
    bitmap_set0(used_of(s, slot), slot % IPOIB_SLOTS_CHUNK);
    stack_push(&s->retired, slot);
    post_retired(s);
}

void *
ipoib_slots_get(const struct ipoib_slots *s, uint32_t slot)
{
    uint32_t idx = slot % IPOIB_SLOTS_CHUNK;

    return (slot < s->end && bitmap_is_set(used_of(s, slot), idx)
            ? (char *) s->chunks[slot / IPOIB_SLOTS_CHUNK]->slow
              + idx * s->slow_size
            : NULL);
}

uint32_t
ipoib_slots_end(const struct ipoib_slots *s)
{
    return s->end;
}

char *
ipoib_slots_lines(const struct ipoib_slots *s)
{
    return s->lines;
}

void *
ipoib_slots_fast(const struct ipoib_slots *s, uint32_t slot)
{
    return s->lines + (slot + (size_t) 1) * CACHE_LINE_SIZE;
}

void
ipoib_slots_memory(const struct ipoib_slots *s, size_t *fast, size_t *slow)
{
    size_t lines = ROUND_UP((s->end + (size_t) 1) * CACHE_LINE_SIZE,
                            get_page_size());

    /* The system gives small pages, as those of chunks, when they are
     * touched. */
    *fast = s->lines_used <= IPOIB_PAGES_HUGE ? lines : s->lines_used;
    *slow = sizeof *s + s->n_chunks * sizeof(struct chunk)
            + s->end * s->slow_size
            + s->allocated_chunks * sizeof *s->chunks
            + (s->retired.allocated + s->spare.allocated) * sizeof(uint32_t);
}
