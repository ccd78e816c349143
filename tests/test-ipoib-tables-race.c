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

/* A test of ipoib-table and of ipoib-index: the entry that a reader is looking
 * at is given to another key meanwhile.  That is seldom by itself, and often
 * in tables of our own, in which the reader gives way at that point. */

#include <config.h>
#undef NDEBUG

#include <sched.h>

#define IPOIB_TABLE_PAUSE() sched_yield()
#define ipoib_table_count race_table_count
#define ipoib_table_create race_table_create
#define ipoib_table_destroy race_table_destroy
#define ipoib_table_insert race_table_insert
#define ipoib_table_insert_new race_table_insert_new
#define ipoib_table_key_128 race_table_key_128
#define ipoib_table_key_ip race_table_key_ip
#define ipoib_table_lookup race_table_lookup
#define ipoib_table_lookup_batch race_table_lookup_batch
#define ipoib_table_memory race_table_memory
#define ipoib_table_prefetch race_table_prefetch
#define ipoib_table_remove race_table_remove
#define ipoib_table_search_all race_table_search_all
#define ipoib_table_search_next race_table_search_next
#include "ipoib-table.c"

/* Of the same names in both. */
#define next_of index_next_of
#define impl_create index_impl_create
#define impl_destroy index_impl_destroy
#define impl_get_protected index_impl_get_protected
#define impl_insert index_impl_insert
#define grow index_grow
#define IPOIB_INDEX_PAUSE() sched_yield()
#define ipoib_index_count race_index_count
#define ipoib_index_create race_index_create
#define ipoib_index_destroy race_index_destroy
#define ipoib_index_find race_index_find
#define ipoib_index_insert race_index_insert
#define ipoib_index_memory race_index_memory
#define ipoib_index_next race_index_next
#define ipoib_index_prefetch race_index_prefetch
#define ipoib_index_remove race_index_remove
#define ipoib_index_search race_index_search
#include "ipoib-index.c"

#include "ovs-thread.h"
#include "ovstest.h"
#include "timeval.h"

/* A reader has done enough after so many look-ups, or so many ms: giving way
 * is slow on a busy machine. */
enum { N_READERS = 2, N_KEYS = 40, N_LOOKUPS = 20000, MAX_MS = 2000 };

static struct ipoib_table *table;
static atomic_count n_running;

/* The upper half of a slot says which key it belongs to; a key that is a
 * multiple of 4 is always there. */
static void *
reader_thread(void *aux OVS_UNUSED)
{
    long long int deadline = time_msec() + MAX_MS;

    for (int i = 0; i < N_LOOKUPS && time_msec() < deadline; i++) {
        uint64_t keys[4];
        uint32_t slots[4];

        for (size_t j = 0; j < ARRAY_SIZE(keys); j++) {
            keys[j] = 1 + random_range(N_KEYS);
        }
        if (i % 2) {
            ipoib_table_lookup_batch(table, keys, ARRAY_SIZE(keys), slots);
        } else {
            for (size_t j = 0; j < ARRAY_SIZE(keys); j++) {
                slots[j] = ipoib_table_lookup(table, keys[j]);
            }
        }
        for (size_t j = 0; j < ARRAY_SIZE(keys); j++) {
            ovs_assert(slots[j] == IPOIB_SLOT_NONE
                       ? keys[j] % 4 : slots[j] >> 16 == keys[j]);
        }
        if (i % 64 == 0) {
            ovsrcu_quiesce();
        }
    }
    atomic_count_dec(&n_running);
    return NULL;
}

static void
table_race(void)
{
    pthread_t threads[N_READERS];

    table = ipoib_table_create(N_KEYS);
    for (uint64_t key = 1; key <= N_KEYS; key++) {
        ipoib_table_insert(table, key, key << 16);
    }
    atomic_count_init(&n_running, N_READERS);
    for (int i = 0; i < N_READERS; i++) {
        threads[i] = ovs_thread_create("reader", reader_thread, NULL);
    }

    for (uint32_t i = 0; atomic_count_get(&n_running); i++) {
        uint64_t key = 1 + random_range(N_KEYS);

        if (key % 4 == 0 || random_range(2)) {
            ipoib_table_insert(table, key, key << 16 | (i & UINT16_MAX));
        } else {
            ipoib_table_remove(table, key);
        }
        if (i % 64 == 0) {
            ovsrcu_quiesce();
        }
    }
    for (int i = 0; i < N_READERS; i++) {
        xpthread_join(threads[i], NULL);
    }
    ovs_assert(ipoib_table_count(table) <= N_KEYS);
    ovs_assert(ipoib_table_memory(table) > 0);
    ipoib_table_destroy(table);
    ovsrcu_barrier();
}

