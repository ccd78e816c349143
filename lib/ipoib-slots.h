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

#ifndef IPOIB_SLOTS_H
#define IPOIB_SLOTS_H 1

/* Slots: numbered places for objects that the data path reads.
 *
 * A slot has two parts: the "fast" one, a cache line that readers see, and the
 * "slow" one, of any size, for the writer.  Neither ever moves, so that slots
 * can be added while they are read.  A slot that is freed is used again only
 * after an RCU grace period: until then, readers that found it find in it what
 * was there.
 *
 * Addresses are reserved for all; memory is taken as slots are used.
 *
 * Thread-safety: one writer at a time; ipoib_slots_fast() also for RCU readers
 * that were given the slot's number by the writer through something that
 * orders memory (e.g. ipoib_table). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ipoib-table.h"
#include "util.h"

#define IPOIB_SLOTS_CHUNK 1024
#define IPOIB_SLOTS_MAX (1u << 22)

struct ipoib_slots;

struct ipoib_slots *ipoib_slots_create(size_t slow_size);
/* No reader may be left. */
void ipoib_slots_destroy(struct ipoib_slots *);

/* Returns a slot whose parts are all zeros, or IPOIB_SLOT_NONE if
 * IPOIB_SLOTS_MAX slots are in use or wait for a grace period. */
uint32_t ipoib_slots_alloc(struct ipoib_slots *);
void ipoib_slots_free(struct ipoib_slots *, uint32_t slot);

/* Writer: the slow part, or NULL if 'slot' is not in use (any number will
 * do). */
void *ipoib_slots_get(const struct ipoib_slots *, uint32_t slot);
/* Writer: all slots in use are below this one. */
uint32_t ipoib_slots_end(const struct ipoib_slots *);

/* Writer: bytes of memory, of the fast parts and of all else. */
void ipoib_slots_memory(const struct ipoib_slots *, size_t *fast,
                        size_t *slow);

/* Reader: the fast part. */
void *ipoib_slots_fast(const struct ipoib_slots *, uint32_t slot);

/* Reader: the fast parts of all slots, which are one array.  Before them is a
 * line of zeros, which is no slot's: so the fast part of slot s begins at
 * CACHE_LINE_SIZE * (s + 1).  This does not change. */
char *ipoib_slots_lines(const struct ipoib_slots *);

#endif /* ipoib-slots.h */
