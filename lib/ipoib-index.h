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

#ifndef IPOIB_INDEX_H
#define IPOIB_INDEX_H 1

/* An index of slots, for the data path: the smallest map from keys to slots.
 *
 * It does not store keys, but a hash of each, of 32 bits.  What is found may
 * be wrong (one in thousands of millions is), so whoever looks up compares the
 * key with what is in the slot, which is to be read next anyhow: a cache line
 * of ipoib-slots.
 *
 * Thread-safety: one writer at a time; any number of readers, which must be
 * RCU readers, take no lock, and may be in the middle of a look-up while the
 * writer inserts, removes or grows the index.  A reader finds an entry that is
 * there all the time, and may find slots that never were under that key.  (All
 * are slots that the writer has inserted, of which none is used for something
 * else before a grace period.) */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ipoib_index;

/* For 'n' entries at first. */
struct ipoib_index *ipoib_index_create(size_t n);
void ipoib_index_destroy(struct ipoib_index *);

/* Writer.  The same pair must not be inserted twice. */
void ipoib_index_insert(struct ipoib_index *, uint64_t key, uint32_t slot);
/* The pair must be there. */
void ipoib_index_remove(struct ipoib_index *, uint64_t key, uint32_t slot);
/* Says that 'key' will be looked up or inserted soon. */
void ipoib_index_prefetch(const struct ipoib_index *, uint64_t key);
size_t ipoib_index_count(const struct ipoib_index *);
size_t ipoib_index_memory(const struct ipoib_index *); /* Bytes. */

/* Readers and writer: for each slot that may be that of 'key'.
 *
 *     struct ipoib_index_cursor cursor = ipoib_index_find(index, key);
 *     while (ipoib_index_next(&cursor)) {
 *         if (slot 'cursor.slot' has the key) {
 *             ...
 *
 * The data path has loops of its own for many keys at a time: see
 * ipoib-index-private.h. */
struct ipoib_index_cursor {
    uint32_t slot;

    /* Private. */
    const struct ipoib_index_impl *impl;
    uint32_t hash;
    uint32_t bucket;
    uint32_t n_buckets;         /* To be tried, this one and further ones. */
    unsigned int mask;          /* The same of this bucket's entries. */
};
struct ipoib_index_cursor ipoib_index_find(const struct ipoib_index *,
                                           uint64_t key);
bool ipoib_index_next(struct ipoib_index_cursor *);

/* The same at once, where the key is a uint64_t at offset 'ofs' of the slot's
 * line in 'lines', those of ipoib_slots_lines(): returns the slot, or
 * IPOIB_SLOT_NONE. */
uint32_t ipoib_index_search(const struct ipoib_index *, uint64_t key,
                            const char *lines, size_t ofs);

#endif /* ipoib-index.h */