/* The index.  A slot is a key's for ever: slot / SLOTS_OF_KEY is the key.  A
 * key is in the index once, by one of its slots, or not at all; one that is a
 * multiple of 4 is always there, by the same one.  From time to time keys are
 * added for good, so that the index grows. */
enum { SLOTS_OF_KEY = 64, N_MORE = 3000 };

static struct ipoib_index *race_index;

/* The keys in the index are further from each other. */
static uint64_t
index_key(uint32_t key)
{
    return (key + 1) * UINT64_C(0x1000003);
}

/* As the data path does: a guess, and if it is wrong a search. */
static uint32_t
index_lookup(struct ipoib_index_bucket *home, uint32_t hash, uint32_t key)
{
    uint32_t line = ipoib_index_guess(home, hash);
    struct ipoib_index_cursor cursor;

    if (line && (line / CACHE_LINE_SIZE - 1) / SLOTS_OF_KEY == key) {
        return line / CACHE_LINE_SIZE - 1;
    }
    cursor = ipoib_index_find(race_index, index_key(key));
    while (ipoib_index_next(&cursor)) {
        if (cursor.slot / SLOTS_OF_KEY == key) {
            return cursor.slot;
        }
    }
    return IPOIB_SLOT_NONE;
}

static void *
index_reader_thread(void *aux OVS_UNUSED)
{
    long long int deadline = time_msec() + MAX_MS;

    for (int i = 0; i < N_LOOKUPS && time_msec() < deadline; i++) {
        struct ipoib_index_view view = ipoib_index_view(race_index);
        struct ipoib_index_bucket *homes[4];
        uint64_t hashes[4];
        uint32_t keys[4];

        for (size_t j = 0; j < ARRAY_SIZE(keys); j++) {
            keys[j] = random_range(N_KEYS);
            homes[j] = ipoib_index_home(&view, index_key(keys[j]), &hashes[j]);
        }
        for (size_t j = 0; j < ARRAY_SIZE(keys); j++) {
            uint32_t slot = index_lookup(homes[j], hashes[j], keys[j]);

            ovs_assert(slot != IPOIB_SLOT_NONE || keys[j] % 4);
        }
        if (i % 64 == 0) {
            ovsrcu_quiesce();
        }
    }
    atomic_count_dec(&n_running);
    return NULL;
}

/* Changes what is there of 'key', whose slot in the index is '*slot'. */
static void
index_change(uint32_t key, uint32_t *slot)
{
    if (*slot == IPOIB_SLOT_NONE) {
        *slot = key * SLOTS_OF_KEY + random_range(SLOTS_OF_KEY);
        ipoib_index_insert(race_index, index_key(key), *slot);
    } else if (key % 4) {
        ipoib_index_remove(race_index, index_key(key), *slot);
        *slot = IPOIB_SLOT_NONE;
    }
}

static void
index_race(void)
{
    uint32_t n_more = 0, n_there = 0, slots[N_KEYS];
    pthread_t threads[N_READERS];

    race_index = ipoib_index_create(0);
    for (uint32_t key = 0; key < N_KEYS; key++) {
        slots[key] = IPOIB_SLOT_NONE;
        index_change(key, &slots[key]);
    }
    atomic_count_init(&n_running, N_READERS);
    for (int i = 0; i < N_READERS; i++) {
        threads[i] = ovs_thread_create("reader", index_reader_thread, NULL);
    }
    for (uint32_t i = 0; atomic_count_get(&n_running); i++) {
        uint32_t key = random_range(N_KEYS);

        index_change(key, &slots[key]);
        if (i % 16 == 0 && n_more < N_MORE) {
            key = N_KEYS + n_more++;
            ipoib_index_insert(race_index, index_key(key), key * SLOTS_OF_KEY);
        }
        if (i % 64 == 0) {
            ovsrcu_quiesce();
        }
    }
    for (int i = 0; i < N_READERS; i++) {
        xpthread_join(threads[i], NULL);
    }
    for (uint32_t key = 0; key < N_KEYS; key++) {
        n_there += slots[key] != IPOIB_SLOT_NONE;
    }
    ovs_assert(ipoib_index_count(race_index) == n_there + n_more);
    ovs_assert(ipoib_index_memory(race_index) > 0);
    ipoib_index_prefetch(race_index, 1);
    ipoib_index_destroy(race_index);
    ovsrcu_barrier();
}

static void
test_ipoib_tables_race_main(int argc, char *argv[])
{
    const char *what = argc > 1 ? argv[1] : "";

    if (!strcmp(what, "table")) {
        table_race();
    } else if (!strcmp(what, "index")) {
        index_race();
    } else {
        ovs_fatal(0, "\"%s\": is neither table nor index", what);
    }
}

OVSTEST_REGISTER("test-ipoib-tables-race", test_ipoib_tables_race_main);
