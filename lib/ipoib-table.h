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

#ifndef IPOIB_TABLE_H
#define IPOIB_TABLE_H 1

/* A map from 64-bit keys to 32-bit slot numbers, for the data path.
 *
 * Neighbours, hosts, their addresses and groups live in arrays of slots; what
 * differs is the key under which a slot is found.  This map has the keys in
 * it: buckets of one cache line hold five keys and slots, looked up in batches
 * with prefetch.  Where the key is in what the slot has for readers as well,
 * ipoib-index takes half the memory.
 *
 * Thread-safety: one writer at a time; any number of readers, which take no
 * lock and may be in the middle of a look-up while the writer inserts,
 * removes or grows the map (a reader sees an entry or does not; it never sees
 * a slot that was never inserted under that key).  A reader never waits for a
 * writer that does not run.  Memory that readers may see is freed by
 * ovsrcu_postpone(), so that readers must be RCU readers. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct in6_addr;

#define IPOIB_SLOT_NONE UINT32_MAX

struct ipoib_table;

/* A map that is made for 'n' entries and grows by itself. */
struct ipoib_table *ipoib_table_create(size_t n);
void ipoib_table_destroy(struct ipoib_table *);

/* Writer.  'key' must not be 0.  A key is in the map at most once: insert
 * replaces.  remove() returns the slot, or IPOIB_SLOT_NONE. */
void ipoib_table_insert(struct ipoib_table *, uint64_t key, uint32_t slot);
uint32_t ipoib_table_remove(struct ipoib_table *, uint64_t key);
/* Inserts 'key' if it is not there.  Returns what is there then. */
uint32_t ipoib_table_insert_new(struct ipoib_table *, uint64_t key,
                                uint32_t slot);
/* Says that 'key' will be looked up or inserted soon. */
void ipoib_table_prefetch(const struct ipoib_table *, uint64_t key);
size_t ipoib_table_count(const struct ipoib_table *);
size_t ipoib_table_memory(const struct ipoib_table *); /* Bytes. */

/* Readers.  A key of 0 is never found. */
uint32_t ipoib_table_lookup(const struct ipoib_table *, uint64_t key);
/* Looks up 'n' keys (any number) into 'slots'. */
void ipoib_table_lookup_batch(const struct ipoib_table *,
                              const uint64_t keys[], size_t n,
                              uint32_t slots[]);

/* Keys of IP addresses (IPv4 ones are v4-mapped).  An IPv4 address is its own
 * key; IPv6 addresses are hashed with 'basis', which should be random: two may
 * have the same key.  Bits 62 and 63 tell the two kinds from each other. */
uint64_t ipoib_table_key_ip(const struct in6_addr *, uint64_t basis);

/* Key of 128 bits, hashed with 'basis'; not 0. */
uint64_t ipoib_table_key_128(uint64_t high, uint64_t low, uint64_t basis);

#endif /* ipoib-table.h */
